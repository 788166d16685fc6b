"""Constraints that a table shows, for a draft to ask about: with the number of rows that contradict each.

Everything here was read from the table, and is for its owner's eyes. A proposal is a guess: that no row of a table
contradicts a constraint does not make it a rule.
Limits: sums of two columns, runs of neighbouring columns for shares and one-hot groups, forbidden pairs of categories,
tables of up to 60 columns.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Categorical, Column, Moment
from mechanisms.constraints.declared import Equals
from mechanisms.constraints.derived import Derived
from mechanisms.constraints.formula import Born, Formula, Sum, quoted_name
from mechanisms.constraints.relations import Ascending
from mechanisms.constraints.values import (
    Numbers,
    check_exact,
    check_multiples,
    decimals_of_column,
    numbers_in,
)
from mechanisms.errors import DomainError
from mechanisms.text_table import TextTable

_EXCEPTIONS = 0.01
"""Largest share of rows that contradict a constraint that is proposed."""
_FEWEST_ROWS = 50
_MOST_COLUMNS = 60
_FIRST_ROWS = 40
"""Rows by which formulas are tried before all rows are looked at."""
_TRIES = ((_FIRST_ROWS, 0.1), (4_000, 0.05), (None, _EXCEPTIONS))
"""Numbers of rows by which sums are tried in floating point, and the shares of them that may contradict one."""
_FLOATS = 1e-9
"""Relative error of a sum in floating point, generously."""
_EXPECTED = 20
"""Rows that independent columns would have in a cell, for it to be strange that it has none."""
_FEW, _MANY = 12, 200
"""Categories of columns for forbidden pairs, and of a column that another one follows from."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A ``[[constraint]]`` table, after a ``[[column]]`` it needs, and how many of ``rows`` rows contradict it."""

    table: Mapping[str, object]
    exceptions: int
    rows: int
    column: Mapping[str, object] | None = None


def proposals(
    columns: Sequence[Column], missing: Sequence[str], table: TextTable
) -> tuple[Proposal, ...]:
    """Returns the constraints that a table of at least 50 rows shows, each derived column by one of them."""
    if len(table) < _FEWEST_ROWS or len(columns) > _MOST_COLUMNS:
        return ()
    look = _Look(columns, missing, table)
    formulas = list(look.formulas())
    computed = {str(proposal.table["column"]) for proposal in formulas}
    found = [*formulas, *look.shares(), *look.one_hot(), *look.orders(computed)]
    return (*found, *look.follows(), *look.never())


