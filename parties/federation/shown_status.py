"""Run status of a federation's server: charges, costs of steps, operator commands and participants.

Public: all of it, like the transcript.
"""

from collections.abc import Sequence

from parties.federation.members import ConnectedClients
from parties.federation.transcript import FederationTranscript
from parties.observability.status import (
    BudgetUse,
    ParticipantState,
    ParticipantStatus,
    RunStatus,
    StepTotals,
)
from parties.session.operator_commands import OperatorCommands
from parties.storage.privacy_ledger import DurableLedger


def watch_run(board: RunStatus, ledger: DurableLedger, record: FederationTranscript) -> None:
    """Lets ``board`` show the charges and the costs of the steps from now on."""

    def spent() -> BudgetUse:
        charges = [entry.rho for entry in ledger.entries]
        return BudgetUse(ledger.budget, sum(charges), len(charges))

    board.sources.spent = spent
    board.sources.steps = lambda: _steps(record)
    board.sources.now = lambda: record.at[1] if record.at else None


def watch_orders(board: RunStatus, orders: OperatorCommands, server: str) -> None:
    """Lets ``board`` show the commands of the ``server``'s operator from now on; they need nobody else's consent."""

    def update() -> None:
        orders.tell([orders.asked])

    orders.on_command = update
    orders.on_change = board.touch
    update()
    board.sources.asked = lambda: orders.shown([server])


def watch_members(board: RunStatus, members: ConnectedClients) -> None:
    """Lets ``board`` show the connected participants from now on."""
    board.sources.owners = lambda: owners_of(members)


def owners_of(members: ConnectedClients) -> Sequence[ParticipantStatus]:
    """Returns the status of all participants in the configuration: connected, gone, or not seen yet."""
    # Atomic copies: members come and go in another thread.
    present, lost = set(members.present), dict(members.lost)
    return [
        ParticipantStatus(name, ParticipantState.HERE)
        if number in present
        else ParticipantStatus(name, ParticipantState.GONE, reason=lost[number])
        if number in lost
        else ParticipantStatus(name, ParticipantState.ABSENT)
        for number, name in enumerate(members.names)
    ]


def _steps(record: FederationTranscript) -> dict[str, StepTotals]:
    return {
        name: StepTotals(
            seconds=cost.seconds,
            sent_bytes=cost.sent,
            received_bytes=cost.received,
            messages=cost.messages,
        )
        for name, cost in dict(record.by_step).items()
    }
