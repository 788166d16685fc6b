"""Secure selection against the exact plaintext reference of ``mechanisms.scores``, and what it opens."""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms import events, scores
from mechanisms.scores import ScoreSpec, plain_scores
from protocols import measure, select_spec
from protocols import select as select_module
from protocols.absolute import grouped_absolute_error
from protocols.boolean import lift_magnitude, to_boolean, words_to_ring
from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.gumbel import gumbel
from protocols.ring import R32, R64, Ring
from protocols.select import select
from protocols.select_spec import MAX_CANDIDATES, bounds
from protocols.shares import Share
from tests.protocols.local import components, reconstruct, run_parties, share_of
from tests.protocols.test_origins import Notes


def spec_of(
    generator: np.random.Generator, groups: int, *, gain: int, max_rows: int = 10_000
) -> ScoreSpec:
    sizes = generator.integers(1, 30, groups)
    answers = generator.integers(0, 64 * 200, int(sizes.sum())).astype(np.uint32)
    offsets = tuple(int(size) * gain * 40 for size in sizes)
    return ScoreSpec(
        tuple(range(groups)), sizes.astype(np.int64), answers, (gain,) * groups, offsets, max_rows
    )


def secure_choice(counts: np.ndarray, spec: ScoreSpec, seed: int) -> tuple[int, int]:
    """The index that the protocol opens, and that of the largest sum of exact score and the same noise."""
    parts = components(R32, counts, seed)

    outcome = run_parties(lambda c: select(c, share_of(c, parts, R32), spec), seed=seed)
    assert len(set(outcome.results)) == 1
    noise = drawn(seed, len(spec.sizes))
    sums = [t + g for t, g in zip(plain_scores(counts.astype(np.uint32), spec), noise, strict=True)]
    return outcome.results[0], sums.index(max(sums))


def drawn(seed: int, count: int) -> list[int]:
    """The noise that a run with this seed draws: the test knows all keys, so it can draw it again."""

    async def nothing(ctx: Context) -> None:
        pass

    async def program(ctx: Context) -> object:
        with ctx.step("select.scores") as c:
            return (await c.both(nothing, lambda c: gumbel(c, count)))[1]

    noise = R64.decode(reconstruct(run_parties(program, seed=seed).results))
    return [int(g) for g in noise]


@pytest.mark.parametrize("groups", [1, 2, 16, 17, 40])
@pytest.mark.parametrize("gain", [1, 1 << 12, 1 << 18, 1 << 22])
def test_select_equals_the_plaintext_reference(groups: int, gain: int) -> None:
    """Same noise, same fixed-point scores: same choice, from nearly uniform weights to scores 100 nats apart."""
    for seed in range(4):
        generator = np.random.default_rng(seed)
        spec = spec_of(generator, groups, gain=gain)
        counts = generator.integers(0, 200, int(spec.sizes.sum()))
        chosen, expected = secure_choice(counts, spec, seed + 1)
        assert chosen == expected


def test_select_varies_with_the_draw_and_not_only_with_the_scores() -> None:
    """A control: were u fixed, or ignored, nearly equal scores would give one index for all seeds."""
    generator = np.random.default_rng(0)
    spec = spec_of(generator, 8, gain=1)
    counts = generator.integers(0, 200, int(spec.sizes.sum()))
    assert len({secure_choice(counts, spec, seed)[0] for seed in range(1, 20)}) > 3


def test_select_opens_the_index_alone() -> None:
    generator = np.random.default_rng(1)
    spec = spec_of(generator, 9, gain=1 << 12)
    parts = components(R32, generator.integers(0, 200, int(spec.sizes.sum())))
    outcome = run_parties(lambda c: select(c, share_of(c, parts, R32), spec))
    for party in outcome.parties:
        assert [(o.what, o.count) for o in party.costs.openings] == [("select.index", 9)]
        words = np.frombuffer(party.opened_values[0][1], np.uint64)
        assert np.count_nonzero(words) == 8
        # Losers' words are random, all 64 bits of them.
        assert len(set(words.tolist())) == 9
        assert words.max() > 2**60


