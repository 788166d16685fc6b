"""The benchmark of persons and their rows: made-up tables, measures with faults that they see, methods, the page."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from bench.cli import bench
from bench.quality.environment import (
    HMA,
    KEYED_SCORE,
    PAR,
    PAR_VARIABLE,
    QUALITY,
    VARIABLE,
    WITH_TORCH,
    Environment,
    ask,
)
from bench.quality.keyed_score import known, mean
from bench.tables import methods, scores
from bench.tables.data import BANK, CLINIC, NAMES, PANEL, SHAPES, Shape, made_tables
from bench.tables.measures import Figures, Histories, association, figures, within
from bench.tables.methods import (
    AGAIN,
    FLAT,
    KEYED,
    KEYED_ROWS,
    SDV,
    SDV_PAR,
    Budget,
    real_histories,
    synthesize,
)
from bench.tables.page import RUNS
from bench.tables.runs import Job
from mechanisms.model import Model
from mechanisms.synthetic import synthetic_parts
from mechanisms.table import encode
from parties.api.config import ConfigLike, config_of

STAND_IN = """#!{python}
import json, shutil, sys

request = json.load(sys.stdin)
for paths in request["tables"].values():
    shutil.copyfile(paths["train"], paths["out"])
print(json.dumps({{"seconds": 1.0, "synthesizer": "stand-in 1"}}))
"""

SCORER = """#!{python}
import json, sys

request = json.load(sys.stdin)
rows = {{name: len(open(of["real"]).readlines()) - 1 for name, of in request["tables"].items()}}
print(json.dumps({{"shapes": 0.87654, "intertable": None, "lengths": rows["patients"] / 1000, "scorer": "stand-in 1"}}))
"""
SEQUENCES = """#!{python}
import json, shutil, sys

request = json.load(sys.stdin)
shutil.copyfile(request["train"], request["out"])
print(json.dumps({{"seconds": 1.0, "synthesizer": f"stand-in of {{request['persons']}}"}}))
"""
FAILING = "#!{python}\nraise SystemExit('no memory')\n"


def stand_in(folder: Path, program: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a program in the place of a third party's interpreter."""
    path = folder / "python"
    path.write_text(program.format(python=sys.executable))
    path.chmod(0o700)
    monkeypatch.setenv(variable, str(path))


def tables(*arguments: str) -> Result:
    return CliRunner().invoke(bench, ["tables", *arguments])


def histories(name: str, persons: int, seed: int = 1) -> Histories:
    return real_histories(SHAPES[name], made_tables(name, persons, seed))


