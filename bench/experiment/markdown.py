"""Parts of the benchmarks' pages: tables in Markdown and figures as text."""

import textwrap
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean, stdev


def markdown_table(
    heads: str, rows: Iterable[Sequence[object]], *, right: Collection[int] = ()
) -> str:
    """Returns a table in Markdown, its ``heads`` as "a | b"; columns numbered in ``right`` are right-aligned."""
    columns = heads.count(" | ") + 1
    rules = ("---:" if column in right else "---" for column in range(columns))
    return "\n".join(
        f"| {' | '.join(map(str, cells))} |" for cells in ([heads], list(rules), *rows)
    )


def filled(text: str, indent: str = "") -> str:
    """Wraps ``text`` to lines of 118 characters; lines after the first begin with ``indent``."""
    words = " ".join(text.split())
    return textwrap.fill(
        words, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def spread(values: Sequence[float], digits: int) -> str:
    """Returns the mean of ``values`` and their standard deviation; "-" without any."""
    if not values:
        return "-"
    around = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{around}"


def mb(value: float | None) -> str:
    """Returns ``value`` MB to three digits; empty for None."""
    if value is None:
        return ""
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def size(value: float) -> str:
    """Returns ``value`` bytes with their unit."""
    return f"{mb(value / 1e6)} MB" if value >= 10_000 else f"{value:,.0f} B"


def times(large: float, small: float) -> str:
    """Returns the ratio of ``large`` to ``small`` as text."""
    ratio = large / small
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def listed(words: Sequence[str]) -> str:
    """Joins words with commas and an "and"."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
