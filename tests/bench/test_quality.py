"""Quality by a third party's score: what is asked, what is made of the answers, and that nothing is run twice.

The scorer's process is a small program of this file's (STAND_IN), but for one test that asks SDMetrics where it is.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from bench.cli import bench
from bench.experiment.documents import alone
from bench.networks import ROOT
from bench.quality.environment import PGM_VARIABLE, SCORE, VARIABLE, NotWithinError, ask
from bench.quality.methods import Budget
from bench.quality.peers import coded, decoded, peer_columns
from bench.quality.report import RUNS
from bench.quality.runs import Job, atom_shares, columns_of, workload_error_of
from bench.quality.tables import PRIVATE, SHAPED, UNIFORM, features, load_table, private, uniform
from mechanisms.domain import Categorical, Domain, Integer, Real
from mechanisms.table import encode
from tests.bench.pages import whole

STAND_IN = """#!{python}
import csv, json, pathlib, sys
request = json.load(sys.stdin)
with open({log!r}, "a") as log:
    log.write(json.dumps([pathlib.Path(sys.argv[1]).name, request]) + "\\n")
if "method" in request:
    sys.exit("Traceback\\nMemoryError: no room")
tables = [list(csv.reader(open(request[name]))) for name in ("real", "synthetic")]
assert tables[0][0] == tables[1][0] == list(request["kinds"])
same = tables[0] == tables[1]
print("a library's banner")
print(json.dumps({{"shapes": 1.0 if same else 0.5, "pairs": 0.25, "scorer": "stand-in 1"}}))
"""


def costs(rows: int = 300) -> pd.DataFrame:
    """A table like heart_failure: a cost that is mostly 0 and else spread over decades, ages, groups, a target."""
    rng = np.random.default_rng(5)
    cost = np.where(rng.random(rows) < 0.7, 0, np.exp(rng.normal(5, 2, rows)).astype(int) + 1)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, rows),
            "cost": cost,
            "group": rng.choice(["a", "b"], rows),
            "DEATH_EVENT": (cost > 0).astype(int),
        }
    ).astype(str)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[object]]]:
    """The table heart_failure is a small one, and the third party's interpreter the stand-in; what it was asked."""
    (tmp_path / "data").mkdir()
    costs().to_csv(tmp_path / "data" / "heart_failure.csv", index=False)
    monkeypatch.setenv("SYNCRET_DATA_DIR", str(tmp_path / "data"))
    log, program = tmp_path / "asked.jsonl", tmp_path / "python"
    program.write_text(STAND_IN.format(python=sys.executable, log=str(log)))
    program.chmod(0o700)
    monkeypatch.setenv(VARIABLE, str(program))
    load_table.cache_clear()

    def lines() -> list[list[object]]:
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    return lines


def quality(*arguments: str) -> Result:
    return CliRunner().invoke(bench, ["quality", "--dataset", "heart_failure", *arguments])


def test_quality_attacks_tables_and_asks_no_other_environment(
    asked: Callable[[], list[list[object]]], tmp_path: Path
) -> None:
    methods = [word for name in ("real", "permuted", "aim") for word in ("--method", name)]
    arguments = [*methods, "--columns", UNIFORM, "--membership", "--output", str(tmp_path / "out")]
    first = quality(*arguments, "--json")
    assert first.exit_code == 0, first.output
    real, permuted, aim = json.loads(first.stdout)["runs"]
    assert (real["members"], real["others"], real["synthetic_rows"]) == (150, 75, 150)
    found = [{one["attack"]: one["auc"] for one in run["results"]} for run in (real, permuted, aim)]
    # Three tenths of the rows cost something; others are alike, members or not.
    assert found[0]["distance"] > 0.8
    assert max(found[1]["distance"], found[2]["distance"]) < 0.7
    assert asked() == []
    again = quality(*arguments, "--json")
    assert json.loads(again.stdout) == json.loads(first.stdout)
    page = (tmp_path / "out" / "membership.md").read_text()
    assert "## ε = 1, δ = 1e-05, at most 20,000 rows" in page
    assert "| any attack | 0.731; 2.7%, 27.2% |" in page
    assert "| aim, uniform |" in page
    assert "| real |" in page


