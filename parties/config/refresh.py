"""The model of an earlier run that a run starts from ([refresh]), from a bundle, a run's folder or a model's folder.

``read_refresh`` completes a configuration's [refresh] with the model's digest, ``earlier_model`` returns the model. The
digest is the one that the earlier run's servers sealed, so that a path which leads to another model is refused. Both
runs have the same columns with the same cells. All values here are public. Raise ConfigError.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from mechanisms.columns import Column
from mechanisms.domain import Domain
from mechanisms.errors import MechanismError
from mechanisms.model import MARGINALS_FILE, TREE_FILE, Model
from mechanisms.resolving import unmeasured
from parties.foundation.errors import ConfigError

if TYPE_CHECKING:
    from parties.config.config import Config

START_FOLDER = "start"
"""Folder beside a run's config, and in a bundle, with the earlier run's model."""
MAX_BYTES = 1 << 30
"""Maximum size of each file of an earlier model."""
_NAMES = (MARGINALS_FILE, TREE_FILE)
_LABEL = b"syncret model 1\n"
_EXPECTED = "expected the bundle, or the folder, of a finished run of DistAIM or central AIM"


def files_digest(digests: Mapping[str, str]) -> str:
    """Returns the hex SHA-256 over the names and digests of all files of a model, by name."""
    lines = (f"{digests[name]}  {name}\n".encode() for name in sorted(digests))
    return hashlib.sha256(_LABEL + b"".join(lines)).hexdigest()


@dataclass(frozen=True, slots=True)
class EarlierModel:
    """The ``files`` of an earlier run's model, by name."""

    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """Digest of the model, as the earlier run's servers sealed it."""
        return files_digest({n: hashlib.sha256(data).hexdigest() for n, data in self.files.items()})

    @property
    def domain(self) -> Domain:
        """Domain of the model. Raises MechanismError, ValueError for a damaged file."""
        tree = json.loads(self.files[TREE_FILE])
        if not isinstance(tree, dict) or not isinstance(tree.get("domain"), dict):
            raise ValueError("no domain")
        return Domain.from_dict(tree["domain"])

    @property
    def cells(self) -> int:
        """Number of cells of the model, which is not read. Raises EstimationError for a damaged file."""
        return Model.cells_in(self.files[TREE_FILE])

    def model(self) -> Model:
        """Returns the model. Raises EstimationError for a damaged one."""
        text, data = self.files[TREE_FILE], self.files[MARGINALS_FILE]
        return Model.read(text, io.BytesIO(data), named="the earlier model")


def read_refresh(document: dict[str, object], path: Path) -> EarlierModel | None:
    """Adds the digest to [refresh] of ``document`` if it is not there; ``path`` is the configuration's.

    Returns the model if it is at hand.
    """
    table = document.get("refresh")
    if not isinstance(table, dict) or not isinstance(table.get("model", ""), str):
        return None
    named, base = table.get("model"), path.resolve().parent
    found = _found(base, named, str(path), wanted=table.get("digest"))
    if found is not None:
        table.setdefault("digest", found.digest)
    return found


def earlier_model(config: Config) -> EarlierModel | None:
    """Returns the earlier model of a run; None if it starts from nothing."""
    refresh = config.refresh
    if refresh is None:
        return None
    found = _found(config.base, refresh.model, config.source, wanted=refresh.digest)
    if found is None:
        where = f"{refresh.model!r}, which is not there" if refresh.model else "missing"
        raise ConfigError(
            config.source,
            "refresh.model",
            f"is {where}, and there is no folder {START_FOLDER} beside the config; {_EXPECTED} with the model "
            f"{refresh.digest}",
        )
    check_same_columns(config, found)
    return found


_KEYS = {"form": "format", "private": "values"}
"""Keys of a [[column]] whose attributes have other names."""


def _differing(one: Column, other: Column) -> str:
    """Returns the keys in which two columns of one kind differ, in brackets."""
    if type(one) is not type(other):
        return " (kind)"
    keys = [
        _KEYS.get(item.name, item.name)
        for item in fields(one)
        if item.compare and getattr(one, item.name) != getattr(other, item.name)
    ]
    return f" ({', '.join(keys)})"


