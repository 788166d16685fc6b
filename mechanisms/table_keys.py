"""Keys of a configuration's tables, declared once: readers check values by them, and the reference is made of them.

A ``Range`` has the allowed numbers of a key, a ``TableKey`` all that is known of a key which no dataclass has as a
field. All values here are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

ALLOWED = "allowed"
"""Key of a field's metadata: its ``Range``, or a tuple of its choices."""
REQUIRED = "required"
"""Default of a key that has none."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``; ``above`` leaves out ``low``, and ``below`` leaves out ``high``.

    ``high_key`` is the key of the same table that has the largest number, instead of ``high``.
    """

    low: float
    high: float = math.inf
    above: bool = False
    below: bool = False
    high_key: str = ""

    def has(self, value: float) -> bool:
        """Returns whether the range has a number; it has none that is not finite."""
        # A whole number may be too large for math.isfinite.
        if math.inf in (value, -value):
            return False
        first = self.low < value if self.above else self.low <= value
        last = value < self.high if self.below else value <= self.high
        return first and last

    def __str__(self) -> str:
        low, high = (
            str(end) if isinstance(end, int) else f"{end:g}" for end in (self.low, self.high)
        )
        if math.isinf(self.high):
            return f"a finite number above {low}" if self.above else f"at least {low}"
        if self.above and self.below:
            return f"between {low} and {high}"
        first = f"above {low}" if self.above else f"at least {low}"
        return f"{first} and {'below' if self.below else 'at most'} {high}"


Allowed: TypeAlias = Range | tuple[str, ...]
"""Allowed values: a range of numbers, or choices."""


def within(
    low: float, high: float = math.inf, *, above: bool = False, below: bool = False
) -> Mapping[str, Range]:
    """Returns the metadata of a field whose numbers are in a ``Range``."""
    return {ALLOWED: Range(low, high, above, below)}


def up_to_key(low: float, key: str) -> Mapping[str, Range]:
    """Returns the metadata of a field whose numbers are from ``low`` to that of another field, ``key``."""
    return {ALLOWED: Range(low, high_key=key)}


def one_of(choices: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """Returns the metadata of a field with one of these texts."""
    return {ALLOWED: choices}


@dataclass(frozen=True, slots=True)
class TableKey:
    """A key of a table: its ``type`` and meaning (``said``) in words, its default as in TOML, and allowed values."""

    type: str
    said: str
    default: str = ""
    allowed: Allowed = ()


def required_of(keys: Mapping[str, TableKey]) -> set[str]:
    """Returns the names of the keys that a table has to have."""
    return {name for name, key in keys.items() if key.default == REQUIRED}


def optional_of(keys: Mapping[str, TableKey]) -> set[str]:
    """Returns the names of the keys that a table may have."""
    return {name for name, key in keys.items() if key.default != REQUIRED}
