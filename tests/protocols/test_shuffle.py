"""The secret shuffle: uniform to every party, undone by the way back; and whoever does anything else is found out."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from protocols import shuffle as shuffling
from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.ring import BITS, R64, RingArray
from protocols.row_tags import TagKeys
from protocols.row_words import shifted, to_planes_of, to_words
from protocols.shares import Share
from protocols.shuffle import Passes, shuffle, unshuffle
from protocols.verify import ProductVerifier
from tests.protocols.deviating import Change, deviate, flip, flip_last
from tests.protocols.local import components, reconstruct, run_parties, share_of

ROWS = np.arange(1, 9, dtype=np.uint64).reshape(4, 2)
PARTS = components(BITS, ROWS)
ORDERS = list(permutations(range(4)))
RUNS = 720
LIMIT = 72.0
"""Of a chi-square of 23 degrees of freedom: exceeded once in 10^6."""


async def shuffled(ctx: Context) -> Share:
    return await shuffle(ctx, share_of(ctx, PARTS, BITS), Passes.draw(ctx, 4))


def order_of(rows: RingArray) -> tuple[int, ...]:
    return tuple(int(row) // 2 for row in rows[:, 0])


def chi_square(orders: Sequence[tuple[int, ...]]) -> float:
    """Of how often each of the 24 orders came, against equally often."""
    found, expected = Counter(orders), len(orders) / len(ORDERS)
    return sum((found[order] - expected) ** 2 / expected for order in ORDERS)


def orders_known_to(party: int, runs: int = RUNS) -> list[tuple[int, ...]]:
    """Orders of many shuffles in which all is the same that this party knows."""
    outcomes = (run_parties(shuffled, variant=v, known_to=party) for v in range(runs))
    return [order_of(reconstruct(outcome.results)) for outcome in outcomes]


@pytest.mark.parametrize("party", [0, 1, 2])
def test_shuffle_is_uniform_to_each_party(party: int) -> None:
    """Statistic: chi-square over 24 orders, 30 expected of each; a false alarm once in 10^6.

    An order that comes 2.6 times as often as it should is caught in nine runs of ten.
    """
    assert chi_square(orders_known_to(party)) < LIMIT


def test_shuffle_of_passes_that_somebody_knows_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the pass that party 0 does not know leaves all rows in their places, or moves few of them."""
    original = Passes.draw.__func__

    def two_passes(cls: type[Passes], ctx: Context, rows: int) -> Passes:
        first, second, third = original(cls, ctx, rows).each
        return cls((first, None if second is None else np.arange(rows), third))

    with monkeypatch.context() as patch:
        patch.setattr(Passes, "draw", classmethod(two_passes))
        assert len(set(orders_known_to(0, 40))) == 1
    uniform = shuffling._uniform

    def lazy(ctx: Context, component: int, rows: int) -> RingArray:
        # Words of two bits, equal ones in the order in which they were: what sorting by short words would give.
        words = ctx.common(component, R64, (rows,)) & np.uint64(3)
        return np.argsort(words, kind="stable") if component == 2 else uniform(ctx, component, rows)

    monkeypatch.setattr(shuffling, "_uniform", lazy)
    assert chi_square(orders_known_to(0)) > LIMIT


def test_permutations_are_drawn_again_where_words_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = [np.array(words, np.uint64) for words in ([5, 5, 1], [2, 0, 0], [9, 7, 8])]
    monkeypatch.setattr(Context, "common", lambda *_: drawn.pop(0))
    (order,) = run_parties(_order_of_party_0).results[:1]
    assert order.tolist() == [1, 2, 0]


async def _order_of_party_0(ctx: Context) -> RingArray | None:
    return shuffling._uniform(ctx, 0, 3) if ctx.pid == 0 else None


@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.parametrize(("rows", "words"), [(0, 1), (1, 1), (100, 3)])
def test_unshuffle_brings_rows_back(rows: int, words: int, verified: bool) -> None:
    values = np.random.default_rng(1).integers(0, 2**63, (rows, words), np.uint64)
    parts = components(BITS, values)

    async def there_and_back(ctx: Context) -> tuple[Share, Share]:
        ctx.verifier = ProductVerifier() if verified else None
        passes = Passes.draw(ctx, rows)
        moved = await shuffle(ctx, share_of(ctx, parts, BITS), passes)
        return moved, await unshuffle(ctx, moved, passes)

    results = run_parties(there_and_back).results
    moved, back = (reconstruct([result[i] for result in results]) for i in range(2))
    assert np.array_equal(back, values)
    assert sorted(map(tuple, moved.tolist())) == sorted(map(tuple, values.tolist()))
    assert rows < 2 or not np.array_equal(moved, values)


async def proved(ctx: Context) -> Share:
    ctx.verifier = ProductVerifier()
    return await shuffled(ctx)


