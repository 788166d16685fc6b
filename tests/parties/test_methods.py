"""The registry of methods: one file of another package, and run, serve, join, audit and report are there for it."""

import json
from pathlib import Path

import pytest

from parties.cli.join import join as join_command
from parties.cli.run import run as run_command
from parties.config.algorithms import OWN_ALGORITHMS
from parties.foundation.exit_codes import Status
from parties.identity.tls import make_certificates, pinned_key_in
from parties.local.children import free_ports
from parties.methods.registry import (
    DISTAIM,
    method_named,
    method_of,
    section_of,
    served_method,
    served_methods,
)
from tests.parties import toy_mean
from tests.parties.commands import ROOT, Run
from tests.parties.small import write_small
from tests.parties.support import make_config

SERVER, SILOS = "silos-server", ("north", "south", "west")


def install(site: Path, code: str, **methods: str) -> None:
    """Leaves a package with entry points as pip does: ``methods`` by name, of a module with this code."""
    metadata = site / "toy_mean-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "toy_mean.py").write_text(code)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-mean\nVersion: 1.0\n")
    points = "".join(f"{name} = {value}\n" for name, value in methods.items())
    (metadata / "entry_points.txt").write_text(f"[syncret.methods]\n{points}")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, empty still, which processes see."""
    site = tmp_path / "site"
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}")
    monkeypatch.setenv("SYNCRET_BUDGET", str(tmp_path / "budget.sqlite"))
    monkeypatch.setenv("SYNCRET_REGISTER", str(tmp_path / "register.sqlite"))
    return site


@pytest.fixture
def installed(site: Path) -> Path:
    """The toy method as another package's."""
    install(site, Path(toy_mean.__file__).read_text(), mean="toy_mean:METHOD")
    return site


def study(folder: Path) -> tuple[Path, Path]:
    config, data = write_small(folder)
    text = config.read_text().replace("epsilon = 2.0", "epsilon = 8.0")
    config.write_text(f'{text}\n[mean]\ncolumn = "age"\nlow = 0.0\nhigh = 9.0\n')
    return config, data


def done(*arguments: str) -> str:
    run = Run(*arguments)
    status, output = run.end()
    assert status == 0, run.said
    return output


def test_a_method_of_one_file_is_run_and_audited(tmp_path: Path, installed: Path) -> None:
    config, data = study(tmp_path)
    out = tmp_path / "out"
    options = ("--method", "mean", "--data", str(data), "--clients", "4", "--out", str(out))
    report = json.loads(done("run", str(config), *options, "--json"))
    assert (report["method"], report["private"]) == ("mean", True)
    assert report["utility"]["error"] < 1.0
    assert json.loads((out / "mean.json").read_text())["mean"] == report["result"]["mean"]
    assert "epsilon = 8" in (out / "report.html").read_text()
    said = done("audit", str(out))
    assert toy_mean.METHOD.not_shown.rstrip(".") in " ".join(said.split())


