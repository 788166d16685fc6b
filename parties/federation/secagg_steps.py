"""Names of SecAgg's messages and sums in transcripts and reports, such as "secagg.masked".

All values here are public.
"""

from collections.abc import Mapping

from secagg import wire

UNKNOWN_STEP = "unknown"
"""Name of a message of unknown kind; a client may send anything."""
SECAGG_STEPS: Mapping[wire.Kind, str] = {kind: f"secagg.{kind.name.lower()}" for kind in wire.Kind}
MASKED, SIGNATURE = SECAGG_STEPS[wire.Kind.MASKED], SECAGG_STEPS[wire.Kind.SIGNATURE]
SECAGG_SESSION = "secagg"
"""Step of the opening of a session's sum."""
SECAGG_SUM = "secagg.sum"
"""Name of the opened value."""

_SECAGG_KIND_AT = 5


def secagg_step_of(message: bytes) -> str:
    """Returns the name of a message of `secagg.wire` from its kind alone."""
    try:
        return SECAGG_STEPS[wire.Kind(message[_SECAGG_KIND_AT])]
    except (ValueError, IndexError):
        return UNKNOWN_STEP
