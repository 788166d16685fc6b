"""Files that a configuration names: lists of candidates, tables of implied columns, and an earlier run's bundle.

``read_named_files`` copies their content into a configuration, whose digest covers it. A column's ``sha256`` binds the
name to the file's bytes, so that another file beside the configuration is refused before anything is agreed on;
``bound_text`` adds it where a study is made, and [refresh] its digest. All values here are public. Raise ConfigError.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mechanisms.dialect import Dialect
from mechanisms.errors import MechanismError
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from mechanisms.table_keys import TableKey
from parties.config.refresh import read_refresh
from parties.foundation.errors import ConfigError
from parties.foundation.untrusted_text import parse_toml

HASH = "sha256"
"""Key of a column: hex SHA-256 of the file that the column names."""
_CANDIDATES, _TABLE = "candidates", "table"
FILE_KEYS: Mapping[str, Mapping[str, TableKey]] = {
    _CANDIDATES: {
        HASH: TableKey("text", "SHA-256 of the file that `candidates` names, 64 hex digits."),
    },
    _TABLE: {
        _TABLE: TableKey(
            "text",
            "Name of a file with both columns, beside the configuration, instead of `values`.",
        ),
        HASH: TableKey("text", "SHA-256 of that file, 64 hex digits."),
    },
}
"""Keys of columns that name a file, beside those that a domain reads: of candidates, and of implied columns."""
_IMPLIED_FORMAT = Dialect(header_line=1)
"""Format of the files of implied columns; these files are public and their first line is always a header."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file ``name`` beside the configuration ``config``, which the ``key`` of the table ``column`` names."""

    config: Path
    column: dict[str, object]
    key: str
    name: str

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.config.resolve().parent / self.name

    def error(self, text: str) -> ConfigError:
        """Returns an error about the file."""
        return ConfigError(str(self.config), f"column.{self.key}", f"is {self.name!r}{text}")

    def unreadable(self, error: Exception) -> ConfigError:
        """Returns the error about a file that is missing, or no text."""
        kinds = {
            _CANDIDATES: "a list, or a file of UTF-8 text beside the config with a value on each line",
            _TABLE: "a table beside the config with the values of both columns",
        }
        return self.error(f", which cannot be read: {error}; expected {kinds[self.key]}")

    def content(self) -> bytes:
        """Returns the file's bytes, verified if the column has their SHA-256."""
        try:
            data = self.path.read_bytes()
        except (OSError, ValueError) as error:
            raise self.unreadable(error) from error
        found, wanted = hashlib.sha256(data).hexdigest(), self.column.get(HASH)
        if wanted not in (None, found):
            raise self.error(
                f", and {self.path} is another file than the study was made with: its SHA-256 is {found}; expected "
                f"the file that came with the config, with {wanted!r} ({HASH} of column {self.column.get('name')!r})"
            )
        return data


def read_named_files(document: Mapping[str, object], path: Path) -> None:
    """Copies the content of the files that columns of ``document`` name into it; ``path`` is the configuration's."""
    for file in _named_in(document, path):
        if file.key == _TABLE:
            _read_implied(file)
        else:
            _read_candidates(file)
        file.column.pop(HASH, None)


def named_files(path: Path) -> tuple[Path, ...]:
    """Returns the files that a config names, to go where it goes; ``load_config`` reads it without an error."""
    document = parse_toml(path.read_text(encoding="utf-8"))
    earlier = [path.resolve().parent / name for name in _earlier_in(document, path)]
    return tuple(dict.fromkeys([*(file.path for file in _named_in(document, path)), *earlier]))


def bound_text(text: str, path: Path) -> str:
    """Returns the ``text`` of a configuration in which each column that names a file has its SHA-256.

    [refresh] has the digest of the model that it names.
    """
    text = _with_digest(text, path)
    document, bound = parse_toml(text), text
    files = [file for file in _named_in(document, path) if HASH not in file.column]
    if not files:
        return text
    for (key, name), line in {(file.key, file.name): _hash_line(file) for file in files}.items():
        quoted = rf"(?P<quote>[\"']){re.escape(name)}(?P=quote)"
        found = rf"^[ \t]*{key}[ \t]*=[ \t]*{quoted}[ \t]*(#[^\n]*)?$"
        bound = re.sub(found, rf"\g<0>\n{line}", bound, flags=re.MULTILINE)
    for file in files:
        file.column.update(parse_toml(_hash_line(file)))
    # Verifies the result: the name may stand on a line with other keys.
    try:
        same = parse_toml(bound) == document
    except ValueError:
        same = False
    if not same:
        raise files[0].error(
            f" on a line that does not take another one; expected {_hash_line(files[0])} in its column"
        )
    return bound


