"""A person's key in one table: the owner's own program refuses more rows of somebody than the configuration allows."""

from pathlib import Path

import pytest

from mechanisms.errors import DataError
from mechanisms.source import TableSource
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
