"""The answer to a question: a figure with its interval, or a refusal in words. All values here are public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95
"""Chance with which an interval is meant to hold."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer: the ``value`` with the interval ``low`` .. ``high`` of ``confidence``, for the ``group``.

    ``group`` has the values of the columns that the question is by. ``basis`` is "measured", "earlier", "joined" or
    "guess". A ``refusal`` stands instead of all of these. Values of a column of dates are texts; all others numbers.
    """

    group: Mapping[str, str]
    value: float | str | None = None
    low: float | str | None = None
    high: float | str | None = None
    basis: str | None = None
    refusal: str | None = None
    confidence: float = CONFIDENCE

    def __str__(self) -> str:
        if self.refusal is not None:
            return f"no answer: {self.refusal}"
        value, low, high = (_text(number) for number in (self.value, self.low, self.high))
        return f"{value} ({self.confidence:.0%} interval {low} to {high}, {self.basis})"

    def to_dict(self) -> dict[str, object]:
        """Returns the fields, for JSON; an estimate has no refusal, and a refusal nothing else."""
        if self.refusal is not None:
            return {"group": dict(self.group), "refusal": self.refusal}
        return {
            "group": dict(self.group),
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "basis": self.basis,
        }


def _text(number: float | str | None) -> str:
    if not isinstance(number, float) or not math.isfinite(number):
        return str(number)
    # Whole numbers of rows are shown whole, other figures with five digits.
    return f"{number:.0f}" if abs(number) >= 10_000 else f"{number:.5g}"
