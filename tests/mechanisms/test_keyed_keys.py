"""Keys of tables that are drafted: called alike, or by the table that they lead to, or as the owner says."""

import random
from collections.abc import Mapping

import pytest

from mechanisms.errors import DataError
from mechanisms.keyed.drafting import draft_tables
from mechanisms.keyed.keys import find_keys
from mechanisms.linked_draft import TableRead
from mechanisms.text_table import TextTable

Columns = dict[str, list[str]]


def office(parent: str, child: str, *, numbers: bool, seed: int = 1) -> dict[str, Columns]:
    """80 patients with ages and 200 stays with days, by small numbers or by texts; three rows are strays."""
    chance = random.Random(seed)
    keys = [str(n + 1) if numbers else f"P{n:03}" for n in range(80)]
    patients = {
        parent: keys,
        "sex": [chance.choice("fm") for _ in keys],
        "age": [str(chance.randint(1, 80)) for _ in keys],
    }
    stays = {
        child: [chance.choice(keys[:70]) for _ in range(197)] + ["999"] * 3,
        "days": [str(chance.randint(1, 30)) for _ in range(200)],
        "sex": [chance.choice("fm") for _ in range(200)],
        "ward": [chance.choice(["surgery", "internal"]) for _ in range(200)],
    }
    return {"patients": patients, "stays": stays}


def read(tables: Mapping[str, Columns]) -> dict[str, TableRead]:
    return {
        name: TableRead(TextTable(of, range(2, len(of["sex"]) + 2)), f"{name}.csv", "comma")
        for name, of in tables.items()
    }


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize(
    ("parent", "child"),
    [
        ("patient_id", "patient_id"),
        ("id", "patient_id"),
        ("ID", "PatientNr"),
        ("pid", "patient"),
        ("mrn", "person_id"),
        ("number", "patients_number"),
        ("code", "id"),
    ],
)
def test_keys_are_found_alike_or_not(parent: str, child: str, numbers: bool) -> None:
    tables = read(office(parent, child, numbers=numbers))
    assert find_keys(tables, {}) == {"patients": parent, "stays": child}
    drafted = draft_tables(tables).tables
    assert (drafted.parent.name, drafted.parent.key) == ("patients", parent)
    assert (drafted.children[0].key, drafted.parent.domain is None) == (child, False)


@pytest.mark.parametrize("stays", [40, 200])
def test_numbers_that_each_table_gives_its_own_rows_are_no_key(stays: int) -> None:
    """Both have an `id`, whose values stand in one another's; that of the patient is in a column of the stays."""
    tables = office("id", "patient_id", numbers=True)
    rows = {name: cells[:stays] for name, cells in tables["stays"].items()}
    numbered = {"id": [str(n + 1) for n in range(stays)]} | rows
    found = find_keys(read(tables | {"stays": numbered}), {})
    assert found == {"patients": "id", "stays": "patient_id"}


@pytest.mark.parametrize("said", [{"patients": "x1"}, {"stays": "x2"}])
def test_one_key_that_is_said_finds_the_other(said: dict[str, str]) -> None:
    """Names that tell nothing leave the question to the owner."""
    tables = read(office("x1", "x2", numbers=False))
    with pytest.raises(
        DataError, match="no key of persons found; say which column it is with --key"
    ):
        find_keys(tables, {})
    assert find_keys(tables, said if "stays" in said else said | {"stays": "x2"}) == {
        "patients": "x1",
        "stays": "x2",
    }


def test_a_column_in_which_keys_stand_by_chance_is_none() -> None:
    """Days from 1 to 30 are among the patients' numbers from 1 to 80."""
    tables = office("id", "patient_id", numbers=True)
    del tables["stays"]["patient_id"]
    with pytest.raises(DataError, match="patients and stays: no key of persons found"):
        find_keys(read(tables), {})


def test_two_columns_that_may_be_the_key_are_asked_about() -> None:
    """A stay names its patient and who brought the patient, both by the patients' numbers."""
    tables = office("id", "patient_id", numbers=False)
    tables["stays"]["with_patient_id"] = tables["stays"]["patient_id"][::-1]
    del tables["stays"]["sex"]
    sources = read(tables | {"stays": tables["stays"] | {"sex": tables["stays"]["ward"]}})
    with pytest.raises(DataError, match="no key of persons found"):
        find_keys(sources, {})
    said = {"stays": "with_patient_id"}
    assert find_keys(sources, said) == {"patients": "id", "stays": "with_patient_id"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"visits": "id"},
            "--key visits=id: there is no table visits; the tables are patients and stays",
        ),
        ({"stays": "pid"}, "stays.csv: no column 'pid' for the key; the columns are patient_id"),
    ],
)
def test_keys_of_no_table_or_column_are_refused(said: dict[str, str], words: str) -> None:
    with pytest.raises(DataError, match=words):
        find_keys(read(office("id", "patient_id", numbers=False)), said)
