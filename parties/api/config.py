"""Arguments of the functions of `import syncret`: configurations, drafts of them, and tables.

Secret: the tables; and a draft, which was read from its table, until its owner has replaced or confirmed the marked
values.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

from mechanisms.draft import draft_domain, draft_of
from mechanisms.private_draft import draft_with_private_numbers, private_draft
from mechanisms.reading import as_text
from mechanisms.source import TableSource
from parties.api.arguments import check_flag, check_path, check_text, type_name
from parties.api.errors import in_terms_of_python
from parties.config import Config, apply_overrides, config_from_dict, load_config
from parties.foundation.errors import ConfigError
from parties.foundation.untrusted_text import parse_toml
from parties.mpc.planning.draft_sizes import draft_text_with_upload_sizes
from parties.mpc.planning.schema_drafts import read_schema_draft, schema_draft_text
from parties.session.owner import Table

if TYPE_CHECKING:
    import pandas as pd


TableLike: TypeAlias = Union["pd.DataFrame", str, Path, TableSource]
"""A DataFrame, or the location of a table: a file, or a database with a query."""


def table_of(table: TableLike, *, name: str = "table", ignore_extra: bool = False) -> Table:
    """Returns the table; messages call a DataFrame ``name``.

    Raises DataError for values of unknown types, TypeError for an object that is no table.
    """
    if isinstance(table, TableSource):
        return Table(table, ignore_extra)
    if isinstance(table, str | Path):
        return Table(TableSource(str(check_path("the table", table))), ignore_extra)
    if not _is_frame(table):
        raise TypeError(
            f"the table is {type_name(table)}; expected a DataFrame, the path of a file, or a TableSource"
        )
    return Table(TableSource(name), ignore_extra, as_text(table))


def _is_frame(table: object) -> bool:
    """Returns whether an object is a DataFrame; without pandas in memory none is."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, pandas.DataFrame)


def tables_of(
    tables: TableLike | Mapping[str, TableLike], *, ignore_extra: bool = False
) -> Table | Mapping[str, Table]:
    """Returns the table as ``table_of`` does; or the tables of several sources, by name."""
    if not isinstance(tables, Mapping):
        return table_of(tables, ignore_extra=ignore_extra)
    return {
        name: table_of(table, name=name, ignore_extra=ignore_extra)
        for name, table in tables.items()
    }


def types_of(table: TableLike | Mapping[str, TableLike]) -> Mapping[str, object]:
    """Returns the column types of a DataFrame, or of several, by name; empty for other tables."""
    if isinstance(table, Mapping):
        return {name: kind for each in table.values() for name, kind in types_of(each).items()}
    if isinstance(table, str | Path | TableSource):
        return {}
    return {str(name): kind for name, kind in table.dtypes.items()} if _is_frame(table) else {}


_NAME = "draft"
_PRIVATE = ("", "all", "numbers", "bins")
_WORDS_OF_PRIVATE = '"all", "numbers" or "bins", or ""'


@dataclass(slots=True)
class Draft:
    """A config drafted from a table: ``text`` is TOML, to be edited, with marks at values read from the data.

    It is accepted as a config.

    Attributes:
        notes: Values read from the table, for each column.
        left_out: Columns that look like identifiers or free text.
        questions: Values with more than one reading.
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
        """Returns the tables of the text, which may be changed and passed as a config, too. Raises ConfigError."""
        try:
            return parse_toml(self.text)
        except ValueError as error:
            raise ConfigError(_NAME, "", f"is not valid TOML: {error}") from error

    def write(self, path: str | Path) -> None:
        """Writes the text into a new file for the commands. Raises FileExistsError, OSError."""
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(self.text)


ConfigLike: TypeAlias = Draft | Config | Mapping[str, Any] | str | Path
"""A draft, a config, its tables, or the path of its file."""


@in_terms_of_python
def draft(
    table: TableLike,
    *,
    name: str = "table",
    private: Literal["", "all", "numbers", "bins"] = "",
    all_columns: bool = False,
) -> Draft:
    """Drafts a config from a table, as `syncret data draft` does: columns, kinds, categories, bounds, atoms.

    A domain is published with the result and has to be public knowledge: replace or confirm the marked values. The text
    calls a DataFrame ``name``. ``private`` is for fewer such values: with "all" no value of the table is in the draft,
    and columns of categories are left to be listed (`--private`); with "numbers" no number or date
    (`--private-numbers`), with "bins" no bin (`--private-bins`). With ``all_columns`` the written synthetic table has
    all columns of the table in their order, and left-out ones are empty. Raises DataError; TypeError for an object that
    is no table; ValueError for another word.
    """
    if check_text("private", private, what=_WORDS_OF_PRIVATE) not in _PRIVATE:
        raise ValueError(f"private = {private!r}; expected {_WORDS_OF_PRIVATE}")
    given = table_of(table, name=check_text("name", name, what="a name of the table"))
    bins, all_columns = private == "bins", check_flag("all_columns", all_columns)
    if given.read is None:
        drafted = draft_domain(given.source, private_bins=bins, all_columns=all_columns)
    else:
        where, read_as = given.source.shown, "a DataFrame"
        drafted = draft_of(given.read, where, read_as, private_bins=bins, all_columns=all_columns)
    if private == "all":
        drafted = private_draft(drafted)
    elif private == "numbers":
        drafted = draft_with_private_numbers(drafted)
    text, _ = draft_text_with_upload_sizes(given.source.name, drafted)
    return Draft(text, drafted.notes, drafted.left_out, drafted.questions)


@in_terms_of_python
def draft_from_schema(schema: str | Path | Mapping[str, Any], *, name: str = "schema") -> Draft:
    """Drafts a config from a Table Schema (Frictionless Data) or SDV's metadata, as `syncret data schema` does.

    ``schema`` is either, a document that has a schema under "schema" (a resource), or the path of a file with one of
    them. No table is read.
    Listed values and bounds are those of the schema; numbers and dates get private bins, and texts without listed
    values are left to be listed. Raises DataError, StoreError, TypeError.
    """
    if isinstance(schema, str | Path):
        text, _ = read_schema_draft(Path(schema))
    elif isinstance(schema, Mapping):
        text, _ = schema_draft_text(schema, check_text("name", name, what="a name of the schema"))
    else:
        raise TypeError(
            f"the schema is {type_name(schema)}; expected a Table Schema, or the path of its file"
        )
    return Draft(text)


def config_of(given: ConfigLike, changes: Mapping[str, object]) -> Config:
    """Returns the ``given`` config with ``changes`` by dotted key. Raises ConfigError, TypeError."""
    if not isinstance(given, Draft | Config | Mapping | str | Path):
        raise TypeError(
            f"the config is {type_name(given)}; expected a draft, a Config, its tables, or the path of its file"
        )
    if isinstance(given, Config):
        return given.override(changes) if changes else given
    if isinstance(given, str | Path):
        return load_config(check_path("the config", given), changes)
    document = given.to_dict() if isinstance(given, Draft) else _copied(given)
    apply_overrides(document, changes)
    run = document.setdefault("run", {})
    if isinstance(run, dict):
        run.setdefault("id", _NAME)
    return config_from_dict(document, source="config", base=Path.cwd())


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of nested tables, so that changes do not affect the caller's. Raises TypeError."""
    for key in tables:
        check_text("a key of the config", key, what="a text, such as run")
    return {k: _copied(v) if isinstance(v, Mapping) else v for k, v in tables.items()}
