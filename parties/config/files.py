"""Configs from a file, from a command's options, and from the agreed part in a transcript."""

import re
from collections.abc import Mapping
from pathlib import Path

from parties.config.config import Config, apply_overrides, config_from_dict
from parties.config.named_files import read_named_files
from parties.config.refresh import check_same_columns, read_refresh
from parties.config.schema import ANNEALED, FIXED
from parties.foundation.errors import ConfigError
from parties.foundation.untrusted_text import parse_toml


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


def read_document(path: Path) -> dict[str, object]:
    """Returns the TOML document of a configuration. Raises ConfigError for an unreadable file, or broken TOML."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "", "is not UTF-8 text; expected a TOML config") from error
    except OSError as error:
        raise ConfigError(
            str(path), "", f"cannot be read: {error.strerror or error}; expected a TOML config"
        ) from error
    except ValueError as error:
        raise ConfigError(str(path), "", f"is not valid TOML: {error}") from error


def load_config(path: Path, overrides: Mapping[str, object] | None = None) -> Config:
    """Returns the config of ``path``, checked after ``overrides`` by dotted key ("run.rounds") were applied.

    Args:
        path: the TOML file.
        overrides: the result of ``overrides_from_options``.

    Raises ConfigError with file and key: unreadable file, broken TOML, unknown or missing key, wrong type or value.
    """
    document = read_document(path)
    apply_overrides(document, overrides or {})
    read_named_files(document, path)
    earlier = read_refresh(document, path)
    document.setdefault("run", {})
    if isinstance(document["run"], dict):
        document["run"].setdefault(
            "id", re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._") or "run"
        )
    config = config_from_dict(document, source=str(path), base=path.resolve().parent)
    if earlier is not None:
        check_same_columns(config, earlier)
    return config


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