def _with_digest(text: str, path: Path) -> str:
    """Returns the text in which [refresh] has the digest of its model, after the line that names it."""
    document = parse_toml(text)
    table = document.get("refresh")
    if not isinstance(table, dict) or "digest" in table:
        return text
    read_refresh(document, path)
    for name in _earlier_in(document, path):
        named = rf"^[ \t]*model[ \t]*=[ \t]*(?P<quote>[\"']){re.escape(name)}(?P=quote)[ \t]*(#[^\n]*)?$"
        line = f'digest = "{table["digest"]}"'
        bound = re.sub(named, rf"\g<0>\n{line}", text, flags=re.MULTILINE)
        if parse_toml(bound) == document:
            return bound
        raise ConfigError(
            str(path),
            "refresh.model",
            f"stands on a line that does not take another one; expected {line} in [refresh]",
        )
    return text


def _earlier_in(document: Mapping[str, object], path: Path) -> Iterator[str]:
    """Yields the name of an earlier run's bundle, which has to lie in the config's own folder to go where that goes."""
    table = document.get("refresh")
    name = table.get("model") if isinstance(table, dict) else None
    if not isinstance(name, str):
        return
    if Path(name).name != name or not (path.resolve().parent / name).is_file():
        raise ConfigError(
            str(path),
            "refresh.model",
            f"is {name!r}; expected the name of a bundle (.zip) in the config's own folder, to go with it",
        )
    yield name


def _hash_line(file: NamedFile) -> str:
    """Returns the line that binds a file, which has to lie in the config's own folder to go where the config goes."""
    if Path(file.name).name != file.name:
        raise file.error("; expected the name of a file in the config's own folder")
    return f'{HASH} = "{hashlib.sha256(file.content()).hexdigest()}"'


def _named_in(document: Mapping[str, object], path: Path) -> Iterator[NamedFile]:
    """Yields the files that columns name."""
    columns = document.get("column")
    for column in columns if isinstance(columns, list) else []:
        if not isinstance(column, dict):
            continue
        if isinstance(column.get(_CANDIDATES), str):
            yield NamedFile(path, column, _CANDIDATES, column[_CANDIDATES])
        elif "implied_by" in column and _TABLE in column:
            yield NamedFile(path, column, _TABLE, str(column[_TABLE]))


def _read_implied(file: NamedFile) -> None:
    """Copies the table of an implied column, so that all parties agree on its content."""
    column, wanted = file.column, [file.column["implied_by"], file.column.get("name")]
    # The bytes that are hashed are those that are read.
    data = file.content()
    try:
        table = read_text(TableSource(str(file.path), dialect=_IMPLIED_FORMAT), data)
    except MechanismError as error:
        raise ConfigError(str(file.config), "column.table", str(error)) from error
    if sorted(table.columns) != sorted(map(str, wanted)) or "values" in column:
        raise file.error(
            f" with the columns {', '.join(table.columns)}; expected exactly {wanted[0]} and {wanted[1]}, and no "
            "values beside it"
        )
    keys, values = (table.columns[str(name)] for name in wanted)
    if len(set(keys)) < len(keys):
        raise ConfigError(
            str(file.config), "column.table", f"{file.name!r} has a value of {wanted[0]} twice"
        )
    column["values"] = dict(zip(keys, values, strict=True))
    del column[_TABLE]


def _read_candidates(file: NamedFile) -> None:
    """Copies a list of candidates, a value on each line."""
    if Path(file.name).name != file.name:
        raise file.error("; expected a list, or the name of a file in the config's own folder")
    try:
        text = file.content().decode("utf-8-sig")
    except ValueError as error:
        raise file.unreadable(error) from error
    file.column[_CANDIDATES] = [line.strip() for line in text.split("\n") if line.strip()]
