"""Durable privacy ledger: a charge stays spent after the process has ended, whatever became of the release.

``DurableLedger`` is a `mechanisms.accounting.Ledger` in a `parties.storage.database.Database`: a charge is on the disk
before it counts. Compute servers, FLAIM's server and its clients use it for their spending. A transcript has the same
charges as the ledger beside it, in an order that each run chooses: ``first`` is called before a charge is entered
(FLAIM; ``adopt_charges`` enters charges that a kill kept out), ``then`` after it is durable (DistAIM, which brings its
transcript up to the ledger at its start). All values here are public; a client's ledger shows the number of requests,
never their content. Known limits: a charge that a crash left without a release stays spent; without the folder, the
budget is forgotten.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mechanisms.accounting import ZCDP, Accountant, Ledger, LedgerEntry
from mechanisms.events import Event
from parties.foundation.errors import StoreIncompatible
from parties.storage.database import Database
from protocols.errors import CheckFailed
from protocols.transcript import Record, read

LEDGER = (
    """CREATE TABLE IF NOT EXISTS ledger (
    entry INTEGER PRIMARY KEY, round INTEGER NOT NULL, step TEXT NOT NULL, event TEXT NOT NULL, rho REAL NOT NULL,
    charged_at REAL NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS paid (
    entry INTEGER PRIMARY KEY, opening TEXT NOT NULL UNIQUE) STRICT""",
)
"""Tables of a ledger; ``paid`` has the openings with a name, each of which is paid for once."""


def _ignore(_: LedgerEntry) -> None:
    pass


class DurableLedger(Ledger):
    """Charges in ``database``, and new ones within ``budget``; with budget 0, a ledger to read and to adopt into.

    All ledgers of a database are one: a charge to one is spent in the others. All methods may be called from any
    thread; all may raise StoreError.
    """

    def __init__(
        self,
        database: Database,
        budget: float = 0.0,
        *,
        accountant: Accountant = ZCDP,
        first: Callable[[LedgerEntry], object] = _ignore,
        then: Callable[[LedgerEntry], object] = _ignore,
    ) -> None:
        """Raises ValueError for a budget that is not finite."""
        if not 0 <= budget < math.inf:
            raise ValueError(f"the budget is {budget}; expected a finite one, from 0")
        super().__init__(budget, accountant=accountant)
        self._database = database
        self._first = first
        self._then = then
        self._last = 0

    @property
    def entries(self) -> list[LedgerEntry]:
        """See ``Ledger.entries``; those of earlier processes come first."""
        # Rows are only added, and this is called before every charge: each row is parsed once.
        with self._database.held():
            rows = self._database.rows(
                "SELECT entry, round, step, event, rho, coalesce(opening, '') FROM ledger LEFT JOIN paid USING (entry) "
                "WHERE entry > ? ORDER BY entry",
                self._last,
            )
            found = [_from_row(row[1:]) for row in rows]
            if self._database.in_transaction:
                return [*self._entries, *found]
            self._entries += found
            self._last = rows[-1][0] if rows else self._last
            return list(self._entries)

    def charge_all(
        self, round: int, charges: Sequence[tuple[str, Event]], *, opening: str = ""
    ) -> Sequence[LedgerEntry]:
        """See ``Ledger.charge_all``; the entries are durable on return, in one write to the disk."""
        # The lock excludes other charges between the check of the budget and the entry.
        with self._database.held():
            entries = super().charge_all(round, charges, opening=opening)
        for entry in entries:
            self._then(entry)
        return entries

    def paid(self, opening: str) -> LedgerEntry | None:
        """Returns the charge for the opening of this name, None if there is none."""
        return next((entry for entry in self.entries if entry.opening == opening), None)

    def adopt(self, entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """Enters the charges that another ledger has and this one lacks; durable on return. Returns those entered.

        Equal charges are compared by number: one that was made three times elsewhere is raised to three here. The
        budget does not limit this: a release that may have been opened is spent.
        """
        with self._database.held():
            have, missing = Counter(self.entries), []
            for entry in entries:
                have[entry] -= 1
                if have[entry] < 0:
                    missing.append(entry)
            self._write(missing)
        return missing

    def _enter(self, entries: Sequence[LedgerEntry]) -> None:
        for entry in entries:
            self._first(entry)
        self._write(entries)

    def _write(self, entries: Sequence[LedgerEntry]) -> None:
        """Enters all or none, durably."""
        now = time.time()
        with self._database.transaction():
            for e in entries:
                self._database.enter(
                    "INSERT INTO ledger (round, step, event, rho, charged_at) VALUES (?, ?, ?, ?, ?)",
                    [(e.round, e.step, e.event_text, e.rho, now)],
                )
                if e.opening:
                    self._database.enter(
                        "INSERT INTO paid VALUES ((SELECT max(entry) FROM ledger), ?)",
                        [(e.opening,)],
                    )


def _from_row(row: Sequence[Any]) -> LedgerEntry:
    entry = LedgerEntry.from_dict(
        dict(zip(("round", "step", "event", "rho"), row[:4], strict=True))
    )
    return replace(entry, opening=row[4])


def adopt_charges(ledger: DurableLedger, transcript: Path, config_digest: str) -> None:
    """Enters the charge that a killed process had written in its transcript but not in the ledger.

    Raises StoreError, also if the transcript belongs to another run, and CheckFailed if the file is no transcript.
    """
    if not transcript.exists():
        return
    records = [record for record in read(transcript).records if record]
    if any(record.get("config_sha256", config_digest) != config_digest for record in records):
        raise StoreIncompatible(
            transcript,
            "is of another configuration; expected an empty folder, or the config it was made with",
        )
    ledger.adopt([_from_record(record) for record in records if record["kind"] == "ledger"])


def _from_record(record: Record) -> LedgerEntry:
    fields: dict[str, object] = {name: record.get(name) for name in ("round", "step", "rho")}
    try:
        return LedgerEntry.from_dict({**fields, "event": json.dumps(record.get("event"))})
    except ValueError as error:
        raise CheckFailed(f"a charge in the transcript is not one: {error}") from error
