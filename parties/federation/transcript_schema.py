"""Records that the transcripts of all methods of a federation share: notes, and names of messages by their kinds.

The names extend the records of `protocols.transcript`. Writers and readers of a transcript share them; a method has a
schema of its own beside these. All values here are public.
"""

from collections.abc import Callable, Mapping

from parties.federation import secagg_steps as secagg
from parties.federation.messages import MessageKind, is_secagg_message
from protocols import fields
from protocols.fields import Fields

JOINED, LEFT, REFUSED = "joined", "left", "refused"
EARLIER, ABORTED, FINISHED = "earlier", "aborted", "finished"

_CONNECTION: Fields = {
    "client": fields.text,
    "certificate": fields.hex64,
    "reason": fields.text,
}
NOTES: Mapping[str, Fields] = {
    JOINED: _CONNECTION,
    LEFT: _CONNECTION,
    REFUSED: _CONNECTION,
    EARLIER: {"spent": fields.number},
    ABORTED: {"round": fields.natural, "reason": fields.text},
}
HEADER: Fields = {
    "protocol": fields.text,
    "run": fields.text,
    "name": fields.text,
    "config": fields.table,
    "config_sha256": fields.hex64,
}
"""First fields of a header, in their order; a method's own fields follow."""

_KIND_AT = 5


def steps_of(protocol: str) -> Mapping[MessageKind, str]:
    """Returns the names of messages by their kinds, such as "flaim.brief"."""
    return {kind: f"{protocol}.{kind.name.lower()}" for kind in MessageKind}


def step_namer(steps: Mapping[MessageKind, str]) -> Callable[[bytes], str]:
    """Returns a function that names a message by ``steps``, or as SecAgg's, from its kind alone."""

    def step_of(message: bytes) -> str:
        if is_secagg_message(message):
            return secagg.secagg_step_of(message)
        try:
            return steps[MessageKind(message[_KIND_AT])]
        except (ValueError, IndexError):
            return secagg.UNKNOWN_STEP

    return step_of
