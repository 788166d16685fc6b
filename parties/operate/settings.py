"""A server's own settings, in the file settings.toml of its folder: nobody else has to have them alike.

Provides ``Settings`` and ``load_settings``. Public: all of it.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from parties.config.checks import check, check_number
from parties.errors import ConfigError
from parties.files import disk_errors

FILE = "settings.toml"
_MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class KeepSection:
    """[keep]: for how many days after the end of a run its transcripts and its results stay; None: for ever."""

    transcripts_days: float | None = None
    results_days: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None:
                check_number(f"keep.{item.name}", value, low=0, high=_MOST_DAYS)


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections."""

    keep: KeepSection = field(default_factory=KeepSection)


def load_settings(folder: Path) -> Settings:
    """Those of a server's folder; the defaults where there is no file. Raises ConfigError, StoreError."""
    path = folder / FILE
    if not path.exists():
        return Settings()
    with disk_errors(path, "read"):
        text = path.read_bytes()
    try:
        return _read(tomllib.loads(text.decode()))
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), "", f"is not valid TOML: {error}") from error
    except ConfigError as error:
        message = str(error).removeprefix(f": {error.key}: ")
        raise ConfigError(str(path), error.key, message) from error.__cause__


def _read(document: Mapping[str, object]) -> Settings:
    _known(document, [item.name for item in fields(Settings)], "")
    table = document.get("keep", {})
    check(isinstance(table, Mapping), "keep", "is no table; expected [keep]")
    values = dict(table) if isinstance(table, Mapping) else {}
    _known(values, [item.name for item in fields(KeepSection)], "keep.")
    for key, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        check(number, f"keep.{key}", f"is {value!r}; expected a number of days")
    return Settings(KeepSection(**values))


def _known(table: Mapping[str, object], allowed: list[str], before: str) -> None:
    for key in table:
        check(key in allowed, f"{before}{key}", f"is unknown; expected {' or '.join(allowed)}")