def test_quality_measures_before_and_after_and_runs_nothing_twice(
    asked: Callable[[], list[list[object]]], tmp_path: Path
) -> None:
    arguments = ["--method", "real", "--method", "aim", "--epsilon", "20", "--json"]
    first = quality(*arguments, "--output", str(tmp_path / "out"))
    assert first.exit_code == 0, first.output
    runs = json.loads(first.stdout)["runs"]
    real, before, after, found = (run["record"] for run in runs)
    assert [run["job"]["columns"] for run in runs] == [UNIFORM, UNIFORM, SHAPED, PRIVATE]
    assert (real["shapes"], before["shapes"], real["kept"]) == (1.0, 0.5, 1.0)
    # Seven tenths of the rows are 0; equal bins hardly have it, a cell of its own does.
    assert before["kept"] < 0.3
    assert after["kept"] > 0.9
    # Private bins know no more than equal ones, and find the zeros by noisy counts.
    assert found["kept"] > 0.9
    assert 0 < found["error"] < 1
    assert "error" not in real
    (zero,) = (atom for atom in after["atoms"] if (atom["column"], atom["value"]) == ("cost", 0))
    assert 0.6 < zero["real"] < 0.8
    assert abs(zero["real"] - zero["synthetic"]) < 0.1
    assert after["auc"] > 0.9
    assert len(asked()) == 4
    again = quality(*arguments, "--output", str(tmp_path / "out"))
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert len(asked()) == 4
    page = whole(tmp_path / "out" / "quality.md")
    assert "| heart_failure | 1.000 | 0.500 → 0.500 | 0.500 |" in page
    assert "| table | real | aim | aim, private |" in page
    assert "stand-in 1" in page
    assert "cost = 0" in page
    assert str(tmp_path) not in page + (tmp_path / "out" / "quality.json").read_text()


