"""A person's key in one table: the owner's own program refuses more rows of somebody than the configuration allows."""

import json
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mechanisms.errors import DataError
from mechanisms.source import TableSource
from parties.cli.main import cli
from parties.config import Config
from parties.foundation.errors import ConfigError
from parties.local.request import TrialRequest, load_trial
from parties.report.privacy_text import unit_trust
from parties.session.owner import DataOwner, Table
from tests.parties.support import certificates, make_config

PERSON = {
    "run.unit": "person",
    "run.rows_per_person": 2,
    "run.person": ["person_id"],
    "ignore": ["person_id"],
}


def table(folder: Path, people: list[str]) -> Path:
    path = folder / "visits.csv"
    lines = [f"f,x,1,{person}" for person in people]
    path.write_text("\n".join(["sex,ward,age,person_id", *lines]) + "\n")
    return path


def owner(config: Config, path: Path) -> DataOwner:
    files = certificates()["clinic-a"]
    location = Table(TableSource(str(path)), ignore_extra=False)
    return DataOwner.of(config, location, ca=files.ca, cert=files.cert, key=files.key)


def test_owner_refuses_a_table_in_which_somebody_has_more_rows(tmp_path: Path) -> None:
    config = make_config(PERSON)
    codes = owner(config, table(tmp_path, ["a", "b", "a", "c"])).codes()
    assert codes.shape == (4, 3)
    refused = owner(config, table(tmp_path, ["a", "b", "a", " A ", "b", "b"]))
    with pytest.raises(DataError, match="at most 2 rows a key") as raised:
        refused.codes()
    assert "'a'" not in str(raised.value)
    with pytest.raises(DataError, match="no linking key"):
        owner(config, table(tmp_path, ["a", ""])).codes()
    # The control: without the key the same table is taken on the owners' word.
    word = make_config({**PERSON, "run.person": None})
    assert owner(word, table(tmp_path, ["a"] * 5)).codes().shape == (5, 3)


def test_trial_refuses_such_a_table_too(tmp_path: Path) -> None:
    config = make_config({**PERSON, "party": None})
    location = Table(TableSource(str(table(tmp_path, ["a"] * 5))), ignore_extra=False)
    request = TrialRequest("distaim", "visits", 3, "iid", None, 1)
    with pytest.raises(DataError, match="at most 2 rows a key"):
        load_trial(config, location.text(config.domain), request, source="visits.csv")


def test_key_is_not_modelled_and_stands_in_ignore() -> None:
    with pytest.raises(ConfigError, match=r"run\.person: has 'sex'; expected columns that ignore"):
        make_config({**PERSON, "run.person": ["sex"]})
    with pytest.raises(ConfigError, match=r"run\.person: is \['person_id'\]; expected columns"):
        make_config({**PERSON, "run.unit": "row", "run.rows_per_person": 1})
    config = make_config(PERSON)
    assert config.run.person == ("person_id",)
    assert config.agreed()["run"]["person"] == ["person_id"]  # type: ignore[index]
    assert "person" not in make_config().agreed()["run"]  # type: ignore[operator]


def test_report_says_who_has_checked_the_bound() -> None:
    checked = " ".join(unit_trust(make_config(PERSON)))
    assert "own program refused a table in which somebody has more than 2 rows" in checked
    assert "at all owners together is their word" in checked
    word = " ".join(unit_trust(make_config({**PERSON, "run.person": None})))
    assert "is the owners' word: nobody can see" in word
    assert "own program" not in word


def test_owner_leaves_rows_out_by_a_fixed_rule_where_the_study_says_so(tmp_path: Path) -> None:
    """The same rows stay, however the table is sorted; their number is for the owner's own screen."""
    config = make_config({**PERSON, "run.more_rows": "sample"})
    lines = [
        f"{'fm'[n % 2]},{'xyz'[n % 3]},{n % 5},{person}" for n, person in enumerate("aabacaabbb")
    ]
    found, said = [], list[str]()
    for number, rows in enumerate((lines, lines[::-1])):
        path = tmp_path / f"visits-{number}.csv"
        path.write_text("\n".join(["sex,ward,age,person_id", *rows]) + "\n")
        given = owner(config, path)
        spoken = replace(given, table=replace(given.table, say=said.append))
        codes = spoken.codes()
        assert codes.shape == (5, 3)
        found.append(Counter(map(tuple, codes.tolist())))
    assert found[0] == found[1]
    assert (
        "5 of 10 rows are left out, of persons with more than 2; that number is yours alone"
        in said[0]
    )
    said.clear()
    fits = owner(config, table(tmp_path, ["a", "b", "a"]))
    replace(fits, table=replace(fits.table, say=said.append)).codes()
    assert said == []


def test_trial_leaves_rows_out_too(tmp_path: Path) -> None:
    config = make_config({**PERSON, "run.more_rows": "sample", "party": None})
    location = Table(TableSource(str(table(tmp_path, ["a"] * 5 + ["b"]))), ignore_extra=False)
    request = TrialRequest("distaim", "visits", 3, "iid", None, 1)
    trial = load_trial(config, location.text(config.domain), request, source="visits.csv")
    assert len(trial.codes) == 3


def test_more_rows_is_agreed_on_and_needs_a_key() -> None:
    config = make_config({**PERSON, "run.more_rows": "sample"})
    assert config.agreed()["run"]["more_rows"] == "sample"  # type: ignore[index]
    assert "more_rows" not in make_config(PERSON).agreed()["run"]  # type: ignore[operator]
    with pytest.raises(ConfigError, match=r"run\.more_rows: stands without run\.person"):
        make_config({"run.more_rows": "sample"})
    with pytest.raises(ConfigError, match=r"run\.more_rows"):
        make_config({**PERSON, "run.more_rows": "all"})
    said = " ".join(unit_trust(config))
    assert (
        "left rows out where somebody, by person_id, has more than 2 rows; how many is nobody else's"
        in said
    )
    assert "is their word" in said


def test_draft_proposes_a_persons_key_and_its_rows(tmp_path: Path) -> None:
    people = [f"P{n:02}" for n in range(20) for _ in range(5)]
    path = table(tmp_path, people)
    result = CliRunner().invoke(cli, ["data", "draft", str(path)])
    assert "# There are 5 rows for each value of person_id, which is not modelled" in result.stdout
    drafted = tomllib.loads(result.stdout)
    run = drafted["run"]
    assert (run["unit"], run["person"], run["rows_per_person"]) == ("person", ["person_id"], 5)
    assert drafted["ignore"] == ["person_id"]
    assert "READ FROM THE DATA: replace or confirm\nrows_per_person = 5" in result.stdout
    assert "person_id: looks like a person's key: 5 rows for each value" in result.stderr
    shown = json.loads(CliRunner().invoke(cli, ["data", "draft", str(path), "--json"]).stdout)
    assert shown["person"] == {"column": "person_id", "most": 5, "fewest": 5}
    private = CliRunner().invoke(cli, ["data", "draft", str(path), "--private"]).stdout
    run = tomllib.loads(private)["run"]
    assert (run["person"], "rows_per_person" in run) == (["person_id"], False)
    assert " 5 " not in private.split("[run]")[1].split("[workload]")[0]
