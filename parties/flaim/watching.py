"""What the board of FLAIM's server is told from: who is connected, what is spent, what steps cost.

Provides ``watch_run``, ``watch_members`` and ``owners_of``. Public: all of it.
"""

from collections.abc import Sequence

from parties.board import Board, Owner, OwnerState, Spent, StepSum
from parties.flaim.members import Members
from parties.flaim.record import Record
from parties.ledger import DurableLedger
from parties.orders import Orders


def watch_run(board: Board, ledger: DurableLedger, record: Record) -> None:
    """From now on ``board`` shows what is charged, and what steps have cost."""

    def spent() -> Spent:
        charges = [entry.rho for entry in ledger.entries]
        return Spent(ledger.budget, sum(charges), len(charges))

    board.sources.spent = spent
    record.tracing = board.tracing
    board.sources.steps = lambda: _steps(record)
    board.sources.now = lambda: record.at[1] if record.at else None


def watch_orders(board: Board, orders: Orders, server: str) -> None:
    """From now on ``board`` shows what the ``server``'s operator asks: nobody else has to agree."""

    def told() -> None:
        orders.tell([orders.asked])

    orders.on_asked = told
    orders.on_change = board.touch
    told()
    board.sources.asked = lambda: orders.shown([server])


def watch_members(board: Board, members: Members) -> None:
    """From now on ``board`` shows who is connected."""
    board.sources.owners = lambda: owners_of(members)


def owners_of(members: Members) -> Sequence[Owner]:
    """Everybody whom the configuration names: connected, gone, or not seen yet."""
    # Copies, each made in one go: members come and go beside the thread that looks.
    present, lost = set(members.present), dict(members.lost)
    return [
        Owner(name, OwnerState.HERE)
        if number in present
        else Owner(name, OwnerState.GONE, reason=lost[number])
        if number in lost
        else Owner(name, OwnerState.ABSENT)
        for number, name in enumerate(members.names)
    ]


def _steps(record: Record) -> dict[str, StepSum]:
    return {
        name: StepSum(
            seconds=cost.seconds,
            sent_bytes=cost.sent,
            received_bytes=cost.received,
            messages=cost.messages,
        )
        for name, cost in dict(record.by_step).items()
    }
