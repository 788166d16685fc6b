"""The state file of a submission that all three servers have, or that was withdrawn: nothing could send it again.

Provides ``mark_complete`` and ``completed``, ``mark_withdrawn`` and ``withdrawn_by``. Servers that began anew would
take the same submission for a second release, with fresh noise, for which nobody has paid; so whoever asks again is
shown the receipt, and nothing is sent. The seeds, which make the shares, are gone from the file. Secret: the file, for
its digest of what was shared.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from parties.errors import StoreError
from parties.files import disk_errors, write_json
from parties.texts import json_of

_COMPLETE, _WITHDRAWN = "complete", "withdrawn"


@dataclass(frozen=True, slots=True)
class Key:
    """Which submission a file is of: the digests of ``config`` and of what was shared, and the ``client``."""

    config: str
    client: str
    counts: str = field(repr=False)


def mark_complete(path: Path, key: Key, receipt: Mapping[str, object]) -> None:
    """Put ``receipt`` in place of what sending again would need; durable on return. Raises StoreError."""
    who = {"config": key.config, "client": key.client, "counts": key.counts}
    write_json(path, {_COMPLETE: receipt, **who}, durable=True, secret=True)


def completed(path: Path, key: Key) -> Mapping[str, Any] | None:
    """The receipt of a complete submission, if one is in ``path``. Raises StoreError where that is another one."""
    document = _document(path, _COMPLETE)
    if document is None:
        return None
    if Key(*(str(document.get(name)) for name in ("config", "client", "counts"))) != key:
        raise StoreError(
            path,
            "is of another submission, which all three servers have; expected the client, config and table it was "
            "made with, or --replace, to send this table in its place; or another file",
        )
    receipt: Mapping[str, Any] = document[_COMPLETE]
    return receipt


def completed_by(path: Path, config: str, client: str) -> Mapping[str, Any] | None:
    """As ``completed``, by the configuration's digest and the client, whatever was shared."""
    document = _document(path, _COMPLETE)
    counts = "" if document is None else str(document.get("counts"))
    return completed(path, Key(config, client, counts))


def counts_in(path: Path) -> str:
    """The digest of what was shared, of a complete submission; "" where the file has none."""
    document = _document(path, _COMPLETE)
    return "" if document is None else str(document.get("counts"))


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """All of ``client`` up to ``version`` in the run of ``config`` is withdrawn: the ``submissions``, by digest.

    ``proof`` has the three servers' signatures (`parties.distaim.taking_back`).
    """

    config: str
    client: str
    version: int
    submissions: tuple[str, ...]
    proof: str


def mark_withdrawn(path: Path, withdrawn: Withdrawn) -> None:
    """Put it in place of what was submitted; durable on return. Raises StoreError."""
    write_json(path, {_WITHDRAWN: asdict(withdrawn)}, durable=True, secret=True)


def withdrawn_by(path: Path, config: str, client: str) -> Withdrawn | None:
    """What was withdrawn last, if that is what is in ``path``. Raises StoreError where that is another's."""
    document = _document(path, _WITHDRAWN)
    if document is None:
        return None
    match document[_WITHDRAWN]:
        case {
            "config": str() as its_config,
            "client": str() as its_client,
            "version": int() as version,
            "submissions": list() as submissions,
            "proof": str() as proof,
        }:
            found = Withdrawn(its_config, its_client, version, tuple(submissions), proof)
        case _:
            raise StoreError(path, "is not the state of a submission; expected another file name")
    if (found.config, found.client) != (config, client):
        raise StoreError(path, "is of another run or client; expected another file")
    return found


def _document(path: Path, kind: str) -> Mapping[str, Any] | None:
    """What is in the file of a complete, or withdrawn, submission."""
    if not path.exists():
        return None
    try:
        with disk_errors(path, "read"):
            document = json_of(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # Whoever reads it as the state of an incomplete one will say so.
    whole = isinstance(document, dict) and isinstance(document.get(kind), dict)
    return document if whole else None
