"""Transcript schema of a silos' server: header, notes, and names of messages, steps and openings ("silos.request").

``silo_step_of`` covers SecAgg's messages as well. All values here are public.
"""

from parties.federation.transcript_schema import FINISHED, HEADER, NOTES, step_namer, steps_of
from protocols import fields
from protocols.transcript import schema

SILOS_PROTOCOL = "silos"
ASKED, FILES = "asked", "files"
SILOS_SCHEMA = schema(
    {
        **HEADER,
        "plan": fields.table,
        "plan_sha256": fields.hex64,
        "algorithm": fields.text,
        "version": fields.text,
        "rho_total": fields.number,
    },
    {
        **NOTES,
        # ``head`` is a request's head as JSON text, without the payload.
        ASKED: {
            "round": fields.natural,
            "clients": fields.natural,
            "head": fields.text,
            "payload_sha256": fields.hex64,
        },
        FILES: {"sha256": fields.table},
        FINISHED: {"sums": fields.natural, "clients": fields.natural},
    },
)

SILO_STEPS = steps_of(SILOS_PROTOCOL)
SUM, FINISH = "sum", "finish"
SILO_OPENED_SUM = "silos.sum"
"""Name of the value opened in the step SUM."""

silo_step_of = step_namer(SILO_STEPS)
"""Name of a message on a silo's connection, silos' own or SecAgg's, from its kind alone."""
