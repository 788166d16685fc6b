"""Studies of tables with keys: the budget of a person over all views, runs, their folders, studies on hosts."""

import json
import stat
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner, Result

import syncret
from mechanisms.errors import DataError
from mechanisms.keyed.declared import KeyedTables
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from parties.cli.main import cli
from parties.config import load_config
from parties.foundation.errors import ConfigError
from parties.foundation.exit_codes import AuditFailed
from parties.foundation.untrusted_text import parse_toml
from parties.local.keyed import keyed_rows
from parties.methods.keyed_study import load_keyed_study, person_epsilon
from parties.session.owner import Table
from tests.mechanisms.test_keyed import drafted, office

RUN = {"epsilon": 4.0, "delta": 1e-5, "iterations": 20, "final_iterations": 50}


def written(folder: Path, persons: int = 60, **run: object) -> tuple[Path, list[str]]:
    """A study's configuration and an owner's tables; returns the file, and the options with the tables."""
    tables = office(persons, most=4)
    options = list[str]()
    for name, columns in tables.items():
        lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        options += ["--table", f"{name}={folder / name}.csv"]
    keyed = drafted(tables).tables
    document = {
        "run": RUN | run,
        "clients": {"expected": 3, "rows_per_client": 1000},
        "table": keyed.to_dict(),
    }
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    return path, options


