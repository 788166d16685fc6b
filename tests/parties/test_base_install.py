"""A data owner's installation: what its commands do with the packages of the base alone, and what the others say."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from parties.config import CertificateFiles
from parties.foundation.exit_codes import Status, describe
from parties.foundation.process import SERVER_PACKAGES
from parties.mpc.estimation import make_estimator
from tests.parties.audit_runs import make_run
from tests.parties.hosts import three_hosts
from tests.parties.small import write_small

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEAVY = {"jax", "jaxlib", "mbi", "networkx", "scipy", "matplotlib", "pandas", "rich", "mpyc"}
FLAIM = """
import asyncio, numpy, sys
from mechanisms.domain import Categorical, Domain
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.workload import draw_workload
from parties.methods.flaim.client import flaim_participation
from parties.local.flaim_simulation import simulate
domain = Domain(tuple(Categorical(name, ("x", "y", "z")) for name in "abcd"))
rows = numpy.arange(400, dtype=numpy.int32).reshape(-1, 4) % 3
settings = FlaimSettings.preset(
    "private", rho=1.0, participation=1.0, rounds=1, local_rounds=2, iterations=5, final_iterations=5
)
asyncio.run(simulate([rows] * 4, draw_workload(domain, 2, None), settings, seed=1))
"""
SCRIPT = f"""
import json, sys
allowed = {{*json.loads(sys.argv[1]), *sys.stdlib_module_names}}
commands = json.loads(sys.argv[2])

class BaseOnly:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        # Python's own, whose name has the machine in it; zones of time ask it where their files are.
        own = top in allowed or top.startswith("_sysconfigdata")
        return self.finder.find_spec(name, path, target) if own else None

sys.meta_path = [BaseOnly(finder) for finder in sys.meta_path]
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
statuses = [run_command_line(cli, command) for command in commands]
{FLAIM}
import syncret
assert "[[column]]" in syncret.draft("stays.csv").text
assert syncret.audit(dict(command[:2] for command in commands if command[0] == "audit")["audit"]).passed
try:
    syncret.synthesize("stays.csv", "study/small.toml")
except syncret.ExtraMissing as error:
    print(error, file=sys.stderr)
print("statuses", json.dumps(statuses))
"""


def names_of(requirements: list[str], extra: str = "") -> list[str]:
    """The distributions that are required, here and with this extra."""
    found = [Requirement(line) for line in requirements]
    return [
        re.sub(r"[-_.]+", "-", r.name).lower()
        for r in found
        if r.marker is None or r.marker.evaluate({"extra": extra})
    ]


def base_modules() -> set[str]:
    """The modules of the base installation: ours, and those of everything that the dependencies bring."""
    closure, waiting = set[str](), names_of(PROJECT["dependencies"])
    while waiting:
        name = waiting.pop()
        if name not in closure:
            closure.add(name)
            waiting += names_of(requires(name) or [])
    found = {
        module
        for module, owners in packages_distributions().items()
        if any(re.sub(r"[-_.]+", "-", owner).lower() in closure for owner in owners)
    }
    return found | {"protocols", "secagg", "mechanisms", "parties", "syncret"}


def test_base_brings_none_of_the_heavy_packages() -> None:
    assert base_modules() & HEAVY == set()
    assert {"numpy", "aiohttp", "click", "parties"} <= base_modules()


def test_extra_server_is_what_is_asked_for() -> None:
    extras = PROJECT["optional-dependencies"]
    assert sorted(names_of(extras["server"])) == sorted(
        name.replace("_", "-") for name in SERVER_PACKAGES
    )


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """The owner north's folder, with the study's configuration and a table."""
    config, table = write_small(tmp_path)
    host = three_hosts(tmp_path, config)["north"].parent.parent
    (host / "stays.csv").write_bytes(table.read_bytes())
    return host


def test_owners_commands_work_on_the_base_and_others_say_what_to_install(
    study: Path, tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    run = make_run(tmp_path / "audited", certificates, estimator=make_estimator)
    expected = {
        ("--help",): Status.DONE,
        ("data", "draft", "stays.csv"): Status.DONE,
        ("certs", "fingerprint", "study/small.toml"): Status.DONE,
        ("certs", "request", "south"): Status.DONE,
        ("budget",): Status.DONE,
        ("plan", "study/small.toml"): Status.DONE,
        # No server is there; all before that is done.
        ("join", "study/small.toml", "--data", "stays.csv", "--check"): Status.NETWORK,
        ("audit", str(run)): Status.DONE,
        ("bundle", str(run), "--out", str(tmp_path / "run.zip")): Status.DONE,
        ("run", "study/small.toml", "--data", "stays.csv"): Status.EXTRA,
        ("serve", "study", "study/small.toml", "--pid", "0"): Status.EXTRA,
        ("demo",): Status.EXTRA,
    }
    arguments = [json.dumps(sorted(base_modules())), json.dumps([list(c) for c in expected])]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=study,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    statuses = [Status(value) for value in json.loads(last.removeprefix("statuses "))]
    assert dict(zip(expected, statuses, strict=True)) == expected, done.stderr
    assert (study / "south.request").exists()
    refused = [line for line in done.stderr.splitlines() if "pip install" in line]
    assert len(refused) == 4
    assert refused[0].startswith("syncret: error: syncret run needs ")
    assert refused[0].endswith("pip install 'syncret[server]'")


def test_describe_says_what_to_install_where_a_package_is_missed_later() -> None:
    failure = describe(ModuleNotFoundError("No module named 'mpyc'", name="mpyc"))
    assert failure.status == Status.EXTRA
    assert "pip install 'syncret[server]'" in failure.message
    assert describe(ModuleNotFoundError("no", name="json5")).status == Status.DEFECT


WITHOUT_BENCH = """
import sys

class NoBench:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "bench" else self.finder.find_spec(name, path, target)

sys.meta_path = [NoBench(finder) for finder in sys.meta_path]
from parties.cli.main import main
sys.argv = ["syncret", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], Status.DONE, "audit"),
        (["bench", "engine"], Status.USAGE, "in a checkout of the source alone"),
    ],
)
def test_an_installation_without_bench_does_not_list_it_and_says_where_it_is(
    arguments: list[str], status: Status, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_BENCH, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr
    assert "did you mean" not in done.stderr
    assert "Measure Syncret" not in done.stdout
