"""A privacy ledger of FLAIM that survives its process: the server's, and every client's own.

Provides ``StoredLedger``: a `mechanisms.accounting.Ledger` whose charges are in a `parties.distaim.store.Store`
before they count, and ``adopt_charges``. What an earlier process charged stays spent, whatever became of it. Public:
all of it; a client's ledger says how often it was asked, never what for. Known limits: see `parties.distaim.store`.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from mechanisms.accounting import Ledger, LedgerEntry, rho
from mechanisms.events import Event, event_from_dict, event_to_dict
from parties.distaim.store import Store
from parties.distaim.stored import LedgerEntry as LedgerRow
from parties.errors import StoreError
from protocols.errors import CheckFailed
from protocols.transcript import Record, read


class StoredLedger(Ledger):
    """Charges against ``budget``, durable in ``store`` before ``charge`` returns.

    ``told`` is called before each is stored: the transcript has whatever the ledger has (``adopt_charges``).
    """

    def __init__(
        self, store: Store, budget: float, *, told: Callable[[LedgerEntry], None] = lambda _: None
    ) -> None:
        """Takes up the charges that are stored. Raises StoreError."""
        before = [
            LedgerEntry(
                entry.round, entry.step, event_from_dict(json.loads(entry.event)), entry.rho
            )
            for entry in store.ledger()
        ]
        super().__init__(budget, before)
        self._store = store
        self._told = told

    def charge(self, round: int, step: str, event: Event) -> LedgerEntry:
        """See ``Ledger.charge``. Raises BudgetExceeded, StoreError."""
        self.require((event,))
        entry = LedgerEntry(round, step, event, rho(event))
        self._told(entry)
        self._store.charge(round, step, _text(event), entry.rho, self.budget)
        self.entries.append(entry)
        return entry

    def charge_all(self, round: int, charges: Sequence[tuple[str, Event]]) -> None:
        """See ``Ledger.charge_all``: one write to the disk, which is over when this returns."""
        before = list(self.entries)
        try:
            with self._store.together():
                super().charge_all(round, charges)
        except BaseException:
            self.entries[:] = before
            raise


def adopt_charges(store: Store, transcript: Path, config_digest: str) -> None:
    """Enter the charge that a process which was killed had written in its transcript but not in the ledger.

    Raises StoreError, also where the transcript is another run's, and CheckFailed where the file is no transcript.
    """
    if not transcript.exists():
        return
    records = [record for record in read(transcript).records if record]
    if any(record.get("config_sha256", config_digest) != config_digest for record in records):
        raise StoreError(
            transcript,
            "is of another configuration; expected an empty folder, or the config it was made with",
        )
    store.adopt_entries([_entry(record) for record in records if record["kind"] == "ledger"])


def _entry(record: Record) -> LedgerRow:
    number, cost, event = (record.get(name) for name in ("round", "rho", "event"))
    if not (isinstance(number, int) and isinstance(cost, float) and isinstance(event, dict)):
        raise CheckFailed("a charge in the transcript has no round, no cost or no event")
    try:
        return LedgerRow(number, str(record.get("step")), _text(event_from_dict(event)), cost)
    except ValueError as error:
        raise CheckFailed(f"a charge in the transcript is not one: {error}") from error


def _text(event: Event) -> str:
    return json.dumps(event_to_dict(event), sort_keys=True)
