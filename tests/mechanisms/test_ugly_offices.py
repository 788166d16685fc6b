"""Any tables with keys are drafted, made into views of which a person has a bounded part, and drawn whole."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from mechanisms.errors import DataError, DomainError
from mechanisms.keyed.declared import ChildTable, KeyedTables
from mechanisms.keyed.drawing import draw_persons, keyed_frames
from mechanisms.keyed.figures import keyed_figures
from mechanisms.keyed.summaries import Summary
from mechanisms.keyed.views import KEY, view_tables, views_of
from mechanisms.linking import linking_keys
from mechanisms.person_rows import sampled_rows
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from parties.foundation.untrusted_text import parse_toml
from parties.methods.keyed_draft import keyed_draft_text
from tests.mechanisms.test_keyed import Columns, drafted, models_of, table
from tests.mechanisms.ugly_offices import ugly_office

REFUSED = ("no column is left to model", "no column looks like a person's key")
"""Refusals of drafts that are right: nothing to model in a table, or a key that nobody would recognise."""
NO_SUMMARY = (
    "which has no numbers",
    "satisfies it",
    "expected a column",
    "is no value of",
    "is no number",
    "cannot be read",
)
"""Why a column has no mean, or no condition on its first value."""
FAST, MANY = range(6), range(6, 300)


def counted(tables: KeyedTables, of: dict[str, Columns]) -> dict[str, Counter[tuple[str, ...]]]:
    """Returns the rows of each view that count, as an owner's program leaves the others out."""
    found = {}
    rows = view_tables(tables, {n: table(c) for n, c in of.items()}, where={n: n for n in of})
    for view in views_of(tables):
        own: TextTable = rows[view.name]
        keys = linking_keys(own, [KEY], source=view.name, at_most=None)
        names = view.domain.names
        kept = sampled_rows(own, keys, at_most=view.rows, columns=names, salt=b"salt")
        found[view.name] = Counter(zip(*kept.columns.values(), strict=True))
    return found


def with_summaries(tables: KeyedTables, seed: int) -> KeyedTables:
    """Adds random summaries to each table with rows, of any column that has one."""
    chance, children = random.Random(seed), list[ChildTable]()
    for child in tables.children:
        found = list[Summary]()
        for name in child.changing:
            for summary in (Summary("last", name), Summary("mean", name), _any_of(child, name)):
                known = {each.column for each in found}
                wanted = chance.random() < 0.3 and summary.column not in known
                if wanted and _has(child, summary):
                    found.append(summary)
        children.append(replace(child, summaries=tuple(found)))
    return KeyedTables.from_list(KeyedTables(tables.parent, tuple(children)).to_dict())


def _has(child: ChildTable, summary: Summary) -> bool:
    """Returns whether a table has such a summary; a refusal for another reason than those that are right is raised."""
    try:
        replace(child, summaries=(summary,))
    except DomainError as error:
        if any(said in str(error) for said in NO_SUMMARY):
            return False
        raise
    return True


def _any_of(child: ChildTable, name: str) -> Summary:
    """Returns whether any row has the column's first value."""
    column, value = (
        f"'{text}'" if '"' in text else f'"{text}"' for text in (name, child.column(name).labels[0])
    )
    return Summary("any", f"some {name}", f"{column} = {value}")


def check(seed: int) -> None:
    of = ugly_office(seed)
    try:
        draft = drafted(of)
    except DataError as error:
        if any(said in str(error) for said in REFUSED):
            return
        raise
    tables = KeyedTables.from_list(parse_toml(keyed_draft_text(draft))["table"])
    assert tables == draft.tables
    tables = with_summaries(tables, seed)
    # Another column may be called as a key is, and have more values.
    key = tables.parent.key

    # One person less: as many rows less as the view says, and no other row changes.
    gone = next(iter(of.values()))[key][0]
    without = {
        name: {
            c: [cell for cell, each in zip(cells, columns[key], strict=True) if each != gone]
            for c, cells in columns.items()
        }
        for name, columns in of.items()
    }
    whole, fewer = counted(tables, of), counted(tables, without)
    for view in views_of(tables):
        assert not fewer[view.name] - whole[view.name]
        assert (whole[view.name] - fewer[view.name]).total() <= view.rows

    persons = draw_persons(tables, models_of(tables, of), 60, seed=seed)
    drawn = {
        name: table({c: frame[c].tolist() for c in frame})
        for name, _, frame in keyed_frames(tables, persons)
    }
    for name, text in drawn.items():
        encode(tables.domain_of(name), text, source=name)
        left_out = {*tables.domain_of(name).ignore} - {key}
        assert {*text.columns} == {*of[name]} - left_out
    for figures in keyed_figures(tables, drawn):
        assert (figures.broken, figures.unordered) == (0, 0)


@pytest.mark.parametrize("seed", FAST)
def test_any_tables_with_keys_come_through(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_tables_with_keys_come_through() -> None:
    for seed in MANY:
        try:
            check(seed)
        except Exception as error:
            raise AssertionError(f"ugly_office({seed})") from error
