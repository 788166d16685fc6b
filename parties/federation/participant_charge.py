"""The charge of a participant's table in one run, by what leaves the participant's program.

``ParticipantCharge`` is intended before the first connection, and dropped if the run ends before a message that depends
on the table leaves. It is charged, durably, before the first such message: a masked vector. It is released before an
answer leaves after which an opening cannot be ruled out: one that the server can read, or this participant's part in
unmasking a sum. A charge that is not released is returned by the pinned server's statement that nothing was opened
(`parties.federation.unopened`), where the run's promise rests on that server. A declared number of rows is public by
the configuration, and not paid for. Before such a message the budget's file gets the number of the participant's
charges: those in its ledger, and those in an account of a silo's own. A folder with fewer is an old copy, and would
answer again for nothing; so would a folder beside a copy that has answered since.

Secret: nothing. Known limits: a participant that has lost the server for good does not get the statement, and its
charge stays.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from parties.config import CertificateFiles, Config
from parties.federation.messages import FederationMessage, MessageKind, is_secagg_message
from parties.federation.release_statements import ReleaseStatement, missing_releases
from parties.federation.unopened import unopened_proof
from parties.foundation.errors import CertificateError, FederationProtocolError, StoreError
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import BudgetAccount
from parties.storage.population_budget import UNOPENED
from parties.storage.population_mark import SALT_BYTES
from secagg import wire

_FREE = frozenset({wire.Kind.ADVERTISE, wire.Kind.SHARES, wire.Kind.ABORT})
"""Messages of SecAgg that depend on keys alone."""
_MASKED = frozenset({wire.Kind.MASKED, wire.Kind.SIGNATURE})
"""Messages of SecAgg whose sum takes further messages."""
_SECAGG_KIND_AT = 5


def state_before(message: bytes) -> ChargeState | None:
    """Returns the state that a charge has to have before a participant's ``message`` leaves; None for any.

    A message that is not known to be free of the table is one that the server can read.
    """
    if is_secagg_message(message):
        kind = message[_SECAGG_KIND_AT] if len(message) > _SECAGG_KIND_AT else -1
        if kind in _FREE:
            return None
        return ChargeState.CHARGED if kind in _MASKED else ChargeState.RELEASED
    try:
        own = FederationMessage.unpack(message, "")
    except FederationProtocolError:
        return ChargeState.RELEASED
    return None if own.kind in (MessageKind.HELLO, MessageKind.OUT) else ChargeState.RELEASED


@dataclass(eq=False, slots=True)
class ParticipantCharge:
    """Charge of ``submission``, the name of the participant's ledger, to ``account``; nothing is charged without one.

    ``charges`` returns the number of charges in that ledger and in a silo's own account. ``returnable`` is true if the
    server's statement returns the charge. All methods block, and may raise StoreError.
    """

    account: BudgetAccount | None = None
    submission: str = ""
    charges: Callable[[], int] = lambda: 0
    returnable: bool = False
    _dataset: str | None = field(default=None, init=False)
    _reached: ChargeState = field(default=ChargeState.INTENDED, init=False)
    _answered: int = field(default=0, init=False)

    def check_ledger(self) -> None:
        """Raises StoreError if charges that have paid for an answer are missing; call it before a new charge."""
        if self.account is None:
            return
        budget, release, there = self.account.budget, self.account.release, self.charges()
        if there < (known := budget.answered(release.config, self.submission)):
            raise StoreError(
                budget.path,
                f"knows of {known} charges in this participant's ledger of run {release.run}; the ledger has {there}: "
                "its folder is an old copy. Expected the folder as it was left, or a new one, which is charged anew",
            )
        self._answered = known

    def intend(self) -> None:
        """Records the intention, before the first connection. Raises BudgetExceeded if it cannot be charged later."""
        if self.account is not None:
            self.check_ledger()
            self._dataset = self.account.intend(self.submission)

    def statement(self, files: CertificateFiles) -> bytes:
        """Returns the signed statement of what this participation may cost, b"" if it is not charged."""
        if self.account is None:
            return b""
        # The same participation has the same mark, so that a server keeps it once.
        salt = hashlib.sha256(self.submission.encode()).digest()[:SALT_BYTES]
        mark = self.account.mark(salt)
        return ReleaseStatement(self.account.release, self.submission, mark).sign(files)

    def enter_earlier(self, known: Sequence[ReleaseStatement], server: str) -> list[str]:
        """Charges what ``server`` has told and the budget lacks; returns sentences about it. Call it before ``before``.

        Raises BudgetExceeded if this run cannot be charged any more; StoreError if nobody can tell who pays.
        """
        if self.account is None:
            return []
        budget, source, lines = self.account.budget, self.account.source, []
        for item in missing_releases(budget.path, known, server):
            facts = (item.release, item.submission)
            if item.release.config == self.account.release.config:
                # Of this run: this table's populations pay.
                names = budget.adopt(source, *facts, sure=False)
            else:
                names = budget.adopt_earlier(
                    *facts, source, sure=False, of_source=False, mark=item.mark
                )
            marked = budget.reads_mark(item.release.config, item.mark)
            lines.append(item.entered_text(budget.path, names, known=marked))
        if lines:
            self.intend()
        return lines

    def due(self, message: bytes) -> bool:
        """Returns true if ``before`` has anything to do for this message."""
        needed = state_before(message)
        if self.account is None or needed is None:
            return False
        reached = self._reached in (needed, ChargeState.RELEASED)
        return not reached or self.charges() > self._answered

    def before(self, message: bytes) -> None:
        """Brings the charge into the state that ``message`` needs before it leaves.

        Raises BudgetExceeded; StoreError if a copy of the participant's folder has answered since.
        """
        if self.account is None or not self.due(message):
            return
        budget, config = self.account.budget, self.account.release.config
        if self._reached is ChargeState.INTENDED:
            self.account.spend(self.submission)
            self._reached = ChargeState.CHARGED
        if (charges := self.charges()) > self._answered:
            known = budget.note_answered(config, self.submission, charges, since=self._answered)
            if known > self._answered:
                raise StoreError(
                    budget.path,
                    f"knows of {known} charges in this participant's ledger of run {self.account.release.run}, where "
                    f"this program has last seen {self._answered}: a copy of its folder takes part as well. Expected "
                    "one folder of this participant, and one program",
                )
            self._answered = charges
        released = state_before(message) is ChargeState.RELEASED
        if released and self._reached is not ChargeState.RELEASED:
            budget.release(config, self.submission)
            self._reached = ChargeState.RELEASED

    def end(self, config: Config, client: str, statement: bytes | None) -> ChargeState | None:
        """Ends the participation; ``statement`` is the body of the server's UNOPENED, None without one.

        Returns the state of the charge, None if there is none.
        """
        if self.account is None:
            return None
        budget, digest = self.account.budget, self.account.release.config
        # Another process of this participant may have made the intention.
        budget.drop(self._dataset or self.account.quote().dataset, digest)
        state = budget.state(digest, self.submission)
        if state is ChargeState.CHARGED and statement is not None and self.returnable:
            try:
                proof = unopened_proof(config, client, statement)
            except CertificateError:
                return state
            budget.give_back(digest, [self.submission], proof, how=UNOPENED)
            return budget.state(digest, self.submission)
        return state


def charge_text(state: ChargeState | None, run: str) -> str:
    """Returns a sentence on the charge of a participation that has failed."""
    if state is ChargeState.RETURNED:
        return (
            f"the server has signed that nothing of run {run} was opened: the charge is given back"
        )
    if state is None:
        return f"no answer left this program in run {run}: nothing is charged"
    if state is ChargeState.RELEASED:
        return (
            f"run {run} stays charged: an answer that was sent is known, or part of an opened sum"
        )
    return f"run {run} stays charged: a masked answer was sent, and nobody has signed that nothing was opened"
