"""Synthetic tables with keys from the models of their views: whole persons, with their rows in order.

A person is drawn with the number of its rows and the first of them from the view of persons, every further row given
the one before it and the person's own columns from the view of steps. So constant columns are constant, and a date is
that of the row before and a gap, which is not negative.

All values here are public: models are made of released measurements, and drawing is post-processing.
Limits: where noise left no probability for a row's given values together, it is drawn given fewer of them, the person's
own columns first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import nearest_of, number_text, numbers_in
from mechanisms.columns import Categorical, Column
from mechanisms.conditioning import DRAWN, conditioned, fill_possible
from mechanisms.constraints.rows import settle
from mechanisms.domain import Domain
from mechanisms.errors import ConditionError
from mechanisms.keyed.declared import ChildTable, KeyedTables
from mechanisms.keyed.summaries import summarised
from mechanisms.keyed.views import (
    BEFORE,
    CHANGE,
    FIRST,
    NOW,
    NUMBER,
    Words,
)
from mechanisms.model import Model
from mechanisms.numbers import Integer
from mechanisms.sampling import PublicGenerator, public_generator
from mechanisms.table import decode_column, written_frame

if TYPE_CHECKING:
    import pandas as pd

MOST_PERSONS = 10**9
"""Largest key of a drawn person."""
Texts: TypeAlias = dict[str, NDArray[np.object_]]
"""Modelled columns as text, (rows,) each, None for a missing value."""


TRIES = 20
"""Most times that a row is drawn again whose changes do not lead to the drawn cells of its values."""
PERSON_TRIES = 8
"""Most times that all rows of a person are drawn again which do not have the drawn summaries."""
HELPED = 0.05
"""Least share of persons that such a draw has to bring nearer for another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Persons:
    """Drawn persons: ``own`` columns of the table of persons, and by table the rows of each, in order.

    ``rows`` has for each table the persons of its rows, ascending, and the rows' columns.
    """

    count: int
    own: Texts
    rows: Mapping[str, tuple[NDArray[np.int64], Texts]]


def draw_persons(
    tables: KeyedTables, models: Mapping[str, Model], count: int, *, seed: int
) -> Persons:
    """Draws ``count`` persons from the ``models`` of the views, by name; the same seed draws the same persons.

    Raises ``ValueError`` unless ``count`` is positive.
    """
    generator = public_generator(seed)
    drawing = _Drawing(tables, models, generator)
    return drawing.persons(count)


def keyed_frames(
    tables: KeyedTables, persons: Persons
) -> Iterator[tuple[str, Domain, pd.DataFrame]]:
    """Yields each table by name, with the description of its columns, and its rows as text, keys first.

    Keys are numbers from 1, the same in all tables.
    """
    parent = tables.parent
    if parent.domain is not None:
        every = np.arange(persons.count)
        yield (
            parent.name,
            *_written(parent.domain, parent.key, every, texts=persons.own),
        )
    for child in tables.children:
        of, texts = persons.rows[child.name]
        yield child.name, *_written(child.domain, child.key, of, texts=texts)


def _written(
    domain: Domain, key: str, of: NDArray[np.int64], *, texts: Texts
) -> tuple[Domain, pd.DataFrame]:
    """Returns a table with its key as a column of whole numbers, and its rows."""
    absent = domain.missing_values[0] if domain.missing_values else ""
    filled = {name: _with(t, absent) for name, t in texts.items()}
    frame = written_frame(domain, filled)
    frame.insert(0, key, [str(number + 1) for number in of.tolist()])
    return keyed_domain(domain, key), frame


