"""Configs from a file, from a command's options, and from the agreed part in a transcript."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mechanisms.dialect import Dialect
from mechanisms.errors import MechanismError
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from parties.config.config import Config, apply_overrides, config_from_dict
from parties.config.schema import ANNEALED, FIXED
from parties.foundation.errors import ConfigError
from parties.foundation.untrusted_text import parse_toml

_IMPLIED_FORMAT = Dialect(header_line=1)
"""Format of the files of implied columns; these files are public and their first line is always a header."""


def overrides_from_options(given: Mapping[str, object]) -> dict[str, object]:
    """Returns the given options as changes of a config, and resets the defaults that depend on them."""
    changes = {key: value for key, value in given.items() if value is not None}
    if "clients.participation" in changes:
        changes["clients.minimum"] = None  # Its default depends on the participation.
    if changes.get("run.schedule") == ANNEALED and "run.rounds" not in changes:
        changes["run.rounds"] = None  # Its default follows from the columns.
    if "run.rounds" in changes and "run.schedule" not in changes:
        changes |= {"run.schedule": FIXED, "run.tree_share": None}  # Given rounds are fixed.
    return changes


def load_config(path: Path, overrides: Mapping[str, object] | None = None) -> Config:
    """Returns the config of ``path``, checked after ``overrides`` by dotted key ("run.rounds") were applied.

    Args:
        path: the TOML file.
        overrides: the result of ``overrides_from_options``.

    Raises ConfigError with file and key: unreadable file, broken TOML, unknown or missing key, wrong type or value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "", "is not UTF-8 text; expected a TOML config") from error
    except OSError as error:
        raise ConfigError(
            str(path), "", f"cannot be read: {error.strerror or error}; expected a TOML config"
        ) from error
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise ConfigError(str(path), "", f"is not valid TOML: {error}") from error
    apply_overrides(document, overrides or {})
    _read_implied(document, path)
    _read_candidates(document, path)
    document.setdefault("run", {})
    if isinstance(document["run"], dict):
        document["run"].setdefault(
            "id", re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._") or "run"
        )
    return config_from_dict(document, source=str(path), base=path.resolve().parent)


def _read_implied(document: Mapping[str, object], path: Path) -> None:
    """Copies the tables that implied columns name into ``document``, so that all parties agree on their content."""
    columns = document.get("column")
    for column in columns if isinstance(columns, list) else []:
        if isinstance(column, dict) and "implied_by" in column and "table" in column:
            named, wanted = str(column["table"]), [column["implied_by"], column.get("name")]
            try:
                table = read_text(
                    TableSource(str(path.resolve().parent / named), dialect=_IMPLIED_FORMAT)
                )
            except MechanismError as error:
                raise ConfigError(str(path), "column.table", str(error)) from error
            if sorted(table.columns) != sorted(map(str, wanted)) or "values" in column:
                raise ConfigError(
                    str(path),
                    "column.table",
                    f"is {named!r} with the columns {', '.join(table.columns)}; expected exactly "
                    f"{wanted[0]} and {wanted[1]}, and no values beside it",
                )
            keys, values = (table.columns[str(name)] for name in wanted)
            if len(set(keys)) < len(keys):
                raise ConfigError(
                    str(path), "column.table", f"{named!r} has a value of {wanted[0]} twice"
                )
            column["values"] = dict(zip(keys, values, strict=True))
            del column["table"]


def candidate_files(path: Path) -> tuple[Path, ...]:
    """Returns the files of candidates that a config names; ``load_config`` reads it without an error."""
    document = parse_toml(path.read_text(encoding="utf-8"))
    return tuple(path.resolve().parent / named for _, named in _named_candidates(document))


def _named_candidates(
    document: Mapping[str, object],
) -> Iterator[tuple[dict[str, object], str]]:
    """Yields the columns whose candidates are the name of a file, each with the name."""
    columns = document.get("column")
    for column in columns if isinstance(columns, list) else []:
        named = column.get("candidates") if isinstance(column, dict) else None
        if isinstance(named, str):
            yield column, named


def _read_candidates(document: Mapping[str, object], path: Path) -> None:
    """Copies the lists that ``candidates`` name into ``document``: files with a value on each line."""
    for column, named in _named_candidates(document):
        if Path(named).name != named:
            raise ConfigError(
                str(path),
                "column.candidates",
                f"is {named!r}; expected a list, or the name of a file in the config's own folder",
            )
        try:
            text = (path.resolve().parent / named).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise ConfigError(
                str(path),
                "column.candidates",
                f"is {named!r}, which cannot be read: {error}; expected a list, or a file of UTF-8 text beside the "
                "config with a value on each line",
            ) from error
        column["candidates"] = [line.strip() for line in text.split("\n") if line.strip()]


def agreed_config(agreed: Mapping[str, object]) -> Config:
    """Returns a Config from the result of ``Config.agreed``, with placeholders for addresses. Raises ConfigError."""
    tables = agreed.get("party")
    parties = [
        {**table, "mesh": f"party-{pid}.invalid:1", "ingest": f"party-{pid}.invalid:2"}
        for pid, table in enumerate(tables if isinstance(tables, list) else [])
        if isinstance(table, dict)
    ]
    document = {key: value for key, value in agreed.items() if key != "party"}
    return config_from_dict(
        document | ({"party": parties} if parties else {}),
        source="agreed configuration",
        base=Path(),
    )