class _Look:
    """The columns of a table, and the numbers of those that have any."""

    def __init__(self, columns: Sequence[Column], missing: Sequence[str], table: TextTable) -> None:
        self._columns = {column.name: column for column in columns}
        self._missing, self._texts, self._rows = missing, table.columns, len(table)
        self._numbers: dict[str, Numbers] = {}
        self._floats: dict[str, NDArray[np.float64]] = {}
        for column in columns:
            try:
                exact = check_multiples("", column)
            except DomainError:
                continue
            found = numbers_in(exact, table.columns[column.name], missing)
            self._numbers[column.name] = found
            values = np.asarray(found.values, np.float64) / 10.0 ** decimals_of_column(exact)
            self._floats[column.name] = np.where(found.there, values, np.nan)

    def formulas(self) -> Iterator[Proposal]:
        """Yields sums, dates some days later, and days of birth; no column of one formula is computed by another.

        Of three columns that one which has the coarsest cells beside its values is computed.
        """
        computed, used = set[str](), set[str]()
        for target, formula in self._candidates():
            if target in computed | used or computed.intersection(formula.parts):
                continue
            if isinstance(formula, Sum) and not self._is_near(target, *formula.parts):
                continue
            wrong = self._contradicting(target, formula)
            if wrong is None:
                continue
            computed.add(target)
            used.update(formula.parts)
            yield Proposal(Equals(target, formula).to_dict(), wrong, self._rows)

    def _candidates(self) -> Iterator[tuple[str, Formula]]:
        varied = [
            n for n, of in self._numbers.items() if len(set(of.values[of.there].tolist())) > 2
        ]
        moments = [n for n in varied if isinstance(self._columns[n], Moment)]
        numbers = [n for n in varied if n not in moments]
        for target in reversed(numbers):
            others = [name for name in numbers if name != target]
            for one, other in itertools.combinations(others, 2):
                yield target, Sum(((1, one), (1, other)))
        for number in numbers:
            for later, earlier in itertools.permutations(moments, 2):
                yield later, Sum(((1, earlier), (1, number)))
                yield earlier, Born(number, later)

    def _is_near(self, target: str, one: str, other: str) -> bool:
        """Tells by floating point whether a sum may hold, in a few rows first: all triples of a wide table are many."""
        unit = 10.0 ** -decimals_of_column(check_exact("", self._columns[target]))
        for rows, share in _TRIES:
            first, second, total = (self._floats[name][:rows] for name in (one, other, target))
            off = np.abs(first + second - total)
            known = int(np.count_nonzero(~np.isnan(off)))
            wrong = np.count_nonzero(off > unit + _FLOATS * (np.abs(first) + np.abs(second)))
            if wrong > known * share:
                return False
        return True

    def _contradicting(self, target: str, formula: Formula) -> int | None:
        """Returns how many rows contradict a formula; None for another kind of value, or if too many do."""
        derived = Derived(self._columns[target], formula, 0)
        try:
            derived.check("", self._columns)
        except DomainError:
            return None
        wrong = dict[int, str]()
        for rows in (_FIRST_ROWS, self._rows):
            texts = {n: self._texts[n][:rows] for n in (target, *formula.parts)}
            there = np.logical_and.reduce([self._numbers[n].there[:rows] for n in texts])
            known = int(there.sum())
            wrong = derived.contradictions(self._columns, texts, self._missing)
            most = known / 10 if rows < self._rows else known * _EXCEPTIONS
            if known < rows / 4 or len(wrong) > most:
                return None
        return len(wrong)

    def shares(self) -> Iterator[Proposal]:
        """Yields runs of at least three neighbouring columns of numbers with one sum."""
        names = list(self._columns)
        at = 0
        while at < len(names):
            run = list(itertools.takewhile(self._is_share, names[at:]))
            found = next((n for n in range(len(run), 2, -1) if self._total(run[:n])), 0)
            if found:
                total, wrong = self._total(run[:found]) or (0, 0)
                places = self._places(run[:found])
                whole = total / 10**places if total % 10**places else total // 10**places
                yield Proposal({"shares": run[:found], "total": whole}, wrong, self._rows)
            at += max(1, found)

    def _is_share(self, name: str) -> bool:
        of = self._numbers.get(name)
        column = self._columns[name]
        return (
            of is not None
            and not isinstance(column, Moment)
            and min(of.values[of.there].tolist(), default=-1) >= 0
            and len(set(of.values[of.there].tolist())) > 2
        )

    def _places(self, names: Sequence[str]) -> int:
        return max(decimals_of_column(check_exact("", self._columns[name])) for name in names)

    def _total(self, names: Sequence[str]) -> tuple[int, int] | None:
        """Returns the commonest sum of columns and how many rows have another one; None if too many have."""
        places, total = self._places(names), np.zeros(self._rows, object)
        for name in names:
            exact = check_exact("", self._columns[name])
            total = total + self._numbers[name].values * 10 ** (places - decimals_of_column(exact))
        there = np.logical_and.reduce([self._numbers[name].there for name in names])
        counts = Counter(total[there].tolist())
        if not counts:
            return None
        value, count = counts.most_common(1)[0]
        wrong = int(there.sum()) - count
        enough = 4 * count >= self._rows and wrong <= _EXCEPTIONS * count
        return (value, wrong) if enough and value > 0 else None

    def one_hot(self) -> Iterator[Proposal]:
        """Yields runs of at least three neighbouring columns of 0 and 1 of which one is 1."""
        names = list(self._columns)
        at = 0
        while at < len(names):
            run = list(itertools.takewhile(self._is_bit, names[at:]))
            found = next((n for n in range(len(run), 2, -1) if self._ones(run[:n]) is not None), 0)
            if found:
                members = run[:found]
                column = "_or_".join(members[:2])
                described = {"name": column, "kind": "categorical", "categories": members}
                said = {"one_hot": members, "column": column}
                yield Proposal(said, self._ones(members) or 0, self._rows, described)
            at += max(1, found)

    def _is_bit(self, name: str) -> bool:
        return set(self._texts[name]) == {"0", "1"}

    def _ones(self, names: Sequence[str]) -> int | None:
        counts = np.sum([[text == "1" for text in self._texts[name]] for name in names], axis=0)
        wrong = int((counts != 1).sum())
        return wrong if wrong <= _EXCEPTIONS * self._rows else None

    def orders(self, computed: Container[str]) -> Iterator[Proposal]:
        """Yields pairs of dates of which the first is never the later one, though their ranges overlap."""
        moments = [n for n in self._numbers if isinstance(self._columns[n], Moment)]
        for before, after in itertools.permutations(moments, 2):
            if before in computed or after in computed:
                continue
            first, last = self._numbers[before], self._numbers[after]
            both = first.there & last.there
            if 4 * int(both.sum()) < self._rows:
                continue
            relation = Ascending((before, after))
            try:
                relation.check("", self._columns)
            except DomainError:
                continue
            wrong = int(np.asarray(first.values[both] > last.values[both], np.bool_).sum())
            apart = max(first.values[both].tolist()) <= min(last.values[both].tolist())
            same = bool((first.values[both] == last.values[both]).all())
            if not apart and not same and wrong <= _EXCEPTIONS * int(both.sum()):
                yield Proposal({"order": [before, after]}, wrong, self._rows)

    def follows(self) -> Iterator[Proposal]:
        """Yields columns of categories that follow from another one."""
        done = set[str]()
        for source, target in itertools.permutations(self._categories(_MANY), 2):
            pairs = Counter(zip(self._texts[source], self._texts[target], strict=True))
            if {source, target} & done or len(pairs) > 2 * _MANY:
                continue
            commonest = dict(sorted(pairs, key=lambda pair: pairs[pair]))
            wrong = self._rows - sum(pairs[pair] for pair in commonest.items())
            several = 1 < len(set(commonest.values())) < len(commonest)
            full = set(commonest) == set(self._values(source))
            if several and full and wrong <= _EXCEPTIONS * self._rows:
                done.add(target)
                yield Proposal(
                    {
                        "column": target,
                        "follows": source,
                        "values": dict(sorted(commonest.items())),
                    },
                    wrong,
                    self._rows,
                )

    def never(self) -> Iterator[Proposal]:
        """Yields pairs of categories that (hardly) occur together, though both are frequent."""
        for one, other in itertools.combinations(self._categories(_FEW), 2):
            pairs = Counter(zip(self._texts[one], self._texts[other], strict=True))
            first, second = (
                Counter({v: n for v, n in Counter(self._texts[name]).items() if v in listed})
                for name in (one, other)
                for listed in [set(self._values(name))]
            )
            cells = list(itertools.product(first, second))
            empty = [
                cell
                for cell in cells
                if first[cell[0]] * second[cell[1]] >= _EXPECTED * self._rows
                and pairs[cell] * self._rows <= _EXCEPTIONS * first[cell[0]] * second[cell[1]]
            ]
            # Where most pairs do not occur, one column is another spelling of the other.
            for a, b in empty if 4 * len(empty) <= len(cells) else ():
                text = f"{quoted_name(one)} = {_quoted(a)} and {quoted_name(other)} = {_quoted(b)}"
                yield Proposal({"never": text}, pairs[a, b], self._rows)

    def _categories(self, most: int) -> list[str]:
        return [
            name
            for name, column in self._columns.items()
            if isinstance(column, Categorical)
            and column.private is None
            and 1 < len(column.categories) <= most
        ]

    def _values(self, name: str) -> tuple[str, ...]:
        column = self._columns[name]
        return column.values if isinstance(column, Categorical) else ()


def _quoted(value: str) -> str:
    """Returns a value as it stands in a condition."""
    if value and not set(value) & set(" \t,()<>=!\"'"):
        return value
    return f'"{value}"' if '"' not in value else f"'{value}'"
