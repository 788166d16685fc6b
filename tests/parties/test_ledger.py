"""The durable ledger: it never overspends, survives its process, and says in which order a transcript hears of it."""

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.accounting import LedgerEntry, rho
from mechanisms.errors import BudgetExceeded
from mechanisms.events import (
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    event_to_dict,
)
from parties.foundation.errors import StoreError
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger, adopt_charges
from protocols.errors import CheckFailed
from protocols.transcript import Value, canonical
from tests.parties.support import file_size_limit

CONFIG = "c0" * 32
EIGHTH = GaussianEvent(2.0)
TINY = GaussianEvent(1000.0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "store", CONFIG, LEDGER) as opened:
        yield opened


def costing(cost: float) -> Event:
    """An event of about this cost; its own is what counts."""
    return GaussianEvent(math.sqrt(1 / (2 * cost)))


def test_charge_refuses_and_enters_nothing_when_it_would_overspend(database: Database) -> None:
    ledger = DurableLedger(database, 1.0)
    for _ in range(8):
        ledger.charge(1, "measure", EIGHTH)
    for event in (GaussianEvent(1e150), TINY, EIGHTH, GaussianEvent(1e-9), ExponentialEvent(0.1)):
        with pytest.raises(BudgetExceeded, match=r"^round 2, select: .* was refused: 1 of the"):
            ledger.charge(2, "select", event)
    assert ledger.spent == 1.0
    assert len(ledger.entries) == 8


@pytest.mark.parametrize("budget", [math.nan, math.inf, -math.inf, -1.0])
def test_ledger_refuses_a_budget_that_is_none(database: Database, budget: float) -> None:
    with pytest.raises(ValueError, match="the budget is"):
        DurableLedger(database, budget)


def test_ledger_without_a_budget_covers_nothing(database: Database) -> None:
    with pytest.raises(BudgetExceeded):
        DurableLedger(database).charge(1, "select", GaussianEvent(1e150))


def test_charge_grants_nothing_to_rounding(database: Database) -> None:
    """Ten times the cost of this event is the budget, but for what rounding takes off the sum."""
    event = next(e for n in range(50) if _rounds_down(e := GaussianEvent(2.0 + n / 100)))
    ledger = DurableLedger(database, math.fsum([rho(event)] * 10))
    for _ in range(9):
        ledger.charge(1, "measure", event)
    with pytest.raises(BudgetExceeded):
        ledger.charge(1, "measure", event)


def _rounds_down(event: Event) -> bool:
    return Fraction(math.fsum([rho(event)] * 10)) < 10 * Fraction(rho(event))


@settings(max_examples=15)
@given(costs=st.lists(st.floats(1e-9, 0.7), max_size=12))
def test_charge_never_passes_the_budget_for_any_costs(
    tmp_path_factory: pytest.TempPathFactory, costs: list[float]
) -> None:
    with Database(tmp_path_factory.mktemp("ledger"), CONFIG, LEDGER) as database:
        ledger, entered = DurableLedger(database, 1.0), Fraction(0)
        for event in map(costing, costs):
            try:
                ledger.charge(0, "measure", event)
                entered += Fraction(rho(event))
            except BudgetExceeded:
                assert entered + Fraction(rho(event)) > 1
        assert sum(Fraction(entry.rho) for entry in ledger.entries) == entered <= 1


