"""A data owner's submission as the ingest API carries it: its header fields, their HTTP form and their digest.

Public between client and servers: all of it; a digest of the bodies is not part of the submission's digest, because a
server that holds two components could test guesses of the client's counts against a digest of the third. What binds the
bodies are the digest of its own body that each server checks, and the comparison of components between the servers that
hold the same one (``protocols.upload``). Source: `protocols` README section 2.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from parties.config import NAME_PATTERN, UPLOADS

RING_BITS = 32
_LABEL = b"syncret submission 1\n"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NONCE = re.compile(r"[0-9a-f]{32}")
_HEADERS = {
    "config": "Syncret-Config",
    "workload": "Syncret-Workload",
    "cells": "Syncret-Cells",
    "ring": "Syncret-Ring",
    "form": "Syncret-Form",
    "first_round": "Syncret-Round",
    "nonce": "Syncret-Nonce",
}
DIGEST_HEADER = "Syncret-Submission-Digest"
BODY_HEADER = "Syncret-Body-Digest"


@dataclass(frozen=True, slots=True)
class Submission:
    """One client's taking part in one run, the same at all three servers.

    ``config`` is the hex digest of the configuration that the client agreed to, ``workload`` the workload's; ``cells``
    the length of the count vector, ``ring`` its bits, ``form`` the upload form; ``first_round`` (1..T) the one it is
    first counted in, ``nonce`` 32 hex digits that the client drew.
    """

    run: str
    client: str
    config: str
    workload: str
    cells: int
    ring: int
    form: str
    first_round: int
    nonce: str

    def __post_init__(self) -> None:
        for name, value in (("run", self.run), ("client", self.client)):
            _require(
                NAME_PATTERN.fullmatch(value), name, "1 to 63 letters, digits, '.', '_' or '-'"
            )
        _require(_DIGEST.fullmatch(self.config), "config", "64 hex digits")
        _require(_DIGEST.fullmatch(self.workload), "workload", "64 hex digits")
        _require(self.cells > 0, "cells", "a positive number")
        _require(self.ring == RING_BITS, "ring", str(RING_BITS))
        _require(self.form in UPLOADS, "form", " or ".join(UPLOADS))
        _require(self.first_round > 0, "first_round", "a positive number")
        _require(_NONCE.fullmatch(self.nonce), "nonce", "32 hex digits")

    def canonical(self) -> str:
        """Canonical JSON of all fields."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    def digest(self) -> str:
        """Hex SHA-256 of all fields; the nonce makes two submissions differ even where all else is equal."""
        return hashlib.sha256(_LABEL + self.canonical().encode("ascii")).hexdigest()

    def headers(self, body: bytes) -> dict[str, str]:
        """The HTTP headers for the server that gets ``body``."""
        values = {header: str(getattr(self, name)) for name, header in _HEADERS.items()}
        values[DIGEST_HEADER] = self.digest()
        values[BODY_HEADER] = hashlib.sha256(body).hexdigest()
        return values

    @classmethod
    def from_headers(cls, run: str, client: str, headers: Mapping[str, str]) -> "Submission":
        """The submission that ``headers`` describe. Raises ValueError (header name, what is expected)."""
        for header in (*_HEADERS.values(), DIGEST_HEADER, BODY_HEADER):
            _require(header in headers, header, "the header to be there")
        submission = cls(
            run=run,
            client=client,
            config=headers[_HEADERS["config"]],
            workload=headers[_HEADERS["workload"]],
            cells=_whole(headers, "cells"),
            ring=_whole(headers, "ring"),
            form=headers[_HEADERS["form"]],
            first_round=_whole(headers, "first_round"),
            nonce=headers[_HEADERS["nonce"]],
        )
        _require(
            headers[DIGEST_HEADER] == submission.digest(), DIGEST_HEADER, "SHA-256 of the fields"
        )
        _require(_DIGEST.fullmatch(headers[BODY_HEADER]), BODY_HEADER, "64 hex digits")
        return submission

    @classmethod
    def from_canonical(cls, text: str) -> "Submission":
        """The inverse of ``canonical``. Raises ValueError or TypeError on anything else."""
        return cls(**json.loads(text))


class FieldError(ValueError):
    """A field of a submission is missing or malformed: its ``name`` and what is ``expected``."""

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"{name}: expected {expected}")
        self.name = name
        self.expected = expected


def _require(condition: object, name: str, expected: str) -> None:
    if not condition:
        raise FieldError(_HEADERS.get(name, name), expected)


def _whole(headers: Mapping[str, str], name: str) -> int:
    text = headers[_HEADERS[name]]
    _require(re.fullmatch(r"[0-9]{1,12}", text), name, "a whole number")
    return int(text)
