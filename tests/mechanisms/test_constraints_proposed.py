"""Constraints that drafts propose: those that a table shows, and no others."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mechanisms.constraints.derived import Derived
from mechanisms.domain import Domain
from mechanisms.draft import Draft, draft_of
from mechanisms.numbers import Real
from mechanisms.private_draft import private_draft
from mechanisms.sampling import public_generator
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from parties.session.draft_config import draft_text

ROWS = 400


def day(number: int) -> str:
    return (datetime.date(2020, 1, 1) + datetime.timedelta(days=number)).isoformat()


def shown() -> dict[str, list[str]]:
    """A table that shows a constraint of each kind."""
    draw = public_generator(1)
    net, start = draw.integers(1, 500, ROWS), draw.integers(0, 900, ROWS)
    days, until = draw.integers(0, 30, ROWS), draw.integers(0, 300, ROWS)
    age = draw.integers(18, 90, ROWS)
    one, two = draw.integers(0, 50, ROWS), draw.integers(0, 50, ROWS)
    sex, colour = draw.integers(0, 2, ROWS), draw.integers(0, 3, ROWS)
    cities = [["Bonn", "DE"], ["Ulm", "DE"], ["Lyon", "FR"], ["Nice", "FR"]]
    city = draw.integers(0, 4, ROWS)
    pregnant = (sex == 0) & (draw.random(ROWS) < 0.5)
    births = [
        datetime.date(2020, 1, 1)
        + datetime.timedelta(days=int(s) - int(a) * 365 - int(a) // 4 - 60)
        for s, a in zip(start, age, strict=True)
    ]
    return {
        "net": net.astype(str).tolist(),
        "tax": [f"{n * 0.19:.2f}" for n in net],
        "gross": [f"{n + round(n * 0.19, 2):.2f}" for n in net],
        "birth": [birth.isoformat() for birth in births],
        "start": [day(int(s)) for s in start],
        "end": [day(int(s + d)) for s, d in zip(start, days, strict=True)],
        "stay": days.astype(str).tolist(),
        "paid": [day(int(s + d + u)) for s, d, u in zip(start, days, until, strict=True)],
        "age": age.astype(str).tolist(),
        "a": one.astype(str).tolist(),
        "b": two.astype(str).tolist(),
        "c": (100 - one - two).astype(str).tolist(),
        "sex": ["fm"[i] for i in sex],
        "pregnant": ["yes" if p else "no" for p in pregnant],
        "red": (colour == 0).astype(int).astype(str).tolist(),
        "green": (colour == 1).astype(int).astype(str).tolist(),
        "blue": (colour == 2).astype(int).astype(str).tolist(),
        "city": [cities[i][0] for i in city],
        "country": [cities[i][1] for i in city],
    }


def draft(columns: dict[str, list[str]], *, private_bins: bool = False) -> Draft:
    rows = len(next(iter(columns.values())))
    return draft_of(
        TextTable(columns, range(2, rows + 2)), "t.csv", "csv", private_bins=private_bins
    )


def tables_of(proposed: Sequence[Any]) -> list[dict[str, object]]:
    return [dict(each.table) for each in proposed]


def test_draft_proposes_each_kind_of_constraint() -> None:
    found = draft(shown()).proposals
    assert all(
        each.exceptions == 0 and each.rows == ROWS for each in found if "born" not in each.table
    )
    assert tables_of(found) == [
        {"column": "gross", "equals": "net + tax"},
        {"column": "end", "equals": "start + stay"},
        {"column": "birth", "born": "age", "on": "start"},
        {"shares": ["a", "b", "c"], "total": 100},
        {"one_hot": ["red", "green", "blue"], "column": "red_or_green"},
        {"order": ["start", "paid"]},
        {
            "column": "country",
            "follows": "city",
            "values": {"Bonn": "DE", "Lyon": "FR", "Nice": "FR", "Ulm": "DE"},
        },
        {"never": "sex = m and pregnant = yes"},
    ]


def test_proposals_load_when_the_signs_before_them_are_taken_out() -> None:
    columns = shown()
    del columns["red"], columns["green"], columns["blue"]
    text = draft_text("t", draft(columns))
    tomllib.loads(text)
    lines = text.partition("docs/constraints.md has all kinds.\n")
    proposed = [line[2:] for line in lines[2].splitlines() if not line.startswith("#   ")]
    document = tomllib.loads(lines[0] + "\n" + "\n".join(proposed))
    domain = Domain.from_dict({k: document[k] for k in ("column", "constraint", "missing")})
    assert {"gross", "end", "birth", "c", "country"}.isdisjoint(domain.names)
    table = TextTable(columns, range(2, ROWS + 2))
    assert encode(domain, table).shape == (ROWS, len(domain.names))


def test_draft_counts_exceptions_and_proposes_nothing_that_many_rows_contradict() -> None:
    columns = shown()
    columns["gross"][7] = "1.00"
    (first, *_) = draft(columns).proposals
    assert (first.table, first.exceptions) == ({"column": "gross", "equals": "net + tax"}, 1)
    for row in range(0, ROWS, 20):
        columns["gross"][row] = "1.00"
    assert "gross" not in {each.get("column") for each in tables_of(draft(columns).proposals)}


def test_draft_of_independent_columns_proposes_nothing() -> None:
    draw = public_generator(3)
    columns = {
        **{f"n{i}": draw.integers(0, 300, 1000).astype(str).tolist() for i in range(6)},
        **{f"d{i}": [day(int(n)) for n in draw.integers(0, 900, 1000)] for i in range(3)},
        **{f"c{i}": [f"v{n}" for n in draw.integers(0, 4, 1000)] for i in range(5)},
        **{f"b{i}": draw.integers(0, 2, 1000).astype(str).tolist() for i in range(4)},
    }
    assert draft(columns).proposals == ()


def test_private_drafts_propose_nothing() -> None:
    drafted = private_draft(draft(shown()))
    assert drafted.proposals == ()
    assert "constraint" not in draft_text("t", drafted)


def test_draft_with_private_bins_proposes_no_date_that_has_no_bounds() -> None:
    found = tables_of(draft(shown(), private_bins=True).proposals)
    assert found[0] == {"column": "gross", "equals": "net + tax"}
    assert {"order": ["start", "end"]} in found
    assert "end" not in {each.get("column") for each in found}


def test_numbers_of_many_decades_are_summed_by_no_formula() -> None:
    """A place of such a number is no multiple: taken for one, it writes a number of as many zeros as it says."""
    draw = public_generator(3)
    columns = {
        "tiny": [f"{10 ** draw.uniform(-30, -3):.12g}" for _ in range(ROWS)],
        "a": draw.integers(0, 9, ROWS).astype(str).tolist(),
        "b": draw.integers(0, 90, ROWS).astype(str).tolist(),
    }
    columns["c"] = [str(int(a) + int(b)) for a, b in zip(columns["a"], columns["b"], strict=True)]
    found = draft(columns)
    (tiny, *_) = found.domain.columns
    assert isinstance(tiny, Real)
    assert tiny.digits is not None
    assert tables_of(found.proposals) == [{"column": "c", "equals": "a + b"}]


def test_sums_of_columns_that_are_mostly_zero_are_dismissed_without_reading_their_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first rows of thousands of triples are 0 + 0 = 0; each would have all its texts read anew."""
    read: list[str] = []
    contradictions = Derived.contradictions

    def reading(derived: Derived, *rest: Any) -> dict[int, str]:
        read.append(derived.name)
        return contradictions(derived, *rest)

    monkeypatch.setattr(Derived, "contradictions", reading)
    draw = public_generator(4)
    rare = np.where(draw.random((18, 3_000)) < 0.05, draw.integers(1, 99, (18, 3_000)), 0)
    columns = {f"c{i}": values.astype(str).tolist() for i, values in enumerate(rare)}
    total = (rare[0] + rare[1]).astype(str).tolist()
    found = draft({**columns, "total": total}).proposals
    assert [proposal.table for proposal in found] == [{"column": "total", "equals": "c0 + c1"}]
    assert set(read) == {"total"}
