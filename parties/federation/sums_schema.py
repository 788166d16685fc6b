"""Transcript schema of a silos' server: header, notes, and names of messages, steps and openings ("silos.request").

The names extend the records of `protocols.transcript`. Writers and readers of a transcript share them. ``silo_step_of``
covers SecAgg's messages as well. All values here are public.
"""

from collections.abc import Mapping

from parties.federation import transcript_schema as flaim
from parties.federation.messages import MessageKind
from parties.federation.transcript_schema import step_namer
from protocols import fields
from protocols.fields import Fields
from protocols.transcript import schema

SILOS_PROTOCOL = "silos"
JOINED, LEFT, REFUSED = flaim.JOINED, flaim.LEFT, flaim.REFUSED
EARLIER, ABORTED = flaim.EARLIER, flaim.ABORTED
ASKED, FILES, FINISHED = "asked", "files", "finished"

SILOS_NOTES: Mapping[str, Fields] = {
    **{name: flaim.FLAIM_NOTES[name] for name in (JOINED, LEFT, REFUSED, EARLIER, ABORTED)},
    # ``head`` is a request's head as JSON text, without the payload.
    ASKED: {
        "round": fields.natural,
        "clients": fields.natural,
        "head": fields.text,
        "payload_sha256": fields.hex64,
    },
    FILES: {"sha256": fields.table},
    FINISHED: {"sums": fields.natural, "clients": fields.natural},
}
SILOS_SCHEMA = schema(
    {
        "protocol": fields.text,
        "run": fields.text,
        "name": fields.text,
        "config": fields.table,
        "config_sha256": fields.hex64,
        "plan": fields.table,
        "plan_sha256": fields.hex64,
        "algorithm": fields.text,
        "version": fields.text,
        "rho_total": fields.number,
    },
    SILOS_NOTES,
)


SILO_STEPS: Mapping[MessageKind, str] = {kind: f"silos.{kind.name.lower()}" for kind in MessageKind}
SUM, FINISH = "sum", "finish"
SILO_OPENED_SUM = "silos.sum"
"""Name of the value opened in the step SUM."""

silo_step_of = step_namer(SILO_STEPS)
"""Name of a message on a silo's connection, silos' own or SecAgg's, from its kind alone."""
