"""Configurations of programs: drafts of a table, and what else a function may be given as one.

Provides ``draft``, ``Draft``, ``ConfigLike`` and ``config_of``. Secret until its owner has replaced or confirmed what
is marked: a draft, which was read from the table.

Tables that programs have: DataFrames, and where others are.

Provides ``TableLike``, ``table_of``, ``tables_of`` and ``types_of``. Secret: the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from mechanisms.draft import draft_domain, draft_of
from mechanisms.reading import as_text
from mechanisms.source import TableSource
from parties.config import Config, apply_overrides, config_from_dict, load_config
from parties.foundation.errors import ConfigError
from parties.foundation.untrusted_text import parse_toml
from parties.mpc.planning.upload_size import draft_text_with_upload_sizes
from parties.session.owner import Table

if TYPE_CHECKING:
    import pandas as pd


TableLike: TypeAlias = Union["pd.DataFrame", str, Path, TableSource]
"""A DataFrame, or where a table is: a file, or with a query a database."""


def table_of(table: TableLike, *, name: str = "table", ignore_extra: bool = False) -> Table:
    """The table; a DataFrame is called ``name`` in messages. Raises DataError for values of unknown types."""
    if isinstance(table, TableSource):
        return Table(table, ignore_extra)
    if isinstance(table, str | Path):
        return Table(TableSource(str(table)), ignore_extra)
    return Table(TableSource(name), ignore_extra, as_text(table))


def tables_of(
    tables: TableLike | Mapping[str, TableLike], *, ignore_extra: bool = False
) -> Table | Mapping[str, Table]:
    """As ``table_of``; or the tables of several sources, by name."""
    if not isinstance(tables, Mapping):
        return table_of(tables, ignore_extra=ignore_extra)
    return {
        name: table_of(table, name=name, ignore_extra=ignore_extra)
        for name, table in tables.items()
    }


def types_of(table: TableLike | Mapping[str, TableLike]) -> Mapping[str, object]:
    """The types of a DataFrame's columns by name, or of several; of others none are known."""
    if isinstance(table, Mapping):
        return {name: kind for each in table.values() for name, kind in types_of(each).items()}
    if isinstance(table, str | Path | TableSource):
        return {}
    return {str(name): kind for name, kind in table.dtypes.items()}


_NAME = "draft"


@dataclass(slots=True)
class Draft:
    """A config drafted from a table: ``text`` is TOML, to be edited, with marks beside what was read from the data.

    ``notes`` say what was read from the table for each column, ``left_out`` which columns look like identifiers or
    free text, ``questions`` what can be read in more than one way. It can be given wherever a config can.
    """

    text: str
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """The tables of the text, which can be changed and given as a config, too. Raises ConfigError."""
        try:
            return parse_toml(self.text)
        except ValueError as error:
            raise ConfigError(_NAME, "", f"is not valid TOML: {error}") from error

    def write(self, path: str | Path) -> None:
        """Write the text as a file for the commands. Raises FileExistsError, OSError."""
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(self.text)


ConfigLike: TypeAlias = Draft | Config | Mapping[str, Any] | str | Path
"""A draft, a config, its tables, or where its file is."""


def draft(table: TableLike, *, name: str = "table") -> Draft:
    """Draft a config from a table, as `syncret domain` does: columns, kinds, categories, bounds, atoms.

    A domain is published with the result, so that it has to be public knowledge: replace or confirm what is marked.
    ``name`` is what a DataFrame is called in the text. Raises DataError.
    """
    given = table_of(table, name=name)
    if given.read is None:
        drafted = draft_domain(given.source)
    else:
        drafted = draft_of(given.read, given.source.shown, "a DataFrame")
    text, _ = draft_text_with_upload_sizes(given.source.name, drafted)
    return Draft(text, drafted.notes, drafted.left_out, drafted.questions)


def config_of(given: ConfigLike, changes: Mapping[str, object]) -> Config:
    """The config that was ``given``, with ``changes`` by dotted key. Raises ConfigError."""
    if isinstance(given, Config):
        return given.override(changes) if changes else given
    if isinstance(given, str | Path):
        return load_config(Path(given), changes)
    document = given.to_dict() if isinstance(given, Draft) else _copied(given)
    apply_overrides(document, changes)
    run = document.setdefault("run", {})
    if isinstance(run, dict):
        run.setdefault("id", _NAME)
    return config_from_dict(document, source="config", base=Path.cwd())


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables that may be changed while the caller's stay as they are."""
    return {k: _copied(v) if isinstance(v, Mapping) else v for k, v in tables.items()}
