"""What a running command tells its user: plain lines, or JSON lines for another program (`display`: bars).

An event has a name, a sentence for people and fields for programs; all of it is public. Standard output belongs to
results (and to JSON events where asked for); sentences go to standard error.
"""

import json
import sys
import time
from typing import Protocol, TextIO

from mechanisms.accounting import Schedule

FieldValue = str | int | float | bool | None


class Progress(Protocol):
    """Where events go."""

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Something happened: its name, a sentence, and details for programs."""


def round_text(number: int, plan: Schedule) -> str:
    """Such as "round 3 of 10", or "of at most" where it is not known how many there will be."""
    return f"round {number} of {'at most ' if plan.adaptive else ''}{plan.rounds}"


class Lines:
    """One line an event, with the time of day and who speaks."""

    def __init__(self, prefix: str = "", stream: TextIO | None = None) -> None:
        self._prefix = f"{prefix}: " if prefix else ""
        self._stream = stream

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Write the sentence as a line of its own."""
        stream = self._stream or sys.stderr
        stream.write(f"{time.strftime('%H:%M:%S')} {self._prefix}{text}\n")
        stream.flush()


class JsonLines:
    """One JSON object an event, on standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Write the event as a JSON line."""
        stream = self._stream or sys.stdout
        stream.write(json.dumps({"event": name, "text": text, **fields}) + "\n")
        stream.flush()


class Silent:
    """Nowhere."""

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Drop the event."""
