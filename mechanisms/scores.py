"""The exponential mechanism in fixed point: scores, and the reference of the secure selection.

``ScoreSpec`` has the public integers of one selection; ``build_spec`` makes it by one of ``RULES``.

Counts and scores are secret. The specification and the chosen index are public.

Representation: model answers are counts in units of 2^-FRACTION_BITS; scores t are integers in units of 2^-SCORE_BITS
nats, and the mechanism chooses q with probability proportional to e^t. All of it is integer arithmetic or exact
rationals, so that every machine gets the same numbers.

Source: McKenna et al. 2022 (AIM), Algorithm 2; Pereira et al. 2022, Protocol 2. Limits: ``max_rows`` below 2^25.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.workload import MAX_CANDIDATES, Workload

Rule: TypeAlias = Literal["aim", "remaining-error"]
"""Formula of the error that a measurement leaves: AIM's norm of raw noise, or that of projected counts."""
AIM: Rule = "aim"
REMAINING_ERROR: Rule = "remaining-error"
RULES: tuple[Rule, ...] = (REMAINING_ERROR, AIM)

FRACTION_BITS = 6
SCORE_BITS = 28

# Model answers are probabilities in units of 2^-ANSWER_BITS.
ANSWER_BITS = 32

# log2(e) in units of 2^-LOG2E_BITS, rounded down so that the mechanism never chooses more sharply than its epsilon
# allows. Base-2 exponents then have SCORE_BITS + LOG2E_BITS fractional bits.
LOG2E_BITS = 20
LOG2E_SCALED = math.floor(math.log2(math.e) * 2**LOG2E_BITS)
EXPONENT_BITS = SCORE_BITS + LOG2E_BITS

# A candidate's weight is never below 2^-FLOOR_BITS of the best one's: max(t, max t - R) is a score
# of no larger sensitivity, so the floor costs no privacy.
FLOOR_BITS = 24

_DIGITS = 50


@dataclass(frozen=True, slots=True, eq=False)
class ScoreSpec:
    """The public integers of one selection among G candidates.

    Attributes:
        candidates: (G,), their indices in the workload.
        sizes: int64 (G,), their cells.
        answers: uint32 (sum of sizes,), the model's counts y in units of 2^-FRACTION_BITS, one candidate after the
            other.
        gains, offsets: (G,); the score of candidate q is t_q = gain_q a_q - offset_q with a_q = sum |2^FRACTION_BITS x
        - y|.
        max_rows: a public bound on the rows counted in x.

    Raises ``ValueError`` if shapes or ranges do not fit together.
    """

    candidates: tuple[int, ...]
    sizes: NDArray[np.int64]
    answers: NDArray[np.uint32]
    gains: tuple[int, ...]
    offsets: tuple[int, ...]
    max_rows: int

    def __post_init__(self) -> None:
        groups = len(self.candidates)
        if groups == 0 or not groups == len(self.sizes) == len(self.gains) == len(self.offsets):
            raise ValueError(
                "a selection needs at least one candidate, with a size, gain and offset"
            )
        if (self.sizes < 1).any() or self.answers.shape != (int(self.sizes.sum()),):
            raise ValueError("answers has one entry for each cell of each candidate")
        if not 0 < self.max_rows << FRACTION_BITS < 2**31:
            raise ValueError(
                f"max_rows = {self.max_rows}; 1 to {(2**31 >> FRACTION_BITS) - 1} fits"
            )
        if int(self.answers.max()) >= 2**31:
            raise ValueError("an answer is 2^31 or more: the model's total is above max_rows")


def build_spec(
    workload: Workload,
    candidates: Sequence[int],
    answers_q32: NDArray[np.uint32],
    *,
    total: int,
    sigma: float,
    epsilon: float,
    max_rows: int,
    left: Mapping[int, int] | None = None,
) -> ScoreSpec:
    """Returns the specification of AIM's selection among some of the workload's candidates.

    The score s_q = w_q (||x - y||_1 - e_q) has sensitivity Delta, the largest weight, and t_q = epsilon s_q / (2
    Delta). e_q is the error that the measurement would leave: sqrt(2/pi) sigma n_q, or the candidate's value in
    ``left`` (``remaining_errors``); both are public. Gains are rounded down: one row changes t by no more than epsilon
    / 2.

    Shapes: answers_q32 (workload.cells,), probabilities in units of 2^-32; ``total`` is the number of rows they are
    scaled to. Raises ``ValueError`` if ``total`` is not in 1 .. max_rows, no candidate is given, or none has a weight.
    """
    if not 1 <= total <= max_rows:
        raise ValueError(f"total = {total}; it lies in 1 .. max_rows = {max_rows}")
    delta = max((workload.weights[i] for i in candidates), default=0)
    if delta == 0:
        raise ValueError("a selection needs a candidate with a positive weight")
    sizes = [workload.offsets[i + 1] - workload.offsets[i] for i in candidates]
    gains = [score_gain(epsilon, workload.weights[i], delta) for i in candidates]
    answers = scale_answers(workload.gather(answers_q32, candidates), total)
    if left is None:
        offsets = [score_offset(gain, sigma, size) for gain, size in zip(gains, sizes, strict=True)]
    else:
        offsets = [gain * left[i] for gain, i in zip(gains, candidates, strict=True)]
    return ScoreSpec(
        tuple(candidates),
        np.array(sizes, np.int64),
        answers,
        tuple(gains),
        tuple(offsets),
        max_rows,
    )