def test_quality_records_a_third_partys_failure_with_its_last_word(
    asked: Callable[[], list[list[object]]], tmp_path: Path
) -> None:
    chosen = ["--method", "smartnoise-aim", "--columns", UNIFORM]
    result = quality(*chosen, "--limit", "60", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    (entry,) = RUNS.read(tmp_path)
    assert entry.record.failed == "smartnoise.py failed: MemoryError: no room"
    assert entry.job.budget.limit_s == 60
    ((script, request),) = asked()
    assert script == "smartnoise.py"
    assert isinstance(request, dict)
    assert (request["method"], request["epsilon"], request["delta"]) == ("aim", 1.0, 1e-5)
    command = "syncret bench quality --dataset heart_failure --method smartnoise-aim"
    assert f"- `{command}" in whole(tmp_path / "quality.md")


def test_quality_says_what_to_do_where_the_environment_is_not_there(
    asked: Callable[[], list[list[object]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing"))
    result = quality("--method", "aim")
    assert result.exit_code == 1
    assert "`make bench-quality` makes one" in result.output
    assert asked() == []


def test_aim_of_its_authors_is_asked_with_codes_and_the_folder_of_their_repository(
    asked: Callable[[], list[list[object]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(PGM_VARIABLE, str(tmp_path / "nothing"))
    refused = quality("--method", "private-pgm-aim")
    assert refused.exit_code == 1
    assert "expected the folder of a copy of the repository private-pgm" in refused.output
    assert asked() == []
    (tmp_path / "pgm" / "mechanisms").mkdir(parents=True)
    (tmp_path / "pgm" / "mechanisms" / "aim.py").touch()
    monkeypatch.setenv(PGM_VARIABLE, str(tmp_path / "pgm"))
    result = quality("--method", "private-pgm-aim", "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    ((script, request),) = asked()
    assert script == "private_pgm.py"
    assert isinstance(request, dict)
    assert request["source"] == str(tmp_path / "pgm")
    domain = load_table("heart_failure", 20_000).domains[SHAPED]
    assert [c["cells"] for c in request["columns"]] == list(domain.shape)
    page = whole(tmp_path / "out" / "quality.md") + (tmp_path / "out" / "quality.json").read_text()
    assert str(tmp_path) not in page


@pytest.mark.parametrize(
    ("script", "said"),
    [("while True: pass", "1 s of processor time"), ("time.sleep(60)", "2 s of the clock")],
)
def test_ask_says_that_a_program_did_not_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, said: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\nimport time\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv(VARIABLE, str(program))
    monkeypatch.setattr("bench.quality.environment._WAITING", 2 if "clock" in said else 60)
    with pytest.raises(NotWithinError, match=rf"score\.py did not end within {said}"):
        ask(SCORE, {}, limit_s=1)


def test_page_says_where_a_synthesizer_needed_more_than_it_was_given(
    asked: Callable[[], list[list[object]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = ["--output", str(tmp_path / "out")]
    assert quality("--method", "real", *folder).exit_code == 0
    program = tmp_path / "endless"
    program.write_text(f"#!{sys.executable}\nwhile True: pass\n")
    program.chmod(0o700)
    monkeypatch.setenv(VARIABLE, str(program))
    assert (
        quality(
            "--method", "smartnoise-mst", "--columns", UNIFORM, "--limit", "1", *folder
        ).exit_code
        == 0
    )
    assert [entry.record.late for entry in RUNS.read(tmp_path / "out")] == [True, None]
    page = whole(tmp_path / "out" / "quality.md")
    assert "| table | real | smartnoise-mst |" in page
    assert "| heart_failure | 1.000 | not within 1 s |" in page


def test_quality_refuses_to_run_nothing(asked: Callable[[], list[list[object]]]) -> None:
    result = quality("--method", "flaim", "--columns", "private")
    assert result.exit_code == 2
    assert "flaim with private columns is nothing to run" in result.output
    assert asked() == []


def test_uniform_has_equal_bins_over_all_that_the_shaped_domain_allows() -> None:
    shaped = Domain(
        (
            Integer("gain", 100, 9999, atoms=(0,), scale="log"),
            Real("rate", 0.5, 2.0, atoms=(9.5,), decimals=1),
            Real("laid", 0.0, 8.0, edges=(0.0, 1.0, 8.0)),
            Categorical("sex", ("f", "m")),
        )
    )
    gain, rate, laid, sex = uniform(shaped).columns
    assert gain == Integer("gain", 0, 9999)
    assert rate == Real("rate", 0.5, 9.5, decimals=1)
    assert laid == Real("laid", 0.0, 8.0)
    assert sex == shaped.columns[3]


def test_private_bins_stand_where_they_can_be_measured(asked: object) -> None:
    equal = Domain(
        (
            Integer("gain", 0, 9999),
            Integer("grade", 1, 10),
            Real("rate", 0.5, 9.5, decimals=1),
            Real("exact", 0.0, 8.0),
            Categorical("sex", ("f", "m")),
        )
    )
    kinds = [getattr(column, "private", None) is not None for column in private(equal).columns]
    assert kinds == [True, False, True, False, False]
    assert columns_of("heart_failure", "flaim", 300) == (UNIFORM, SHAPED)
    assert columns_of("heart_failure", "aim", 300) == (UNIFORM, SHAPED, PRIVATE)


def test_workload_error_is_counted_on_equal_bins(asked: object) -> None:
    table = load_table("heart_failure", 300)
    assert workload_error_of(table, table.train) == 0.0
    # Costs of 1 instead of 0 are in the same bin of equal width; ages are not.
    close = table.train.assign(cost=table.train["cost"].replace("0", "1"))
    assert workload_error_of(table, close) == 0.0
    oldest = table.train["age"].astype(int).max()
    assert workload_error_of(table, table.train.assign(age=str(oldest))) > 1


def test_load_table_encodes_with_either_domain(asked: object) -> None:
    table = load_table("heart_failure", 200)
    assert (len(table.train), len(table.test)) == (180, 20)
    assert ("cost", 0.0) in table.atoms
    assert table.kinds["cost"] == "numerical"
    assert table.kinds["group"] == "categorical"
    for kind in (UNIFORM, SHAPED):
        for part in (table.train, table.test):
            encode(table.domains[kind], part)


def test_smartnoise_is_told_the_bounds_and_bins_that_equal_bins_have(asked: object) -> None:
    columns = {str(c["name"]): c for c in peer_columns(load_table("heart_failure", 300))}
    cost, told = costs()["cost"].astype(int), columns["cost"]
    low, high = (int(str(told.pop(name))) for name in ("low", "high"))
    assert told == {"name": "cost", "bins": 32, "decimals": 0}
    # A draft's bounds are round numbers around all values.
    assert low <= cost.min() <= low + 0.03 * cost.max()
    assert cost.max() <= high <= 1.03 * cost.max()
    assert columns["group"] == {"name": "group"}
    assert columns["DEATH_EVENT"] == {"name": "DEATH_EVENT"}


def test_smartnoise_is_given_the_cells_of_shaped_columns_as_labels(asked: object) -> None:
    assert columns_of("heart_failure", "smartnoise-mst", 300) == (UNIFORM, SHAPED)
    assert columns_of("heart_failure", "sdv-copula", 300) == (UNIFORM,)
    table = load_table("heart_failure", 300)
    domain = table.domains[SHAPED]
    labels = coded(table, domain)
    assert labels.nunique()["cost"] <= domain.shape[domain.names.index("cost")]
    # What is drawn comes back in the table's own writing, in the cells that were drawn.
    back = decoded(domain, labels.iloc[::-1].reset_index(drop=True), seed=1)
    assert (encode(domain, back) == labels.to_numpy(int)[::-1]).all()
    assert (back["cost"] == "0").mean() == (table.train["cost"] == "0").mean()


def test_atom_shares_compares_numbers_and_not_spellings(asked: object) -> None:
    table = load_table("heart_failure", 300)
    drawn = pd.DataFrame({name: ["7"] * 4 for name in table.train.columns})
    drawn["cost"] = ["0", "0.0", "", "7"]
    (zero,) = (a for a in atom_shares(table, drawn) if (a.column, a.value) == ("cost", 0))
    assert zero.synthetic == 0.5


def test_features_are_ranks_over_all_tables_and_a_number_as_target_is_cut_at_its_median() -> None:
    tables = [
        pd.DataFrame({"x": ["10", "9"] * 20, "y": [str(i) for i in range(40)]}),
        pd.DataFrame({"x": ["-1", "1e1"], "y": ["0", "39"]}),
    ]
    (first, second), label = features({"x": "numerical", "y": "numerical"}, "y", tables)
    assert label == 1
    assert first[:2, 0].tolist() == [2, 1]
    assert second[:, 0].tolist() == [0, 2]
    assert first[:, 1].tolist() == [0] * 20 + [1] * 20
    assert second[:, 1].tolist() == [0, 1]


def test_key_counts_what_a_run_depends_on() -> None:
    def key(method: str, **changes: object) -> str:
        return Job("adult", method, UNIFORM, 100, 0, Budget(**changes)).key  # type: ignore[arg-type]

    assert key("aim", clients=5, limit_s=1.0, mpc=True) == key("aim")
    assert key("distaim", clients=5) != key("distaim")
    assert key("distaim", mpc=True) != key("distaim")
    assert key("flaim", mpc=True) == key("flaim")
    assert key("real", epsilon=2.0) == key("real")
    assert key("aim", epsilon=2.0) != key("aim")


def test_score_asks_sdmetrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = ROOT / ".venv-quality" / "bin" / "python"
    if VARIABLE not in os.environ and not python.exists():
        pytest.skip("no environment with SDMetrics; `make bench-quality` makes one")
    table = costs()
    other = table.assign(cost=table["cost"].sample(frac=1, random_state=1).to_numpy())
    kinds = dict.fromkeys(("age", "cost"), "numerical") | dict.fromkeys(
        ("group", "DEATH_EVENT"), "categorical"
    )
    answers = []
    for i, frame in enumerate((table, other)):
        paths = {name: str(tmp_path / f"{name}{i}.csv") for name in ("real", "synthetic")}
        for path, part in zip(paths.values(), (table, frame), strict=True):
            part.to_csv(path, index=False)
        answers.append(ask(SCORE, {**paths, "kinds": kinds}, limit_s=120))
    same, shuffled = answers
    assert (same["shapes"], same["pairs"]) == (1.0, 1.0)
    # Shuffled, a column keeps its shape and loses what it had to do with the others.
    assert shuffled["shapes"] == 1.0
    assert float(str(shuffled["pairs"])) < 0.95
    assert str(same["scorer"]).startswith("sdmetrics ")


def test_alone_keeps_another_command_waiting(tmp_path: Path) -> None:
    entered = threading.Event()

    def other() -> None:
        with alone(tmp_path):
            entered.set()

    thread = threading.Thread(target=other)
    with alone(tmp_path):
        thread.start()
        assert not entered.wait(0.1)
    assert entered.wait(10)
    thread.join()
