"""The choices of the real protocol against the exact probabilities of the exponential mechanism.

Chi-square over R runs with fresh keys; candidates that expect fewer than 5 choices are one cell, and a cell that
still does is judged by its binomial tail. False-alarm rate 10^-4 a test. R = 120 catches an epsilon that is wrong by
a factor of 3, R = 3,000 (slow) one of 1.5, or a candidate of probability 1/3 that is chosen 6 points too often; the
controls are these. Probabilities are exp(t_q - max t), never below 2^-24, normalised: computed here from the scores
in nats, with nothing of ``mechanisms`` or ``protocols``. The forms of a context with a verifier, by bits of the counts
and by trees of adders, are held to the same: proofs read what was sent and change nothing, and are left out here.
"""

from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from protocols.context import Context
from protocols.ring import R32, RingArray
from protocols.select import select
from tests.protocols.local import components, run_parties, share_of
from tests.protocols.test_origins import Notes

FAST, SLOW = 120, 3000
ALARM = 1e-4
# A row is worth 64 gain / 2^28 nats.
GAIN = 1 << 16
ROWS_A_NAT = 2**28 // (64 * GAIN)

SCORES = {
    "hundreds of nats": (0.0, -300.0, -1.0, -450.0, -0.5, -17.0, -120.0, 0.0, -33.0),
    "ties": (-1.0, 0.0, -1.0, 0.0, -2.0, -2.0, -1.0, 0.0),
    "all equal": (-3.0,) * 17,
    "close": (0.0, -0.25, -0.5, -0.75, -1.0, -1.25),
    "one candidate": (-7.0,),
}


@cache
def choices(name: str, runs: int, *, verified: bool = False) -> np.ndarray:
    """Counts of each candidate's choices. Each is one cell whose count is its score; the model says zero."""
    counts = np.array([round((t + 500) * ROWS_A_NAT) for t in SCORES[name]])
    groups = len(counts)
    spec = SimpleNamespace(
        sizes=np.ones(groups, np.int64),
        answers=np.zeros(groups, np.uint32),
        gains=(GAIN,) * groups,
        offsets=(0,) * groups,
        max_rows=40_000,
    )
    chosen = np.zeros(groups, np.int64)

    async def chosen_at(ctx: Context, parts: list[RingArray]) -> int:
        ctx.verifier = Notes() if verified else None
        return await select(ctx, share_of(ctx, parts, R32), spec)

    for seed in range(1, runs + 1):
        parts = components(R32, counts, seed)
        outcome = run_parties(partial(chosen_at, parts=parts), seed=seed)
        chosen[outcome.results[0]] += 1
    chosen.flags.writeable = False
    return chosen


def probabilities(scores: tuple[float, ...], sharper: float = 1.0) -> np.ndarray:
    weights = np.exp(sharper * (np.array(scores) - max(scores)))
    return np.asarray(weights / weights.sum())


def p_value(observed: np.ndarray, exact: np.ndarray) -> float:
    runs = int(observed.sum())
    rare = exact * runs < 5
    cells = [*zip(observed[~rare], exact[~rare], strict=True)]
    tail = 1.0
    if rare.any():
        count, share = int(observed[rare].sum()), float(exact[rare].sum())
        tail = float(stats.binom.sf(count - 1, runs, share))
        if share * runs >= 5:
            cells.append((count, share))
    counts, shares = np.array([c for c, _ in cells]), np.array([s for _, s in cells])
    if len(cells) == 1:
        return tail
    expected = shares / shares.sum() * counts.sum()
    return min(tail, float(stats.chisquare(counts, expected).pvalue))


@pytest.mark.parametrize("name", SCORES)
def test_select_frequencies_match_the_exact_probabilities(name: str) -> None:
    assert p_value(choices(name, FAST), probabilities(SCORES[name])) > ALARM


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "close" else pytest.mark.slow)
        for name in ("hundreds of nats", "ties", "all equal", "close")
    ],
)
def test_select_frequencies_with_a_verifier_match_the_exact_probabilities(name: str) -> None:
    observed = choices(name, FAST, verified=True)
    assert p_value(observed, probabilities(SCORES[name])) > ALARM
    if name == "close":
        assert p_value(observed, probabilities(SCORES[name], 3.0)) < ALARM


def test_p_value_rejects_an_epsilon_three_times_too_large() -> None:
    for name in ("hundreds of nats", "close"):
        assert p_value(choices(name, FAST), probabilities(SCORES[name], 3.0)) < ALARM


def test_p_value_rejects_a_choice_that_should_be_rare() -> None:
    """A candidate 450 nats below the best, chosen twice in 120 runs, is no accident."""
    observed = choices("hundreds of nats", FAST).copy()
    observed[3] += 2
    assert p_value(observed, probabilities(SCORES["hundreds of nats"])) < ALARM


def test_p_value_rejects_a_tie_that_goes_to_the_first() -> None:
    observed = choices("ties", FAST).copy()
    observed[1], observed[3], observed[7] = observed[[1, 3, 7]].sum(), 0, 0
    assert p_value(observed, probabilities(SCORES["ties"])) < ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hundreds of nats", "ties", "all equal", "close"])
def test_select_frequencies_match_the_exact_probabilities_in_many_runs(name: str) -> None:
    observed = choices(name, SLOW)
    exact = probabilities(SCORES[name])
    assert p_value(observed, exact) > ALARM
    if name in ("hundreds of nats", "close"):
        assert p_value(observed, probabilities(SCORES[name], 1.5)) < ALARM
    favoured = observed.copy()
    favoured[np.argmax(exact)] += SLOW // 10
    assert p_value(favoured, exact) < ALARM
