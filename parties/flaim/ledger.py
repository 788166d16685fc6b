"""A privacy ledger of FLAIM that survives its process: the server's, and every client's own.

Provides ``StoredLedger``: a `mechanisms.accounting.Ledger` whose charges are in a `parties.store.Store` before they
count. What an earlier process charged stays spent, whatever became of it. Public: all of it; a client's ledger says how
often it was asked, never what for. Known limits: see `parties.store`.
"""

import contextlib
import json
from collections.abc import Callable, Iterator

from mechanisms.accounting import Ledger, LedgerEntry, rho
from mechanisms.events import Event, event_from_dict, event_to_dict
from parties.store import Store


class StoredLedger(Ledger):
    """Charges against ``budget``, durable in ``store`` before ``charge`` returns; ``told`` is called after each."""

    def __init__(
        self, store: Store, budget: float, *, told: Callable[[LedgerEntry], None] = lambda _: None
    ) -> None:
        """Takes up the charges that are stored. Raises StoreError."""
        stored = [
            LedgerEntry(
                entry.round, entry.step, event_from_dict(json.loads(entry.event)), entry.rho
            )
            for entry in store.ledger()
        ]
        super().__init__(budget, stored)
        self._store = store
        self._told = told

    def charge(self, round: int, step: str, event: Event) -> LedgerEntry:
        """See ``Ledger.charge``. Raises BudgetExceeded, StoreError."""
        self.require((event,))
        entry = LedgerEntry(round, step, event, rho(event))
        text = json.dumps(event_to_dict(event), sort_keys=True)
        self._store.charge(round, step, text, entry.rho, self.budget)
        self.entries.append(entry)
        self._told(entry)
        return entry

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Charges within become durable at the end, all or none: one write to the disk for a round."""
        before = list(self.entries)
        try:
            with self._store.together():
                yield
        except BaseException:
            self.entries[:] = before
            raise
