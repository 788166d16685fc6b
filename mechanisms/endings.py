"""Endings of numbers: prices that end in 99, readings that end in 0 or 5, with each ending's share of the numbers.

Endings affect writing only and are never counted: cells do not depend on them. A drawn number is moved to the nearest
one of its cell with a drawn ending, so that no impossible prices appear. Endings of times are the last two digits as
they are written: minutes of an hour, or seconds of a minute.

The endings of a configuration are public; those of a table are secret, at its owner. Limits: one to three last digits;
Fed-TDA does not write them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import DomainError
from mechanisms.sampling import PublicGenerator

MOST_DIGITS = 3
MOST_ENDINGS, COVERED = 6, 0.97
"""Most endings of one column, and their least share of the rows that are no atoms."""
SIXTY, MOST_OF_SIXTY = 60, 12
"""Minutes of an hour and seconds of a minute, and most endings of times."""
SPREAD = 3
"""Least ratio of the endings' share to the share that they would have by chance."""
ENOUGH_ROWS, ENOUGH_VALUES = 100, 30
"""Fewest rows, and fewest different numbers, for endings to be recognised."""
_PARTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Endings:
    """Pairs of last digits, all of one length, and the share of the numbers with that ending; shares are normalised.

    Those of a ``clock`` are minutes or seconds. Raises ``DomainError``, naming the column, for invalid digits and
    shares.
    """

    column: str
    shares: tuple[tuple[str, float], ...]
    clock: bool = False

    def __post_init__(self) -> None:
        lengths = {len(digits) for digits, _ in self.shares}
        ok = all(
            digits.isascii() and digits.isdigit() and 0 < share <= 1
            for digits, share in self.shares
        )
        if not (ok and len(lengths) == 1 and max(lengths) <= MOST_DIGITS):
            raise DomainError(
                f"column {self.column!r}: endings = {dict(self.shares)}; expected up to {MOST_DIGITS} last digits and "
                'their share, such as {"99" = 0.9, "00" = 0.1}'
            )

        if self.clock and not all(len(end) == 2 and int(end) < SIXTY for end, _ in self.shares):
            raise DomainError(
                f"column {self.column!r}: endings = {dict(self.shares)}; expected two digits of minutes or seconds and "
                'their share, such as {"00" = 0.6, "30" = 0.4}'
            )

    @property
    def step(self) -> int:
        """Ten to the number of digits; 60 for times."""
        return SIXTY if self.clock else int(10 ** len(self.shares[0][0]))

    def moved(
        self,
        numbers: NDArray[np.int64],
        ranges: NDArray[np.int64],
        apart: Collection[int],
        generator: PublicGenerator,
    ) -> NDArray[np.int64]:
        """Moves the numbers (rows,) to drawn endings, each nearby and within its range (rows, 2).

        No number becomes one that is set ``apart``. A number stays if its range has no number with any of the endings.
        """
        ends = np.array([int(digits) for digits, _ in self.shares], np.int64)
        points = generator.integers(np.zeros(len(numbers), np.int64), _PARTS)
        drawn = ends[np.searchsorted(_thresholds(self.shares), points, "right")]
        left, result = np.ones(len(numbers), np.bool_), numbers.copy()
        for wanted in (drawn, *(np.full(len(numbers), end) for end in ends)):
            for shift in (0, self.step, -self.step):
                size = np.abs(numbers) // self.step * self.step + wanted + shift
                found = np.where(numbers < 0, -size, size)
                fits = left & (size >= 0) & (found >= ranges[:, 0]) & (found <= ranges[:, 1])
                if len(apart):
                    fits &= ~np.isin(found, np.array(list(apart), np.int64))
                result[fits] = found[fits]
                left &= ~fits
        return result


def endings_of(
    rows: Mapping[int, int], atoms: Container[int], *, clock: bool = False
) -> tuple[tuple[str, float], ...]:
    """Returns the endings of nearly all ``rows`` of a column's numbers, without the atoms; empty if there are none.

    Of several lengths it takes the longest with few endings. Shares are rounded to hundredths. The numbers of a
    ``clock`` count minutes or seconds.
    """
    left = {number: count for number, count in rows.items() if number not in atoms}
    total = sum(left.values())
    if total < ENOUGH_ROWS or len(left) < ENOUGH_VALUES:
        return ()
    for digits in (2,) if clock else range(MOST_DIGITS, 0, -1):
        step, counts = SIXTY if clock else 10**digits, Counter[int]()
        for number, count in left.items():
            counts[abs(number) % step] += count
        most = counts.most_common(MOST_OF_SIXTY if clock else MOST_ENDINGS)
        while len(most) > 1 and most[-1][1] < (1 - COVERED) * total:
            most.pop()
        kept = sum(count for _, count in most)
        lowest = min(left) // step
        several = sum(number // step != lowest for number in left)
        if kept >= COVERED * total and len(most) * SPREAD <= step and several >= ENOUGH_VALUES // 2:
            return tuple(
                (f"{end:0{digits}d}", round(count / kept, 2)) for end, count in sorted(most)
            )
    return ()


def read_endings(column: str, value: object) -> tuple[tuple[str, float], ...]:
    """Returns the ``endings`` of a ``[[column]]`` table. Raises ``DomainError``."""
    if not isinstance(value, Mapping) or not value:
        raise DomainError(
            f'column {column!r}: endings = {value!r}; expected a table such as {{"99" = 0.9, "00" = 0.1}}'
        )
    for digits, share in value.items():
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise DomainError(
                f"column {column!r}: endings.{digits} = {share!r}; expected its share"
            )
    shares = tuple(sorted((str(digits), float(share)) for digits, share in value.items()))
    return Endings(column, shares).shares


@lru_cache(64)
def _thresholds(shares: tuple[tuple[str, float], ...]) -> NDArray[np.int64]:
    """Returns for each ending the upper limit of the millionths at which it is drawn."""
    sums = np.cumsum([share for _, share in shares])
    ends = np.floor(sums / sums[-1] * _PARTS).astype(np.int64)
    ends[-1] = _PARTS
    return np.asarray(ends, np.int64)
