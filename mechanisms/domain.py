"""The public description of a table: its columns, their kinds, and the codes of their values.

``Domain`` is an ordered set of columns; the kinds are those of `mechanisms.columns`, exported here too.

All values here are public. A domain has to be public knowledge and not read from private data (`mechanisms.draft` marks
the parts that it read).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mechanisms.column_parts import DEFAULT_BINS, duplicates
from mechanisms.column_reading import check_keys, read_column, read_strings
from mechanisms.columns import Categorical, Column, Implied, Moment, private_of
from mechanisms.constraints.declared import (
    Constraint,
    OneHot,
    check_cells,
    relations_of,
)
from mechanisms.constraints.derived import Derived
from mechanisms.constraints.reading import read_constraint
from mechanisms.constraints.relations import Relation, Scope
from mechanisms.constraints.zeros import structural_zeros
from mechanisms.errors import DomainError
from mechanisms.moments import moment_of
from mechanisms.numbers import Integer, Real
from mechanisms.provenance import PRIVATE, Provenance
from mechanisms.split_columns import NO, PLACE, YES, SplitColumn
from mechanisms.table_keys import TableKey, optional_of
from mechanisms.text_format import PLAIN_FORMAT, TextFormat
from mechanisms.written import parse_number, parse_whole

__all__ = [
    "DEFAULT_BINS",
    "DEFAULT_MISSING_VALUES",
    "Categorical",
    "Clique",
    "Column",
    "Domain",
    "Implied",
    "Integer",
    "Moment",
    "Real",
    "parse_number",
    "parse_whole",
]

Clique: TypeAlias = tuple[str, ...]

DEFAULT_MISSING_VALUES = ("", "?")
MISSING_KEYS: Mapping[str, TableKey] = {
    "values": TableKey("list of texts", "Spellings of a missing value.", '["", "?"]')
}
"""Keys of ``[missing]`` of a configuration."""
IGNORE_KEY = TableKey("list of texts", "Columns of owners' tables that are left out.", "[]")
"""The key ``ignore`` of a configuration, above all sections."""
MAX_IMPLIED = 100_000
"""Most entries of one implied column's table."""