def test_charge_never_passes_the_budget_from_many_threads(database: Database) -> None:
    """A ledger for two of them each: what one has charged is spent in the other."""
    outcomes: list[bool] = []
    ledgers = [DurableLedger(database, 1.0) for _ in range(2)]

    def charge(ledger: DurableLedger) -> None:
        for _ in range(10):
            try:
                ledger.charge(1, "select", GaussianEvent(2.0, sensitivity=0.5))
                outcomes.append(True)
            except BudgetExceeded:
                outcomes.append(False)

    threads = [threading.Thread(target=charge, args=[ledgers[i % 2]]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(outcomes) == {True: 32, False: 8}
    assert len(ledgers[0].entries) == len(ledgers[1].entries) == 32


def test_charge_all_is_durable_together_or_not_at_all(database: Database) -> None:
    ledger = DurableLedger(database, 1.0)

    def charge(*sigmas: float) -> None:
        ledger.charge_all(1, [("measure", DiscreteGaussianEvent(sigma)) for sigma in sigmas])

    charge(10.0)
    with pytest.raises(BudgetExceeded):
        charge(10.0, 0.1)
    assert len(ledger.entries) == 1
    assert DurableLedger(database, 1.0).entries == ledger.entries


def test_charge_is_not_spent_when_the_disk_is_full(database: Database) -> None:
    ledger = DurableLedger(database, 1.0)
    ledger.charge(1, "select", TINY)
    size = max((database.directory / f"store.sqlite{end}").stat().st_size for end in ("", "-wal"))

    def charge_many() -> None:
        for _ in range(1000):
            ledger.charge(1, "select", TINY)

    with (
        file_size_limit(size),
        pytest.raises(StoreError, match=r"store\.sqlite: cannot be written"),
    ):
        charge_many()
    before = ledger.entries
    assert DurableLedger(database).entries == before
    assert [*before, ledger.charge(2, "select", EIGHTH)] == ledger.entries


def test_entries_of_a_transaction_that_is_taken_back_are_not_spent(database: Database) -> None:
    ledger = DurableLedger(database, 1.0)

    def taken_back() -> None:
        with database.transaction():
            ledger.charge(1, "measure", EIGHTH)
            assert ledger.spent == 0.125
            raise RuntimeError("taken back")

    with pytest.raises(RuntimeError, match="taken back"):
        taken_back()
    assert ledger.entries == []
    # The next one has its number in the table.
    entry = ledger.charge(2, "select", TINY)
    assert ledger.entries == [entry]


# What a transcript hears


def test_charge_tells_first_and_enters_nothing_when_that_fails(database: Database) -> None:
    def full(_: LedgerEntry) -> None:
        assert database.rows("SELECT * FROM ledger") == []
        raise OSError("no room")

    ledger = DurableLedger(database, 1.0, first=full)
    with pytest.raises(OSError, match="no room"):
        ledger.charge(1, "measure", EIGHTH)
    assert ledger.entries == []


def test_charge_tells_then_when_it_is_on_the_disk(database: Database) -> None:
    told: list[tuple[LedgerEntry, int]] = []

    def then(entry: LedgerEntry) -> None:
        with sqlite3.connect(database.directory / "store.sqlite") as disk:
            told.append((entry, disk.execute("SELECT count(*) FROM ledger").fetchone()[0]))
        disk.close()

    ledger = DurableLedger(database, 0.3, then=then)
    entry = ledger.charge(1, "measure", EIGHTH)
    ledger.adopt([entry, entry])
    with pytest.raises(BudgetExceeded):
        ledger.charge(2, "measure", EIGHTH)
    assert told == [(entry, 1)]


# What others have charged

entries = st.builds(
    LedgerEntry,
    st.integers(0, 2),
    st.sampled_from(["select", "measure"]),
    st.sampled_from([EIGHTH, ExponentialEvent(1.0)]),
    st.sampled_from([0.1, 0.2]),
)


@settings(max_examples=15)
@given(ours=st.lists(entries, max_size=6), theirs=st.lists(entries, max_size=6))
def test_adopt_ends_with_the_larger_number_of_each_charge(
    tmp_path_factory: pytest.TempPathFactory, ours: list[LedgerEntry], theirs: list[LedgerEntry]
) -> None:
    with Database(tmp_path_factory.mktemp("ledger"), CONFIG, LEDGER) as database:
        ledger = DurableLedger(database)
        ledger.adopt(ours)
        assert ledger.entries == ours
        added = ledger.adopt(theirs)
        assert Counter(ledger.entries) == Counter(ours) | Counter(theirs)
        assert Counter(added) == Counter(theirs) - Counter(ours)
        assert ledger.adopt(theirs) == []


def test_adopt_takes_what_passes_the_budget_and_charge_then_refuses(database: Database) -> None:
    ledger = DurableLedger(database, 1.0)
    ledger.adopt([LedgerEntry(1, "select", EIGHTH, 5.0)])
    assert ledger.spent == 5.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(2, "select", TINY)


@given(entry=entries)
def test_ledger_entry_survives_json_exactly(entry: LedgerEntry) -> None:
    assert LedgerEntry.from_dict(json.loads(json.dumps(entry.to_dict()))) == entry


@pytest.mark.parametrize(
    "change",
    [
        {"round": -1},
        {"round": True},
        {"round": 1.0},
        {"step": 3},
        {"event": {}},
        {"event": "{}"},
        {"event": "[]"},
        {"event": "no JSON"},
        {"event": '{"kind": "guess"}'},
        {"rho": "1"},
        {"rho": -1.0},
        {"rho": 0.0},
        {"rho": math.nan},
        {"rho": math.inf},
        {"more": 1},
    ],
)
def test_ledger_entry_from_dict_refuses_other_contents(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"ledger entry|rho =|an event is one of|Expecting value"):
        LedgerEntry.from_dict({**LedgerEntry(1, "select", EIGHTH, 0.1).to_dict(), **change})


def transcript_of(path: Path, charge: dict[str, Value], config: str = CONFIG) -> Path:
    lines = [
        canonical({"kind": "header", "t": 0, "config_sha256": config}),
        canonical({"kind": "ledger", "t": 0, "spent": 1.0, **charge}),
    ]
    path.write_bytes(b"\n".join([*lines, b""]))
    return path


CHARGE: dict[str, Value] = {
    "round": 1,
    "step": "measure",
    "event": event_to_dict(EIGHTH),
    "rho": 0.125,
}


@pytest.mark.parametrize(
    "change", [{"rho": "much"}, {"round": None}, {"event": {"kind": "guess"}}, {"rho": -1.0}]
)
def test_adopt_charges_refuses_a_charge_that_is_none(
    tmp_path: Path, database: Database, change: dict[str, Value]
) -> None:
    path = transcript_of(tmp_path / "transcript.jsonl", {**CHARGE, **change})
    with pytest.raises(CheckFailed, match="charge in the transcript"):
        adopt_charges(DurableLedger(database), path, CONFIG)
    assert DurableLedger(database).entries == []


def test_adopt_charges_refuses_the_transcript_of_another_configuration(
    tmp_path: Path, database: Database
) -> None:
    path, ledger = tmp_path / "transcript.jsonl", DurableLedger(database)
    adopt_charges(ledger, path, CONFIG)
    transcript_of(path, CHARGE, "cd" * 32)
    with pytest.raises(StoreError, match="another configuration"):
        adopt_charges(ledger, path, CONFIG)
    assert ledger.entries == []
    adopt_charges(ledger, path, "cd" * 32)
    adopt_charges(ledger, path, "cd" * 32)
    assert ledger.entries == [LedgerEntry(1, "measure", EIGHTH, 0.125)]


# Folders


def test_ledger_of_a_folder_from_before_is_still_spent(tmp_path: Path) -> None:
    """Its tables as the first version of this program made them."""
    event = '{"cells": 1, "kind": "sum-of-discrete-gaussians", "parts": 2, "sensitivity": 1.0, "sigma": 5.5}'
    with sqlite3.connect(tmp_path / "store.sqlite") as made:
        made.executescript(
            "PRAGMA journal_mode=WAL;"
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
            "CREATE TABLE ledger (entry INTEGER PRIMARY KEY, round INTEGER NOT NULL, step TEXT NOT NULL, "
            "event TEXT NOT NULL, rho REAL NOT NULL, charged_at REAL NOT NULL) STRICT;"
        )
        made.execute("INSERT INTO meta VALUES ('config_digest', ?)", (CONFIG,))
        made.execute("INSERT INTO ledger VALUES (1, 4, 'measure', ?, 0.25, 1.7e9)", (event,))
    made.close()
    with Database(tmp_path, CONFIG, LEDGER) as database:
        ledger = DurableLedger(database, 1.0)
        (entry,) = ledger.entries
        assert (entry.round, entry.step, entry.rho, entry.event_text) == (4, "measure", 0.25, event)
        ledger.charge(5, "select", EIGHTH)
        assert ledger.spent == 0.375


def test_database_refuses_a_folder_in_use_or_of_another_run(tmp_path: Path) -> None:
    def opened(digest: str = CONFIG) -> Database:
        return Database(tmp_path / "s", digest, LEDGER)

    with opened(), pytest.raises(StoreError, match="in use by another process"):
        opened()
    with pytest.raises(StoreError, match="another run or configuration"):
        opened("d1" * 32)
    opened().close()


def test_database_is_its_owners_alone(database: Database) -> None:
    DurableLedger(database, 1.0).charge(1, "select", TINY)
    assert database.directory.stat().st_mode & 0o777 == 0o700
    files = list(database.directory.glob("store.sqlite*"))
    assert len(files) == 3
    assert [path.stat().st_mode & 0o077 for path in files] == [0, 0, 0]


WRITER = """
import sys
from pathlib import Path
from mechanisms.events import GaussianEvent
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger

with Database(Path(sys.argv[1]), "c0" * 32, LEDGER) as database:
    ledger = DurableLedger(database, 1.0)
    for number in range(100000):
        ledger.charge_all(number, [("measure", GaussianEvent(1e4))] * 3)
        print(number, flush=True)
"""


def test_ledger_holds_all_that_it_confirmed_after_kill_9(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert writer.stdout is not None
    confirmed = -1
    for line in writer.stdout:
        confirmed = int(line)
        if confirmed == 100:
            break
    os.kill(writer.pid, signal.SIGKILL)
    confirmed = max([confirmed, *(int(line) for line in writer.stdout.read().split())])
    writer.stdout.close()
    writer.wait()
    with Database(tmp_path, CONFIG, LEDGER) as database:
        rounds = Counter(entry.round for entry in DurableLedger(database).entries)
    # At most the one that was under way is there besides; each is there whole.
    assert confirmed + 1 <= len(rounds) <= confirmed + 2
    assert set(rounds.values()) == {3}
