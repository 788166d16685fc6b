"""Checks of single values of a config; a failure raises ConfigError with the key and without the file, unknown here."""

import datetime
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import fields, replace

from mechanisms.table_keys import ALLOWED, Range
from parties.crypto.pinned_key import KEY_PATTERN
from parties.foundation.errors import ConfigError

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Pattern of run ids, party names and client names, which appear in URLs, file names and certificates."""


def check(condition: bool, key: str, message: str) -> None:
    """Raises ConfigError with ``key`` and ``message`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError("", key, message)


def check_allowed(section: str, of: object) -> None:
    """Refuses a section with a value that its field's metadata do not allow (`mechanisms.table_keys`)."""
    for item in fields(of):  # type: ignore[arg-type]
        allowed, value = item.metadata.get(ALLOWED), getattr(of, item.name)
        if allowed is None or value is None:
            continue
        key = f"{section}.{item.name}"
        if isinstance(allowed, Range):
            found = _resolved(allowed, of)
            check(found.has(value), key, f"is {value}; expected {found}")
        else:
            check_choice(key, value, allowed)


def _resolved(allowed: Range, of: object) -> Range:
    """Returns the range with the largest number that another field of the section has."""
    if not allowed.high_key:
        return allowed
    return replace(allowed, high=float(min(getattr(of, allowed.high_key), sys.float_info.max)))


def check_number(key: str, value: float, *, low: float, high: float = math.inf) -> None:
    """Refuses a value that is not finite, below ``low`` or above ``high``."""
    finite = isinstance(value, int) or math.isfinite(value)
    check(finite and low <= value <= high, key, f"is {value}; {_range(low, high)}")


def _range(low: float, high: float) -> str:
    return f"expected at least {low:g}" + ("" if math.isinf(high) else f" and at most {high:g}")


def check_name(key: str, value: str) -> None:
    """Refuses a run, party or client name that cannot stand in a URL, a file name and a certificate."""
    check(
        NAME_PATTERN.fullmatch(value) is not None,
        key,
        f"is {value!r}; expected 1 to 63 letters, digits, '.', '_' or '-', the first a letter or digit",
    )


def check_names(key: str, names: Sequence[str]) -> None:
    """Refuses names that ``check_name`` refuses, and names that repeat."""
    for name in names:
        check_name(key, name)
    check(len(set(names)) == len(names), key, "has a name twice; expected different names")


def read_time(key: str, text: str) -> datetime.datetime:
    """Returns a time of RFC 3339. Raises ConfigError if ``text`` is not one, or has no offset."""
    expected = "expected a time with its offset, such as 2026-12-01T18:00:00+01:00"
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError("", key, f"is {text!r}; {expected}") from error
    check(
        time.tzinfo is not None,
        key,
        f"is {text!r}, which is another time at each place; {expected}",
    )
    return time


def check_key_hash(key: str, value: str) -> None:
    """Refuses a value that is not the hash of a public key."""
    check(
        KEY_PATTERN.fullmatch(value) is not None,
        key,
        f"is {value!r}; expected the 64 hex digits of a card's or request's key (SHA-256 of the public key)",
    )


def check_choice(key: str, value: str, allowed: Sequence[str]) -> None:
    """Refuses a value that is not one of ``allowed``."""
    check(value in allowed, key, f"is {value!r}; expected one of {', '.join(allowed)}")