def check_same_columns(config: Config, earlier: EarlierModel) -> None:
    """Raises ConfigError, with the first column that differs, unless both runs' columns mean the same."""
    try:
        theirs = earlier.domain
    except (MechanismError, ValueError) as error:
        raise ConfigError(
            config.source, "refresh.model", f"has no columns that can be read: {error}; {_EXPECTED}"
        ) from error
    ours = config.domain
    if private := unmeasured(ours):
        raise _differs(
            config,
            ours.names[private[0]],
            "has cells still to be measured",
            expected="those of the earlier run, the histogram and deviation in its model/model.json",
        )
    for one, other in zip(ours.columns, theirs.columns, strict=False):
        if one != other:
            same = one.name == other.name
            said = (
                f"has other values or cells{_differing(one, other)}"
                if same
                else f"stands where the earlier run has {other.name!r}"
            )
            raise _differs(config, one.name, said, expected="the same columns in the same order")
    if len(ours.columns) != len(theirs.columns):
        more = min({*ours.names} ^ {*theirs.names})
        raise _differs(config, more, "is in one of the two runs alone", expected="the same columns")
    for item in (each for each in fields(ours) if each.compare):
        if item.name in _FREE or getattr(ours, item.name) == getattr(theirs, item.name):
            continue
        raise ConfigError(
            config.source,
            item.name,
            "differs from the earlier run's ([refresh]); expected the same, so that columns mean the same",
        )


_FREE = ("columns", "ignore", "format", "provenance")
"""Parts of a domain that may differ: where values are from, and how tables are written."""


def _differs(config: Config, name: str, said: str, *, expected: str) -> ConfigError:
    return ConfigError(
        config.source,
        "column",
        f"{name!r} {said}, unlike in the earlier run ([refresh]); expected {expected}, or a study without [refresh]",
    )


def _found(base: Path, named: object, source: str, *, wanted: object) -> EarlierModel | None:
    """Returns the model in the folder `start` beside the config, or else the named one; None if neither is there."""
    for path in (base / START_FOLDER, *([] if named is None else [base / str(named)])):
        # Of a name that no file can have, Path.exists raises.
        if not os.path.exists(path):
            continue
        files = _read(path, source)
        found = EarlierModel(files)
        if wanted in (None, found.digest):
            return found
        raise ConfigError(
            source,
            "refresh.model",
            f"is {path}, with another model than the one agreed on: its digest is {found.digest}; expected {wanted}",
        )
    if named is not None and wanted is None:
        raise ConfigError(source, "refresh.model", f"is {named!r}, which is not there; {_EXPECTED}")
    return None


def _read(path: Path, source: str) -> Mapping[str, bytes]:
    try:
        if path.is_dir():
            return _read_folder(path)
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive)
    except (
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        NotImplementedError,
        zipfile.BadZipFile,
    ) as error:
        raise ConfigError(
            source,
            "refresh.model",
            f"is {str(path)!r}, without a model that can be read; {_EXPECTED}",
        ) from error


def _read_folder(path: Path) -> Mapping[str, bytes]:
    folder = path if (path / TREE_FILE).is_file() else path / "model"
    if any((folder / name).stat().st_size > MAX_BYTES for name in _NAMES):
        raise ValueError("too large")
    return {name: (folder / name).read_bytes() for name in _NAMES}


def _read_archive(archive: zipfile.ZipFile) -> Mapping[str, bytes]:
    names = archive.namelist()
    folder = next(f for f in ("model/", "") if f + TREE_FILE in names)
    found = {}
    for name in _NAMES:
        if names.count(folder + name) != 1:
            raise ValueError("not one model")
        with archive.open(folder + name) as file:
            found[name] = file.read(MAX_BYTES + 1)
        if len(found[name]) > MAX_BYTES:
            raise ValueError("too large")
    return found
