"""The audit of all views of tables with keys together: columns, the budget of a person, tables drawn again."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mechanisms.estimate import Estimate
from parties.audit.checks.keyed_contents import KeyedContents
from parties.audit.findings import CheckFailure, NotApplicable
from parties.audit.keyed import _budget, _views
from parties.config import Config
from parties.local.keyed import KeyedFolder
from parties.report.keyed_estimates import KeyedEstimate, not_measured
from tests.parties.test_keyed_study import ran, syncret_command, written

Changed = Callable[[Mapping[str, Config]], Mapping[str, Config]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keyed-audit")
    path, options = written(folder)
    ran("run", path, *options, "--method", "aim", "--out", folder / "run")
    return folder / "run"


def test_tables_are_those_that_the_models_draw(made: Path, tmp_path: Path) -> None:
    assert "patients.csv, stays.csv: drawn again" in _tables(made)
    for change, said in (
        (_with_another_cell, "stays.csv is not what the models of the views draw"),
        (_without_a_table, "patients.csv is not there"),
        (_with_another_seed, "patients.csv is not what"),
        (_with_too_many, "report.json says 1000000000000 persons"),
    ):
        run = tmp_path / change.__name__
        shutil.copytree(made, run)
        change(run)
        with pytest.raises(CheckFailure, match=said):
            _tables(run)
    run = tmp_path / "before"
    shutil.copytree(made, run)
    _report(run, seed=None)
    with pytest.raises(NotApplicable, match="does not say with which seed"):
        _tables(run)


def _tables(run: Path) -> str:
    folder = KeyedFolder.of(run)
    return KeyedContents(folder, folder.study, ()).check_tables()


def _with_another_cell(run: Path) -> None:
    rows = (run / "stays.csv").read_text(encoding="utf-8").splitlines()
    rows[-1] = rows[-2]
    (run / "stays.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _without_a_table(run: Path) -> None:
    (run / "patients.csv").unlink()


def _with_another_seed(run: Path) -> None:
    _report(run, seed=1)


def _with_too_many(run: Path) -> None:
    _report(run, persons=10**12)


def _report(run: Path, **values: int | None) -> None:
    path = run / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values), encoding="utf-8")


def _same(configs: Mapping[str, Config]) -> Mapping[str, Config]:
    return configs


def _more_rows(configs: Mapping[str, Config]) -> Mapping[str, Config]:
    return {n: c.override({"run.rows_per_person": 1}) for n, c in configs.items()}


def _swapped(configs: Mapping[str, Config]) -> Mapping[str, Config]:
    return dict(zip(configs, reversed(configs.values()), strict=True))


def _dearer(configs: Mapping[str, Config]) -> Mapping[str, Config]:
    """One view with a fiftieth more."""
    return {
        n: c.override({"run.epsilon": c.run.epsilon * 1.02}) if n == "stays" else c
        for n, c in configs.items()
    }


@pytest.mark.parametrize(
    ("change", "views", "budget"),
    [
        (_same, None, None),
        (_swapped, "the run of patients had other columns", None),
        (_more_rows, "the run of stays had run.rows_per_person = 1; the view has", None),
        (_dearer, None, "all views together cost a person epsilon 4"),
    ],
)
def test_runs_of_other_views_and_dearer_ones_are_found(
    made: Path, change: Changed, views: str | None, budget: str | None
) -> None:
    study = KeyedFolder.of(made).study
    found = change(study.configs)
    for check, said in ((_views, views), (_budget, budget)):
        if said is None:
            assert check(study, found)
            continue
        with pytest.raises(CheckFailure, match=said):
            check(study, found)


def test_commands_for_one_run_say_what_they_take(made: Path) -> None:
    said = "patients.sex f"
    assert said in ran("data", "estimate", made, "mean(stays.number) by patients.sex")
    central = syncret_command("audit", made)
    assert "expected a run's transcripts" in str(central.exception)
    assert "are for one run" in syncret_command("audit", made, "--html", made / "a.html").output


def test_a_report_says_what_was_measured_of_rows_that_follow(made: Path) -> None:
    """With 60 persons nothing is known of wards from stay to stay, and the page says that it is a guess."""
    report = json.loads((made / "report.json").read_text(encoding="utf-8"))
    of = {each["figure"]: each for each in report["estimates"]}
    assert of["persons with 0 rows"]["basis"] == "measured"
    assert of["persons with 0 rows"]["low"] <= of["persons with 0 rows"]["high"]
    wards = [each for each in report["estimates"] if each["column"] == "ward"]
    assert {each["figure"] for each in wards} >= {"ward surgery stays", "ward internal stays"}
    guessed = report["not_measured"]["stays"]
    assert ("ward" in guessed) == all("refusal" in each for each in wards)
    page = (made / "report.html").read_text(encoding="utf-8")
    assert "persons with 0 rows" in page
    assert ("from row to row was not measured" in page) == bool(guessed)


def test_a_column_is_a_guess_if_every_figure_of_it_is_refused() -> None:
    refused, known = Estimate({}, refusal="not measured together"), Estimate({}, 0.5, 0.4, 0.6)
    found = [
        KeyedEstimate("stays", "", "persons with 0 rows", refused),
        KeyedEstimate("stays", "ward", "ward surgery stays", refused),
        KeyedEstimate("stays", "ward", "ward internal stays", known),
        KeyedEstimate("stays", "days", "slope of days on the row before", refused),
        KeyedEstimate("visits", "room", "room 1 stays", refused),
    ]
    assert not_measured(found, "stays") == ["days"]
    assert not_measured(found, "visits") == ["room"]