def with_rows(
    shape: Shape, whole: Histories, of: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> Histories:
    """The rows of these histories, dealt to other persons."""
    return Histories.of_rows(shape, whole.own, whole.rows, of=of)


@pytest.mark.parametrize("name", NAMES)
def test_made_tables_are_those_of_persons(name: str) -> None:
    shape, frames = SHAPES[name], made_tables(name, 300, 1)
    assert all(frame.map(type).eq(str).all().all() for frame in frames.values())
    again = made_tables(name, 300, 1)
    assert all(frame.equals(again[table]) for table, frame in frames.items())
    assert not frames[shape.child].equals(made_tables(name, 300, 2)[shape.child])
    real = real_histories(shape, frames)
    assert (real.broken, real.disorder) == (0.0, 0.0)
    before, after = real.steps
    assert (real.time[after] > real.time[before]).all()
    assert len(real.own) == 300
    assert (real.numbers.min() == 0) == (shape.parent is not None)
    found = within(shape, real)
    # Some values stay from row to row, and some do not.
    assert min(found["stay"].values()) > 0.5
    assert max(found["lag"].values()) > 0.9
    if shape.parent is not None:
        child = frames[shape.child].merge(frames[shape.parent], on=shape.key)
        (repeated,) = shape.repeated
        assert (child[f"{repeated}_x"] == child[f"{repeated}_y"]).all()


def test_association_is_that_of_the_joint_table() -> None:
    rng = np.random.default_rng(1)
    one, other = rng.integers(0, 5, 2_000), rng.integers(0, 5, 2_000)
    assert association(one, one, (5, 5)) == pytest.approx(1, abs=0.01)
    assert association(one, other, (5, 5)) < 0.05
    assert association(one, np.zeros_like(one), (5, 1)) == 0
    half = np.where(rng.random(2_000) < 0.5, one, other)
    assert association(one, half, (5, 5)) == pytest.approx(0.5, abs=0.05)


def test_figures_are_nothing_of_tables_and_themselves() -> None:
    for name in NAMES:
        shape, real = SHAPES[name], histories(name, 200)
        found = figures(shape, real, real)
        distances = (found.number_by_own, found.own_pairs, found.step_pairs, found.number)
        assert (*distances, found.gaps, found.own_v, found.step_v, found.points) == (0.0,) * 8
        assert {"spread": found.spread, "lag": found.lag, "stay": found.stay} == within(shape, real)


def test_figures_see_rows_that_were_dealt_to_other_persons() -> None:
    shape, real = SHAPES[CLINIC], histories(CLINIC, 2_000)
    dealt = with_rows(shape, real, np.random.default_rng(1).permutation(real.of))
    found, control = figures(shape, real, dealt), figures(shape, real, histories(CLINIC, 2_000, 2))
    assert found.broken > 0.9 > 0 == control.broken
    assert found.disorder > 0.4 > 0 == control.disorder
    assert (found.number, found.points) == (0.0, 0.0)
    assert found.step_v > 0.1 > 0.05 > control.step_v
    assert found.step_pairs > 1.5 * control.step_pairs
    assert found.gaps > 2 * control.gaps
    assert abs(found.lag["weight"]) < 0.1 < 0.9 < control.lag["weight"]
    assert found.spread["weight"] > 10 * control.spread["weight"]
    # Rows still have their own persons' columns, so that these pairs are what they were.
    assert found.own_pairs == 0


def test_figures_see_numbers_and_columns_that_hang_together_no_more() -> None:
    shape, real = SHAPES[BANK], histories(BANK, 2_000)
    rng, rows = np.random.default_rng(1), real.rows.copy()
    for name in shape.own:
        rows[name] = rng.permutation(rows[name])
    mixed = replace(real, rows=rows, own=real.own.iloc[rng.permutation(len(real.own))])
    found, control = figures(shape, real, mixed), figures(shape, real, histories(BANK, 2_000, 2))
    assert found.own_v > 2 * control.own_v
    assert found.own_pairs > 1.5 * control.own_pairs
    assert found.number_by_own > 1.3 * control.number_by_own
    fewer = with_rows(shape, real, np.where(real.of < 1_000, real.of, 0))
    assert figures(shape, real, fewer).points > 20 > 5 > control.points


def test_figures_see_steps_without_time() -> None:
    shape, real = SHAPES[PANEL], histories(PANEL, 200)
    still = Histories.of_rows(shape, real.own, real.rows.assign(quarter="1"), of=real.of)
    assert figures(shape, real, still).ties == 1 > 0 == figures(shape, real, real).ties


class Exact:
    """A stand-in of a run: its model has the table's joint counts, without noise."""

    def __init__(self, table: pd.DataFrame, config: ConfigLike, **_: object) -> None:
        domain = config_of(config, {}).domain
        codes = encode(domain, table, source="table", ignore_extra=True)
        counts = np.zeros(domain.shape)
        np.add.at(counts, tuple(codes.T), 1)
        self._model = Model(domain, (domain.names,), (-1,), (counts / counts.sum(),))

    def sample(self, rows: int, *, seed: int) -> pd.DataFrame:
        return next(synthetic_parts(self._model, rows, seed=seed))


def small_panel(persons: int) -> tuple[Shape, dict[str, pd.DataFrame]]:
    shape = replace(SHAPES[PANEL], own=("sex",), rows=("employment",), numbers=frozenset[str]())
    columns = [shape.key, shape.order, "sex", "employment"]
    return shape, {"panel": made_tables(PANEL, persons)["panel"][columns]}


@pytest.mark.parametrize("method", [KEYED, KEYED_ROWS, FLAT])
def test_methods_draw_persons_and_their_rows(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods.run, "synthesize", Exact)
    # Fixed rounds are planned in no time.
    quick, settings = {"schedule": "fixed", "rounds": 2, "accountant": "zcdp"}, methods._settings
    monkeypatch.setattr(methods, "_settings", lambda budget: settings(budget) | quick)
    shape, tables = small_panel(1_000)
    real = real_histories(shape, tables)
    drawn = synthesize(method, shape, tables, budget=Budget(), seed=1, folder=tmp_path)
    assert len(drawn.histories.own) == 1_000
    assert (drawn.counted == 5) == (method != KEYED)
    found, keyed = figures(shape, real, drawn.histories), method != FLAT
    assert found.points < 3
    assert found.own_pairs < 0.06
    assert (found.broken == 0) == keyed
    assert (found.disorder == 0) == keyed
    assert (found.step_v < 0.05) == keyed
    assert (abs(found.stay["employment"] - 0.91) < 0.03) == keyed


@pytest.mark.slow
@pytest.mark.parametrize("method", [KEYED, FLAT])
def test_methods_are_central_aim(method: str, tmp_path: Path) -> None:
    shape, tables = small_panel(1_000)
    drawn = synthesize(method, shape, tables, budget=Budget(epsilon=4), seed=1, folder=tmp_path)
    found = figures(shape, real_histories(shape, tables), drawn.histories)
    assert (found.broken == 0) == (method == KEYED)
    assert (found.stay["employment"] > 0.85) == (method == KEYED)


def test_tables_measures_runs_nothing_twice_and_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    arguments = ["--dataset", CLINIC, "--method", "halves", "--method", AGAIN, "--repeats", "2"]
    arguments += ["--persons", "200", "--output", str(tmp_path), "--json"]
    first = tables(*arguments)
    assert first.exit_code == 0, first.output
    runs = json.loads(first.stdout)["runs"]
    assert [run["job"]["method"] for run in runs] == ["halves", AGAIN, AGAIN]
    assert runs[1]["record"] != runs[2]["record"]
    assert runs[2]["command"] == (
        "syncret bench tables --dataset clinic --method again --persons 200 --repeats 2"
    )
    again = tables(*arguments)
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert "constants broken" in first.stderr
    assert "no scores by SDMetrics, which `make bench-quality` installs" in first.stderr
    assert not any({"scores", "unscored"} & set(run["record"]) for run in runs)
    assert not again.stderr
    page = (tmp_path / "tables.md").read_text()
    assert page.startswith("# Persons and their rows\n")
    assert str(tmp_path) not in page


def figures_of(**changes: object) -> dict[str, object]:
    plain: Mapping[str, object] = dict.fromkeys(Figures.__dataclass_fields__, 0.0)
    by_column = {"spread": {"weight": 1.0}, "lag": {"weight": 0.5}, "stay": {"ward": 0.25}}
    return {**plain, **by_column, **changes}


def test_page_says_which_goals_are_met(tmp_path: Path) -> None:
    def line(method: str, repeat: int = 0, **changes: object) -> dict[str, object]:
        budget = {} if method == SDV else {"epsilon": 1.0, "delta": 1e-5}
        job = {"dataset": CLINIC, "method": method, "persons": 100, "repeat": repeat, **budget}
        real = {"spread": {"weight": 2.0}, "lag": {"weight": 0.9}, "stay": {"ward": 0.7}}
        record = {"figures": figures_of(**changes), "real": real, "seconds": 2.0}
        made = {"command": "syncret", "commit": "0", "date": "2026-11-30"}
        return {"job": job, "record": record, **made}

    late = line(SDV)
    # A line of before there were scores, and one of SDMetrics' silence about a single one.
    scored = line(KEYED, 1, own_v=0.04, step_v=0.01, points=1.5)
    scored["record"] |= {"scores": {"shapes": 0.875, "pairs": None, "scorer": "sdmetrics 0"}}  # type: ignore[operator]
    late["record"] = {"failed": "hma.py did not end within 5 s of processor time", "late": True}
    lines = [
        line(KEYED, own_v=0.02, step_v=0.01, points=3.5),
        scored,
        line(FLAT, own_v=0.06, step_v=0.04, broken=0.5, disorder=0.25),
        late,
    ]
    (tmp_path / "tables.json").write_text(json.dumps({"runs": lines}))
    RUNS.add(tmp_path, [])
    page = (tmp_path / "tables.md").read_text()
    assert "## ε = 1, δ = 1e-05, 100 persons" in page
    assert "| no person with two values of a constant | keyed | 0.0%: met (flat 50%) |" in page
    assert "| numbers of rows within 3 points | keyed | 2.5: met |" in page
    assert "3 times nearer than flat's | keyed | 2.0 times: **not met** |" in page
    assert "3 times nearer than flat's | keyed | 4.0 times: met |" in page
    assert "| clinic | keyed | flat |" in page
    assert "| weight: spread within a person, times the real 2 | 0.50 | 0.50 |" in page
    assert "| ward: the same in the next row, real 70% | 25% | 25% |" in page
    assert "did not end within 5 s of processor time" in page
    assert "| SDMetrics, column shapes | 0.875 | - |" in page
    assert "| SDMetrics, column pair trends | - | - |" in page
    assert "| SDMetrics, InterRowMSAS | - | - |" in page
    assert "Scores are those of sdmetrics 0." in page
    assert "Without scores" not in page


def test_key_counts_what_a_run_depends_on() -> None:
    def key(method: str, **changes: float) -> str:
        return Job(CLINIC, method, 100, 0, Budget(**changes)).key

    assert key(KEYED, limit_s=1.0) == key(KEYED) != key(KEYED, epsilon=2.0)
    assert key(SDV, epsilon=2.0) == key(SDV) != key(SDV, limit_s=1.0)
    assert key(SDV_PAR, epsilon=2.0) == key(SDV_PAR) != key(SDV_PAR, limit_s=1.0)
    assert key(AGAIN, epsilon=2.0, limit_s=1.0) == key(AGAIN)


@pytest.mark.parametrize("name", NAMES)
def test_hma_is_given_a_table_of_persons(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in gives back what it was given."""
    stand_in(tmp_path, STAND_IN, VARIABLE, monkeypatch)
    shape, real = SHAPES[name], made_tables(name, 150)
    drawn = synthesize(SDV, shape, real, budget=Budget(), seed=1, folder=tmp_path)
    found = figures(shape, real_histories(shape, real), drawn.histories)
    assert (found.own_pairs, found.step_pairs, found.number, found.broken) == (0, 0, 0, 0)
    # Real rows are in no order.
    assert found.disorder > 0.3


@pytest.mark.parametrize("name", NAMES)
def test_par_is_given_rows_in_order_and_no_person_without(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in gives back what it was given."""
    stand_in(tmp_path, SEQUENCES, PAR_VARIABLE, monkeypatch)
    shape, tables = SHAPES[name], made_tables(name, 150)
    real = real_histories(shape, tables)
    drawn = synthesize(SDV_PAR, shape, tables, budget=Budget(), seed=1, folder=tmp_path)
    assert (drawn.maker, drawn.seconds) == ("stand-in of 150", 1.0)
    found, without = drawn.histories, int((real.numbers == 0).sum())
    # Those without rows are in no row, and as many again lose theirs.
    assert len(found.own) == 150 - without
    assert (found.numbers == 0).sum() == without
    assert (without == 0) == (shape.parent is None)
    assert (found.broken, found.disorder) == (0, 0)
    if not without:
        assert found.own.equals(real.own)
        every = [*shape.rows, shape.order]
        assert found.rows[every].equals(real.rows[every])
    every = list(shape.rows)
    times = [
        set(zip(of.time, of.rows[every].itertuples(index=False), strict=True))
        for of in (real, found)
    ]
    assert times[1] <= times[0]


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_asked_of_persons_and_their_rows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = dict[str, object]()

    def answer(script: str, request: dict[str, object], *, limit_s: float) -> dict[str, object]:
        asked.update(request, script=script)
        return {"shapes": 0.123456, "pairs": None, "scorer": "stand-in 1"}

    monkeypatch.setattr(scores, "ask", answer)
    shape, real = SHAPES[name], histories(name, 120)
    drawn = with_rows(shape, real, np.random.default_rng(1).permutation(real.of))
    found = scores.scores(shape, real, drawn, folder=tmp_path)
    assert found == {"shapes": 0.1235, "pairs": None, "scorer": "stand-in 1"}
    parent, child, key = shape.parent or "persons", shape.child, shape.key
    assert (asked["script"], asked["parent"], asked["child"]) == (KEYED_SCORE, parent, child)
    assert asked["measured"] == [name for name in shape.rows if name in shape.numbers]
    assert (asked["dates"] == []) == (name == PANEL) == (shape.order in str(asked["numbers"]))
    for which, of in (("real", real), ("synthetic", drawn)):
        paths: Mapping[str, Mapping[str, str]] = asked["tables"]  # type: ignore[assignment]
        written = {table: pd.read_csv(by[which], dtype=str) for table, by in paths.items()}
        assert set(written) == {parent, child}
        assert written[parent].columns.tolist() == [*shape.own, key]
        assert written[child].columns.tolist() == [*shape.repeated, *shape.rows, shape.order, key]
        assert written[parent][key].tolist() == [str(person) for person in range(120)]
        assert written[child][key].tolist() == [str(person) for person in of.of]
        # Rows that were dealt out have their persons' columns of the table of persons, as any reader would join them.
        assert written[parent][list(shape.own)].equals(of.own[list(shape.own)])


def test_tables_have_scores_where_sdmetrics_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--dataset", CLINIC, "--persons", "100", "--output", str(tmp_path), "--json"]
    stand_in(tmp_path, SCORER, VARIABLE, monkeypatch)
    first = tables(*arguments, "--method", "halves", "--method", AGAIN)
    assert "SDMetrics' shapes 0.876, lengths 0.050" in first.stderr, first.output
    runs = [run["record"]["scores"] for run in json.loads(first.stdout)["runs"]]
    same = {"shapes": 0.8765, "intertable": None, "scorer": "stand-in 1"}
    assert runs == [same | {"lengths": 0.05}, same | {"lengths": 0.1}]
    stand_in(tmp_path, FAILING, VARIABLE, monkeypatch)
    failed = tables(*arguments, "--method", AGAIN, "--repeats", "2")
    again, unscored = (run["record"] for run in json.loads(failed.stdout)["runs"])
    assert again["scores"] == runs[1]
    assert "figures" in unscored
    assert unscored["unscored"] == "keyed_score.py failed: no memory"
    page = (tmp_path / "tables.md").read_text()
    assert "| SDMetrics, SequenceLengthSimilarity | 0.050 | 0.100 |" in page
    assert "| SDMetrics, intertable trends | - | - |" in page
    assert "### Without scores\n\n- `syncret bench tables --dataset clinic --method again" in page


def test_mean_leaves_out_what_sdmetrics_cannot_say() -> None:
    assert known(float("nan")) is None is known(None)
    assert mean([float("nan"), 0.5, 1.0]) == 0.75
    assert mean([float("nan")]) is None is mean([])


def test_tables_says_where_a_third_party_is_missing_or_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    arguments = ["--dataset", PANEL, "--method", SDV, "--persons", "100"]
    missing = tables(*arguments)
    assert missing.exit_code == 1
    assert "`make bench-quality` makes one" in missing.output
    monkeypatch.setenv(PAR_VARIABLE, str(tmp_path / "none"))
    missing = tables("--dataset", PANEL, "--method", SDV_PAR, "--persons", "100")
    assert missing.exit_code == 1
    assert "expected an environment with SDV's PAR and torch: `make bench-par`" in missing.output
    stand_in(tmp_path, FAILING, VARIABLE, monkeypatch)
    failed = tables(*arguments, "--json")
    (run,) = json.loads(failed.stdout)["runs"]
    assert run["record"] == {"failed": "hma.py failed: no memory"}


def skip_without(environment: Environment) -> None:
    if not environment.there:
        pytest.skip(
            f"no environment with {environment.content}; `make {environment.target}` makes one"
        )


@pytest.mark.slow
def test_hma_asks_sdv(tmp_path: Path) -> None:
    skip_without(QUALITY)
    persons = pd.DataFrame({"key": ["a", "b", "c", "d"], "sex": ["f", "m", "f", "m"]})
    rows = pd.DataFrame({"key": [*"aabbccdd"], "when": ["2024-01-01", "2024-02-01"] * 4})
    rows["weight"] = [str(60 + i) for i in range(8)]
    paths = {}
    for name, frame in (("persons", persons), ("rows", rows)):
        paths[name] = {"train": str(tmp_path / name), "out": str(tmp_path / f"{name}-out")}
        frame.to_csv(paths[name]["train"], index=False)
    request = {"parent": "persons", "child": "rows", "key": "key", "tables": paths}
    answer = ask(HMA, request | {"numbers": ["weight"], "dates": ["when"]}, limit_s=300)
    assert str(answer["synthesizer"]).startswith("sdv ")
    drawn = {name: pd.read_csv(of["out"]) for name, of in paths.items()}
    assert set(drawn["rows"]["key"]) <= set(drawn["persons"]["key"])
    assert list(drawn["rows"].columns) == ["key", "when", "weight"]


@pytest.mark.slow
def test_par_asks_sdv(tmp_path: Path) -> None:
    skip_without(WITH_TORCH)
    rows = pd.DataFrame({"key": [*"aabbccdd"], "sex": [*"ffmmffmm"], "ward": ["in", "out"] * 4})
    rows["weight"] = [str(60 + i) for i in range(8)]
    # The same in all rows, as gaps of a panel are.
    rows["gap"] = "1"
    paths = {name: str(tmp_path / name) for name in ("train", "out")}
    rows.to_csv(paths["train"], index=False)
    request = {**paths, "key": "key", "own": ["sex"], "numbers": ["weight", "gap"]}
    answer = ask(PAR, request | {"persons": 5, "seed": 1}, limit_s=300, environment=WITH_TORCH)
    assert str(answer["synthesizer"]).startswith("sdv ")
    drawn = pd.read_csv(paths["out"], dtype=str)
    assert sorted(drawn.columns) == sorted(rows.columns)
    assert drawn["key"].nunique() == 5
    assert (drawn.groupby("key")["sex"].nunique() == 1).all()
    assert set(drawn["gap"]) == {"1"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_scores_ask_sdmetrics_and_see_rows_that_were_dealt_out(name: str, tmp_path: Path) -> None:
    skip_without(QUALITY)
    shape, real = SHAPES[name], histories(name, 800)
    same = scores.scores(shape, real, real, folder=tmp_path)
    assert str(same.pop("scorer")).startswith("sdmetrics ")
    assert set(same.values()) <= {1.0, None}
    # Rows that are dealt out keep their columns, but not those of their person.
    dealt = with_rows(shape, real, np.random.default_rng(1).permutation(real.of))
    found = scores.scores(shape, real, dealt, folder=tmp_path)
    assert (found["shapes"], found["cardinality"], found["lengths"]) == (1.0, 1.0, 1.0)
    assert max(float(str(found[name])) for name in ("levels", "spreads", "changes")) < 0.95
    assert same["intertable"] is None or float(str(found["intertable"])) < 0.95
