"""What was not let in from outside, for whoever counts and logs it: a reason out of a short list, and a sentence.

Provides ``Rejection``, ``of_status`` (of an HTTP status), ``Rejected``, who is told, and ``unheard``. Public: all of
it; what was sent is in none of it.
"""

import enum
from http import HTTPStatus
from typing import Protocol

from parties.progress import FieldValue


class Rejection(enum.StrEnum):
    """Why; metrics have these words as labels."""

    TLS = "tls"
    """No TLS, no certificate, or one of another authority."""
    STRANGER = "stranger"
    """A certificate that has no place here."""
    MALFORMED = "malformed"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    """Another run, or a thing that is not here."""
    SLOW = "slow"
    CONFLICT = "conflict"
    CLOSED = "closed"
    SIZE = "size"
    MISFIT = "misfit"
    """It does not fit the run, or does not open."""
    COUNTED = "counted"
    STORAGE = "storage"
    OTHER = "other"


_OF_STATUS = {
    HTTPStatus.BAD_REQUEST: Rejection.MALFORMED,
    HTTPStatus.FORBIDDEN: Rejection.FORBIDDEN,
    HTTPStatus.NOT_FOUND: Rejection.UNKNOWN,
    HTTPStatus.METHOD_NOT_ALLOWED: Rejection.UNKNOWN,
    HTTPStatus.REQUEST_TIMEOUT: Rejection.SLOW,
    HTTPStatus.CONFLICT: Rejection.CONFLICT,
    HTTPStatus.GONE: Rejection.CLOSED,
    HTTPStatus.LENGTH_REQUIRED: Rejection.SIZE,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Rejection.SIZE,
    HTTPStatus.UNPROCESSABLE_ENTITY: Rejection.MISFIT,
    HTTPStatus.LOCKED: Rejection.COUNTED,
    HTTPStatus.INSUFFICIENT_STORAGE: Rejection.STORAGE,
}


def of_status(status: int) -> Rejection:
    """What a refusal with this HTTP status is for."""
    return _OF_STATUS.get(HTTPStatus(status), Rejection.OTHER)


class Rejected(Protocol):
    """Who is told, in whatever thread."""

    def __call__(self, reason: str, text: str, **fields: FieldValue) -> None:
        """``fields`` are for programs: who, from where, with which status."""


def unheard(reason: str, text: str, **fields: FieldValue) -> None:
    """Nobody is told."""
