"""The error that a noisy measurement leaves: what AIM's penalty for noise becomes where counts are few.

Provides ``remaining_errors``, in whole units for choices, and ``remaining_error``, normalised, for people.

Public: everything; it is computed from a model's answers, which are released.

Noise of deviation sigma on n counts has the L1 norm sqrt(2/pi) sigma n on average, and that is what AIM takes a
measurement to cost. But what is measured is brought back to counts that are not negative and have the right sum; then
noise on N rows cannot leave more than 2 N, and leaves little where most counts are 0. The projection lowers all counts
by one t and cuts at 0; t is the one for which the sum is right on average. With m(x) = E max(x + Z, 0) for a standard
normal Z, and counts u in deviations,

    sum m(u - t) = sum u,    error = sum (m(-t) + m(t) - m(t - u)),

since E |max(X, 0) - u| for X = u - t + Z is the mean of X above u, and below it but for what is cut. For u far above 0
and t = 0 a count's error is 2 m(0) = sqrt(2/pi): AIM's penalty. README.md derives it.

Representation: integers throughout, so that servers with different processors compute the same. Counts are rounded to
2^-11 deviations, and m is a table at steps of 2^-7 in units of 2^-28, made once in 50 digits; between steps it is
straight. Limits: marginals of fewer than 2^27 cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LARGEST = 2.0
"""Of two normalised marginals."""

SMALLEST_SIGMA = 2.0**-12

_STEPS = 1 << 7
# A count between two steps counts to both, in parts of a sixteenth.
_PARTS_BITS = 4
_PARTS = 1 << _PARTS_BITS
_SMALL_COUNT = _STEPS * _PARTS // 8
_UNIT = 1 << 28
# Below -6, m is less than a unit; a count from 16 on is cut by no t up to 8.
_SMALL, _LOWERED, _LARGE = 6 * _STEPS, 8 * _STEPS, 16 * _STEPS
_PI = Decimal("3.14159265358979323846264338327950288419716939937510")
_DIGITS = 50
_GROUPS_AT_ONCE = 256


def remaining_errors(
    answers: NDArray[np.uint32], sizes: Sequence[int], sigma: float, *, fraction_bits: int
) -> list[int]:
    """The expected L1 error of each candidate's marginal, if it were measured with noise ``sigma`` (in rows).

    Shapes: ``answers`` (sum of ``sizes``,), the candidates' counts one after the other in units of 2^-``fraction_bits``
    rows, as is the result. It is at most twice the candidate's rows, and 0 without rows. Raises ``ValueError`` for
    another shape or a sigma out of range.
    """
    if answers.shape != (sum(sizes),):
        raise ValueError(f"answers of shape {answers.shape}; {sum(sizes)} are needed")
    if not SMALLEST_SIGMA <= sigma <= 2.0**40:
        raise ValueError(f"sigma = {sigma}; it lies between 2^-12 and 2^40")
    scaled_sigma = Fraction(sigma) * (1 << fraction_bits)
    found: list[int] = []
    ends = np.cumsum(sizes)
    for first in range(0, len(sizes), _GROUPS_AT_ONCE):
        groups = range(first, min(first + _GROUPS_AT_ONCE, len(sizes)))
        histograms = np.zeros((len(groups), _LARGE + 1), np.int64)
        large, lost, totals = [], [], []
        for row, i in enumerate(groups):
            part = answers[ends[i] - sizes[i] : ends[i]]
            fine = _in_fine_steps(part, scaled_sigma)
            cut = fine < _LARGE * _PARTS
            steps, parts = fine[cut] >> _PARTS_BITS, fine[cut] & (_PARTS - 1)
            for which, weights in ((steps, _PARTS - parts), (steps + 1, parts)):
                # Sums of small whole numbers, which doubles hold.
                held = np.bincount(which, weights, minlength=_LARGE + 1)
                histograms[row] += held.astype(np.int64)
            large.append(part.size - len(steps))
            small = fine < _SMALL_COUNT
            exact = int(part[small].sum(dtype=np.uint64)) * _UNIT / scaled_sigma
            lost.append(round(exact) - int(fine[small].sum()) * _UNIT // (_STEPS * _PARTS))
            totals.append(int(part.sum(dtype=np.uint64)))
        found += [
            min(round(error * scaled_sigma / _UNIT), 2 * total)
            for error, total in zip(_errors(histograms, large, lost), totals, strict=True)
        ]
    return found


def remaining_error(counts: NDArray[np.float64], sigma: float) -> float:
    """The same of one marginal ``counts`` (n,), normalised: L1, 0 to 2. Raises ``ValueError`` without rows."""
    total = float(counts.sum())
    if not total > 0:
        raise ValueError("a marginal without rows has no error")
    # As fine as 32 bits hold.
    fraction_bits = max(0, 30 - int(max(1.0, float(counts.max()))).bit_length())
    answers = np.rint(np.maximum(counts, 0.0) * (1 << fraction_bits)).astype(np.uint32)
    (error,) = remaining_errors(
        answers, [answers.size], max(sigma, SMALLEST_SIGMA), fraction_bits=fraction_bits
    )
    return min(LARGEST, error / (1 << fraction_bits) / total)


def _in_fine_steps(answers: NDArray[np.uint32], scaled_sigma: Fraction) -> NDArray[np.int64]:
    """Counts in units of 2^-11 deviations, rounded; those from 16 deviations on are all one."""
    # A factor of about 31 bits, or of what a shift by 48 leaves: products stay below 2^63.
    ratio = _STEPS * _PARTS / scaled_sigma
    shift = max(0, min(48, 30 - ratio.numerator.bit_length() + ratio.denominator.bit_length()))
    scale = round(ratio * (1 << shift))
    # Where the product is at least the largest, it need not be known.
    most = np.uint32(min((_LARGE * _PARTS << shift) // max(scale, 1) + 1, 2**32 - 1))
    product = np.minimum(answers, most).astype(np.uint64) * np.uint64(scale)
    rounded = (product + np.uint64((1 << shift) // 2)) >> np.uint64(shift)
    found: NDArray[np.int64] = np.minimum(rounded, np.uint64(_LARGE * _PARTS)).astype(np.int64)
    return found


def _errors(histograms: NDArray[np.int64], large: list[int], lost: list[int]) -> list[Fraction]:
    """The errors (G,) in deviations and units of m; ``histograms`` (G, steps), in parts, of counts not ``large``.

    Of a large count u, m(u - t) = u - t. ``lost``: what rounding took from the sums of small counts, of which there
    may be many; to them everything is nearly straight.
    """
    above = _mean_above()
    zero = len(above) // 2
    sizes = [int(n) // _PARTS for n in histograms.sum(axis=1)]
    sums = [int(n) * _UNIT // _STEPS // _PARTS for n in histograms @ np.arange(_LARGE + 1)]

    def slope(x: int) -> int:
        """Of m at ``x`` steps, in units."""
        return int(above[zero + x + 1] - above[zero + x]) * _STEPS

    def excess(t: int, rows: Sequence[int]) -> list[int]:
        """By how much the counts lowered by ``t`` steps and cut have too large a sum."""
        cut = histograms[rows] @ above[zero - t : zero - t + _LARGE + 1]
        return [
            int(of) // _PARTS
            + lost[row] * slope(-t) // _UNIT
            - (sums[row] + lost[row] + large[row] * (t * _UNIT // _STEPS))
            for row, of in zip(rows, cut, strict=True)
        ]

    # The largest t with an excess that is not negative: one bit after the other.
    lowered = [0] * len(sizes)
    step = _LOWERED // 2
    while step:
        for t in sorted({low + step for low in lowered}):
            rows = [row for row, low in enumerate(lowered) if low + step == t]
            for row, over in zip(rows, excess(t, rows), strict=True):
                if over >= 0:
                    lowered[row] = t
        step //= 2
    errors = []
    for row, t in enumerate(lowered):
        at, beyond = excess(t, [row])[0], excess(t + 1, [row])[0]
        low, high = (
            (sizes[row] + large[row]) * (int(above[zero - s]) + int(above[zero + s]))
            - int(histograms[row] @ above[zero + s : zero + s - _LARGE - 1 : -1]) // _PARTS
            + lost[row] * slope(s) // _UNIT
            for s in (t, t + 1)
        )
        # Between two steps both sides are nearly straight.
        share = Fraction(min(max(at, 0), at - beyond), at - beyond) if at > beyond else Fraction(0)
        errors.append(low + (high - low) * share)
    return errors


@lru_cache(maxsize=1)
def _mean_above() -> NDArray[np.int64]:
    """m(x) = E max(x + Z, 0) in whole units, at x = -24 .. 24 in steps of 2^-7; m(0) stands in the middle."""
    reach = _LOWERED + _LARGE
    below = [0] * (reach + 1)
    with localcontext() as context:
        context.prec = _DIGITS
        for k in range(_SMALL + 1):
            x = Decimal(k) / _STEPS
            density = (-x * x / 2).exp() / (2 * _PI).sqrt()
            # The normal integral from 0 to x: density times x + x^3/3 + x^5/15 + ...
            term = total = x
            n = 1
            while term > Decimal(10) ** -40:
                n += 2
                term = term * x * x / n
                total += term
            tail = Decimal("0.5") - density * total
            below[k] = round((density - x * tail) * _UNIT)
    # m(x) = x + m(-x).
    over = [below[k] + k * _UNIT // _STEPS for k in range(1, reach + 1)]
    return np.array([*reversed(below), *over], np.int64)
