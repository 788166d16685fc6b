"""Bands of numbers among categories: what they are, and their order."""

import pytest

from mechanisms.bands import are_bands, in_order
from mechanisms.domain import Domain
from mechanisms.draft import draft_of
from mechanisms.split_draft import split_of
from mechanisms.text_table import TextTable


def drafted(**columns: list[str]) -> Domain:
    """The domain that is drafted for columns."""
    rows = range(2, 2 + len(next(iter(columns.values()))))
    return draft_of(TextTable(columns, rows), "t.csv", "comma").domain


@pytest.mark.parametrize(
    "bands",
    [
        ("<5", "5-9", "10-14", "15-19", "65+", "unknown"),
        ("under 18", "18 to 24", "25 to 34", "65 and over"),
        ("(0, 10]", "(10, 20]", "(100, 110]"),
        ("$0 - $9,999", "$10,000 - $19,999", "$100,000 - $119,999"),
        ("0–9 years", "10–19 years", "20–29 years"),
        ("1.5-1.9", "2.0-2.4", "10.0-10.4"),
    ],
)
def test_bands_are_listed_by_their_numbers(bands: tuple[str, ...]) -> None:
    assert are_bands(bands)
    assert in_order(bands[::-1]) == bands
    cells = [band for band in bands for _ in range(30)]
    (column,) = drafted(band=cells).columns
    assert column.labels == bands


@pytest.mark.parametrize(
    "texts",
    [
        ("2021-4711", "2021-4712", "2020-1111"),
        ("2020-01", "2020-02", "2020-03"),
        ("1-2", "2-3", "3-1"),
        ("0-20", "10-30", "20-40"),
        ("a-b", "c-d"),
    ],
)
def test_other_texts_are_no_bands(texts: tuple[str, ...]) -> None:
    assert not are_bands(texts)
    assert in_order(texts) == tuple(sorted(texts))


def _counts(first: range, last: range) -> dict[str, int]:
    return {f"{a}-{b}": 1 for a, b in zip(first, last, strict=True)}


def test_numbers_of_cases_are_no_ranges() -> None:
    ranges = _counts(range(0, 900, 3), range(5, 1805, 6))
    assert str(split_of("x", ranges, fold=False)).count("{x 1}-{x 2}") == 1
    assert drafted(x=list(ranges), n=["1", "2"] * 150).names == ("x 1", "x 2", "n")
    # A year and a number, and a department and a number that is always larger.
    for cases in (
        {f"{2015 + i % 6}-{7919 * i % 9973}": 1 for i in range(300)},
        {f"{1 + i % 20}-{1000 + 7919 * i % 8999}": 1 for i in range(300)},
    ):
        assert drafted(x=list(cases), n=["1", "2"] * 150).names == ("n",)