def syncret_command(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def ran(*arguments: object) -> str:
    found = syncret_command(*arguments)
    assert found.exit_code == 0, (found.output, found.exception)
    return found.output


@pytest.mark.parametrize("accountant", ["gaussian", "zcdp"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0, 30.0])
def test_views_cost_a_person_the_budget_together(
    tmp_path: Path, accountant: str, epsilon: float
) -> None:
    path, _ = written(tmp_path, epsilon=epsilon, accountant=accountant)
    study = load_keyed_study(path)
    spent = person_epsilon(study.configs.values(), 1e-5)
    assert 0.99 * epsilon < spent <= epsilon
    # The control: each view with the whole budget.
    alone = {"run.epsilon": epsilon, "run.delta": 1e-5}
    whole = [config.override(alone) for config in study.configs.values()]
    assert person_epsilon(whole, 1e-5) > 1.2 * epsilon


def test_a_view_is_a_flat_configuration_for_persons(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    document = parse_toml(path.read_text(encoding="utf-8"))
    document["table"][1] |= {"rows": 4, "most": 4}  # type: ignore[index]
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    configs = load_keyed_study(path).configs
    assert {
        name: (c.run.unit, c.run.rows_per_person, c.run.person, c.run.more_rows)
        for name, c in configs.items()
    } == {
        "patients": ("person", 1, ("key",), None),
        "stays": ("person", 3, ("key",), "sample"),
    }
    assert configs["stays"].clients.rows_per_client == 3000


def test_columns_name_files_beside_the_configuration(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    document = parse_toml(path.read_text(encoding="utf-8"))
    (tmp_path / "wards.txt").write_text("surgery\ninternal\n", encoding="utf-8")
    tables: list[dict[str, list[dict[str, object]]]] = document["table"]  # type: ignore[assignment]
    (place,) = (i for i, c in enumerate(tables[1]["column"]) if c["name"] == "ward")
    private = {"kind": "categorical", "values": "private", "candidates": "wards.txt"}
    tables[1]["column"][place] = {"name": "ward", "missing": True} | private
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    (child,) = load_keyed_study(path).tables.children
    assert child.column("ward").labels[:2] == ("surgery", "internal")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"column": []}, r"\[\[table.column\]\]"),
        ({"run": RUN | {"unit": "row"}}, "run.unit: follows from"),
        ({"run": RUN | {"person": ["pid"]}}, "run.person: follows from"),
        ({"table": []}, "0 \\[\\[table\\]\\] stand without parent"),
        ({"run": RUN | {"epsilon": -1.0}}, "run.epsilon"),
    ],
)
def test_other_configurations_are_refused(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path, _ = written(tmp_path)
    document = parse_toml(path.read_text(encoding="utf-8")) | change
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load_keyed_study(path)


def test_a_plan_has_every_view(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    said = json.loads(ran("plan", path, "--rows", 1000, "--json"))
    rows = {view.name: view.rows for view in load_keyed_study(path).views.values()}
    assert {name: each["rows"] for name, each in said.items()} == {
        name: 1000 * times for name, times in rows.items()
    }
    assert "view stays:" in ran("plan", path, "--rows", 1000)


def test_commands_for_one_table_say_what_the_configuration_is(tmp_path: Path) -> None:
    path, options = written(tmp_path)
    with pytest.raises(ConfigError, match="is of tables with keys"):
        load_config(path)
    found = syncret_command("run", path, "--data", options[1].partition("=")[2])
    assert "expected --table patients=FILE --table stays=FILE" in found.output
    for option in ("--plain", "--label=ward", "--capacity=9"):
        found = syncret_command("run", path, *options, option)
        assert f"{option.partition('=')[0]} is for one table" in found.output
    found = syncret_command("data", "draft", *options, "--private-numbers")
    assert "--private-numbers is for one table" in found.output
    found = syncret_command("run", path, *options, "--method", "tda")
    assert "expected one of distaim, aim, flaim" in found.output
    found = syncret_command("run", path, *options[:2], "--method", "aim", "--out", tmp_path / "r")
    assert "no table 'stays'" in str(found.exception)


def test_a_run_makes_tables_a_report_and_more_persons(tmp_path: Path) -> None:
    path, options = written(tmp_path)
    out = tmp_path / "run"
    said = ran("run", path, *options, "--method", "aim", "--out", out)
    assert "of a person with all of its rows, of which up to" in said
    patients, stays = (read_text(out / f"{name}.csv") for name in ("patients", "stays"))
    assert set(stays.columns["pid"]) <= set(patients.columns["pid"])
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["privacy"]["spent at most"] <= 4.0
    (own,) = report["figures"]["synthetic"]
    assert (own["broken"], own["unordered"]) == (0, 0)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "and are not private" in page
    assert "<script" not in page

    again = syncret_command("run", path, *options, "--method", "aim", "--out", out)
    assert "holds a finished run" in str(again.exception)
    more = tmp_path / "more"
    ran("data", "sample", out, "-n", 40, "--out", more, "--seed", 3, "--where", "stays.number > 1")
    drawn = read_text(more / "stays.csv").columns["pid"]
    assert len(set(drawn)) == 40
    assert all(drawn.count(pid) > 1 for pid in set(drawn))

    study = tmp_path / "again"
    runs = [f"--view={name}={out / 'views' / name}" for name in ("patients", "stays")]
    ran("data", "tables", path, *runs, "-n", 25, "--out", study)
    assert len(read_text(study / "patients.csv")) == 25
    other, _ = written(tmp_path, epsilon=2.0)
    refused = syncret_command("data", "tables", other, *runs, "--out", tmp_path / "other")
    assert "run.epsilon: is" in str(refused.exception)


def test_an_interrupted_run_goes_on_with_the_view_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, options = written(tmp_path)
    document = parse_toml(path.read_text(encoding="utf-8"))
    document["table"][1]["format"] = {"delimiter": ";", "decimal": ","}  # type: ignore[index]
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    tables = {option.partition("=")[0]: option.partition("=")[2] for option in options[1::2]}
    out = tmp_path / "run"
    begun = list[str]()

    def prepared(rows: object, config: syncret.Config, *_: object, **__: object) -> None:
        begun.append(config.run.id)
        if config.run.id.endswith("stays") and len(begun) == 2:
            raise KeyboardInterrupt
        return real(rows, config, *_, **__)  # type: ignore[arg-type]

    from parties.api import keyed

    real = keyed.prepare
    monkeypatch.setattr(keyed, "prepare", prepared)
    with pytest.raises(KeyboardInterrupt):
        syncret.synthesize_tables(tables, path, method="aim", out=out)
    other = (tmp_path / "stays.csv").read_text(encoding="utf-8")
    (tmp_path / "stays.csv").write_text(other.replace("surgery", "internal"), encoding="utf-8")
    with pytest.raises(syncret.StoreError, match="no unfinished run of this study, these tables"):
        syncret.synthesize_tables(tables, path, method="aim", out=out)
    (tmp_path / "stays.csv").write_text(other, encoding="utf-8")
    run = syncret.synthesize_tables(tables, path, method="aim", out=out)
    assert not (out / "run.sha256").exists()
    assert begun == ["study-patients", "study-stays", "study-stays"]
    assert set(run.tables) == {"patients", "stays"}
    assert run.tables["stays"]["weight"].dtype == float
    assert run.tables["patients"]["pid"].tolist()[:2] == [1, 2]
    more = tmp_path / "more"
    ran("data", "sample", out, "-n", 10, "--out", more, "--seed", 3)
    drawn = read_text(more / "patients.csv").columns
    samples = [
        run.sample(10, seed=seed)["patients"]["born"].astype(str).tolist() for seed in (3, 2)
    ]
    assert samples[0] == list(drawn["born"]) != samples[1]
    assert set(run.views) == {"patients", "stays"}


def test_owners_get_the_rows_of_each_view(tmp_path: Path) -> None:
    path, options = written(tmp_path)
    out = tmp_path / "views"
    ran("data", "tables", path, *options, "--out", out)
    study = load_keyed_study(path)
    for name, config in study.configs.items():
        assert load_config(out / f"{name}.toml").digest() == config.digest()
        assert stat.S_IMODE((out / f"{name}.csv").stat().st_mode) == 0o600
    assert len(read_text(out / "patients.csv")) == 60


def test_unknown_columns_are_ignored_on_demand(tmp_path: Path) -> None:
    path, options = written(tmp_path)
    stays = tmp_path / "stays.csv"
    lines = stays.read_text(encoding="utf-8").splitlines()
    stays.write_text("".join(f"{line},{'?' if i else 'extra'}\n" for i, line in enumerate(lines)))
    given = {o.partition("=")[0]: TableSource(o.partition("=")[2]) for o in options[1::2]}
    study = load_keyed_study(path)
    with pytest.raises(DataError, match="--ignore-extra"):
        keyed_rows(study, {name: Table(source, False) for name, source in given.items()})
    rows, _ = keyed_rows(study, {name: Table(source, True) for name, source in given.items()})
    assert set(rows) == {"patients", "stays"}


def test_a_draft_is_a_configuration(tmp_path: Path) -> None:
    _, options = written(tmp_path)
    out = tmp_path / "draft.toml"
    ran("data", "draft", *options, "--out", out)
    document = parse_toml(out.read_text(encoding="utf-8"))
    assert KeyedTables.from_list(document["table"]) == load_keyed_study(out).tables
    assert "READ FROM THE DATA" in out.read_text(encoding="utf-8")
    said = json.loads(ran("data", "draft", *options, "--json"))
    assert said["table"] == document["table"]
    tables = {option.partition("=")[0]: option.partition("=")[2] for option in options[1::2]}
    assert syncret.draft_tables(tables) == out.read_text(encoding="utf-8")


def test_keys_of_other_names_are_found_or_said_and_stand_in_the_tables_that_are_made(
    tmp_path: Path,
) -> None:
    """Patients have an id, and their stays a column that leads to it."""
    _, options = written(tmp_path)
    patients, stays = tmp_path / "patients.csv", tmp_path / "stays.csv"
    patients.write_text(patients.read_text().replace("pid", "id", 1), encoding="utf-8")
    stays.write_text(stays.read_text().replace("pid", "patient", 1), encoding="utf-8")
    config = tmp_path / "drafted.toml"
    ran("data", "draft", *options, "--out", config)
    document = parse_toml(config.read_text(encoding="utf-8"))
    tables = KeyedTables.from_list(document["table"])
    assert (tables.parent.key, tables.children[0].key) == ("id", "patient")
    config.write_text(tomli_w.dumps(document | {"run": RUN}), encoding="utf-8")
    ran("run", config, *options, "--method", "aim", "--out", tmp_path / "run")
    assert (tmp_path / "run" / "patients.csv").read_text().startswith("id,")
    keys = read_text(TableSource(tmp_path / "run" / "stays.csv")).columns["patient"]
    assert set(keys) <= set(read_text(TableSource(tmp_path / "run" / "patients.csv")).columns["id"])

    # Of columns that no name tells apart the owner says which it is, on the command line and in Python.
    stays.write_text(stays.read_text().replace("patient", "x", 1), encoding="utf-8")
    refused = syncret_command("data", "draft", *options)
    assert "no key of persons found; say which column it is with --key" in str(refused.exception)
    for said in (["stays=x"], ["x", "patients=id"]):
        asked = [each for key in said for each in ("--key", key)]
        found = json.loads(ran("data", "draft", *options, *asked, "--json"))
        assert [table["key"] for table in found["table"]] == ["id", "x"]
    given = {"patients": patients, "stays": stays}
    assert 'key = "x"' in syncret.draft_tables(given, key={"stays": "x"})
    assert (
        "--key is for tables with keys"
        in syncret_command("data", "draft", stays, "--key", "x").output
    )


@pytest.mark.slow
@pytest.mark.parametrize("security", ["semi-honest", "malicious"])
def test_three_servers_make_tables_with_keys(tmp_path: Path, security: str) -> None:
    path, options = written(tmp_path, 200)
    out = tmp_path / "run"
    ran("run", path, *options, "--clients", 3, "--security", security, "--out", out)
    audited = json.loads(ran("audit", out, "--json"))
    assert [check["status"] for check in audited["checks"]] == ["pass"] * 5
    assert sorted(audited["views"]) == ["patients", "stays"]
    assert (out / "views" / "stays" / "audit.html").exists()
    found = syncret.audit(out)
    assert found.passed
    assert not found.failed
    # So is what is drawn from runs of views on hosts of their own.
    views = [f"--view={name}={out / 'views' / name}" for name in audited["views"]]
    ran("data", "tables", path, *views, "-n", 50, "--out", tmp_path / "drawn")
    assert syncret.audit(tmp_path / "drawn").passed
    # Of another study, whose persons pay less, these runs are none.
    less = tmp_path / "less.toml"
    less.write_text(path.read_text().replace("epsilon = 4.0", "epsilon = 1.0"), encoding="utf-8")
    refused = syncret_command("audit", out, "--config", less)
    assert isinstance(refused.exception, AuditFailed)
    assert "budget" in str(refused.exception)
    (own,) = json.loads((out / "report.json").read_text(encoding="utf-8"))["figures"]["synthetic"]
    assert (own["broken"], own["unordered"]) == (0, 0)


def linked(folder: Path, how: str, persons: int = 60) -> tuple[Path, list[str]]:
    """As ``written``, with rows that servers link by their key."""
    path, options = written(folder, persons)
    document = parse_toml(path.read_text(encoding="utf-8"))
    parent, child = document["table"]  # type: ignore[misc]
    parent["linked"] = how  # type: ignore[index]
    child |= {"rows": 3, "most": 4}  # type: ignore[operator]
    document["table"] = [parent, child]
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    return path, options


@pytest.mark.parametrize(
    ("how", "sources"),
    [
        ("rows", {"patients": {"patients": 1}, "stays": {"stays": 2}}),
        ("tables", {"patients": {"patients": 1, "stays": 1}, "stays": {"patients": 1, "stays": 2}}),
    ],
)
def test_servers_count_a_persons_rows_where_they_link_them(
    tmp_path: Path, how: str, sources: dict[str, dict[str, int]]
) -> None:
    path, options = linked(tmp_path, how)
    study = load_keyed_study(path)
    found = {
        name: {source.name: source.rows_per_person for source in config.sources}
        for name, config in study.configs.items()
    }
    assert found == sources
    assert {config.rows_of_unit for config in study.configs.values()} == {1, 2}
    out = tmp_path / "mine"
    ran("data", "tables", path, *(options if how == "rows" else options[2:]), "--out", out)
    own = {name: read_text(path) for path in out.glob("*.csv") for name in [path.stem]}
    rows = own["stays-stays"]
    assert max(rows.columns["key"].count(key) for key in set(rows.columns["key"])) == 2
    at_stays = {f"{view}-stays" for view in sources} if how == "tables" else set(own)
    assert set(own) == at_stays
    if how == "tables":
        assert not any(name.startswith("patients.") for name in rows.columns)


def test_linked_tables_make_the_same_run_as_whole_rows(tmp_path: Path) -> None:
    path, options = linked(tmp_path, "tables")
    out = tmp_path / "run"
    ran("run", path, *options, "--method", "aim", "--clients", 2, "--rounds", 3, "--out", out)
    rounds = {
        load_config(out / "views" / name / "config.toml").run.rounds
        for name in ("patients", "stays")
    }
    assert rounds == {3}, "options are those of every view"
    (own,) = json.loads((out / "report.json").read_text(encoding="utf-8"))["figures"]["synthetic"]
    assert (own["broken"], own["unordered"]) == (0, 0)
    assert "0" not in own["numbers"], "persons without rows join nothing"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["rows", "tables"])
def test_three_servers_link_tables_with_keys(tmp_path: Path, how: str) -> None:
    path, options = linked(tmp_path, how, 150)
    out = tmp_path / "run"
    ran("run", path, *options, "--clients", 3, "--out", out)
    for view in ("patients", "stays"):
        audited = syncret_command("audit", out / "views" / view)
        assert audited.exit_code == 0, audited.output
