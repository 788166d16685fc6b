"""What a silos' server's transcript says besides the records of `protocols.transcript`: its header and its notes.

Provides the notes' names and ``SILOS_SCHEMA``. Who writes and who reads a transcript use the same names. Public:
everything.

What messages, steps and openings of sums between silos are called in transcripts and reports: "silos.request".

Provides ``SILO_STEPS`` (a name for every kind of message), ``silo_step_of``, which knows SecAgg's as well, and the
names of what a server does and opens. All public.
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
    # A request's head as JSON in text, the SHA-256 of its payload.
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
"""What is opened, in the step SUM."""

silo_step_of = step_namer(SILO_STEPS)
"""The name of a message on a silo's connection, its own or SecAgg's; its kind alone is looked at."""
