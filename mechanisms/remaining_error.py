"""The error that a noisy measurement leaves: AIM's penalty for noise, corrected for small counts.

``remaining_errors`` gives it in whole units for choices, ``remaining_error`` normalised for reports.

All values here are public; they are computed from a model's answers, which are released.

Noise of deviation sigma on n counts has the L1 norm sqrt(2/pi) sigma n on average, which AIM takes as the error of a
measurement. But measured counts are projected to non-negative counts with the right sum; then noise on N rows cannot
leave more than 2 N, and leaves little where most counts are 0. The projection lowers all counts by one t and cuts at 0;
t is the one for which the sum is right on average. With m(x) = E max(x + Z, 0) for a standard normal Z, and counts u in
deviations,

    sum m(u - t) = sum u,    error = sum (m(-t) + m(t) - m(t - u)),

since E |max(X, 0) - u| for X = u - t + Z is the mean of X above u, plus that below it without the part that is cut. For
u far above 0 and t = 0 a count's error is 2 m(0) = sqrt(2/pi): AIM's penalty. README.md derives it.

Representation: integers throughout, so that servers with different processors compute the same. Counts are rounded to
2^-11 deviations, and m is a table at steps of 2^-7 in units of 2^-28, made once in 50 digits; it is linear between
steps. Limits: marginals of fewer than 2^27 cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LARGEST = 2.0
"""Largest L1 distance of two normalised marginals."""

SMALLEST_SIGMA = 2.0**-12

_STEPS = 1 << 7
# A count between two steps counts to both, in parts of a sixteenth.
_PARTS_BITS = 4
_PARTS = 1 << _PARTS_BITS
_SMALL_COUNT = _STEPS * _PARTS // 8
_UNIT = 1 << 28
# Below -6, m is less than a unit; no t up to 8 cuts a count of 16 or more.
_SMALL, _LOWERED, _LARGE = 6 * _STEPS, 8 * _STEPS, 16 * _STEPS
_PI = Decimal("3.14159265358979323846264338327950288419716939937510")
_DIGITS = 50
_CELLS_AT_ONCE = 1 << 18


def remaining_errors(
    answers: NDArray[np.uint32], sizes: Sequence[int], sigma: float, *, fraction_bits: int
) -> list[int]:
    """Returns the expected L1 error of each candidate's marginal, if measured with noise ``sigma`` (in rows).

    Shapes: ``answers`` (sum of ``sizes``,), the candidates' counts one after the other in units of 2^-``fraction_bits``
    rows, as is the result. The result is at most twice the candidate's rows, and 0 without rows. Raises ``ValueError``
    for another shape or a sigma out of range.
    """
    if answers.shape != (sum(sizes),):
        raise ValueError(f"answers of shape {answers.shape}; {sum(sizes)} are needed")
    if not SMALLEST_SIGMA <= sigma <= 2.0**40:
        raise ValueError(f"sigma = {sigma}; it lies between 2^-12 and 2^40")
    scaled_sigma = Fraction(sigma) * (1 << fraction_bits)
    found: list[int] = []
    ends = np.cumsum(sizes)
    for groups in _together(sizes):
        lengths = sizes[groups.start : groups.stop]
        first = int(ends[groups.start]) - lengths[0]
        part = answers[first : int(ends[groups.stop - 1])]
        starts = np.cumsum([0, *lengths[:-1]])
        fine = _in_fine_steps(part, scaled_sigma)
        many = part.size > _LARGE and len(groups) == 1
        counts = _Held.by_steps(fine) if many else _Held.of(fine, starts)
        small = fine < _SMALL_COUNT
        smalls = np.add.reduceat(np.where(small, part, 0).astype(np.uint64), starts).tolist()
        rounded = np.add.reduceat(np.where(small, fine, 0), starts).tolist()
        lost = [
            round(exact * _UNIT / scaled_sigma) - steps * _UNIT // (_STEPS * _PARTS)
            for exact, steps in zip(smalls, rounded, strict=True)
        ]
        totals = np.add.reduceat(part.astype(np.uint64), starts).tolist()
        found += [
            min(round(error * scaled_sigma / _UNIT), 2 * total)
            for error, total in zip(_errors(counts, lost), totals, strict=True)
        ]
    return found


def _together(sizes: Sequence[int]) -> Iterator[range]:
    """Yields neighbouring groups to process together: not too many cells, and large groups by themselves."""
    first, held = 0, 0
    for i, size in enumerate(sizes):
        if i > first and (held + size > _CELLS_AT_ONCE or size > _LARGE):
            yield range(first, i)
            first, held = i, 0
        held += size
        if size > _LARGE:
            yield range(first, i + 1)
            first, held = i + 1, 0
    if first < len(sizes):
        yield range(first, len(sizes))


def remaining_error(counts: NDArray[np.float64], sigma: float) -> float:
    """Returns the remaining error of one marginal ``counts`` (n,), normalised: L1, 0 to 2.

    Raises ``ValueError`` without rows.
    """
    total = float(counts.sum())
    if not total > 0:
        raise ValueError("a marginal without rows has no error")
    # The finest units that 32 bits hold.
    fraction_bits = max(0, 30 - int(max(1.0, float(counts.max()))).bit_length())
    answers = np.rint(np.maximum(counts, 0.0) * (1 << fraction_bits)).astype(np.uint32)
    (error,) = remaining_errors(
        answers, [answers.size], max(sigma, SMALLEST_SIGMA), fraction_bits=fraction_bits
    )
    return min(LARGEST, error / (1 << fraction_bits) / total)


def _in_fine_steps(answers: NDArray[np.uint32], scaled_sigma: Fraction) -> NDArray[np.int64]:
    """Returns counts in units of 2^-11 deviations, rounded; all counts from 16 deviations on are equal."""
    # A factor of about 31 bits, or of the rest that a shift by 48 leaves: products stay below 2^63.
    ratio = _STEPS * _PARTS / scaled_sigma
    shift = max(0, min(48, 30 - ratio.numerator.bit_length() + ratio.denominator.bit_length()))
    scale = round(ratio * (1 << shift))
    # The exact product is not needed where it exceeds the largest.
    most = np.uint32(min((_LARGE * _PARTS << shift) // max(scale, 1) + 1, 2**32 - 1))
    product = np.minimum(answers, most).astype(np.uint64) * np.uint64(scale)
    rounded = (product + np.uint64((1 << shift) // 2)) >> np.uint64(shift)
    found: NDArray[np.int64] = np.minimum(rounded, np.uint64(_LARGE * _PARTS)).astype(np.int64)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Counts below 16 deviations of G groups, with multiplicities in ``parts`` of a sixteenth.

    ``steps`` (n,) are the counts, ``parts`` (n,) their multiplicities, those of a group one after the other from
    ``starts`` (G,). ``large`` (G,) is the number of counts beyond 16 deviations.
    """

    steps: NDArray[np.int64]
    parts: NDArray[np.int64]
    starts: NDArray[np.int64]
    large: NDArray[np.int64]

    @classmethod
    def of(cls, fine: NDArray[np.int64], starts: NDArray[np.int64]) -> _Held:
        """Splits each count between its two neighbouring steps."""
        held = fine < _LARGE * _PARTS
        steps, parts = fine >> _PARTS_BITS, fine & (_PARTS - 1)
        both = np.stack([np.where(held, steps, 0), np.where(held, steps + 1, 0)], axis=1)
        often = np.stack([np.where(held, _PARTS - parts, 0), np.where(held, parts, 0)], axis=1)
        large = np.add.reduceat(~held, starts, dtype=np.int64)
        return cls(both.reshape(-1), often.reshape(-1), 2 * starts, large)

    @classmethod
    def by_steps(cls, fine: NDArray[np.int64]) -> _Held:
        """Counts one group with very many counts: the multiplicity of each step."""
        often, large = np.zeros(_LARGE + 1, np.int64), np.zeros(1, np.int64)
        for first in range(0, fine.size, _CELLS_AT_ONCE):
            one = cls.of(fine[first : first + _CELLS_AT_ONCE], np.zeros(1, np.int64))
            # Sums of small whole numbers, which doubles hold exactly.
            held = np.bincount(one.steps, one.parts, minlength=_LARGE + 1)
            often, large = often + held.astype(np.int64), large + one.large
        return cls(np.arange(often.size), often, np.zeros(1, np.int64), large)

    def sums(self, table: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns for each group (G,) the sum of ``table`` at the steps moved by ``at`` (G,), in parts."""
        lengths = np.diff(np.append(self.starts, self.steps.size))
        found = table[self.steps + np.repeat(at, lengths)] * self.parts
        return np.asarray(np.add.reduceat(found, self.starts))


def _errors(held: _Held, lost: Sequence[int]) -> list[Fraction]:
    """Returns the errors (G,) in deviations and units of m.

    For a large count u, m(u - t) = u - t. ``lost`` is the part that rounding took from the sums of small counts, of
    which there may be many; for them m is nearly linear.
    """
    above = _mean_above()
    mirrored = above[::-1].copy()
    zero = len(above) // 2
    nothing = np.zeros(len(lost), np.int64)
    sizes = held.sums(np.ones(_LARGE + 2, np.int64), nothing) // _PARTS
    sums = held.sums(np.arange(_LARGE + 2), nothing) * _UNIT // _STEPS // _PARTS
    of_lost = np.array(lost, np.int64)

    def slope(x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the slope of m at ``x`` steps, in units, times the part that rounding took, in units."""
        of_m = (above[zero + x + 1] - above[zero + x]) * _STEPS
        # The product has up to 72 bits: two halves, and the floor of the whole.
        product: NDArray[np.int64] = (of_lost >> 14) * of_m + ((of_lost & 0x3FFF) * of_m >> 14)
        return product >> 14

    def excess(t: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the excess of the sum of the counts, lowered by ``t`` steps and cut, over the right sum."""
        # sum m(u - t) - sum u, where a large count contributes -t.
        cut = held.sums(above, zero - t) // _PARTS + slope(-t)
        return cut - (sums + of_lost + held.large * (t * _UNIT // _STEPS))

    # The largest t with an excess that is not negative, bit by bit.
    lowered = nothing
    step = _LOWERED // 2
    while step:
        lowered = np.where(excess(lowered + step) >= 0, lowered + step, lowered)
        step //= 2

    def error(s: NDArray[np.int64]) -> NDArray[np.int64]:
        # sum (m(-t) + m(t) - m(t - u)); m(t - u) is 0 for large counts.
        both = (sizes + held.large) * (above[zero - s] + above[zero + s])
        return both - held.sums(mirrored, zero - s) // _PARTS + slope(s)

    ends = [excess(lowered), excess(lowered + 1), error(lowered), error(lowered + 1)]
    found = []
    for at, beyond, low, high in zip(*(end.tolist() for end in ends), strict=True):
        # Between two steps both sides are nearly linear.
        share = Fraction(min(max(at, 0), at - beyond), at - beyond) if at > beyond else Fraction(0)
        found.append(low + (high - low) * share)
    return found


@lru_cache(maxsize=1)
def _mean_above() -> NDArray[np.int64]:
    """Returns m(x) = E max(x + Z, 0) in whole units, at x = -24 .. 24 in steps of 2^-7; m(0) in the middle."""
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
            # m(-x) = phi(x) - x Phi(-x).
            below[k] = round((density - x * tail) * _UNIT)
    # m(x) = x + m(-x).
    over = [below[k] + k * _UNIT // _STEPS for k in range(1, reach + 1)]
    return np.array([*reversed(below), *over], np.int64)