def keyed_domain(domain: Domain, key: str) -> Domain:
    """Returns the description of a drawn table: its key is a column of whole numbers, the first one."""
    return replace(
        domain,
        columns=(Integer(key, 1, MOST_PERSONS), *domain.columns),
        ignore=tuple(name for name in domain.ignore if name != key),
        implied=tuple(replace(each, position=each.position + 1) for each in domain.implied),
        derived=tuple(replace(each, position=each.position + 1) for each in domain.derived),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Drawing:
    tables: KeyedTables
    models: Mapping[str, Model]
    generator: PublicGenerator

    def persons(self, count: int) -> Persons:
        parent, model = self.tables.parent, self.models[self.tables.parent.name]
        codes = model.sample(count, self.generator)
        names = model.domain.names
        numbers = {child.name: self._numbers(model, codes, child) for child in self.tables.children}
        for child in self.tables.children:
            codes = self._with_first_row(model, codes, child, has_rows=numbers[child.name] > 0)
        own: Texts = {}
        if parent.domain is not None:
            places = [names.index(f"{parent.name}.{name}") for name in parent.domain.names]
            cells = zip(places, parent.domain.columns, strict=True)
            columns = (replace(model.domain.columns[i], name=column.name) for i, column in cells)
            domain = replace(parent.domain, columns=tuple(columns))
            own = self._texts(domain, codes[:, places], {})
        rows = {
            child.name: self._rows(child, codes, own, numbers=numbers[child.name])
            for child in self.tables.children
        }
        return Persons(count, own, rows)

    def _numbers(
        self, model: Model, codes: NDArray[np.int32], child: ChildTable
    ) -> NDArray[np.int64]:
        """Draws the number of each person's rows."""
        place = model.domain.index(f"{child.name}.{NUMBER}")
        texts = decode_column(
            model.domain, model.domain.columns[place], codes[:, place], self.generator
        )
        return texts.astype(np.int64)

    def _with_first_row(
        self,
        model: Model,
        codes: NDArray[np.int32],
        child: ChildTable,
        *,
        has_rows: NDArray[np.bool_],
    ) -> NDArray[np.int32]:
        """Draws the first row and summaries again where a person with rows has lost a value that every row has."""
        domain, names = model.domain, model.domain.names
        none = Words.of(self.tables).none
        evidence, wrong = {}, np.zeros(len(codes), np.bool_)
        always = {f"{child.name}.{FIRST}.{n}": not child.column(n).missing for n in child.own}
        always |= {f"{child.name}.{summary.column}": False for summary in child.summaries}
        places = [names.index(name) for name in always]
        for place, there in zip(places, always.values(), strict=True):
            column = domain.columns[place]
            absent = column.code_of(none)
            if absent is None and column.missing and there:
                absent = column.size - 1
            if absent is None:
                continue
            evidence[names[place]] = np.where(np.arange(column.size) == absent, 0.0, 1.0)
            wrong |= has_rows & (codes[:, place] == absent)
        if not wrong.any():
            return codes
        filled = codes.copy()
        try:
            under = conditioned(model, evidence).model
        except ConditionError:
            # Noise left no person with a whole first row: what is absent is any other value.
            for name, allowed in evidence.items():
                place, others = names.index(name), np.flatnonzero(allowed)
                mine = np.flatnonzero(wrong & (allowed[codes[:, place]] == 0))
                if len(others):
                    drawn = self.generator.integers(len(others), size=len(mine))
                    filled[mine, place] = others[drawn]
            return filled
        given = codes[wrong].copy()
        given[:, places] = DRAWN
        filled[wrong] = _fill(under, given, (), generator=self.generator)
        return filled

    def _rows(
        self, child: ChildTable, codes: NDArray[np.int32], own: Texts, *, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Texts]:
        """Draws the rows of persons; those whose summaries are not the drawn ones again, as a whole."""
        whose, texts = self._sequences(child, codes, own, numbers=numbers)
        if not child.summaries:
            return whose, texts
        agreed = self._agreements(child, codes, whose, texts=texts)
        for _ in range(PERSON_TRIES):
            again = np.flatnonzero((numbers > 1) & (agreed < len(child.summaries)))
            if not len(again):
                break
            of = {name: column[again] for name, column in own.items()}
            found, drawn = self._sequences(child, codes[again], of, numbers=numbers[again])
            agreeing = self._agreements(child, codes[again], found, texts=drawn)
            better = agreeing > agreed[again]
            whose, texts = _replaced((whose, texts), (again[found], drawn), persons=again[better])
            agreed[again[better]] = agreeing[better]
            if better.mean() < HELPED:
                break
        return whose, texts

    def _agreements(
        self, child: ChildTable, codes: NDArray[np.int32], whose: NDArray[np.int64], *, texts: Texts
    ) -> NDArray[np.int64]:
        """Returns how many summaries of each person's rows are in the cells that were drawn for them: (persons,)."""
        domain = self.models[self.tables.parent.name].domain
        found = np.zeros(len(codes), np.int64)
        names, values = summaries_of(child, whose, texts)
        given = {f"{child.name}.{name}": column for name, column in values.items()}
        summarised = _codes_of(domain, given, len(names))
        for name in given:
            place = domain.index(name)
            found[names] += summarised[:, place] == codes[names, place]
        return found

    def _sequences(
        self, child: ChildTable, codes: NDArray[np.int32], own: Texts, *, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Texts]:
        persons = self.models[self.tables.parent.name]
        of = np.flatnonzero(numbers > 0)
        domain, drawn = self._row_codes(persons, codes[of], child, names=child.own, word=FIRST)
        first = self._texts(domain, drawn, {name: own[name][of] for name in child.copied})
        parts, current = [(of, first)], first
        for row in range(2, int(numbers.max(initial=0)) + 1):
            going = (numbers[of] >= row) & self._has_later(child, current)
            of = of[going]
            before = {name: texts[going] for name, texts in current.items()}
            mine = np.searchsorted(parts[0][0], of)
            fixed = {name: first[name][mine] for name in (*child.constant, *child.copied)}
            given = {f"{self.tables.parent.name}.{name}": texts[of] for name, texts in own.items()}
            current = fixed
            if child.follows:
                current = self._next(child, given, before, fixed=fixed, numbers=numbers[of])
            parts.append((of, current))
        return _in_order(parts, child.domain.names)

    def _has_later(self, child: ChildTable, rows: Texts) -> NDArray[np.bool_] | np.bool_:
        """Returns the rows that others can come after: the least change of the order leads to no end of it."""
        least = next((each.low for each in child.changes if each.name == child.order), 0)
        if child.order is None or not least:
            return np.bool_(True)
        column = child.column(child.order)
        nearest, goes = nearest_of(column), dict[str | None, bool]()
        for text, end in numbers_in(column, rows[child.order].tolist()).items():
            goes[text] = end is None or nearest(end + least) == end + least
        return np.array([goes[text] for text in rows[child.order].tolist()], np.bool_)

    def _next(
        self,
        child: ChildTable,
        own: Texts,
        before: Texts,
        *,
        fixed: Texts,
        numbers: NDArray[np.int64],
    ) -> Texts:
        """Draws the rows after ``before``, with the ``fixed`` columns of the first row."""
        model = self.models[child.name]
        given = own | {f"{child.name}.{NUMBER}": numbers.astype(str).astype(object)}
        given |= {f"{child.name}.{FIRST}.{name}": fixed[name] for name in child.constant}
        given |= {f"{child.name}.{BEFORE}.{name}": before[name] for name in child.changing}
        start = _codes_of(model.domain, given, len(numbers))
        codes, changed = self._agreeing(child, model, start, given=tuple(given), before=before)
        fixed = fixed | changed
        domain, drawn = self._row_codes(model, codes, child, names=child.modelled, word=NOW)
        return self._texts(domain, drawn, fixed)

    def _agreeing(
        self,
        child: ChildTable,
        model: Model,
        start: NDArray[np.int32],
        *,
        given: Sequence[str],
        before: Texts,
    ) -> tuple[NDArray[np.int32], Texts]:
        """Draws rows whose changes lead to the cells that were drawn for their values; also returns these values.

        A row for which no try does keeps its first change.
        """
        codes = _fill(model, start, given, generator=self.generator)
        changed = self._all_changed(child, model, codes, before=before)
        # What has no change stays, and what is missing: else a row that keeps all values would agree more often than
        # one that does not.
        names = [f"{child.name}.{NOW}.{n}" for n in child.modelled if n not in child.levels]
        kept = [model.domain.index(name) for name in names]
        start[:, kept] = codes[:, kept]
        levels = [model.domain.index(f"{child.name}.{NOW}.{name}") for name in child.levels]
        absent = _absent(model.domain, codes, levels)
        wrong = np.flatnonzero(~self._agree(child, model, codes, changed=changed))
        for _ in range(TRIES):
            if not len(wrong):
                break
            again = _fill(model, start[wrong], (*given, *names), generator=self.generator)
            same = (_absent(model.domain, again, levels) == absent[wrong]).all(axis=1)
            mine = {name: texts[wrong] for name, texts in before.items()}
            values = self._all_changed(child, model, again, before=mine)
            agree = same & self._agree(child, model, again, changed=values)
            codes[wrong[agree]] = again[agree]
            for name, texts in values.items():
                changed[name][wrong[agree]] = texts[agree]
            wrong = wrong[~agree]
        return codes, changed

    def _all_changed(
        self, child: ChildTable, model: Model, codes: NDArray[np.int32], *, before: Texts
    ) -> dict[str, NDArray[np.object_]]:
        return {
            each.name: self._changed(child, model, codes, before=before[each.name], name=each.name)
            for each in child.changes
        }

    @staticmethod
    def _agree(
        child: ChildTable, model: Model, codes: NDArray[np.int32], *, changed: Texts
    ) -> NDArray[np.bool_]:
        agree = np.ones(len(codes), np.bool_)
        for name in child.levels:
            place = model.domain.index(f"{child.name}.{NOW}.{name}")
            found = _codes_of(model.domain, {model.domain.names[place]: changed[name]}, len(codes))
            agree &= found[:, place] == codes[:, place]
        return agree

    def _row_codes(
        self,
        model: Model,
        codes: NDArray[np.int32],
        child: ChildTable,
        *,
        names: Sequence[str],
        word: str,
    ) -> tuple[Domain, NDArray[np.int32]]:
        """Returns rows of a table in the cells that a view's model has for the columns ``names``.

        Other columns are fixed: their codes are 0 until ``_texts`` has their values.
        """
        drawn = np.zeros((len(codes), len(child.domain.columns)), np.int32)
        columns = list(child.domain.columns)
        for i, column in enumerate(columns):
            if column.name in names:
                place = model.domain.index(f"{child.name}.{word}.{column.name}")
                drawn[:, i] = codes[:, place]
                own = model.domain.columns[place]
                columns[i] = replace(own, name=column.name, missing=column.missing)
        return replace(child.domain, columns=tuple(columns)), drawn

    def _changed(
        self,
        child: ChildTable,
        model: Model,
        codes: NDArray[np.int32],
        *,
        before: NDArray[np.object_],
        name: str,
    ) -> NDArray[np.object_]:
        """Returns values that differ from those ``before`` by a drawn change, within the column's bounds.

        Where there is no number before, none is drawn now, or no change is, the drawn value stands. Rows stay in order:
        a row whose order is missing is the last or followed by such rows, and none is before the row that it follows.
        """
        column = child.column(name)
        change = f"{child.name}.{CHANGE}.{name}"
        by = self._drawn(model, codes, change)
        steps = model.domain.columns[model.domain.index(change)]
        modelled = name in child.modelled
        found = np.empty(len(codes), object)
        if modelled:
            found = self._drawn(model, codes, f"{child.name}.{NOW}.{name}")
        olds, nows = numbers_in(column, before.tolist()), numbers_in(column, found.tolist())
        changes, nearest = numbers_in(steps, by.tolist()), nearest_of(column)
        texts = dict[float, str]()
        for row, (start, now, text) in enumerate(zip(before, found, by, strict=True)):
            old, step = olds[start], changes[text]
            absent = modelled and nows[now] is None
            if old is not None and step is not None and not absent:
                led = old + step
                if led not in texts:
                    texts[led] = number_text(column, nearest(led))
                found[row] = texts[led]
            elif name == child.order and (old is None or absent):
                found[row] = None
            elif name == child.order:
                found[row] = number_text(column, max(old or 0, nows[now] or 0))
        return found

    def _drawn(self, model: Model, codes: NDArray[np.int32], name: str) -> NDArray[np.object_]:
        """Returns a view's column as text, None for a missing value."""
        place = model.domain.index(name)
        column = model.domain.columns[place]
        texts = decode_column(model.domain, column, codes[:, place], self.generator).astype(object)
        if column.missing:
            texts[codes[:, place] == column.size - 1] = None
        return texts

    def _texts(self, domain: Domain, codes: NDArray[np.int32], fixed: Texts) -> Texts:
        """Returns codes (rows, columns of ``domain``) as text that satisfies all relations; ``fixed`` columns stay."""

        def draw(name: str, of: NDArray[np.int32]) -> NDArray[np.object_]:
            return decode_column(domain, domain.columns[domain.index(name)], of, self.generator)

        for name, texts in fixed.items():
            place = domain.index(name)
            codes[:, place] = _codes_of(domain, {name: texts}, len(codes))[:, place]
        free = [name for name in domain.names if name not in fixed]
        columns = {name: draw(name, codes[:, domain.index(name)]) for name in free}
        absent = domain.missing_values[0] if domain.missing_values else ""
        columns |= {name: _with(t, absent) for name, t in fixed.items()}
        if relations := domain.relations:
            settle(
                relations,
                domain.columns,
                codes,
                texts=columns,
                draw=draw,
                missing=domain.missing_values,
                generator=self.generator,
                given={name: np.ones(len(codes), np.bool_) for name in fixed},
            )
        for column, own in zip(domain.columns, codes.T, strict=True):
            if column.missing:
                columns[column.name] = columns[column.name].astype(object)
                columns[column.name][own == column.size - 1] = None
        return columns


def summaries_of(
    child: ChildTable, whose: NDArray[np.int64], texts: Texts
) -> tuple[NDArray[np.int64], Texts]:
    """Returns the persons with rows, ascending, and by name each summary of their rows, None for a missing value.

    ``whose`` has the person of each row, ascending, ``texts`` the rows' columns.
    """
    persons, starts = np.unique(whose, return_index=True)
    rows = [range(start, end) for start, end in itertools.pairwise([*starts.tolist(), len(whose)])]
    cells = {name: column.tolist() for name, column in texts.items()}
    found = Texts()
    for summary in child.summaries:
        found[summary.column] = np.array(
            [*summarised(child.domain, summary, cells, persons=rows), None], object
        )[:-1]
    return persons, found


def _replaced(
    rows: tuple[NDArray[np.int64], Texts],
    others: tuple[NDArray[np.int64], Texts],
    *,
    persons: NDArray[np.int64],
) -> tuple[NDArray[np.int64], Texts]:
    """Returns rows with those of some ``persons`` replaced by their ``others``; persons stand ascending."""
    kept, taken = ~np.isin(rows[0], persons), np.isin(others[0], persons)
    whose = np.concatenate([rows[0][kept], others[0][taken]])
    order = np.argsort(whose, kind="stable")
    texts = {
        name: np.concatenate([column[kept], others[1][name][taken]])[order]
        for name, column in rows[1].items()
    }
    return whose[order], texts


def _with(texts: NDArray[np.object_], word: str) -> NDArray[np.object_]:
    """Returns texts with a word for missing values."""
    missing = np.fromiter((text is None for text in texts), np.bool_, len(texts))
    return np.where(missing, word, texts)


def _codes_of(domain: Domain, given: Texts, rows: int) -> NDArray[np.int32]:
    codes = np.full((rows, len(domain.columns)), DRAWN, np.int32)
    for name, texts in given.items():
        place = domain.index(name)
        column = domain.columns[place]
        known = {text: _code(column, text) for text in set(texts.tolist())}
        codes[:, place] = [known[text] for text in texts.tolist()]
    return codes


def _code(column: Column, text: str | None) -> int:
    """Returns the code of a written value, None for a missing one; DRAWN where the column has no cell for it."""
    if text is None:
        return column.size - 1 if column.missing else DRAWN
    code = column.code_of(text)
    return DRAWN if code is None else code


def _absent(domain: Domain, codes: NDArray[np.int32], places: Sequence[int]) -> NDArray[np.bool_]:
    """Returns where columns of numbers (rows, places) have no number: a missing value or a mark."""
    found = np.zeros((len(codes), len(places)), np.bool_)
    for at, place in enumerate(places):
        column = domain.columns[place]
        marks = () if isinstance(column, Categorical) else column.marks
        absent = [column.code_of(mark) for mark in marks]
        absent += [column.size - 1] if column.missing else []
        found[:, at] = np.isin(codes[:, place], np.array(absent, np.int64))
    return found


def _fill(
    model: Model, given: NDArray[np.int32], names: Sequence[str], *, generator: PublicGenerator
) -> NDArray[np.int32]:
    """Fills rows; those whose given values have no probability together are drawn given fewer of them."""
    kept = given.copy()
    order = [model.domain.index(name) for name in names] or list(range(given.shape[1]))
    codes, impossible = fill_possible(model, kept, generator)
    for place in order:
        if not len(impossible):
            return codes
        kept[impossible, place] = DRAWN
        again, bad = fill_possible(model, kept[impossible], generator)
        codes[impossible] = again
        impossible = impossible[bad]
    return codes


def _in_order(
    parts: Sequence[tuple[NDArray[np.int64], Texts]], names: Sequence[str]
) -> tuple[NDArray[np.int64], Texts]:
    """Returns the first, second, ... rows of all persons, person by person."""
    of = np.concatenate([persons for persons, _ in parts])
    order = np.argsort(of, kind="stable")
    texts = {name: np.concatenate([part[name] for _, part in parts])[order] for name in names}
    return of[order], texts
