"""Shares of rows in words: a share above 0 is never written as 0, nor two different shares alike.

All values here are public.
"""

import math

_MOST_DECIMALS = 4


def share_text(share: float) -> str:
    """Returns a share in percent, to a tenth of one; of a distance that is more than the whole, that it is."""
    if share > 1:
        return "more than 100%"
    text = f"{share:.1%}"
    return "less than 0.1%" if share > 0 and text == "0.0%" else text


def at_most_text(share: float) -> str:
    """Returns a bound in percent, rounded up so that it is true as it is written."""
    if share > 1:
        return share_text(share)
    return f"{math.ceil(share * 1000 - 1e-6) / 10:.1f}%"


def distinct_shares(one: float, other: float) -> tuple[str, str]:
    """Returns two shares in percent, with the decimals that tell them apart; up to four."""
    texts = share_text(one), share_text(other)
    for decimals in range(2, _MOST_DECIMALS + 1):
        if one == other or texts[0] != texts[1]:
            break
        texts = f"{one:.{decimals}%}", f"{other:.{decimals}%}"
    return texts


def part_text(share: float) -> str:
    """Returns a part of a whole, in percent; one that is not the whole is none."""
    text = f"{share:.0%}"
    return "over 99%" if share < 1 and text == "100%" else text


def rows_text(rows: float) -> str:
    """Returns a number of rows: whole from ten on, else to two digits."""
    return f"{rows:,.0f}" if rows >= 10 else f"{rows:.2g}"