def test_constants_agree_with_the_plaintext_mechanism() -> None:
    """Constants that protocols and mechanisms both write down, since neither may import the other."""
    assert select_spec.FRACTION_BITS == scores.FRACTION_BITS
    assert select_spec.SCORE_BITS == scores.SCORE_BITS
    assert measure.NOISES == events.NOISE_KINDS


@pytest.mark.parametrize(("at_once", "verified"), [(3, False), (20, True), (256, False)])
@settings(max_examples=25)
@given(
    values=st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=60), seed=st.integers(0, 99)
)
def test_largest_equals_plain(at_once: int, verified: bool, values: list[int], seed: int) -> None:
    """In groups and all at once; of equal ones it is the first."""
    parts = components(R64, np.array(values + values[:3]), seed)

    async def program(ctx: Context) -> int:
        ctx.verifier = Notes() if verified else None
        return await select_module._open_largest(ctx, share_of(ctx, parts, R64), 53)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select_module, "ALL_PAIRS", at_once)
        assert run_parties(program).results == [values.index(max(values))] * 3


def test_largest_of_the_most_candidates_equals_plain() -> None:
    values = np.random.default_rng(7).permutation(MAX_CANDIDATES) - 30_000
    parts = components(R64, values)

    async def program(ctx: Context) -> int:
        return await select_module._open_largest(ctx, share_of(ctx, parts, R64), 53)

    assert run_parties(program).results == [int(np.argmax(values))] * 3


