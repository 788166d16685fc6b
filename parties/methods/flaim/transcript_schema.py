"""Transcript schema of a FLAIM server: header, notes, and names of messages, steps and openings ("flaim.brief").

``flaim_step_of`` covers SecAgg's messages as well. All values here are public.
"""

from collections.abc import Mapping

from parties.federation.transcript_schema import FINISHED, HEADER, NOTES, step_namer, steps_of
from parties.session import result_digests
from protocols import fields
from protocols.transcript import schema

FLAIM_PROTOCOL = "flaim"
ROUND, SELECTED = "round", "selected"
FLAIM_SCHEMA = schema(
    {
        **HEADER,
        "workload_sha256": fields.hex64,
        "version": fields.text,
        "variant": fields.text,
        "noise": fields.text,
        "rho_total": fields.number,
    },
    {
        **NOTES,
        ROUND: {"round": fields.natural, "clients": fields.natural, "present": fields.natural},
        SELECTED: {"round": fields.natural, "candidates": fields.numbers},
        result_digests.NOTE: result_digests.FIELDS,
        FINISHED: {"rounds": fields.natural, "clients": fields.natural},
    },
)

FLAIM_STEPS = steps_of(FLAIM_PROTOCOL)
CHOOSE, AGGREGATE = "choose", "aggregate"
CHOICES, SUMS = "flaim.choices", "flaim.sums"
FLAIM_OPENED: Mapping[str, str] = {CHOICES: CHOOSE, SUMS: AGGREGATE}
"""Step of each opening, by the opening's name."""

flaim_step_of = step_namer(FLAIM_STEPS)
"""Name of a message on a client's connection, FLAIM's own or SecAgg's."""
