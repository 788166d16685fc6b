"""DATA_MODEL.md says what the code has: states, tables and rooms."""

import re
from pathlib import Path

import pytest

from parties.federation.journal import SUM_TABLE_SQL
from parties.mpc.exclusion import Exclusion
from parties.mpc.storage.tables import STORE_SCHEMA
from parties.observability.status import ParticipantState, Phase
from parties.service.study_record import StudyState
from parties.service.tables import METADATA
from parties.storage import charge_state, owner_budget, release_registry
from parties.storage.charge_state import ChargeState
from parties.storage.limit_history import LIMIT_TABLE
from parties.storage.populations import POPULATION_TABLES
from tests.test_imports import ROOMS, ROOT

TEXT = (ROOT / "DATA_MODEL.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def tables_in(*statements: str) -> set[str]:
    return set(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", " ".join(statements)))


@pytest.mark.parametrize("states", [StudyState, Phase, ParticipantState, Exclusion, ChargeState])
def test_every_state_is_on_the_page(states: type[StudyState]) -> None:
    missing = [state.value for state in states if f"`{state.value}`" not in section("States")]
    assert missing == []


def test_every_table_of_the_databases_is_on_the_page() -> None:
    budget = Path(owner_budget.__file__).read_text(encoding="utf-8")
    registry = Path(release_registry.__file__).read_text(encoding="utf-8")
    schemas = (*STORE_SCHEMA, SUM_TABLE_SQL, *charge_state.TABLES, *POPULATION_TABLES, LIMIT_TABLE)
    names = tables_in(*schemas, budget, registry) | set(METADATA.tables)
    assert {"submission", "ledger", "sum", "returned", "owner", "approvals"} <= names
    assert [name for name in sorted(names) if f"`{name}`" not in section("Tables")] == []


def test_the_tables_of_the_store_on_the_page_exist() -> None:
    text = section("Tables").split("store.sqlite")[1].split("\n**")[0]
    told = set()
    for line in text.splitlines():
        if line.startswith("| `"):
            told |= set(re.findall(r"`(\w+)`", line.split("|")[1]))
    assert told == tables_in(*STORE_SCHEMA) | {"meta"}


def test_rooms_on_the_page_are_those_of_the_imports_in_their_order() -> None:
    told = re.findall(r"^\| `(\w+)` \|", section("Rooms"), re.MULTILINE)
    assert tuple(told) == ROOMS


def test_modules_on_the_page_exist() -> None:
    for name in re.findall(r"`parties\.([\w.]+)`", TEXT):
        path = ROOT / "parties" / name.replace(".", "/")
        assert (
            path.is_dir()
            or path.with_suffix(".py").exists()
            or path.parent.with_suffix(".py").exists()
        ), name
    for name in re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w/]*)`", TEXT):
        path = ROOT / "parties" / name
        assert path.is_dir() or path.with_suffix(".py").exists(), name