@pytest.mark.parametrize("values", [range(40), [7] * 40, [3, 1, 3, 2, 1] * 8, [1, 2], [2, 2], [5]])
def test_losers_marks_are_uniform_together(
    values: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is the one before it in the order and that one's word. A control: with one word for all none is new."""
    parts = components(R64, np.array(values))
    count, order = len(values), sorted(range(len(values)), key=lambda i: (-values[i], i))
    original, drawn = select_module.random, list[Share]()

    def noted(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> Share:
        drawn.append(original(ctx, ring, shape))
        return drawn[-1]

    def one_word(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> Share:
        return original(ctx, ring, shape)[[0] * count]

    def marks() -> list[int]:
        outcome = run_parties(lambda c: select_module._marked(c, share_of(c, parts, R64), 53))
        return [int(mark) for mark in reconstruct(outcome.results)]

    monkeypatch.setattr(select_module, "random", noted)
    found = marks()
    words = [int(word) for word in reconstruct(drawn).ravel()] if drawn else []
    assert found[order[0]] == 0
    for before, after in pairwise(order):
        assert found[after] == found[before] ^ words[before]
    assert len(set(words)) == len(words)

    monkeypatch.setattr(select_module, "random", one_word)
    assert len(set(marks())) == min(2, count)


def test_bounds_rejects_what_could_wrap() -> None:
    generator = np.random.default_rng(1)
    fits = spec_of(generator, 3, gain=1, max_rows=2**23)
    assert bounds(fits)[0] == 32
    with pytest.raises(ValueError, match="max_rows"):
        bounds(spec_of(generator, 20, gain=1, max_rows=2**24))
    with pytest.raises(ValueError, match="epsilon or max_rows"):
        bounds(spec_of(generator, 3, gain=1 << 44))


def spec_at_the_bounds(gain: int) -> SimpleNamespace:
    """Two candidates whose errors are the largest and the smallest that 1,024 rows allow: 2^17 and 0."""
    return SimpleNamespace(
        sizes=np.array([2, 2]),
        answers=np.array([1 << 16, 0] * 2, np.uint32),
        gains=(gain,) * 2,
        offsets=(0, 0),
        max_rows=1024,
    )


@pytest.mark.parametrize("best", [0, 1])
@pytest.mark.parametrize("gain", [1 << 16, 3 << 41])
def test_select_holds_at_the_bounds(gain: int, best: int) -> None:
    """A cell's difference, a candidate's error and the scores' difference at their largest: 32 to 10^10 nats."""
    counts = np.array([0, 1024, 1024, 0])
    parts = components(R32, np.roll(counts, 2 * best))
    spec = spec_at_the_bounds(gain)
    for seed in range(1, 4):
        outcome = run_parties(lambda c: select(c, share_of(c, parts, R32), spec), seed=seed)
        assert outcome.results == [best] * 3


def test_bounds_are_exact() -> None:
    assert bounds(spec_at_the_bounds(3 << 41)) == (19, 63)
    with pytest.raises(ValueError, match="63 bits"):
        bounds(spec_at_the_bounds(1 << 43))
    wide = spec_at_the_bounds(1)
    wide.max_rows, wide.sizes, wide.answers = (
        (1 << 24) - 1,
        np.array([127]),
        np.zeros(127, np.uint32),
    )
    assert bounds(wide)[0] == 32
    wide.sizes, wide.answers = np.array([128]), np.zeros(128, np.uint32)
    with pytest.raises(ValueError, match="below 2\\^31"):
        bounds(wide)


SIZES, BITS = [1, 3, 2], 12
ANY = st.lists(
    st.one_of(st.integers(0, 2**32 - 1), st.integers(-3, 3).map(lambda n: (2**5 * n + 31) % 2**32)),
    min_size=6,
    max_size=6,
)


def errors_of(counts: Sequence[int], answers: Sequence[int]) -> list[int]:
    """Distances of 2^6 x - y from the next multiple of 2^12, summed over each candidate; the distance of that."""

    def distance(value: int) -> int:
        return min(value % 2**BITS, -value % 2**BITS)

    cells = [distance(64 * x - y) for x, y in zip(counts, answers, strict=True)]
    ends = np.cumsum(SIZES)
    return [distance(sum(cells[e - s : e])) for s, e in zip(SIZES, ends, strict=True)]


@given(
    counts=ANY,
    answers=st.lists(st.integers(0, 2**11), min_size=6, max_size=6),
    cell=st.integers(0, 5),
)
def test_errors_of_whatever_was_submitted_move_by_a_row_at_most(
    counts: list[int], answers: list[int], cell: int
) -> None:
    parts = components(R32, np.array(counts, dtype=object))

    async def program(ctx: Context) -> Share:
        a_sh = await grouped_absolute_error(
            ctx,
            share_of(ctx, parts, R32),
            np.array(answers, np.uint32),
            np.array(SIZES),
            fraction_bits=6,
            bits=BITS,
        )
        return await lift_magnitude(ctx, a_sh, BITS, R64)

    found = [int(a) for a in reconstruct(run_parties(program).results)]
    assert found == errors_of(counts, answers)
    more = [x + (i == cell) for i, x in enumerate(counts)]
    moved = [abs(a - b) for a, b in zip(found, errors_of(more, answers), strict=True)]
    assert max(moved) <= 64
    assert sum(move > 0 for move in moved) <= 1


def choices_beside(honest: int, draws: int) -> list[int]:
    """Choices between two candidates of equal counts, where a client adds to a cell what makes it wrap at 60 rows.

    A row moves a score by 0.001 nats.
    """
    spec = ScoreSpec(
        (0, 1), np.array([2, 2]), np.full(4, 64 * 50, np.uint32), (1 << 12,) * 2, (0, 0), 10_000
    )
    error_bits, _ = bounds(spec)
    submitted = ((1 << (error_bits - 1)) + 64 * 50) // 64 - 60 + 1
    parts = components(R32, np.array([honest + submitted, 100 - honest, 50, 50]))
    return [
        run_parties(lambda c: select(c, share_of(c, parts, R32), spec), seed=seed).results[0]
        for seed in range(1, draws + 1)
    ]


def test_select_tells_of_a_row_no_more_beside_a_client_whose_counts_wrap() -> None:
    assert [choices_beside(honest, 8) for honest in (58, 59, 61)] == [choices_beside(60, 8)] * 3


def test_select_tells_a_row_where_wrapped_errors_are_taken_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: by unsigned values of the errors, the same client learns whether the cell has 60 rows."""

    async def as_it_is(ctx: Context, x_sh: Share, bits: int, ring: Ring) -> Share:
        return await words_to_ring(ctx, await to_boolean(ctx, x_sh, 32), x_sh.size, ring)

    monkeypatch.setattr(select_module, "lift_magnitude", as_it_is)
    assert set(choices_beside(58, 4)).isdisjoint(choices_beside(61, 4))


@pytest.mark.parametrize("groups", [0, MAX_CANDIDATES + 1])
def test_bounds_rejects_another_number_of_candidates(groups: int) -> None:
    spec = SimpleNamespace(
        sizes=np.ones(groups, np.int64),
        answers=np.zeros(groups, np.uint32),
        gains=(1,) * groups,
        offsets=(0,) * groups,
        max_rows=10,
    )
    with pytest.raises(ValueError, match="takes 1 to 65536"):
        bounds(spec)
    spec.sizes, spec.answers = (
        np.ones(MAX_CANDIDATES, np.int64),
        np.zeros(MAX_CANDIDATES, np.uint32),
    )
    spec.gains, spec.offsets = (1,) * MAX_CANDIDATES, (0,) * MAX_CANDIDATES
    bounds(spec)


def test_bounds_rejects_answers_of_more_rows_than_there_may_be() -> None:
    """Each cell fits; a candidate's sum of differences would leave its bound."""
    spec = spec_at_the_bounds(1)
    spec.answers = np.array([1 << 16, 2, 0, 0], np.uint32)
    bounds(spec)
    spec.answers[1] = 3
    with pytest.raises(ValueError, match="add up to 65539"):
        bounds(spec)


def test_select_fails_when_nobody_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A possible result of a corrupted computation: each of three loses to another one."""
    original = select_module._less

    async def around(ctx: Context, t_sh: Share, bits: int, rivals: select_module._Rivals) -> Share:
        less = await original(ctx, t_sh, bits, rivals)
        return less ^ less ^ 0b101

    monkeypatch.setattr(select_module, "_less", around)
    spec = SimpleNamespace(
        sizes=np.ones(3, np.int64),
        answers=np.zeros(3, np.uint32),
        gains=(1,) * 3,
        offsets=(0,) * 3,
        max_rows=10,
    )
    parts = components(R32, [1, 2, 3])
    with pytest.raises(CheckFailed, match="did not end in one candidate"):
        run_parties(lambda c: select(c, share_of(c, parts, R32), spec))


@pytest.mark.slow
def test_select_frequencies_match_the_exact_probabilities() -> None:
    """Chi-square over 4,000 runs, 6 candidates: a false alarm once in 10,000; a bias of 5 points is caught.

    The control feeds the same counts of choices to the probabilities of another epsilon, and has to be rejected.
    """
    from scipy import stats

    generator = np.random.default_rng(3)
    spec = spec_of(generator, 6, gain=1 << 11)
    counts = generator.integers(0, 200, int(spec.sizes.sum()))
    # A gain that spreads the scores by about one nat.
    t = np.array(plain_scores(counts.astype(np.uint32), spec)) / 2**scores.SCORE_BITS
    gain = int(spec.gains[0] / t.std())
    spec = ScoreSpec(
        spec.candidates,
        spec.sizes,
        spec.answers,
        (gain,) * 6,
        tuple(int(size) * gain * 40 for size in spec.sizes),
        spec.max_rows,
    )
    t = np.array(plain_scores(counts.astype(np.uint32), spec)) / 2**scores.SCORE_BITS
    exact = np.exp(t - t.max())
    exact /= exact.sum()
    observed = np.zeros(6)
    for seed in range(1, 4001):
        parts = components(R32, counts, seed)
        observed[
            run_parties(
                lambda c, parts=parts: select(c, share_of(c, parts, R32), spec), seed=seed
            ).results[0]
        ] += 1
    assert stats.chisquare(observed, exact * 4000).pvalue > 1e-4
    sharper = np.exp(1.5 * (t - t.max()))
    assert stats.chisquare(observed, sharper / sharper.sum() * 4000).pvalue < 1e-4