@pytest.mark.parametrize("pid", [0, 1, 2])
@pytest.mark.parametrize("change", [flip, flip_last])
def test_every_message_of_a_shuffle_that_is_changed_is_found_out_or_of_no_use(
    pid: int, change: Change
) -> None:
    """Two messages make tags, two are of passes, two are digests. Of no use is a copy of what its holder uses again."""
    assert sum(m.sender == pid for m in run_parties(proved).mesh.sent) == 6
    caught = set()
    for number in range(6):
        found = deviate(proved, pid, number, change)
        if any(isinstance(error, CheckFailed) for error in found.errors):
            caught.add(number)
            continue
        # Two parties have all three components.
        first, second = sorted(found.results, key=lambda x: (x.pid - pid) % 3)
        rows = first.own ^ first.next ^ second.next
        assert sorted(rows.tolist()) == ROWS.tolist()
    assert {4, 5} <= caught
    assert change is flip_last or caught & {2, 3}


@pytest.mark.parametrize("cheat", [0, 1, 2])
def test_other_permutation_of_a_party_is_found_out(cheat: int) -> None:
    """It permutes its own part otherwise than the other who knows the permutation, and no message is out of form."""

    async def program(ctx: Context) -> Share:
        ctx.verifier = ProductVerifier()
        passes = Passes.draw(ctx, 4)
        if ctx.pid == cheat:
            each = [p if p is None or j != cheat else p[::-1] for j, p in enumerate(passes.each)]
            passes = Passes((each[0], each[1], each[2]))
        return await shuffle(ctx, share_of(ctx, PARTS, BITS), passes)

    found = deviate(program, cheat, -1, flip)
    assert any(isinstance(error, CheckFailed) for error in found.errors)


@pytest.mark.parametrize("cheat", [0, 1, 2])
@pytest.mark.parametrize("whole_word", [False, True])
def test_error_with_tags_of_both_keys_that_a_party_knows_is_found_by_the_third(
    cheat: int, whole_word: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = np.array([[2**64 - 1 if whole_word else 1, 0]], np.uint64)
    held: dict[int, TagKeys] = {}
    make_tags, make_pass = shuffling.tagged, shuffling._pass

    async def tagged(ctx: Context, keys: TagKeys, rows_bsh: Share) -> Share:
        held[ctx.pid] = keys
        return await make_tags(ctx, keys, rows_bsh)

    async def adding(ctx: Context, x_bsh: Share, first: int, order: RingArray | None) -> Share:
        if ctx.pid == first == cheat:
            own = x_bsh.own.copy()
            own[:1, :2] ^= error
            for tag in (ctx.pid, ctx.next_pid):
                own[:1, 2 + tag] ^= held[cheat].of(tag, error)
            x_bsh = Share(BITS, ctx.pid, own, x_bsh.next)
        return await make_pass(ctx, x_bsh, first, order)

    monkeypatch.setattr(shuffling, "tagged", tagged)
    monkeypatch.setattr(shuffling, "_pass", adding)
    found = deviate(proved, cheat, -1, flip)
    assert [type(e) for e in found.errors] == [CheckFailed, CheckFailed]
    others = {(cheat + 1) % 3, (cheat + 2) % 3}
    assert all(f"party {p}" in str(e) for e in found.errors for p in others)
    assert all(f"party {cheat} deviates" in str(e) for e in found.errors)


def test_tags_are_a_uniform_matrix_times_the_row() -> None:
    """Against products bit by bit; and whoever lacks a key has none."""

    async def program(ctx: Context) -> object:
        keys = TagKeys(ctx, 2)
        rows = np.random.default_rng(2).integers(0, 2**63, (3, 2), np.uint64)
        fresh = Context(ctx._transport, ctx._path)
        matrices = {c: fresh.common(c, BITS, (128,)) for c in (ctx.pid, ctx.next_pid)}
        for component, matrix in matrices.items():
            bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little").astype(bool)
            expected = [np.bitwise_xor.reduce(matrix[row]) for row in bits]
            assert keys.of(component, rows).tolist() == [int(tag) for tag in expected]
        with pytest.raises(KeyError):
            keys.of(ctx.prev_pid, rows)
        return repr(keys)

    assert set(run_parties(program).results) == {"TagKeys(2 words)"}


def test_rows_as_words_and_back_and_shifted() -> None:
    planes = np.random.default_rng(1).integers(0, 2**63, (130, 4), np.uint64)
    planes[:, 3] &= np.uint64(255)
    share = Share(BITS, 0, planes, planes)
    words = to_words(share, 200)
    assert words.shape == (200, 3)
    assert np.array_equal(to_planes_of(words, 130).own, planes)
    cells = np.unpackbits(planes.view(np.uint8), axis=1, bitorder="little")
    for by in (0, 1, 63, 64, 65, 255, 256, 300, -1, -64, -65, -300):
        expected = np.zeros_like(cells)
        if by >= 0:
            expected[:, by:] = cells[:, : max(0, 256 - by)]
        else:
            expected[:, :by] = cells[:, -by:]
        moved = shifted(share, by).next
        assert np.array_equal(
            np.unpackbits(moved.view(np.uint8), axis=1, bitorder="little"), expected
        )
