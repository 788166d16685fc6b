"""JSON and TOML that somebody else has written, and words that a terminal can take.

Provides ``json_of`` and ``toml_of``, which end with ValueError in all that a text can do to their parsers: too deep,
numbers too long, no UTF-8; and ``legible``. Public: all of it. Known limits: values are not looked at; JSON may have
NaN and infinities, and a key twice, of which the last one counts.
"""

import json
import tomllib
from typing import Any

LONGEST = 4000
"""Characters that a message may have."""


def json_of(text: str | bytes) -> Any:
    """What a JSON text says. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def toml_of(text: str) -> dict[str, Any]:
    """What a TOML text says. Raises ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def legible(text: str, longest: int = LONGEST) -> str:
    """``text`` without what moves a terminal's cursor or hides words, and not too long; lines stay."""
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text[: longest + 1])
    return shown if len(text) <= longest else f"{shown[:longest]}..."
