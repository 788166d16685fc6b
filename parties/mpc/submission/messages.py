"""A participant's submission in the ingest API: its fields, their HTTP form and their digest.

All values here are public. The content of a submission is in its sealed parts (`parties.mpc.submission.sealed_upload`),
which the participant signs together with this digest. Source: `protocols` README section 2.
"""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

from parties.config import NAME_PATTERN
from protocols.upload import NAMES

RING_BITS = 32
_LABEL = b"syncret submission 2\n"
MAX_VERSION = 20
"""Maximum number of a client's submissions in one run, since a withdrawal may cost a recount."""
DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")
_NONCE = re.compile(r"[0-9a-f]{32}")
VERSION_HEADER = "Syncret-Version"
_HEADERS = {
    "config": "Syncret-Config",
    "workload": "Syncret-Workload",
    "cells": "Syncret-Cells",
    "ring": "Syncret-Ring",
    "form": "Syncret-Form",
    "capacity": "Syncret-Capacity",
    "first_round": "Syncret-Round",
    "nonce": "Syncret-Nonce",
    "version": VERSION_HEADER,
}


@dataclass(frozen=True, slots=True)
class Submission:
    """Participation of one client in one run, the same at all three servers.

    ``config`` is the hex digest of the configuration that the client agreed to, ``workload`` that of the workload.
    ``cells`` is the length of the count vector, ``ring`` its bits, ``form`` the upload form. ``capacity`` is the
    client's maximum number of rows, independent of the actual number. ``first_round`` (1..T) is the first round that
    counts the client. ``nonce`` are 32 hex digits that the client drew: to its own budget a mark of the population that
    pays (`parties.storage.population_mark`), to everybody else noise. ``version`` is 1 for the client's first
    submission in the run; each submission that replaces earlier ones has a larger one.
    """

    run: str
    client: str
    config: str
    workload: str
    cells: int
    ring: int
    form: str
    capacity: int
    first_round: int
    nonce: str
    version: int = 1

    def __post_init__(self) -> None:
        for name, value in (("run", self.run), ("client", self.client)):
            require_field(
                NAME_PATTERN.fullmatch(value), name, "1 to 63 letters, digits, '.', '_' or '-'"
            )
        require_field(DIGEST_PATTERN.fullmatch(self.config), "config", "64 hex digits")
        require_field(DIGEST_PATTERN.fullmatch(self.workload), "workload", "64 hex digits")
        require_field(self.cells > 0, "cells", "a positive number")
        require_field(self.ring == RING_BITS, "ring", str(RING_BITS))
        require_field(self.form in NAMES, "form", " or ".join(NAMES))
        require_field(self.capacity > 0, "capacity", "a positive number")
        require_field(self.first_round > 0, "first_round", "a positive number")
        require_field(_NONCE.fullmatch(self.nonce), "nonce", "32 hex digits")
        require_field(1 <= self.version <= MAX_VERSION, "version", f"1 to {MAX_VERSION}")

    def canonical(self) -> str:
        """Canonical JSON of all fields."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    def digest(self) -> str:
        """Hex SHA-256 of all fields; the nonce makes two submissions differ even if all else is equal."""
        return hashlib.sha256(_LABEL + self.canonical().encode("ascii")).hexdigest()

    def headers(self) -> dict[str, str]:
        """HTTP headers."""
        return {header: str(getattr(self, name)) for name, header in _HEADERS.items()}

    @classmethod
    def from_headers(cls, run: str, client: str, headers: Mapping[str, str]) -> "Submission":
        """Parses the submission that ``headers`` describe. Raises FieldError."""
        for header in _HEADERS.values():
            require_field(header in headers, header, "the header to be there")
        return cls(
            run=run,
            client=client,
            config=headers[_HEADERS["config"]],
            workload=headers[_HEADERS["workload"]],
            cells=_require_integer(headers, "cells"),
            ring=_require_integer(headers, "ring"),
            form=headers[_HEADERS["form"]],
            capacity=_require_integer(headers, "capacity"),
            first_round=_require_integer(headers, "first_round"),
            nonce=headers[_HEADERS["nonce"]],
            version=_require_integer(headers, "version"),
        )

    @classmethod
    def from_canonical(cls, text: str) -> "Submission":
        """Inverse of ``canonical``. Raises ValueError or TypeError on anything else."""
        values = json.loads(text)
        # Interning keeps values that thousands of submissions share in memory once.
        for name in ("run", "config", "workload", "form"):
            values[name] = sys.intern(values[name])
        values |= {name: _interned(values[name]) for name in ("cells", "capacity")}
        return cls(**values)


@lru_cache(maxsize=256, typed=True)
def _interned(number: int) -> int:
    """The same number, as the same object for every caller."""
    return number


_FIELDS = tuple(item.name for item in fields(Submission))


class FieldError(ValueError):
    """A field of a submission is missing or malformed: its ``name`` and the ``expected`` form."""

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"{name}: expected {expected}")
        self.name = name
        self.expected = expected


def require_field(condition: object, name: str, expected: str) -> None:
    """Raises FieldError unless ``condition``."""
    if not condition:
        raise FieldError(_HEADERS.get(name, name), expected)


def _require_integer(headers: Mapping[str, str], name: str) -> int:
    text = headers[_HEADERS[name]]
    require_field(re.fullmatch(r"[0-9]{1,12}", text), name, "a whole number")
    return int(text)