def test_a_method_of_one_file_is_served_and_joined(tmp_path: Path, installed: Path) -> None:
    config, data = study(tmp_path)
    made = make_certificates(tmp_path / "tls", [SERVER], SILOS)
    server = made[SERVER]
    text = config.read_text()
    config.write_text(
        f"""{text}
[silos]
address = "127.0.0.1:{free_ports(1)[0]}"
key = "{pinned_key_in(server.cert).key}"
clients = {json.dumps(SILOS)}

[tls]
ca = "{server.ca}"
cert = "{server.cert}"
key = "{server.key}"
"""
    )
    lines = data.read_text().splitlines()
    register = tmp_path / "own-register.sqlite"
    place = ("--dir", str(tmp_path / "run"), "--register", str(register))
    # Its standard input has ended.
    stopped = Run("serve", "study", str(config), *place, "--watch-stdin")
    assert stopped.end()[0] == Status.TERMINATED, stopped.said
    serving = Run("serve", "study", str(config), *place)
    joined = []
    for number, name in enumerate(SILOS):
        table = tmp_path / name / "own.csv"
        table.parent.mkdir()
        table.write_text("\n".join([lines[0], *lines[1 + number :: 3]]) + "\n")
        files = made[name]
        own = ("--ca", str(files.ca), "--cert", str(files.cert), "--key", str(files.key))
        own += ("--budget", str(table.parent / "budget.sqlite"))
        joined.append(Run("join", str(config), "--data", str(table), *own))
    for run in (*joined, serving):
        status, _ = run.end()
        assert status == 0, run.said
    assert {"mean.json", "report.html", "result.json"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    assert done("audit", str(tmp_path / "run"))
    assert register.exists()
    assert not (tmp_path / "register.sqlite").exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('broken')", "cannot be loaded from toy_mean:METHOD: ValueError: broken"),
        ("raise SystemExit(0)", "cannot be loaded from toy_mean:METHOD: SystemExit: 0"),
        ("METHOD = 7", "is no method between silos"),
    ],
)
def test_faults_of_another_package_are_a_config_s_error(
    tmp_path: Path, site: Path, code: str, said: str
) -> None:
    install(site, code, mean="toy_mean:METHOD")
    config, data = study(tmp_path)
    run = Run("run", str(config), "--method", "mean", "--data", str(data), "--clients", "4")
    assert run.end()[0] == 3, run.said
    run.wait_for(said)


def test_another_package_takes_no_name_of_a_section_or_of_a_method(
    tmp_path: Path, site: Path
) -> None:
    names = ("run", "column", "silos", "flaim", "distaim", "tda", "Mean", "my.method")
    install(site, "raise SystemExit(9)", **dict.fromkeys(names, "toy_mean:METHOD"))
    config, _ = write_small(tmp_path)
    assert "rounds" in done("plan", str(config))


def test_what_is_not_installed_is_said(tmp_path: Path) -> None:
    config, data = study(tmp_path)
    run = Run("run", str(config), "--method", "mean", "--data", str(data))
    assert run.end()[0] == 2
    run.wait_for("there is no method 'mean'; expected one of distaim, aim, flaim, tda, mtl")


@pytest.mark.parametrize("name", OWN_ALGORITHMS)
def test_own_methods_have_what_the_registry_asks(name: str) -> None:
    method = method_named(name)
    assert method.name == name
    assert method.not_shown.startswith("It cannot show")


def test_methods_with_one_server_are_found_by_their_section() -> None:
    assert [method.key for method in served_methods()] == ["flaim", "silos"]
    assert all(served_method(method.key) is method for method in served_methods())
    sections = {name: section_of(name) for name in ("flaim", *OWN_ALGORITHMS)}
    assert sections == {"flaim": "flaim", **dict.fromkeys(OWN_ALGORITHMS, "silos")}
    # The name of a section is none of a method; DistAIM and central AIM have no server of their own.
    assert [section_of(name) for name in ("silos", "distaim", "aim", "mean")] == [None] * 4


def test_method_of_a_configuration_is_that_of_its_servers() -> None:
    section = {"clients": ["a", "b", "c"]}
    both = make_config({"clients.expected": 3, "flaim": section})
    assert [method_of(both, only) for only in (None, "distaim", "flaim")] == [
        DISTAIM,
        DISTAIM,
        "flaim",
    ]
    alone = {"party": None, "clients.expected": 3}
    assert method_of(make_config({**alone, "flaim": section})) == "flaim"
    assert method_of(make_config({**alone, "silos": section, "tda": {}})) == "silos"
    assert method_of(make_config({"party": None})) == DISTAIM


@pytest.mark.parametrize("key", ["flaim", "silos"])
def test_served_methods_have_options_that_the_commands_have(key: str) -> None:
    served = served_method(key)
    for names, command in (
        (served.join_options, join_command),
        (served.run_options, run_command),
    ):
        assert set(names) <= {parameter.name for parameter in command.params}
