"""What SecAgg's messages and sums are called in transcripts and reports: "secagg.masked".

Provides ``SECAGG_STEPS`` (a name for every kind of `secagg.wire`), ``step_of`` and the names that an audit asks for.
All public.
"""

from collections.abc import Mapping

from secagg import wire

UNKNOWN_STEP = "unknown"
"""What a message of no kind is called; a client may send anything."""
SECAGG_STEPS: Mapping[wire.Kind, str] = {kind: f"secagg.{kind.name.lower()}" for kind in wire.Kind}
MASKED, SIGNATURE = SECAGG_STEPS[wire.Kind.MASKED], SECAGG_STEPS[wire.Kind.SIGNATURE]
SECAGG_SESSION = "secagg"
"""The step that a session's sum is opened in."""
SECAGG_SUM = "secagg.sum"
"""What is opened there."""

_SECAGG_KIND_AT = 5


def secagg_step_of(message: bytes) -> str:
    """The name of a message of `secagg.wire`, of which its kind alone is looked at."""
    try:
        return SECAGG_STEPS[wire.Kind(message[_SECAGG_KIND_AT])]
    except (ValueError, IndexError):
        return UNKNOWN_STEP
