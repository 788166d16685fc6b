"""Transcript schema of a FLAIM server: header, notes, and names of messages, steps and openings ("flaim.brief").

The names extend the records of `protocols.transcript`. Writers and readers of a transcript share them.
``flaim_step_of`` covers SecAgg's messages as well. All values here are public.
"""

from collections.abc import Callable, Mapping

from parties.federation import secagg_steps as secagg
from parties.federation.messages import MessageKind, is_secagg_message
from parties.session import result_digests
from protocols import fields
from protocols.fields import Fields
from protocols.transcript import schema

FLAIM_PROTOCOL = "flaim"
JOINED, LEFT, REFUSED = "joined", "left", "refused"
EARLIER, ROUND, SELECTED, ABORTED, FINISHED = (
    "earlier",
    "round",
    "selected",
    "aborted",
    "finished",
)

_CONNECTION: Fields = {
    "client": fields.text,
    "certificate": fields.hex64,
    "reason": fields.text,
}
FLAIM_NOTES: Mapping[str, Fields] = {
    JOINED: _CONNECTION,
    LEFT: _CONNECTION,
    REFUSED: _CONNECTION,
    EARLIER: {"spent": fields.number},
    ROUND: {"round": fields.natural, "clients": fields.natural, "present": fields.natural},
    SELECTED: {"round": fields.natural, "candidates": fields.numbers},
    ABORTED: {"round": fields.natural, "reason": fields.text},
    result_digests.NOTE: result_digests.FIELDS,
    FINISHED: {"rounds": fields.natural, "clients": fields.natural},
}
FLAIM_SCHEMA = schema(
    {
        "protocol": fields.text,
        "run": fields.text,
        "name": fields.text,
        "config": fields.table,
        "config_sha256": fields.hex64,
        "workload_sha256": fields.hex64,
        "version": fields.text,
        "variant": fields.text,
        "noise": fields.text,
        "rho_total": fields.number,
    },
    FLAIM_NOTES,
)


FLAIM_STEPS: Mapping[MessageKind, str] = {
    kind: f"flaim.{kind.name.lower()}" for kind in MessageKind
}
CHOOSE, AGGREGATE = "choose", "aggregate"
CHOICES, SUMS = "flaim.choices", "flaim.sums"
FLAIM_OPENED: Mapping[str, str] = {CHOICES: CHOOSE, SUMS: AGGREGATE}
"""Step of each opening, by the opening's name."""

_FLAIM_KIND_AT = 5


def step_namer(steps: Mapping[MessageKind, str]) -> Callable[[bytes], str]:
    """Returns a function that names a message by ``steps``, or as SecAgg's, from its kind alone."""

    def step_of(message: bytes) -> str:
        if is_secagg_message(message):
            return secagg.secagg_step_of(message)
        try:
            return steps[MessageKind(message[_FLAIM_KIND_AT])]
        except (ValueError, IndexError):
            return secagg.UNKNOWN_STEP

    return step_of


flaim_step_of = step_namer(FLAIM_STEPS)
"""Name of a message on a client's connection, FLAIM's own or SecAgg's."""