@dataclass(frozen=True, slots=True)
class Domain:
    """An ordered set of modelled columns, the spellings of a missing value, and the other columns of a table.

    ``columns`` have codes. ``implied`` columns are filled in from them. ``ignore`` names columns that tables may have
    and that are not used. A value that a categorical column lists is that category even if ``missing_values`` has it
    too. Synthetic text tables are written in ``format``. ``provenance`` states where columns' values are from.
    ``splits`` are columns of a table whose cells have the values of several modelled columns. ``constraints`` are what
    rows satisfy (`mechanisms.constraints`); ``derived`` columns are computed by them.

    Raises ``DomainError`` without columns, if two have the same name, if the table of an implied column does not fit
    its source, or if the format cannot hold every value.
    """

    columns: tuple[Column, ...]
    missing_values: tuple[str, ...] = DEFAULT_MISSING_VALUES
    implied: tuple[Implied, ...] = ()
    ignore: tuple[str, ...] = ()
    format: TextFormat = PLAIN_FORMAT
    provenance: tuple[Provenance, ...] = ()
    splits: tuple[SplitColumn, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    derived: tuple[Derived, ...] = ()
    names: Clique = field(init=False, repr=False, compare=False)
    """Names of the modelled columns, in order."""
    _places: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _shape: tuple[int, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        if not self.columns:
            raise DomainError("the domain has no columns; describe at least one")
        # Workloads of wide tables ask for places a million times.
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))
        places = {name: place for place, name in enumerate(self.names)}
        object.__setattr__(self, "_places", places)
        followed = [each.name for each in self.implied] + [each.name for each in self.derived]
        if twice := duplicates([*self.names, *followed]):
            raise DomainError(f"column {twice[0]!r} is described more than once; names are unique")
        if both := sorted({*self.names, *followed} & {*self.ignore}):
            raise DomainError(f"column {both[0]!r} is described and stands in ignore; choose one")
        if not self.missing_values and any(column.missing for column in self.columns):
            raise DomainError(
                "missing values are allowed but missing.values is empty; list how they are written"
            )
        for column in self.implied:
            self._check_implied(column)
        self._check_splits()
        if self.constraints or self.derived:
            self._check_constraints()
        if self.format != PLAIN_FORMAT:
            self._check_format()
        for said in self.provenance:
            self._check_provenance(said)

    @property
    def described_names(self) -> tuple[str, ...]:
        """Names of all columns that have a ``[[column]]``, including implied and derived ones in their places."""
        names = list(self.names)
        followed = [(each.position, each.name) for each in self.implied]
        followed += [(each.position, each.name) for each in self.derived]
        for position, name in sorted(followed):
            names.insert(position, name)
        return tuple(names)

    @property
    def written_names(self) -> tuple[str, ...]:
        """Names of all columns of a table: those described, and each split column in the place of its first part.

        The columns of a one-hot group stand in the place of its column.
        """
        whole: dict[str, tuple[str, ...]] = {
            part: (split.column,) for split in self.splits for part in split.parts
        }
        whole |= {group.column: group.members for group in self.one_hot}
        written = (whole.get(name, (name,)) for name in self.described_names)
        return tuple(dict.fromkeys(name for names in written for name in names))

    @property
    def header(self) -> tuple[str, ...]:
        """Names of all columns of a written table in order; left-out ones, which are empty, if the format has them."""
        return self.format.columns or self.written_names

    def with_all_columns(self, header: Sequence[str] = ()) -> Domain:
        """Returns the domain whose written tables have the columns of ``header`` in its order, left-out ones empty.

        Without a header the format's own list stays, or left-out columns come last.
        """
        listed = tuple(header) or self.format.columns or (*self.written_names, *self.ignore)
        return replace(self, format=replace(self.format, columns=listed))

    @property
    def described(self) -> dict[str, Column | Implied | Derived]:
        """All columns that have a ``[[column]]``, by name."""
        every: tuple[Column | Implied | Derived, ...] = (
            *self.columns,
            *self.implied,
            *self.derived,
        )
        return {column.name: column for column in every}

    @property
    def one_hot(self) -> tuple[OneHot, ...]:
        """Groups of columns of which one is yes."""
        return tuple(each for each in self.constraints if isinstance(each, OneHot))

    @property
    def relations(self) -> tuple[Relation, ...]:
        """Relations between modelled columns that every row satisfies."""
        modelled = {column.name: column for column in self.columns}
        return tuple(r for each in self.constraints for r in each.relations(modelled))

    @property
    def zeros(self) -> tuple[Scope, ...]:
        """Structural zeros: the allowed cells of some sets of columns, each in order."""
        return structural_zeros(self.constraints, self.columns) if self.constraints else ()

    @property
    def scopes(self) -> tuple[Clique, ...]:
        """Sets of columns that structural zeros are on."""
        return tuple(scope.columns for scope in self.zeros)

    def constraint_of(self, derived: Derived) -> Constraint:
        """Returns the constraint that computes a derived column."""
        return next(
            each for each in self.constraints if each.derives and each.derives[0] == derived.name
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of codes of each column, including the missing one."""
        if not self._shape:
            object.__setattr__(self, "_shape", tuple(column.size for column in self.columns))
        return self._shape

    def index(self, name: str) -> int:
        """Returns the position of a column. Raises ``DomainError`` if no column has that name."""
        try:
            return self._places[name]
        except KeyError:
            raise DomainError(
                f"no column {name!r}; the columns are {', '.join(self.names)}"
            ) from None

    def only(self, names: Sequence[str], ignore: Sequence[str] = ()) -> Domain:
        """Returns a domain of these modelled columns, in this order, with their implied columns and a new ``ignore``.

        Raises ``DomainError`` for a name that is no column's.
        """
        implied = tuple(column for column in self.implied if column.source in names)
        derived = tuple(each for each in self.derived if {*each.parts} <= {*names})
        computed = {each.name for each in derived}
        kept = {*names, *computed, *(column.name for column in implied)}
        # An owner of a computed column cannot check it without all of its parts.
        ignore = (*ignore, *(each.name for each in self.derived if each.name not in computed))
        return replace(
            self,
            columns=tuple(self.columns[self.index(name)] for name in names),
            implied=implied,
            ignore=tuple(dict.fromkeys(ignore)),
            format=replace(
                self.format,
                columns=(),
                thousands=tuple(name for name in self.format.thousands if name in kept),
            ),
            splits=tuple(split for split in self.splits if kept.issuperset(split.parts)),
            provenance=tuple(said for said in self.provenance if said.column in kept),
            constraints=tuple(each for each in self.constraints if {*each.needs} <= {*names}),
            derived=derived,
        )

    def sizes(self, clique: Clique) -> tuple[int, ...]:
        """Returns the number of codes of each column of ``clique``: the shape of its marginal."""
        shape = self.shape
        return tuple(shape[self.index(name)] for name in clique)

    def size(self, clique: Clique) -> int:
        """Returns the number of cells of the marginal of ``clique``."""
        return math.prod(self.sizes(clique))

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[column]]`` and ``[missing]`` tables of a configuration.

        ``[[split]]``, ``[[constraint]]``, ``ignore`` and ``[format]`` are added if there are any.
        """
        described = (*self.columns, *self.implied, *(each.column for each in self.derived))
        tables = {column.name: column.to_dict() for column in described}
        for said in self.provenance:
            tables[said.column]["from"] = said.to_config()
        document: dict[str, object] = {
            "column": [tables[name] for name in self.described_names],
            "missing": {"values": list(self.missing_values)},
        }
        document |= {"split": [split.to_dict() for split in self.splits]} if self.splits else {}
        declared = [constraint.to_dict() for constraint in self.constraints]
        document |= {"constraint": declared} if declared else {}
        document |= {"ignore": list(self.ignore)} if self.ignore else {}
        # Defaults leave no trace, so that digests stay the same.
        form = self.format.to_dict()
        return document | ({"format": form} if form else {})

    @classmethod
    def from_dict(cls, tables: Mapping[str, object]) -> Domain:
        """Reads ``[[column]]``, optional ``[[split]]``, ``[[constraint]]``, ``[missing]``, ``[format]``, ``ignore``.

        Raises ``DomainError`` on an unknown key, a missing one, or a value of the wrong type.
        """
        check_keys(
            "the domain",
            tables,
            required={"column"},
            optional={"split", "constraint", "missing", "ignore", "format"},
        )
        columns = tables["column"]
        if not isinstance(columns, Sequence) or isinstance(columns, str):
            raise DomainError(
                "column: an array of tables is needed, one [[column]] for each column"
            )
        missing = tables.get("missing", {})
        if not isinstance(missing, Mapping):
            raise DomainError('missing: a table is needed, such as [missing] values = ["", "?"]')
        check_keys("[missing]", missing, required=set(), optional=optional_of(MISSING_KEYS))
        spellings = (
            read_strings("[missing]", missing, "values")
            if "values" in missing
            else DEFAULT_MISSING_VALUES
        )
        read = [read_column(i, column) for i, column in enumerate(columns)]
        splits = tables.get("split", ())
        if not isinstance(splits, Sequence) or isinstance(splits, str):
            raise DomainError("split: an array of tables is needed, one [[split]] for each column")
        said = tuple(
            Provenance.read(column.name, table["from"], table)
            for column, table in zip(read, columns, strict=True)
            if "from" in table
        )
        modelled, implied, constraints, derived = _constrained(read, tables.get("constraint", ()))
        return cls(
            modelled,
            spellings,
            implied,
            read_strings("the domain", tables, "ignore") if "ignore" in tables else (),
            TextFormat.from_dict(tables["format"]) if "format" in tables else PLAIN_FORMAT,
            said,
            tuple(SplitColumn.from_dict(i, split) for i, split in enumerate(splits)),
            constraints,
            derived,
        )

    def digest(self) -> str:
        """Returns the hex SHA-256 of the canonical JSON of ``to_dict()``, the same on every machine."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def _check_constraints(self) -> None:
        """Checks that constraints fit the columns, and that each derived column follows from modelled ones."""
        modelled = {column.name: column for column in self.columns}
        derives = [each.derives[0] for each in self.constraints if each.derives]
        if twice := duplicates(derives):
            raise DomainError(
                f"[[constraint]] column = {twice[0]!r} is computed by two constraints; expected one"
            )
        if sorted(derives) != sorted(each.name for each in self.derived):
            raise DomainError(
                "each derived column has a constraint, and each such constraint a column"
            )
        measured = not any(
            private is not None and not private.measured
            for private in map(private_of, self.columns)
        )
        for constraint in self.constraints:
            relations = relations_of(constraint, modelled)
            if measured:
                check_cells(constraint, relations, modelled)
        for derived in self.derived:
            derived.check(self.constraint_of(derived).words, modelled)
        self._check_groups()

    def _check_groups(self) -> None:
        """Checks that the names of a one-hot group are nothing else, and that no other column needs its column."""
        names = [name for group in self.one_hot for name in group.members]
        others = [*self.described_names, *self.ignore, *(split.column for split in self.splits)]
        if twice := duplicates([*names, *others]):
            raise DomainError(
                f"[[constraint]] one_hot: column {twice[0]!r} is of two groups, described or in ignore; choose one"
            )
        parts = {part for split in self.splits for part in split.parts}
        if twice := duplicates([group.column for group in self.one_hot]) or [
            group.column for group in self.one_hot if group.column in parts
        ]:
            raise DomainError(
                f"[[constraint]] one_hot: column {twice[0]!r} has two groups, or is a part of a [[split]]; choose one"
            )

    def _check_splits(self) -> None:
        """Checks that parts of split columns are modelled, that answers are yes or no, and that names are unique."""
        modelled = {column.name: column for column in self.columns}
        parts = [part for split in self.splits for part in split.parts]
        if twice := duplicates(parts):
            raise DomainError(f"column {twice[0]!r} is a part of two [[split]]; choose one")
        whole = [split.column for split in self.splits]
        if twice := duplicates([*whole, *self.described_names, *self.ignore]):
            raise DomainError(
                f"column {twice[0]!r} is split, and split again, described or in ignore; choose one"
            )
        for split in self.splits:
            for part in split.parts:
                column = modelled.get(part)
                if column is None:
                    raise DomainError(
                        f"[[split]] column = {split.column!r}: {part!r} is no column; describe it as a [[column]]"
                    )
                if split.answers and column != Categorical(part, (NO, YES)):
                    raise DomainError(
                        f'column {part!r} is an answer of {split.column!r}; it has kind = "categorical" and '
                        f'categories = ["{NO}", "{YES}"]'
                    )
            self._check_missing(split, modelled)
            known = _known_marks(modelled[split.parts[0]])
            if unknown := [mark for mark in split.marks if mark not in known]:
                raise DomainError(
                    f"[[split]] column = {split.column!r}: the mark {unknown[0]!r} is none of "
                    f"{split.parts[0]!r}; add it to that column's marks"
                )
            texts = PLACE.split(split.pattern)[2::2] if split.pattern else ()
            for part, text in zip(split.parts[:-1], texts, strict=False):
                _check_end(split, modelled[part], text)
            for part in split.parts if split.pattern else ():
                if any(value != value.strip() for value in _some_values(modelled[part])):
                    raise DomainError(
                        f"[[split]] column = {split.column!r}: values of {part!r} have blanks around them, which no "
                        "cell keeps"
                    )

    def _check_missing(self, split: SplitColumn, modelled: Mapping[str, Column]) -> None:
        """Checks that a gap can be written, and that no spelling of a missing value is the cell of some values, too."""
        for place, part in enumerate(split.parts if split.pattern else ()):
            if modelled[part].missing and split.absent_at(place, self.missing_values) is None:
                raise DomainError(
                    f"[[split]] column = {split.column!r}: a missing {part!r} would leave a blank at the end of its "
                    'cell, which is lost; list a spelling in missing.values that is not empty, such as "NA"'
                )
        for spelling in self.missing_values:
            values = split.values_of(spelling) if split.pattern else None
            if spelling in split.marks:
                taken = True
            elif values is not None:
                columns = [modelled[part] for part in split.parts]
                taken = all(c.code_of(v) is not None for c, v in zip(columns, values, strict=True))
            else:
                given = set() if split.pattern else split.answers_of(spelling)
                taken = bool(given) and given.issubset(split.answers)
            if taken:
                raise DomainError(
                    f"[[split]] column = {split.column!r}: {spelling!r} is a cell, and a missing value, too; take it "
                    "out of missing.values"
                )

    def _check_format(self) -> None:
        """Checks that the format can write every text, and that its columns are the written and some ignored ones."""
        texts = [*self.header, *self.missing_values]
        texts += [text for split in self.splits for text in split.literals]
        texts += [
            c for column in self.columns if isinstance(column, Categorical) for c in column.values
        ]
        texts += [value for column in self.implied for _, value in column.values]
        texts += [text for group in self.one_hot for text in (group.yes, group.no)]
        if (wrong := self.format.cannot_write(texts)) is not None:
            raise DomainError(
                f'[format] encoding = "{self.format.encoding}" has no characters for {wrong!r}; utf-8 has all'
            )
        if absent := [name for name in self.format.thousands if name not in self.written_names]:
            raise DomainError(
                f"[format] thousands: no column {absent[0]!r} is written; name columns of numbers"
            )
        listed = self.format.columns
        if not listed:
            return
        if absent := [name for name in self.written_names if name not in listed]:
            raise DomainError(
                f"[format] columns: column {absent[0]!r} is not there; name all of them"
            )
        if unknown := [n for n in listed if n not in (*self.written_names, *self.ignore)]:
            raise DomainError(
                f"[format] columns: {unknown[0]!r} is neither described nor in ignore; expected one of these"
            )

    def _check_provenance(self, said: Provenance) -> None:
        """Checks that the provenance is of an existing column, and private only for what a run chooses."""
        if said.column not in self.described_names:
            raise DomainError(f"column {said.column!r} has a provenance and is not described")
        column = next((c for c in self.columns if c.name == said.column), None)
        measured = column is not None and private_of(column) is not None
        for key, text in said.said:
            chosen = measured and key in ("bins", "values")
            if text.partition(":")[0].strip() == PRIVATE and not chosen:
                raise DomainError(
                    f"column {said.column!r}: from = {text!r}; private are bins and values that a run chooses "
                    '(bins = "private", values = "private"), which need no from'
                )

    def _check_implied(self, column: Implied) -> None:
        """Checks that the table of an implied column has every value of its source, and no other."""
        name, source = column.name, column.source
        if source not in self.names:
            raise DomainError(
                f"column {name!r}: implied_by = {source!r}; a column is needed that is modelled itself"
            )
        private = private_of(self.columns[self.index(source)])
        if private is not None and private.free:
            raise DomainError(
                f"column {name!r}: implied_by = {source!r}, whose values a run chooses; expected a column whose values "
                "are listed"
            )
        expected = _all_values(self.columns[self.index(source)])
        if expected is None:
            raise DomainError(
                f"column {name!r}: implied_by = {source!r}; a column of categories is needed, or of up to"
                f" {MAX_IMPLIED} whole numbers without a format"
            )
        given = {key for key, _ in column.values}
        if absent := sorted(expected - given):
            raise DomainError(
                f"column {name!r}: its table has no entry for {absent[0]!r} of {source!r}"
            )
        if unknown := sorted(given - expected):
            raise DomainError(
                f"column {name!r}: its table has an entry for {unknown[0]!r}, which {source!r} has not"
            )


def _constrained(
    read: Sequence[Column | Implied], tables: object
) -> tuple[tuple[Column, ...], tuple[Implied, ...], tuple[Constraint, ...], tuple[Derived, ...]]:
    """Returns the columns that stay modelled, the implied ones, the constraints, and the columns that they compute."""
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise DomainError("constraint: an array of tables is needed, one [[constraint]] for each")
    described = [column.name for column in read]
    declared = [read_constraint(i, table, described) for i, table in enumerate(tables)]
    follows = {each.name: each for each in declared if isinstance(each, Implied)}
    constraints = tuple(each for each in declared if not isinstance(each, Implied))
    derives = dict(each.derives for each in constraints if each.derives)
    modelled, implied, derived = list[Column](), list[Implied](), list[Derived]()
    for position, column in enumerate(read):
        if isinstance(column, Implied):
            implied.append(column)
        elif column.name in follows:
            implied.append(follows[column.name])
        elif column.name in derives:
            derived.append(Derived(column, derives[column.name], position))
        else:
            modelled.append(column)
    known = {each.name for each in derived}
    for each in constraints:
        if each.derives and each.derives[0] not in known:
            raise DomainError(
                f"{each.words}: no [[column]] with a kind describes {each.derives[0]!r}; expected one, for its spelling"
            )
    return tuple(modelled), tuple(implied), constraints, tuple(derived)


def _known_marks(column: Column) -> tuple[str, ...]:
    """Returns the texts that a column may have beside a pattern; a run may keep some private categories alone."""
    if not isinstance(column, Categorical):
        return column.marks
    return column.values if column.private is None else column.private.candidates


def _check_end(split: SplitColumn, column: Column, text: str) -> None:
    """Checks that the ``text`` after a place of a pattern is in no value of its column: there the value ends."""
    numbers = not isinstance(column, Categorical)
    found = any((value + text).find(text) < len(value) for value in _some_values(column))
    if found or (numbers and any(sign.isdigit() for sign in text)):
        raise DomainError(
            f"[[split]] column = {split.column!r}: values of {column.name!r} could not be read back with the pattern "
            f"{split.pattern!r}; choose one whose text {text!r} is in none of them"
        )


def _some_values(column: Column) -> tuple[str, ...]:
    """Returns the first and the last value of a column as they are written; all of them for categories."""
    if isinstance(column, Categorical):
        return column.values
    if isinstance(column, Real) and column.decimals is None:
        return (str(column.low), str(column.high), *column.marks)
    ranges = column.cells.ranges
    ends = min(first for first, _ in ranges), max(last for _, last in ranges)
    if isinstance(column, Moment):
        return (*(column.shape.write(moment_of(e, column.unit)) for e in ends), *column.marks)
    return (*(column.text_of(end) for end in ends), *column.marks)


def _all_values(column: Column) -> set[str] | None:
    """Returns all texts that are ever written into the column; None if they cannot be listed."""
    if isinstance(column, Categorical):
        return set(column.values)
    if not isinstance(column, Integer) or column.values > MAX_IMPLIED or column.form:
        return None
    return {str(number) for number in (*range(column.low, column.high + 1), *column.atoms)} | {
        *column.marks
    }
