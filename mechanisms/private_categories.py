"""Private categories: noisy counts choose those of a public list that a run models (``values = "private"``).

A column begins with a cell for each of its ``candidates`` (a code list, which names no person) and one for all other
values. Round 0 measures the number of rows in each, under the budget. A candidate is kept if its noisy count stands out
of the noise; the others share one cell. One row moves one count by one, so charge and noise are those of any one-way
marginal, however long the list is.

The threshold: noise exceeds t with a probability of at most exp(-t^2 / (2 deviation^2)), for a discrete Gaussian, the
sum of three, and a Gaussian alike. At t = deviation sqrt(2 ln(candidates / ``ABSENT``)) it lets any of the candidates
that no row has pass with a probability of at most ``ABSENT``, in all.

All values here are public. The histogram is a released value, and its results are post-processing, at no further cost.
Representation: the rule compares whole numbers with 40 digits of `decimal`, the same to the bit on every machine.
Source: the tails are Canonne, Kamath, Steinke 2020, corollary 9. Limits: an unknown value is not found, see
docs/decisions/0080-no-unknown-categories-on-shares.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_parts import DEFAULT_BINS, PRIVATE, duplicates
from mechanisms.errors import DomainError
from mechanisms.private_bins import LEAST_COARSE, MAX_RESOLUTION

MOST_CANDIDATES = 4096
"""A row's code is looked up among as many entries on shares; three characters of ICD-10 are some 2,000."""
ABSENT = Decimal("0.001")
"""Largest probability that a column keeps any candidate that no row has."""
_DIGITS = Context(prec=40)


@dataclass(frozen=True, slots=True)
class PrivateCategories:
    """Public ``candidates``, the largest number of cells ``coarse``, and the histogram once it is measured.

    ``histogram`` has the noisy counts of the candidates and of all other values, whole numbers; empty before round 0.
    ``deviation`` is that of their noise, in rows. Raises ``DomainError``.
    """

    candidates: tuple[str, ...]
    coarse: int = DEFAULT_BINS
    histogram: tuple[int, ...] = ()
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.candidates) <= MOST_CANDIDATES:
            raise DomainError(
                f"candidates has {len(self.candidates)} values; expected 1 to {MOST_CANDIDATES}, such as the codes "
                "of a chapter, or their first characters"
            )
        if twice := duplicates(self.candidates):
            raise DomainError(f"the candidate {twice[0]!r} is listed more than once")
        if not LEAST_COARSE <= self.coarse <= MAX_RESOLUTION:
            raise DomainError(
                f"coarse = {self.coarse}; expected {LEAST_COARSE} to {MAX_RESOLUTION} cells at most"
            )
        if self.histogram and len(self.histogram) != len(self.candidates) + 1:
            raise DomainError(
                f"its histogram has {len(self.histogram)} counts; it has {len(self.candidates)} candidates and all "
                "other values"
            )
        if self.histogram and not (self.deviation > 0 and math.isfinite(self.deviation)):
            raise DomainError(
                f"deviation = {self.deviation}; the histogram's noise has a positive one"
            )

    @property
    def free(self) -> bool:
        """True: no category stands in the configuration as one that the table has."""
        return True

    @property
    def measured(self) -> bool:
        """True if there is a histogram."""
        return bool(self.histogram)

    def having(self, histogram: NDArray[np.float64], deviation: float) -> PrivateCategories:
        """Returns the same with the noisy counts (candidates + 1,) and the deviation of each."""
        counts = tuple(int(count) for count in np.rint(histogram))
        return replace(self, histogram=counts, deviation=deviation)

    def to_dict(self) -> dict[str, object]:
        """Returns the keys in the ``[[column]]`` table of a configuration."""
        known = {"histogram": list(self.histogram), "deviation": self.deviation}
        keys: dict[str, object] = {"values": PRIVATE, "candidates": list(self.candidates)}
        return keys | {"coarse": self.coarse} | (known if self.measured else {})

    @property
    def categories(self) -> tuple[str, ...]:
        """The candidates; once measured, those that stand out of the noise, in the list's order."""
        return _kept(self) if self.measured else self.candidates

    def places(self, others: int) -> NDArray[np.int32]:
        """Returns the code of each fine one once measured, int32 (codes,); ``others`` (missing) come last."""
        kept = {value: code for code, value in enumerate(_kept(self))}
        codes = [kept.get(value, len(kept)) for value in self.candidates]
        return np.array([*codes, *(len(kept) + i for i in range(others + 1))], np.int32)


def threshold(candidates: int, deviation: float) -> int:
    """Returns the least count that stands out of noise of ``deviation`` on so many ``candidates``."""
    tail = _DIGITS.ln(Decimal(candidates) / ABSENT)
    least = _DIGITS.multiply(Decimal(deviation), _DIGITS.sqrt(2 * tail))
    # One more row, since counts with noise that is no whole number were rounded.
    return int(least.to_integral_value(ROUND_CEILING, _DIGITS)) + 1


@lru_cache(512)
def _kept(private: PrivateCategories) -> tuple[str, ...]:
    """Returns the candidates above the threshold, the largest first if there are too many, in the list's order."""
    counts = private.histogram[:-1]
    least = threshold(len(counts), private.deviation)
    found = sorted((-count, i) for i, count in enumerate(counts) if count >= least)
    return tuple(
        private.candidates[i] for _, i in sorted(found[: private.coarse - 1], key=lambda at: at[1])
    )
