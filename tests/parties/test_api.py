"""`import syncret`: what programs and notebooks get is what the commands have, and they wait for nothing and nobody."""

import asyncio
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import syncret
from parties.api.config import config_of
from parties.api.run import run_anywhere
from parties.cli.main import cli
from parties.local.children import free_ports
from parties.report.public import without_real
from parties.storage.owner_budget import OwnerBudget
from tests.parties.commands import ROOT
from tests.until import count_of, nothing_runs

CHANGES: dict[str, object] = {
    "run.iterations": 5,
    "run.final_iterations": 5,
    "workload.degree": 2,
    "clients.rows_per_client": 100,
}


def people(rows: int = 120) -> pd.DataFrame:
    """A table of every type that columns have."""
    generator = np.random.default_rng(1)
    ages = generator.integers(18, 90, rows)
    heights = pd.Series(generator.integers(150, 200, rows))
    return pd.DataFrame(
        {
            "age": ages,
            "cost": (ages * 10.25).round(2),
            "height": heights.where(heights < 190).astype(float),
            "ward": pd.Categorical(generator.choice(["x", "y", "z"], rows)),
            "alive": generator.choice([True, False], rows),
            "day": pd.Timestamp("2024-01-01")
            + pd.to_timedelta(generator.integers(0, 99, rows), "D"),
            "sex": generator.choice(["f", "m"], rows),
        }
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of temporary run folders, so that those of others do not count."""
    # The register of ports is opened once, and has to be the one of all other tests.
    free_ports(1)
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("temporary"))
    yield Path(tempfile.tempdir)
    tempfile.tempdir = before


@pytest.fixture(scope="module")
def run(folders: Path) -> syncret.Run:
    """DistAIM by real processes, started where an event loop is running already, as in a notebook."""

    async def cell() -> syncret.Run:
        frame = people()
        config = syncret.draft(frame)
        # So little noise that no value of a tenth of the rows is lost in it.
        changes = {**CHANGES, "run.epsilon": 10.0}
        return syncret.synthesize(frame, config, clients=3, rounds=2, changes=changes)

    return asyncio.run(cell())


def test_draft_is_what_the_command_writes(tmp_path: Path) -> None:
    # A file of floats has 150.0 for a height, and its synthetic table as well.
    frame = people().astype({"height": "Int64"})
    table = tmp_path / "people.csv"
    frame.to_csv(table, index=False)
    drafted = syncret.draft(frame, name="people")
    shown = CliRunner().invoke(cli, ["data", "draft", str(table)]).stdout
    assert drafted.text.splitlines()[1:] == shown.splitlines()[1:]
    assert syncret.draft(table).text == shown
    assert drafted.notes
    assert str(drafted) == repr(drafted) == drafted.text


@pytest.mark.parametrize(
    ("private", "option"),
    [("all", "--private"), ("numbers", "--private-numbers"), ("bins", "--private-bins")],
)
def test_private_drafts_are_what_the_command_writes(
    private: Literal["all", "numbers", "bins"], option: str, tmp_path: Path
) -> None:
    table = tmp_path / "people.csv"
    people().to_csv(table, index=False)
    shown = CliRunner().invoke(cli, ["data", "draft", str(table), option]).stdout
    assert syncret.draft(table, private=private).text == shown
    assert shown != syncret.draft(table).text
    with pytest.raises(ValueError, match='expected "all", "numbers" or "bins"'):
        syncret.draft(table, private="none")  # type: ignore[arg-type]


def test_draft_is_a_config_when_it_was_edited(tmp_path: Path, folders: Path) -> None:
    frame = people()
    drafted = syncret.draft(frame)
    drafted.text = drafted.text.replace("epsilon = 1.0", "epsilon = 3.0")
    tables = drafted.to_dict()
    tables["run"]["rounds"] = 1
    assert config_of(tables, {}).run.schedule == "fixed"
    assert config_of(drafted, {}).run.schedule == "annealed"
    drafted.write(tmp_path / "people.toml")
    with pytest.raises(FileExistsError):
        drafted.write(tmp_path / "people.toml")
    for config in (drafted, tables, tmp_path / "people.toml", str(tmp_path / "people.toml")):
        read = config_of(config, {"run.delta": 1e-6})
        assert (read.run.epsilon, read.run.delta) == (3.0, 1e-6)
        assert config_of(read, {"run.epsilon": 2.0}).run.epsilon == 2
    assert (tables["run"].keys(), tables["run"]["delta"]) == (
        {"epsilon", "delta", "rounds", "fallback"},
        1e-5,
    )
    done = syncret.synthesize(frame, tables, clients=2, method="aim", changes=CHANGES)
    assert [done.report["parameters"][key] for key in ("epsilon", "rounds")] == [3.0, 1]
    drafted.text = "no toml"
    with pytest.raises(syncret.ConfigError, match="is not valid TOML"):
        drafted.to_dict()


@pytest.mark.slow
def test_synthesize_gives_a_table_with_the_types_of_the_one_it_was_given(run: syncret.Run) -> None:
    frame = people()
    for made in (run.table, run.sample(50)):
        assert made.dtypes.to_dict() == frame.dtypes.to_dict()
        assert set(made["ward"]) <= {"x", "y", "z"}
        assert made["age"].between(18, 89).all()
        assert (made["cost"] * 100).round(6).mod(1).eq(0).all()
        assert made["height"].isna().any()
    assert len(run.sample(50)) == 50


def test_synthesize_leaves_a_report_that_notebooks_show_and_nothing_secret(
    run: syncret.Run,
) -> None:
    assert run.report["parameters"]["clients"] == 3
    assert json.loads((run.folder / "report.json").read_text()) == dict(run.report)
    assert len(run.report) == len(list(run.report))
    assert run._repr_html_() == run.report._repr_html_()
    assert run._repr_html_().startswith("<iframe srcdoc=")
    assert "&lt;h1&gt;" in run._repr_html_()
    assert "workload" in repr(run.report)
    assert not list(run.folder.rglob("*.key")) + list(run.folder.rglob("codes.npy"))


def test_sample_draws_the_same_rows_with_the_same_seed(run: syncret.Run) -> None:
    assert run.sample(20, seed=7).equals(run.sample(20, seed=7))
    assert not run.sample(20, seed=7).equals(run.sample(20, seed=8))
    with pytest.raises(ValueError, match=r"positive|at least"):
        run.sample(0)


def test_sample_draws_rows_under_a_condition_from_a_bundle(
    run: syncret.Run, tmp_path: Path
) -> None:
    packed = tmp_path / "conditions.zip"
    assert (
        CliRunner()
        .invoke(cli, ["bundle", str(run.folder), f"--out={packed}", "--uncharged=nobody's rows"])
        .exit_code
        == 0
    )
    loaded = syncret.load(packed)
    some = loaded.sample(200, where="age >= 65 and ward in (x, y)", random_state=1)
    assert (some["age"] >= 65).all()
    assert set(some["ward"]) <= {"x", "y"}
    assert 0 < some.attrs["probability"] < 1
    assert some.equals(loaded.sample(200, where="age >= 65 and ward in (x, y)", seed=1))
    balanced = loaded.sample(90, balance="ward")
    assert balanced["ward"].value_counts().max() == 30
    assert sum(balanced.attrs["shares"].values()) == pytest.approx(1)
    given = people()[["ward", "alive"]].head(20)
    filled = loaded.sample(like=given)
    assert filled["ward"].tolist() == given["ward"].tolist()
    assert filled["alive"].tolist() == given["alive"].tolist()


def test_estimate_answers_with_intervals_from_a_folder_and_a_bundle(
    run: syncret.Run, tmp_path: Path
) -> None:
    packed = tmp_path / "estimates.zip"
    assert (
        CliRunner()
        .invoke(cli, ["bundle", str(run.folder), f"--out={packed}", "--uncharged=nobody's rows"])
        .exit_code
        == 0
    )
    loaded, text = syncret.load(packed), "mean(age) by ward where alive = True"
    answers = loaded.estimate(text)
    assert [one.group["ward"] for one in answers] == ["x", "y", "z"]
    assert answers.frame().columns.tolist() == ["ward", "value", "low", "high", "basis", "refusal"]
    assert list(answers) == list(run.estimate(text))
    assert "ward x: " in repr(answers)
    assert "<table" in answers._repr_html_()
    count = loaded.estimate("count")
    # An interval of 95 % does not hold in one of twenty runs; six deviations, in none of 10^8.
    wide = 2 * (count.high - count.value)  # type: ignore[operator]
    assert count.low - wide < len(people()) < count.high + wide  # type: ignore[operator]
    assert count.basis == "measured"
    with pytest.raises(ValueError, match="has 3 answers; expected frame"):
        _ = answers.value
    with pytest.raises(syncret.ConditionError, match="no column 'wages'"):
        loaded.estimate("mean(wages)")
    with pytest.raises(TypeError, match="expected count, share"):
        loaded.estimate(3)  # type: ignore[arg-type]
    shown = CliRunner().invoke(cli, ["data", "estimate", str(packed), text, "--json"])
    document = json.loads(shown.stdout)
    assert document["question"] == text
    assert document["estimates"] == [one.to_dict() for one in answers]
    lines = CliRunner().invoke(cli, ["data", "estimate", str(run.folder), text]).stdout.splitlines()
    assert lines == [f"ward {one.group['ward']}: {one}" for one in answers]
    some = loaded.sample(5, where="alive = True")
    low, high = some.attrs["probability_interval"]
    assert low < some.attrs["probability"] < high


def test_estimate_needs_the_runs_report(run: syncret.Run) -> None:
    with pytest.raises(syncret.StoreError, match=r"has no report.json; expected a run's folder"):
        syncret.load(run.folder / "model").estimate("count")
    # Rows are drawn all the same.
    drawn = syncret.load(run.folder / "model").sample(5, where="alive = True")
    assert drawn.attrs["probability_interval"] is None


def test_sample_says_what_its_arguments_are(run: syncret.Run) -> None:
    with pytest.raises(TypeError, match=r"rows = '5'; expected a whole number of at least 1"):
        run.sample("5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected one of them"):
        run.sample(5, seed=1, random_state=1)
    with pytest.raises(ValueError, match=r"random_state = -1; expected a whole number"):
        run.sample(5, random_state=-1)
    with pytest.raises(ValueError, match=r"expected a number of rows, or a table"):
        run.sample()
    with pytest.raises(syncret.ConditionError, match=r"no column 'wages'"):
        run.sample(5, where="wages = 1")


def test_load_reads_a_folder_and_a_bundle(run: syncret.Run, tmp_path: Path, folders: Path) -> None:
    packed = tmp_path / "run.zip"
    assert (
        CliRunner()
        .invoke(cli, ["bundle", str(run.folder), f"--out={packed}", "--uncharged=nobody's rows"])
        .exit_code
        == 0
    )
    before = set(folders.iterdir())
    for where in (run.folder, str(run.folder), packed):
        loaded = syncret.load(where)
        # Without the table that it was made of, types are the columns' own.
        assert loaded.table["alive"].dtype == "bool"
        assert str(loaded.table["height"].dtype) == "Int64"
        assert loaded.sample(5, seed=3).equals(syncret.load(run.folder).sample(5, seed=3))
        if where is packed:
            # A bundle leaves out what the trial computed from its real table.
            public = without_real(dict(run.report))
            assert {key for key in public if loaded.report[key] != public[key]} <= {"columns"}
        else:
            assert dict(loaded.report) == dict(run.report)
        assert syncret.audit(where).passed
    del loaded
    gc.collect()
    assert set(folders.iterdir()) == before
    with pytest.raises(syncret.StoreError, match="expected a run"):
        syncret.load(tmp_path)


def test_audit_says_what_failed_and_has_no_truth_value(run: syncret.Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    table = copy / "synthetic.csv"
    table.write_text(table.read_text().replace("x", "y"))
    found = syncret.audit(copy)
    assert not found.passed
    assert "published" in {check.name for check in found.failed}
    assert "AuditResult(failed)" in repr(found)
    assert found._repr_html_().startswith("<iframe srcdoc=")
    assert found.to_dict()["ok"] is False
    assert not (copy / "audit.html").exists()
    with pytest.raises(TypeError, match=r"ask for \.passed"):
        bool(found)


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"method": "other"}, ValueError, "expected one of distaim, aim, flaim"),
        ({"partition": "other"}, ValueError, "expected one of iid"),
        ({"epsilon": -1.0}, syncret.ConfigError, "run.epsilon"),
        ({"label": "other"}, syncret.ConfigError, "has no 'other'"),
        ({"table": people().drop(columns="age")}, syncret.DataError, "column 'age'"),
        ({"table": people().assign(age=500)}, syncret.DataError, "row 1, column 'age'"),
        ({"config": "absent.toml"}, syncret.ConfigError, "absent.toml"),
    ],
)
def test_synthesize_raises_the_projects_errors_and_leaves_nothing(
    changed: dict[str, object], error: type[Exception], says: str, folders: Path
) -> None:
    before = set(folders.iterdir())
    values: dict[str, object] = {"table": people(), "config": syncret.draft(people()), **changed}
    with pytest.raises(error, match=says):
        syncret.synthesize(**values)  # type: ignore[arg-type]
    assert set(folders.iterdir()) == before


def test_synthesize_keeps_a_folder_that_was_named_and_tells_of_its_progress(
    tmp_path: Path, folders: Path
) -> None:
    heard: list[str] = []
    out = tmp_path / "run"
    values = {"clients": 2, "method": "aim", "rounds": 2, "changes": CHANGES, "out": out}
    frame = people()
    config = syncret.draft(frame)
    done = syncret.synthesize(frame, config, progress=heard.append, **values)  # type: ignore[arg-type]
    assert any("round 2 of 2" in text for text in heard)
    del done
    gc.collect()
    assert (out / "report.html").exists()
    with pytest.raises(syncret.StoreError, match="holds a finished run"):
        syncret.synthesize(frame, config, **values)  # type: ignore[arg-type]


@pytest.mark.slow
def test_synthesize_runs_flaim(folders: Path) -> None:
    frame = people(300)
    done = syncret.synthesize(
        frame, syncret.draft(frame), 4, method="flaim", rounds=1, changes=CHANGES
    )
    assert done.report["method"].startswith("flaim")
    assert done.table.dtypes.to_dict() == frame.dtypes.to_dict()


def test_synthesize_makes_no_other_method_of_a_configuration_between_silos(folders: Path) -> None:
    """It ran DistAIM without a word."""
    before = set(folders.iterdir())
    with pytest.raises(syncret.ConfigError, match="tda: is of a method between silos"):
        syncret.synthesize(people(), ROOT / "examples/tda/study.toml")
    assert set(folders.iterdir()) <= before


def test_submit_wants_a_name_for_a_dataframe() -> None:
    with pytest.raises(ValueError, match="expected dataset"):
        syncret.submit("absent.toml", people())


def test_run_anywhere_cleans_up_before_an_interrupt_is_raised() -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            # As a kernel does: the thread that waits is interrupted, not this one.
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)  # Sleeps: slow.
        finally:
            await asyncio.sleep(0.05)  # Sleeps: slow.
            done.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        run_anywhere(work)
    assert done == ["cleaned up"]


SCRIPT = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
import syncret
from tests.parties.test_api import CHANGES, people
frame = people()
syncret.synthesize(frame, syncret.draft(frame), 3, changes=CHANGES, progress=lambda text: print(text, flush=True))
"""


def test_ctrl_c_ends_the_processes_and_leaves_no_folder(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    try:
        for line in program.stdout:
            if "servers are starting" in line:
                break
        assert count_of(tmp_path, "", 4)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=60)
    finally:
        program.kill()
        program.communicate()
    assert "KeyboardInterrupt" in said
    nothing_runs(tmp_path)
    # The empty file whose locks are this user's ports.
    assert {path.name for path in tmp_path.iterdir()} <= {f"syncret-ports-{os.getuid()}"}


def test_ten_lines_go_from_a_table_to_answers_and_rows(
    tmp_path: Path, folders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The example of README.md, with its table and a smaller run."""
    df = people()
    config = syncret.draft(df)
    config.text = config.text.replace("epsilon = 1.0", "epsilon = 10.0")
    print(syncret.plan(config, rows=len(df)))
    run = syncret.synthesize(df, config, method="aim", target="alive", changes=CHANGES)
    print(run.table.head(), run.quality)
    print(run.estimate("mean(age) by ward where alive = True"))
    some = run.sample(100, where="age >= 65 and ward in (x, y)", random_state=1)
    print(run.evaluate(df))
    with pytest.raises(syncret.ConfigError, match="uncharged= with the reason"):
        run.save(tmp_path / "run.zip")
    budget = tmp_path / "budget"
    assert run.account is None
    with caplog.at_level("INFO", "syncret.api"):
        packed = run.save(tmp_path / "run.zip", data=people(), budget=budget, overwrite=True)
    assert "charged to population table" in run.account
    assert "sets their lifetime limit at epsilon 10" in run.account
    assert run.account in caplog.text
    packed = run.save(tmp_path / "run.zip", data=people(), budget=budget, overwrite=True)
    assert "lifetime limit" not in run.account
    assert [(d.name, len(d.spending)) for d in OwnerBudget(budget).datasets()] == [("table", 1)]
    again = syncret.load(packed)
    same = again.sample(100, where="age >= 65 and ward in (x, y)", seed=1)
    # Without the table that it was made of, types are the columns' own.
    assert same.astype(some.dtypes.to_dict()).equals(some)


def test_a_plan_of_a_draft_says_what_is_the_drafts_own() -> None:
    """A draft's own values are no fault of who reads the plan: they are named as the draft's, or not warned of."""
    rng = np.random.default_rng(1)
    tail = np.round(np.exp(rng.normal(6, 2, 3000)), 2)
    drafted = syncret.draft(pd.DataFrame({"cost": tail, "ward": rng.choice(list("AB"), 3000)}))
    unsaid = syncret.plan(drafted)
    assert not [w for w in unsaid.warnings if "Delta" in w]
    (delta,) = [w for w in syncret.plan(drafted, rows=200_000).warnings if "Delta" in w]
    assert delta.endswith("It is the one that every draft has: run.delta = 1e-6, say.")
    (own,) = [
        w
        for w in syncret.plan(drafted, rows=200_000, changes={"run.delta": 1e-4}).warnings
        if "Delta" in w
    ]
    assert "draft" not in own
    (wide,) = [w for w in unsaid.warnings if "most of the range" in w]
    assert "the draft made it of the table's few farthest values" in wide
    by_hand = drafted.text.replace('from = "table"', 'from = "public: price list"')
    drafted.text = by_hand
    (wide,) = [w for w in syncret.plan(drafted).warnings if "most of the range" in w]
    assert "draft" not in wide
    # Short parts are not rounded up, so that they do not come to more than the whole.
    (time,) = [line for line in str(unsaid).splitlines() if line.startswith("time")]
    total, *parts = [int(n) for n in re.findall(r"(?<!under )\b(\d+) s", time)][:-1]
    assert sum(parts) <= total + len(parts)
    assert "under 1 s" in time


def test_plan_is_the_commands(tmp_path: Path) -> None:
    drafted = syncret.draft(people())
    made = syncret.plan(drafted, rows=120)
    drafted.write(tmp_path / "draft.toml")
    command = ["plan", str(tmp_path / "draft.toml"), "--rows", "120"]
    shown = CliRunner().invoke(cli, command).stdout
    assert str(made).splitlines()[1:] == shown.splitlines()[1:]
    assert made.rows == 120
    assert made.to_dict()["rows"] == 120
    assert repr(made) == str(made)
    # What may not be worth it is a warning.
    assert any("noise drowns" in text for text in made.warnings)
    with pytest.raises(TypeError, match=r"rows = '9'; expected a whole number"):
        syncret.plan(drafted, rows="9")  # type: ignore[arg-type]


def test_quality_and_evaluation_are_tables_of_the_runs_figures(run: syncret.Run) -> None:
    quality = run.quality
    assert {"columns", "expected", "likely", "low", "high", "basis", "noise"} <= {*quality.columns}
    assert set(people().columns) <= {*quality["columns"]}
    found = run.evaluate(people())
    assert found.rows == 120
    assert 0 < found.error < 2
    assert {one.column for one in found.columns} == {*people().columns}
    assert "Not private" in str(found)
    with pytest.raises(syncret.DataError, match="column 'ward' of the domain is not in the table"):
        run.evaluate(people().drop(columns="ward"))
    with pytest.raises(syncret.DataError, match=r"ignore_extra=True") as error:
        run.evaluate(people().assign(extra=1))
    assert "--ignore-extra" not in str(error.value)
    assert run.evaluate(people().assign(extra=1), ignore_extra=True).error == found.error


def test_evaluate_is_the_commands(run: syncret.Run, tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    people().astype({"height": "Int64"}).to_csv(table, index=False)
    shown = CliRunner().invoke(
        cli, ["data", "evaluate", str(run.folder), "--data", str(table), "--json"]
    )
    assert json.loads(shown.stdout) == json.loads(json.dumps(run.evaluate(table).to_dict()))


def test_schemas_and_metadata_go_in_and_out(run: syncret.Run, tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["data", "metadata", str(run.folder)])
    assert json.loads(shown.stdout) == run.metadata
    path = tmp_path / "metadata.json"
    path.write_text(shown.stdout)
    drafted = syncret.draft_from_schema(path)
    assert CliRunner().invoke(cli, ["data", "schema", str(path)]).stdout == drafted.text
    assert "TO BE LISTED" in drafted.text
    assert config_of(drafted, {}).domain.ignore == ("ward", "sex")
    with zipfile.ZipFile(run.save(tmp_path / "schema.zip", uncharged="drawn")) as archive:
        schema = json.loads(archive.read("schema.json"))
    assert set(config_of(syncret.draft_from_schema(schema), {}).domain.names) == {*people().columns}
    with pytest.raises(TypeError, match="the schema is a list; expected a Table Schema"):
        syncret.draft_from_schema([])  # type: ignore[arg-type]
    path.write_text("no json")
    with pytest.raises(syncret.DataError, match="is no JSON"):
        syncret.draft_from_schema(path)


def test_save_makes_a_bundle_or_a_copy_that_load_reads(run: syncret.Run, tmp_path: Path) -> None:
    for name in ("run.zip", "copy"):
        saved = run.save(tmp_path / name, uncharged="drawn")
        loaded = syncret.load(saved).sample(5, seed=3)
        assert loaded.equals(run.sample(5, seed=3).astype(loaded.dtypes.to_dict()))
    with pytest.raises(syncret.StoreError, match="is there already; expected a new name"):
        run.save(tmp_path / "copy")
    with pytest.raises(syncret.StoreError, match="is there already") as error:
        run.save(tmp_path / "run.zip")
    assert "overwrite=True" in str(error.value)
    run.save(tmp_path / "run.zip", uncharged="drawn", overwrite=True)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: syncret.draft([1, 2]), "the table is a list; expected a DataFrame, the path"),  # type: ignore[arg-type]
        (lambda: syncret.draft(None), "the table is None; expected a DataFrame"),  # type: ignore[arg-type]
        (lambda: syncret.synthesize(people(), 3), "the config is an int; expected a draft"),  # type: ignore[arg-type]
        (
            lambda: syncret.synthesize(people(), syncret.draft(people()), "many"),  # type: ignore[arg-type]
            "clients = 'many'; expected a whole number of at least 1",
        ),
        (lambda: syncret.load(None), "run is None; expected a path"),  # type: ignore[arg-type]
        (lambda: syncret.audit(5), "run is an int; expected a path"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_type_errors_that_name_what_is_right(
    call: Callable[[], object], said: str
) -> None:
    with pytest.raises(TypeError) as error:
        call()
    assert said in str(error.value)


def test_unknown_targets_are_named() -> None:
    with pytest.raises((syncret.MechanismError, syncret.PartyError), match="wages"):
        syncret.synthesize(people(), syncret.draft(people()), method="aim", target="wages")


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line and "import" not in line]) <= 10
    syncret.demo_table(2000).to_csv(tmp_path / "stays.csv", index=False)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "95% interval" in done.stdout
    assert (tmp_path / "run.zip").is_file()


def test_demo_table_has_numbers_and_a_seed() -> None:
    table = syncret.demo_table(50)
    assert len(table) == 50
    assert table["age"].dtype.kind == "i"
    assert table.equals(syncret.demo_table(50, random_state=1))
    assert not table.equals(syncret.demo_table(50, seed=2))
