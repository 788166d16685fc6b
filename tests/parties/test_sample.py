"""`syncret data sample`: more rows from the model of a run, wherever that lies, and what is refused."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mechanisms.model import Model
from mechanisms.reading import read_table
from mechanisms.table import encode
from parties.api.run import Run
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import Config
from parties.foundation.exit_codes import Status
from parties.mpc.outputs import write_synthetic
from parties.report.from_result import read_table_of
from tests.parties.commands import ROOT
from tests.parties.support import make_config

ROWS = 200


@pytest.fixture
def config() -> Config:
    return make_config({"run.seed": 7})


@pytest.fixture
def run(tmp_path: Path, config: Config) -> Path:
    """The folder of a run whose model says that every f is in ward x."""
    shares = np.array([[0.5, 0.0, 0.0], [0.0, 0.25, 0.25]])
    model = Model(config.domain, (("sex", "ward"), ("age",)), (-1, -1), (shares, np.full(10, 0.1)))
    folder = tmp_path / "run"
    folder.mkdir()
    write_synthetic(folder, model, config, total=ROWS)
    return folder


def sampled(*arguments: object) -> int:
    return run_command_line(cli, ["data", "sample", *map(str, arguments)])


def test_sample_draws_rows_of_the_runs_table(
    run: Path, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "more.csv"
    assert sampled(run, "-n", 1000, "--out", out, "--json") == Status.DONE
    said = json.loads(capsys.readouterr().out)
    assert (said["out"], said["rows"]) == (str(out), 1000)
    table = read_table(out)
    assert list(table.columns) == list(read_table(run / "synthetic.csv").columns)
    codes = encode(config.domain, table)
    assert len(codes) == 1000
    assert ((codes[:, 0] == 0) == (codes[:, 1] == 0)).all()
    assert np.bincount(codes[:, 0]).tolist() == pytest.approx([500, 500], abs=1)
    again = tmp_path / "again.csv"
    assert sampled(run, "-n", 1000, "--out", again, "--seed", said["seed"]) == Status.DONE
    assert again.read_bytes() == out.read_bytes()
    assert f"1000 rows drawn from the model of {run} are in {again}" in capsys.readouterr().out
    other = tmp_path / "other.csv"
    assert sampled(run, "-n", 1000, "--out", other) == Status.DONE
    assert other.read_bytes() != out.read_bytes()


def test_sample_with_the_runs_seed_and_rows_is_its_table(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "same.csv"
    assert sampled(run, "-n", ROWS, "--out", out, "--seed", 7) == Status.DONE
    assert out.read_bytes() == (run / "synthetic.csv").read_bytes()


@pytest.mark.parametrize("ending", ["csv.gz", "tsv", "parquet", "xlsx"])
def test_sample_writes_what_the_ending_says(
    ending: str, run: Path, config: Config, tmp_path: Path
) -> None:
    if ending in ("parquet", "xlsx"):
        pytest.importorskip("pyarrow" if ending == "parquet" else "openpyxl")
    text, out = tmp_path / "more.csv", tmp_path / f"more.{ending}"
    for path in (text, out):
        assert sampled(run, "-n", 50, "--out", path, "--seed", 1) == Status.DONE
    assert read_table(out).to_numpy().tolist() == read_table(text).to_numpy().tolist()


def test_sample_writes_as_the_real_table_is_written_or_plainly(tmp_path: Path) -> None:
    said = {"delimiter": ";", "encoding": "utf-8-sig", "line_end": "crlf"}
    config = make_config({"run.seed": 7, "format": said})
    uniform = np.full(config.domain.size(config.domain.names), 1.0).reshape(config.domain.shape)
    model = Model(config.domain, (config.domain.names,), (-1,), (uniform / uniform.sum(),))
    run = tmp_path / "run"
    run.mkdir()
    write_synthetic(run, model, config, total=ROWS)
    table = (run / "synthetic.csv").read_bytes()
    assert table.startswith(b"\xef\xbb\xbfsex;")
    assert b"\r\n" in table
    own, plain = tmp_path / "own.csv", tmp_path / "plain.csv"
    assert sampled(run, "-n", ROWS, "--out", own, "--seed", 7) == Status.DONE
    assert own.read_bytes() == table
    assert sampled(run, "-n", ROWS, "--out", plain, "--seed", 7, "--plain") == Status.DONE
    assert plain.read_bytes().startswith(b"sex,")
    assert read_table(plain).to_numpy().tolist() == read_table(own).to_numpy().tolist()
    codes = read_table_of(config, run).codes
    assert codes.tolist() == encode(config.domain, read_table(plain)).tolist()


def test_sample_writes_left_out_columns_if_asked(tmp_path: Path) -> None:
    config = make_config({"run.seed": 7, "ignore": ["id", "note"]})
    uniform = np.full(config.domain.size(config.domain.names), 1.0).reshape(config.domain.shape)
    names = config.domain.names
    order = ["note", *names, "id"]
    model = Model(config.domain, (names,), (-1,), (uniform / uniform.sum(),))
    listed = replace(model, domain=config.domain.with_all_columns(order))
    for said, each, expected in (("plain", model, [*names, "id", "note"]), ("own", listed, order)):
        run = tmp_path / said
        run.mkdir()
        write_synthetic(run, each, replace(config, domain=each.domain), total=ROWS)
        out = tmp_path / f"{said}.csv"
        for more in ((), ("--plain",)):
            asked = ("--seed", 7, "--all-columns", "--overwrite", *more)
            assert sampled(run, "-n", ROWS, "--out", out, *asked) == Status.DONE
            table = read_table(out)
            assert list(table.columns) == expected
            assert (table[["id", "note"]] == "").all(axis=None)
            drawn = read_table(run / "synthetic.csv")[list(names)]
            assert table[list(names)].to_numpy().tolist() == drawn.to_numpy().tolist()
        typed = Run(run, each).sample(5, seed=1, all_columns=True)
        assert list(typed.columns) == expected
        assert typed[["id", "note"]].isna().all(axis=None)
        assert list(Run(run, each).sample(5, seed=1).columns) == list(names)


def test_sample_takes_a_bundle_and_the_models_folder(run: Path, tmp_path: Path) -> None:
    out, bundle = tmp_path / "a.csv", tmp_path / "run.zip"
    with zipfile.ZipFile(bundle, "w") as archive:
        for path in (run / "model").iterdir():
            archive.write(path, f"model/{path.name}")
    assert sampled(bundle, "-n", 5, "--out", out, "--seed", 1) == Status.DONE
    assert sampled(run / "model", "-n", 5, "--out", tmp_path / "b.csv", "--seed", 1) == Status.DONE
    assert out.read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_sample_replaces_a_file_only_when_it_is_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.csv"
    out.write_text("mine")
    assert sampled(run, "-n", 5, "--out", out) == Status.STORAGE
    assert (
        f"{out}: is there already; expected a new name, or --overwrite" in capsys.readouterr().err
    )
    assert out.read_text() == "mine"
    assert sampled(run, "-n", 5, "--out", out, "--overwrite") == Status.DONE
    assert out.read_text().startswith("sex,ward,age\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.csv", "run"]


def test_sample_says_why_there_is_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {
        name: tmp_path / name for name in ("nothing", "empty", "server", "trial", "damaged", "tda")
    }
    for name in ("empty", "server", "trial", "damaged", "tda"):
        places[name].mkdir()
    study = ROOT / "examples" / "tda" / "study.toml"
    (places["tda"] / "config.toml").write_text(study.read_text())
    (places["tda"] / "model.json").touch()
    (places["server"] / "transcript.jsonl").touch()
    (places["trial"] / "parties").mkdir()
    (places["damaged"] / "model").mkdir()
    (places["damaged"] / "model" / "model.json").write_text("{}")
    table = tmp_path / "table.csv"
    table.write_text("sex\nf\n")
    bundle = tmp_path / "bundle.zip"
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("synthetic.csv", "sex\nf\n")
    said = {}
    for place in (*places.values(), table, bundle):
        out = tmp_path / "more.csv"
        status = sampled(place, "-n", 5, "--out", out)
        message = capsys.readouterr().err
        assert message.startswith(f"syncret: error: {place}")
        said[place.name] = (status, message)
        assert not out.exists()
    storage = [name for name, (status, _) in said.items() if status == Status.STORAGE]
    assert set(storage) == {*places, table.name, bundle.name} - {"damaged"}
    assert said["damaged"][0] == Status.ESTIMATION
    for name, words in (
        ("nothing", "is not there"),
        ("empty", "is no run: it has no model/"),
        ("server", "has no model/, which server 0 or FLAIM's server writes"),
        ("trial", "this run is not finished"),
        ("tda", "is of a run between silos, which leaves no model to draw rows from"),
        ("damaged", "is not a saved model"),
        ("table.csv", "is no archive"),
        ("bundle.zip", "has no model/"),
    ):
        assert words in said[name][1]


def test_sample_refuses_what_a_file_cannot_be(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sampled(run, "-n", 5, "--out", tmp_path / "more.txt") == Status.DATA
    assert "tables are written as .csv" in capsys.readouterr().err
    assert sampled(run, "-n", 0, "--out", tmp_path / "more.csv") == Status.USAGE
    pytest.importorskip("openpyxl", reason="the extra 'tables' is not installed")
    assert sampled(run, "-n", 2**20, "--out", tmp_path / "more.xlsx") == Status.DATA
    assert "holds 1048575 rows, not 1048576; expected .csv or .parquet" in capsys.readouterr().err

    def sample(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Model, "sample", sample)
    assert sampled(run, "-n", 5, "--out", tmp_path / "more.csv") == Status.DATA
    assert "5 rows do not fit into memory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_sample_draws_rows_that_satisfy_a_condition_and_tells_its_share(
    run: Path, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, text = tmp_path / "some.csv", "sex = m and age between 3 and 4"
    assert sampled(run, "-n", 400, "--out", out, "--where", text, "--json") == Status.DONE
    said = json.loads(capsys.readouterr().out)
    table = read_table(out)
    ages = table["age"].astype(int)
    assert (table["sex"] == "m").all()
    assert set(ages) == {3, 4}
    assert said["probability"] == pytest.approx(0.5 * 0.2)
    again = tmp_path / "again.csv"
    arguments = ("-n", 400, "--out", again, "--where", text, "--seed", said["seed"])
    assert sampled(run, *arguments) == Status.DONE
    assert again.read_bytes() == out.read_bytes()
    assert "share of the rows that satisfy the condition: 0.1" in capsys.readouterr().out


def test_sample_balances_a_column_and_fills_given_rows(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, partial = tmp_path / "out.csv", tmp_path / "partial.csv"
    assert sampled(run, "-n", 90, "--out", out, "--balance", "ward", "--json") == Status.DONE
    shares = json.loads(capsys.readouterr().out)["shares"]
    assert shares == {"x": 0.5, "y": 0.25, "z": 0.25}
    assert read_table(out)["ward"].value_counts().to_dict() == {"x": 30, "y": 30, "z": 30}
    partial.write_text("ward,age\nx,3\n,4\ny,\n")
    arguments = ("--like", partial, "--out", out, "--overwrite", "--json")
    assert sampled(run, *arguments) == Status.DONE
    assert json.loads(capsys.readouterr().out)["rows"] == 3
    table = read_table(out)
    assert table["sex"].tolist()[::2] == ["f", "m"]
    assert table["age"].tolist()[:2] == ["3", "4"]
    partial.write_text("sex,ward\nf,x\nf,y\n")
    assert sampled(run, *arguments) == Status.DATA
    assert "1 of 2 rows have given values that occur together in no row" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("-n", 5, "--where", "sex = f and ward = y"), Status.DATA, "its probability is 0"),
        (("-n", 5, "--where", "sex > f"), Status.DATA, "have no order"),
        (("-n", 5, "--where", "sex = f or ward = y"), Status.DATA, "joined by 'and'"),
        (("-n", 5, "--balance", "wages"), Status.DATA, "the columns are sex, ward, age"),
        (("--where", "sex = f"), Status.USAGE, "either -n"),
    ],
)
def test_sample_refuses_conditions_that_no_row_satisfies(
    arguments: tuple[object, ...],
    status: Status,
    said: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "none.csv"
    assert sampled(run, "--out", out, *arguments) == status
    assert said in capsys.readouterr().err
    assert not out.exists()