def plain_scores(x_counts: NDArray[np.uint32], spec: ScoreSpec) -> list[int]:
    """Returns the exact scores t of all candidates, in units of 2^-SCORE_BITS nats.

    Shapes: x_counts (sum of sizes,), the candidates' marginals one after the other. Raises ``ValueError`` on another
    shape.
    """
    if x_counts.shape != spec.answers.shape:
        raise ValueError(f"counts of shape {spec.answers.shape} are needed, not {x_counts.shape}")
    scaled = x_counts.astype(np.int64) << FRACTION_BITS
    distances = np.abs(scaled - spec.answers.astype(np.int64))
    starts = np.cumsum(spec.sizes) - spec.sizes
    # a_q = sum |2^FRACTION_BITS x - y| over the candidate's cells.
    sums = np.add.reduceat(distances, starts)
    return [
        gain * int(a) - offset
        for gain, a, offset in zip(spec.gains, sums, spec.offsets, strict=True)
    ]


def select_index(scores: Sequence[int], random_u64: int) -> int:
    """Returns the candidate that 64 uniform bits choose by the exponential mechanism: the exact reference.

    z_q = min((max t - t_q) LOG2E_SCALED, FLOOR_BITS 2^48), weights e_q = 2^(-z_q / 2^48) with prefix sums c, u =
    (random_u64 + 1) / 2^64 in (0, 1]; the first q with c_q >= u c_last. Weights are computed to 50 digits.

    Distribution: q has floor(2^64 c_q / c_last) - floor(2^64 c_(q-1) / c_last) of the 2^64 words, less than one away
    from 2^64 p_q, for the mechanism's own p_q = e_q / c_last. Weights of G candidates lie in 2^-FLOOR_BITS .. 1, so
    that p_q >= 2^-24 / G: its relative error is below eta = 2^-40 G, 2^-24 for the most candidates. A ratio of ratios
    of probabilities, for two tables and two candidates, has four of them, each off by a factor of at most 1 / (1 -
    eta): the choice is one by the exponential mechanism of epsilon + 4 eta (1 + 2 eta), which ``events.GRID_SLACK`` =
    2^-21 covers twice. (Weights of 50 digits move a boundary between words only if 2^64 c_q / c_last is within 2^-80 of
    a whole number: that is in the other half.)

    Raises ``ValueError`` without scores, with more than ``MAX_CANDIDATES``, or if ``random_u64`` is not in 0 .. 2^64 -
    1.
    """
    if not scores or not 0 <= random_u64 < 2**64:
        raise ValueError("at least one score and 64 random bits are needed")
    if len(scores) > MAX_CANDIDATES:
        raise ValueError(f"{len(scores)} candidates; a choice takes at most {MAX_CANDIDATES}")
    best = max(scores)
    floor = FLOOR_BITS << EXPONENT_BITS
    with localcontext() as context:
        context.prec = _DIGITS
        unit = Decimal(2**EXPONENT_BITS)
        exponents = [min((best - t) * LOG2E_SCALED, floor) for t in scores]
        # Most candidates of a sharp choice share the floor.
        weights = {z: Decimal(2) ** (-Decimal(z) / unit) for z in set(exponents)}
        sums = list(accumulate(weights[z] for z in exponents))
        threshold = sums[-1] * (random_u64 + 1) / Decimal(2**64)
        return next((q for q, c in enumerate(sums) if c >= threshold), len(sums) - 1)


@lru_cache(maxsize=4096)
def score_gain(epsilon: float, weight: int, delta: int) -> int:
    """Returns floor(epsilon w / (2 Delta)), in score units for each unit of distance."""
    exact = Fraction(epsilon) * weight / (2 * delta) * (1 << (SCORE_BITS - FRACTION_BITS))
    return math.floor(exact)


@lru_cache(maxsize=4096)
def score_offset(gain: int, sigma: float, size: int) -> int:
    """Returns the gain times the distance that noise alone is expected to leave, sqrt(2/pi) sigma n."""
    noise = Fraction(math.sqrt(2 / math.pi)) * Fraction(sigma) * (size << FRACTION_BITS)
    return round(gain * noise)


def scale_answers(answers_q32: NDArray[np.uint32], total: int) -> NDArray[np.uint32]:
    """Returns probabilities times ``total``, rounded to units of 2^-FRACTION_BITS; uint64 holds every step."""
    shift = np.uint64(ANSWER_BITS - FRACTION_BITS)
    half = np.uint64(1 << (ANSWER_BITS - FRACTION_BITS - 1))
    scaled = answers_q32.astype(np.uint64)
    scaled *= np.uint64(total)
    scaled += half
    scaled >>= shift
    return scaled.astype(np.uint32)
