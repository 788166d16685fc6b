"""The maker of a bundle is held to the table that the run on one machine was made of."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import syncret
from mechanisms.source import TableSource
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import load_config
from parties.foundation.exit_codes import Status
from parties.local.recorded_tables import NO_RECORD, RECORD, record_tables
from parties.session.owner import Table
from parties.storage.user_paths import budget_path
from tests.parties.small import write_small
from tests.parties.test_audit_contents import read
from tests.parties.test_publication import COUNTS, FLAIM, Publisher


def table_of(path: Path) -> Table:
    return Table(TableSource(str(path)), True)


@pytest.fixture(params=[COUNTS, FLAIM, "tda"])
def publisher(request: pytest.FixtureRequest, tmp_path: Path) -> Publisher:
    """A run's folder, with the record of the table `own`."""
    made = Publisher(tmp_path, request.param)
    own = made.table("own")
    record_tables(made.run, load_config(made.run / "config.toml"), table_of(own))
    return made


def shuffled(path: Path) -> Path:
    head, *rows = path.read_text().splitlines()
    random.Random(1).shuffle(rows)
    return _written(path, "shuffled", [head, *rows])


def later(path: Path) -> Path:
    """The same people, and some more."""
    head, *rows = path.read_text().splitlines()
    return _written(path, "later", [head, *rows[50:], *(f"{i},{i},{i}" for i in range(60))])


def _written(path: Path, name: str, lines: list[str]) -> Path:
    found = path.with_name(f"{name}.csv")
    found.write_text("\n".join(lines) + "\n")
    return found


@pytest.mark.parametrize("change", [lambda path: path, shuffled, later])
def test_the_table_of_the_run_pays(
    change: Callable[[Path], Path], publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    given = change(publisher.folder / "own.csv")
    assert publisher.bundle("--data", str(given)) == Status.DONE
    assert list(publisher.charged) == [given.stem]
    assert NO_RECORD not in capsys.readouterr().err


def test_another_table_is_refused_and_charges_nobody(
    publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    others = publisher.table("others", shift=10**7)
    short = _written(others, "short", ["a,b,c", "1,2,3", "2,3,5"])
    for given, words in ((others, ()), (short, ()), (others, ("--new-population", "stays"))):
        assert publisher.bundle("--data", str(given), *words) == Status.CONFIG
        assert "is not the table that this run was made of" in capsys.readouterr().err
        assert publisher.charged == {}
        assert not publisher.out.exists()
    assert publisher.bundle("--new-population", "stays") == Status.DONE
    # Also where another population has paid already.
    assert publisher.bundle("--data", str(others)) == Status.CONFIG
    assert list(publisher.charged) == ["stays"]


def test_the_record_is_sealed_private_and_in_no_bundle(publisher: Publisher) -> None:
    record = publisher.run / RECORD
    assert os.stat(record).st_mode & 0o77 == 0
    (sealed,) = json.loads(record.read_text())["tables"]
    assert publisher.bundle("--data", str(publisher.folder / "own.csv")) == Status.DONE
    for name, data in read(publisher.out).items():
        assert RECORD not in name
        assert sealed.encode() not in data
    assert run_command_line(cli, ["audit", str(publisher.run)]) == Status.DONE
    # The same table has another record: whoever has the folder cannot tell whether it is a table that they guess.
    again = publisher.folder / "again"
    again.mkdir()
    own = table_of(publisher.folder / "own.csv")
    record_tables(again, load_config(publisher.run / "config.toml"), own)
    assert json.loads((again / RECORD).read_text())["tables"] != [sealed]


def test_a_run_without_a_record_is_its_makers_word(
    publisher: Publisher, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = publisher.table("others", shift=10**7)
    monkeypatch.setenv("SYNCRET_BUDGET", str(publisher.folder / "elsewhere.sqlite"))
    assert publisher.bundle("--data", str(others)) == Status.DONE
    assert NO_RECORD in capsys.readouterr().err
    assert not budget_path().with_name("elsewhere.sqlite.key").exists()


def test_a_damaged_record_is_refused(publisher: Publisher) -> None:
    (publisher.run / RECORD).write_text("{}")
    given = str(publisher.folder / "own.csv")
    assert publisher.bundle("--data", given) == Status.STORAGE
    assert publisher.charged == {}


@pytest.mark.parametrize("options", [["--method", "aim"], ["--method", "flaim", "--simulate"]])
def test_a_run_records_its_table(options: list[str], tmp_path: Path) -> None:
    """Runs of silos: `tests/parties/test_silos_trial.py`."""
    config, data = write_small(tmp_path)
    out, others = tmp_path / "out", tmp_path / "others"
    others.mkdir()
    _, other = write_small(others)
    head, *rows = other.read_text().splitlines()
    other.write_text("\n".join([head, *rows[: len(rows) // 2]]) + "\n")
    given = [str(config), "--data", str(data), "--out", str(out), "--clients", "4"]
    assert run_command_line(cli, ["run", *given, *options]) == Status.DONE
    bundle = [
        "bundle",
        str(out),
        "--out",
        str(tmp_path / "out.zip"),
        "--budget",
        str(tmp_path / "b"),
    ]
    assert run_command_line(cli, [*bundle, "--data", str(data)]) == Status.DONE
    (out / RECORD).unlink()
    record_tables(out, load_config(config), table_of(other))
    assert (out / RECORD).exists()


def test_a_run_of_a_program_records_its_table(tmp_path: Path) -> None:
    config, data = write_small(tmp_path)
    run = syncret.synthesize(data, config, 4, method="aim", out=tmp_path / "out")
    assert (run.folder / RECORD).exists()
