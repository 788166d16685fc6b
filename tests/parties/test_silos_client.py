"""`syncret join` before it reaches a server: what it refuses, and that this makes and charges nothing."""

from base64 import b64encode
from pathlib import Path

import pytest

from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import load_config
from parties.foundation.errors import ConfigError
from parties.foundation.exit_codes import Status
from parties.identity.tls import make_certificates, pinned_key_in
from parties.local.children import free_ports
from tests.parties.small import write_small

SILOS = ("north", "south", "west")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The study and certificate of a silo whose server is not there, and which has charged nothing so far."""
    monkeypatch.setenv("SYNCRET_BUDGET", str(tmp_path / "budget.sqlite"))
    made = make_certificates(tmp_path / "tls", ["silos-server"], SILOS)
    config, _ = write_small(tmp_path)
    values = {
        "tda.components": 3,
        "silos.address": f"127.0.0.1:{free_ports(1)[0]}",
        "silos.clients": list(SILOS),
        "silos.key": pinned_key_in(made["silos-server"].cert).key,
        "clients.expected": 3,
        "timeouts.connect_s": 0.3,
    }
    config.write_text(load_config(config, values).resolved_toml())
    files = made["north"]
    tls = ["--ca", str(files.ca), "--cert", str(files.cert), "--key", str(files.key)]
    return [str(config), *tls]


@pytest.mark.parametrize(
    ("header", "row", "options", "status", "said"),
    [
        ("sex,ward,age", "f,q,3", (), Status.DATA, "mine.csv, line 2, column 'ward'"),
        ("sex,ward", "male,east", (), Status.DATA, "mine.csv: column 'age' of the domain is not"),
        ("sex,ward,age,name", "m,x,3,x", (), Status.DATA, "'name'"),
        (None, "", (), Status.DATA, "cannot be read"),
        ("sex,ward,age", "m,x,3", ("--epsilon", "9"), Status.USAGE, "run.epsilon"),
    ],
)
def test_silos_client_makes_and_charges_nothing_where_it_refuses(
    own: list[str],
    tmp_path: Path,
    header: str | None,
    row: str,
    options: tuple[str, ...],
    status: Status,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "mine.csv"
    if header is not None:
        table.write_text(f"{header}\n{row}\n")
    before = sorted(tmp_path.iterdir())
    assert run_command_line(cli, ["join", *own, "--data", str(table), *options]) == status
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_silos_client_leaves_columns_out_that_its_study_does_not_know(
    own: list[str], tmp_path: Path
) -> None:
    """It goes as far as the server, which is not there; that was charged."""
    table = tmp_path / "mine.csv"
    table.write_text("sex,ward,age,name\nm,x,3,x\n")
    given = ["join", *own, "--data", str(table), "--ignore-extra"]
    assert run_command_line(cli, given) == Status.NETWORK
    assert (tmp_path / "budget.sqlite").exists()


@pytest.mark.parametrize("beside", ["flaim", "party"])
def test_config_has_silos_or_servers_of_another_method(own: list[str], beside: str) -> None:
    party = {
        "name": "a",
        "mesh": "a:1",
        "ingest": "a:2",
        "key": 64 * "0",
        "seal": b64encode(bytes(1216)).decode(),
    }
    tables = {"flaim": {}, "party": [party]}
    with pytest.raises(ConfigError, match=f"silos: is there beside {beside}; expected one"):
        load_config(Path(own[0]), {beside: tables[beside]})


def test_plan_says_what_to_do_with_silos_and_a_bundle_needs_their_run(
    own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(cli, ["plan", own[0]]) == Status.CONFIG
    assert "in the report of syncret run with a table like the silos'" in capsys.readouterr().err
    out = tmp_path / "run.zip"
    given = ["bundle", str(tmp_path), "--config", own[0], "--out", str(out)]
    assert run_command_line(cli, given) == Status.STORAGE
    assert "expected the folder of a finished run" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("former", "status"),
    [
        ("submit", Status.CONFIG),
        ("flaim-client", Status.CONFIG),
        ("silos-client", Status.NETWORK),
    ],
)
def test_former_names_of_join_say_the_new_one_and_keep_to_their_method(
    own: list[str], tmp_path: Path, former: str, status: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server is not there."""
    table = tmp_path / "mine.csv"
    table.write_text("sex,ward,age\nm,x,3\n")
    assert run_command_line(cli, [former, *own, "--data", str(table)]) == status
    said = capsys.readouterr().err
    assert said.startswith(f"syncret {former} is called syncret join now\n")
    assert ("and the configuration is of silos" in said) == (status is Status.CONFIG)


def test_join_refuses_options_of_other_methods(
    own: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("sex,ward,age\nm,x,3\n")
    before = sorted(tmp_path.iterdir())
    for option in (["--status"], ["--withdraw"], ["--capacity", "9"]):
        given = ["join", *own, "--data", str(table), *option]
        assert run_command_line(cli, given) == Status.USAGE
        assert f"{option[0]} is for DistAIM; " in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
