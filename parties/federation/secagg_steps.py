"""What SecAgg's messages and sums are called in transcripts and reports: "secagg.masked".

Provides ``STEPS`` (a name for every kind of `secagg.wire`), ``step_of`` and the names that an audit asks for. All
public.
"""

from collections.abc import Mapping

from secagg import wire

UNKNOWN = "unknown"
"""What a message of no kind is called; a client may send anything."""
STEPS: Mapping[wire.Kind, str] = {kind: f"secagg.{kind.name.lower()}" for kind in wire.Kind}
MASKED, SIGNATURE = STEPS[wire.Kind.MASKED], STEPS[wire.Kind.SIGNATURE]
SESSION = "secagg"
"""The step that a session's sum is opened in."""
SUM = "secagg.sum"
"""What is opened there."""

_KIND_AT = 5


def secagg_step_of(message: bytes) -> str:
    """The name of a message of `secagg.wire`, of which its kind alone is looked at."""
    try:
        return STEPS[wire.Kind(message[_KIND_AT])]
    except (ValueError, IndexError):
        return UNKNOWN
