"""Fields of a transcript's records: base64 for binary values, and the form of every field by its name.

Each kind of field (``natural``, ``text``, ``digest`` and others) is a function that is True for its values; ``Schema``
judges whole records. Each module that writes a record declares its ``Fields`` beside it. All values here are public.
"""

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

_HEX16 = re.compile(r"[0-9a-f]{16}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_HEX_BYTES = re.compile(r"(?:[0-9a-f]{2})+")

Fields: TypeAlias = Mapping[str, Callable[[object], bool]]
"""Fields of a record in their order, each with its kind."""


def encode(data: bytes) -> str:
    """Returns bytes in the form of records: base64 without padding."""
    return base64.b64encode(data).rstrip(b"=").decode("ascii")


def decode(text: object) -> bytes:
    """Returns the bytes of an encoded text: the inverse of ``encode``. Raises ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError("not base64")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise ValueError("not base64") from error
    if encode(data) != text:
        raise ValueError("not base64 in its shortest form")
    return data


def natural(value: object) -> bool:
    """Accepts a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def optional_natural(value: object) -> bool:
    """Accepts a whole number from 0, or null."""
    return value is None or natural(value)


def number(value: object) -> bool:
    """Accepts a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def numbers(value: object) -> bool:
    """Accepts a list of finite numbers."""
    return isinstance(value, list) and all(number(item) for item in value)


def flag(value: object) -> bool:
    """Accepts true or false."""
    return isinstance(value, bool)


def text(value: object) -> bool:
    """Accepts a text."""
    return isinstance(value, str)


def texts(value: object) -> bool:
    """Accepts a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def one_of(*texts: str) -> Callable[[object], bool]:
    """Returns a kind that accepts one of these texts."""
    return lambda value: isinstance(value, str) and value in texts


def table(value: object) -> bool:
    """Accepts an object."""
    return isinstance(value, dict)


def label(value: object) -> bool:
    """Accepts a message's label: 16 hexadecimal digits."""
    return isinstance(value, str) and _HEX16.fullmatch(value) is not None


def hex64(value: object) -> bool:
    """Accepts a SHA-256 in hexadecimal."""
    return isinstance(value, str) and _HEX64.fullmatch(value) is not None


def hex_bytes(value: object) -> bool:
    """Accepts one byte or more in hexadecimal."""
    return isinstance(value, str) and _HEX_BYTES.fullmatch(value) is not None


def binary(value: object) -> bool:
    """Accepts a binary value as ``encode`` writes it."""
    try:
        decode(value)
    except ValueError:
        return False
    return True


def digest(value: object) -> bool:
    """Accepts a digest of 32 bytes as ``encode`` writes it."""
    try:
        return len(decode(value)) == 32
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Schema:
    """Records of one kind of transcript: ``records`` by kind but for notes, ``notes`` by their field ``what``."""

    records: Mapping[str, Fields]
    notes: Mapping[str, Fields]

    def problem(self, record: Mapping[str, object]) -> str | None:
        """Returns a description of the error in a record's fields, or None."""
        kind = str(record["kind"])
        fields, known = self.records.get(kind), ["kind", "t"]
        if kind == "note":
            what = str(record.get("what"))
            fields, known = self.notes.get(what), ["kind", "t", "what"]
            kind = f"note {what!r}"
        if fields is None:
            return f"there is no record {kind!r}"
        if list(record) != [*known, *fields] or not natural(record["t"]):
            return f"{kind} does not have exactly its fields, in their order"
        for name, fits in fields.items():
            if not fits(record[name]):
                return f"{name} of {kind} is not what it should be"
        return None
