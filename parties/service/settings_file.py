"""Changes of settings.toml by commands: comments and all else that the operator has written there stay."""

import tomllib
from pathlib import Path

import tomlkit
from tomlkit.items import AbstractTable, Array

from parties.foundation.errors import ConfigError
from parties.service.settings import FILE, load_settings, settings_of
from parties.storage.files import disk_errors, write_atomic

NO_FINGERPRINT = "0" * 64
"""Fingerprint of no certificate, to see whether settings can be changed."""


def admit_operator(folder: Path, name: str, fingerprint: str, *, reader: bool, address: str) -> str:
    """Lists an operator's certificate in [admin] of the settings, and returns the address of the admin API.

    ``address`` is for settings that have none. Raises ConfigError where the settings are not valid, or would not be;
    StoreError.
    """
    changed, at = with_operator(folder, name, fingerprint, reader=reader, address=address)
    write_atomic(folder / FILE, changed, durable=True)
    return at


def with_operator(
    folder: Path, name: str, fingerprint: str, *, reader: bool, address: str
) -> tuple[str, str]:
    """Returns the text of the settings with an operator's certificate listed, and the address of the admin API.

    Raises as ``admit_operator``.
    """
    load_settings(folder)
    path, text = folder / FILE, ""
    if path.exists():
        with disk_errors(path, "read"):
            text = path.read_text(encoding="utf-8")
    document = tomlkit.parse(text)
    admin = document.setdefault("admin", tomlkit.table())
    key = "readers" if reader else "clients"
    if isinstance(admin, AbstractTable):
        admin.setdefault("address", address)
        listed = admin.setdefault(key, tomlkit.array())
        if isinstance(listed, Array):
            listed.add_line(fingerprint, comment=name)
            # The closing bracket is on a line of its own, since a comment ends the one before.
            if not listed.as_string().endswith("\n]"):
                listed.add_line(indent="")
    changed = tomlkit.dumps(document)
    try:
        settings = settings_of(tomllib.loads(changed))
    except ValueError as error:
        raise ConfigError(str(path), f"admin.{key}", f"cannot be changed: {error}") from error
    if fingerprint not in settings.admin.fingerprints | settings.admin.reading:
        text = f"is written in a way that no command changes; expected a table [admin] with {key}"
        raise ConfigError(str(path), "admin", text)
    return changed, str(settings.admin.address)
