"""A server that changes a message of a join: the two others stop before anything is opened that rests on it.

Of every message of the join's own steps, those of proofs apart (`test_verify`). Controls: without tags, and without
proofs, changes go through.
"""

from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from protocols import link, shuffle
from protocols.base import open_value
from protocols.context import Context
from protocols.ring import BITS
from protocols.shares import Share
from protocols.steps import LINK_RETURN, LINK_SHUFFLE, LINK_SORT, OF_LINKING
from protocols.verify import ProductVerifier
from tests.protocols.deviating import Deviation, deviate, flip
from tests.protocols.local import components, run_parties
from tests.protocols.test_link import Table, sources_of

KEY_BITS, JOINED = 4, "joined"
TABLES = [
    Table(np.ones(3, bool), np.array(keys), np.array([1, 2, 3]), 2)
    for keys in ([5, 9, 2], [9, 4, 5])
]
PARTS = [components(BITS, t.planes(KEY_BITS), seed=i) for i, t in enumerate(TABLES)]

Program = Callable[[Context], Awaitable[np.ndarray]]


async def joined(ctx: Context) -> np.ndarray:
    """The join, shown at the end as a run shows what it measures."""
    ctx.verifier = ProductVerifier()
    found, _ = await link.join(ctx, sources_of(ctx, PARTS, TABLES), key_bits=KEY_BITS)
    return await open_value(ctx, found, JOINED)


def right() -> np.ndarray:
    return run_parties(joined).results[0]


def messages(pid: int) -> list[str]:
    """The steps of the messages that a party sends in a run in which nobody deviates."""
    return [message.step for message in run_parties(joined).mesh.sent if message.sender == pid]


def harmless(found: Deviation, expected: np.ndarray) -> bool:
    """Returns True if all honest parties ended with the right join."""
    return len(found.results) == 2 and all(np.array_equal(r, expected) for r in found.results)


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_changed_message_of_a_join_ends_it_before_an_opening(pid: int) -> None:
    expected, steps = right(), messages(pid)
    moves, all_steps = (LINK_SHUFFLE.name, LINK_RETURN.name), {s.name for s in OF_LINKING}
    ended = dict.fromkeys(all_steps, 0)
    openings = [number for number, step in enumerate(steps) if step == LINK_SORT.name][-2:]
    for number, step in enumerate(steps):
        if step not in all_steps:
            continue
        found = deviate(joined, pid, number, flip)
        if harmless(found, expected):
            # A copy of what its holder uses again (`test_shuffle`).
            assert step in moves, (number, step)
            continue
        ended[step] += 1
        assert found.errors, (number, step)
        assert not found.results, (number, step)
        # The last messages of the sort are its opening's; steps after it have it behind them.
        before = step == LINK_SHUFFLE.name or (step == LINK_SORT.name and number not in openings)
        assert max(found.opened) <= (not before), (number, step)
    assert all(ended.values())


async def untagged(ctx: Context, rows_bsh: Share, passes: shuffle.Passes) -> Share:
    return await shuffle.shuffle(_Unverified(ctx), rows_bsh, passes)  # type: ignore[arg-type]


class _Unverified:
    """A context that looks as if it had no verifier."""

    verifier = None

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> object:
        return getattr(self._ctx, name)


def test_changed_pass_without_tags_is_not_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: rows are then compared and joined that are others than came in."""
    monkeypatch.setattr(link, "shuffle", untagged)
    steps = messages(0)
    through = [
        number
        for number, step in enumerate(steps)
        if step == LINK_SHUFFLE.name and len(deviate(joined, 0, number, flip).results) == 2
    ]
    assert through


def test_changed_and_without_proofs_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: nobody would notice a changed comparison before it is opened."""

    async def nothing(self: ProductVerifier, ctx: Context) -> None:
        self._records, self._shown = {}, {}

    monkeypatch.setattr(ProductVerifier, "settle", nothing)
    steps = messages(1)
    first = steps.index(LINK_SORT.name)
    assert deviate(joined, 1, first, flip).opened != [0, 0]
