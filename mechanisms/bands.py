"""Bands of numbers that are written as categories, ``10-19``, ``18 to 24``, ``65+``, and their order.

A draft lists them by their numbers, so that a report shows them as people read them: ``5-9`` is before ``10-14``.
The texts are secret, at their owner. Limits: numbers with a decimal comma and three decimals are read as thousands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from itertools import pairwise

_NUMBER = re.compile(r"\d+(?:[.,\u2019']\d+)*", re.ASCII)
_GROUPS = re.compile(r"\d{1,3}(?:[.,\u2019']\d{3})+", re.ASCII)
_BAND = re.compile(
    rf"[^\w-]*{_NUMBER.pattern}[^\w,;]*(?:[-\u2013\u2014~]|to|bis|a|al|until)[^\w,;]*{_NUMBER.pattern}"
    rf"\W*(?:\w{{1,5}}\W*)?|[\[(]{_NUMBER.pattern}, {_NUMBER.pattern}[\])]"
)
_BELOW = re.compile(r"[^\w\d]*(?:[<\u2264]|below|under|unter|bis|up to|less than)", re.IGNORECASE)
_SHARE = 0.5
"""Least share of the texts that have two numbers; the others have one (``65+``, ``<5``) or none (``unknown``)."""
_APART = 1.5
"""Ratio of different texts to different first numbers from which two numbers are no band of a grid."""


def are_bands(texts: Collection[str]) -> bool:
    """Returns whether most texts are a first and a last number that lie side by side, the last known by the first."""
    both = [text for text in texts if _BAND.fullmatch(text)]
    if len(both) < 2 or len(both) < _SHARE * len(texts):
        return False
    ends = sorted({(numbers[0], numbers[1]) for text in both if len(numbers := _numbers(text)) > 1})
    firsts = {first for first, _ in ends}
    if len(ends) >= _APART * len(firsts):
        return False
    ordered = all(first <= last for first, last in ends)
    return ordered and all(last <= after for (_, last), (after, _) in pairwise(ends))


def in_order(counts: Mapping[str, int] | Collection[str]) -> tuple[str, ...]:
    """Returns texts in the order of the alphabet, or of their numbers if they are bands."""
    texts = sorted(counts)
    if not are_bands(texts):
        return tuple(texts)
    return tuple(sorted(texts, key=_place))


def _place(text: str) -> tuple[bool, Decimal, bool, str]:
    """Returns the place of a band: by its first number, ``<5`` before ``5-9``, texts without a number at the end."""
    numbers = _numbers(text)
    return not numbers, numbers[0] if numbers else Decimal(0), not _BELOW.match(text), text


def _numbers(text: str) -> list[Decimal]:
    found = _NUMBER.findall(text)
    plain = (
        re.sub(r"\D", "", number) if _GROUPS.fullmatch(number) else number.replace(",", ".")
        for number in found
    )
    return [Decimal(number) for number in plain if number.count(".") < 2 and number.isascii()]
