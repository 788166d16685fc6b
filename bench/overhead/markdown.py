"""Pieces of the overhead page: tables in Markdown, figures as text, and what a record holds.

Provides ``markdown_table``, ``mb``, ``size``, ``times``, ``name``, ``variant``, ``results_of``, ``listed`` and
``ratios``. Public.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

RATIO_HEADS = (
    "by the formula", "plain / union", "plain / query", "seeded / union", "seeded / query",
)  # fmt: skip


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def mb(value: float | None) -> str:
    """``value`` MB to three digits; nothing where there is none."""
    if value is None:
        return ""
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def size(value: float) -> str:
    """``value`` bytes with their unit."""
    return f"{mb(value / 1e6)} MB" if value >= 10_000 else f"{value:,.0f} B"


def times(large: float, small: float) -> str:
    """How many times ``small`` goes into ``large``."""
    ratio = large / small
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and an "and"."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def name(found: Mapping[str, Any]) -> str:
    """The table of a document, marked where its rows are random."""
    return f"{found['dataset']}{' (generated)' if found['rows'] == 'generated' else ''}"


def variant(result: Mapping[str, Any]) -> str:
    """Form of the upload, or grouping."""
    return str(result.get("upload", result.get("grouping")))


def results_of(
    found: Mapping[str, Any], method: str, form: str, rounds: int | None = None
) -> list[Mapping[str, Any]]:
    """Results of a document by method and variant, of T = ``rounds`` if given."""
    return [
        r
        for r in found["results"]
        if (r["method"], variant(r)) == (method, form) and rounds in (None, r["rounds"])
    ]


def ratios(
    plain: Mapping[str, Any],
    seeded: Mapping[str, Any],
    union: Mapping[str, Any],
    query: Mapping[str, Any],
) -> tuple[str, ...]:
    """The cells under ``RATIO_HEADS``: DistAIM's bytes over FLAIM's, by the formula and then on the wire."""
    return (
        times(plain["formula_mb"], union["formula_mb"]),
        *(
            times(upload["wire_mb"], flaim["wire_mb"])
            for upload in (plain, seeded)
            for flaim in (union, query)
        ),
    )
