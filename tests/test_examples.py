"""The configs under examples/ load, describe what they say, and fit the tables they are for; the program runs."""

import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mechanisms.domain import Categorical, Integer
from parties.cli.main import cli
from parties.config import Config, load_config
from parties.mpc.session import server_files
from tests.docs.guides import blocks_of, has_command
from tests.parties.hosts import SERVERS, three_hosts

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

# The first rows of the published table, with each kind of value that needs care.
ADULT_ROWS = """\
39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,United-States,<=50K
54,?,180211,Some-college,10,Married-civ-spouse,?,Husband,Asian-Pac-Islander,Male,0,0,60,South,>50K
90,Private,51744,HS-grad,9,Never-married,Other-service,Not-in-family,Black,Male,99999,4356,99,?,<=50K
17,Private,1490400,10th,6,Never-married,Other-service,Own-child,White,Female,0,0,1,Holand-Netherlands,<=50K
"""


def load(name: str) -> Config:
    return load_config(EXAMPLES / name)


@pytest.mark.parametrize(
    "path",
    sorted(path for path in EXAMPLES.rglob("*.toml") if path.name != "pyproject.toml"),
    ids=lambda path: path.relative_to(EXAMPLES).as_posix(),
)
def test_load_config_takes_every_example(path: Path) -> None:
    config = load_config(path)
    assert config.build_workload().queries
    assert load_config(path).digest() == config.digest()


def test_adult_has_the_parameters_of_the_benchmark() -> None:
    config = load("adult.toml")
    assert (config.run.epsilon, config.run.delta, config.run.rounds) == (1.0, 1e-5, 10)
    assert len(config.build_workload().queries) == 64
    assert {len(query) for query in config.build_workload().queries} == {3}
    assert (config.workload.seed, config.clients.expected) == (123, 100)


def test_adult_has_continuous_columns_in_32_bins_and_categories_as_they_are() -> None:
    domain = load("adult.toml").domain
    numeric = {column.name: column for column in domain.columns if isinstance(column, Integer)}
    assert set(numeric) == {
        "age",
        "fnlwgt",
        "education-num",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
    }
    assert {column.bins for column in numeric.values()} == {32}
    assert len(domain.columns) == 15
    sizes = {c.name: len(c.categories) for c in domain.columns if isinstance(c, Categorical)}
    assert sizes == {
        "workclass": 8,
        "education": 16,
        "marital-status": 7,
        "occupation": 14,
        "relationship": 6,
        "race": 5,
        "sex": 2,
        "native-country": 41,
        "income": 2,
    }


def test_adult_takes_the_values_of_published_rows() -> None:
    domain = load("adult.toml").domain
    assert domain.missing_values == ("?",)
    for line in ADULT_ROWS.splitlines():
        for column, value in zip(domain.columns, line.split(","), strict=True):
            assert column.missing if value == "?" else column.code_of(value) is not None


def test_three_hosts_study_and_cards_make_a_configuration_for_every_host(tmp_path: Path) -> None:
    study = EXAMPLES / "three-hosts" / "study.toml"
    assert load_config(study).parties == ()
    paths = three_hosts(tmp_path, study)
    for pid, name in enumerate(SERVERS):
        files = server_files(load_config(paths[name]), pid)
        assert files.key.resolve() == (tmp_path / name / "tls" / "own.key").resolve()


GUIDE = EXAMPLES / "three-hosts" / "README.md"
COMMANDS = [line for line in GUIDE.read_text().splitlines() if line.startswith("syncret ")]


@pytest.mark.parametrize("line", COMMANDS)
def test_three_hosts_guide_has_commands_that_there_are(line: str) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    command: click.Command = cli
    while has_command(command, arguments):
        assert isinstance(command, click.Group)
        name, found, arguments = command.resolve_command(click.Context(command), arguments)
        assert found is not None
        command = found
    assert command.make_context(str(name), arguments).params


def test_three_hosts_guide_names_the_whole_ceremony_and_deletes_nothing() -> None:
    text = GUIDE.read_text()
    for part in (
        *("serve init", "serve join", "serve", "certs authority", "study propose", "study invite"),
        *(
            "join",
            "study requests",
            "study admit",
            "study approve",
            "result",
            "study result",
            "audit",
        ),
    ):
        assert any(line.startswith(f"syncret {part} ") for line in (f"{c} " for c in COMMANDS))
    for word in ("openssl", "rm -", "delete"):
        assert word not in text


def test_three_hosts_guide_asks_nobody_for_ten_commands() -> None:
    """The coordinator's are the most: those of an operator, its own, and the bundle."""
    mine = [block for block in blocks_of(GUIDE) if "alpha" in block.places]
    typed = [
        line
        for block in mine
        if block.kind == "sh"
        for line in block.code.splitlines()
        # The console shows what the other commands say.
        if line.startswith("syncret ") and "console" not in line
    ]
    assert 5 < len(typed) < 10, typed


@pytest.mark.timeout(300)
def test_hospitals_add_up_their_histograms_over_tls_and_audit_the_server() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "hospitals.py"], capture_output=True, text=True, check=True
    )
    # Cell i of hospital u has i + 100 u patients.
    expected = [sum(i + 100 * u for u in range(6)) for i in range(8)]
    everybody = ", ".join(f"hospital-{u}" for u in range(6))
    *_, summed, audited = done.stdout.splitlines()
    assert summed == f"the sum over {everybody}: {expected}"
    assert audited.startswith("the server's transcript was audited: ")
    assert audited.endswith(" checks, all of them hold")
    assert done.stderr == ""
