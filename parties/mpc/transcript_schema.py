"""Header and notes of a DistAIM server's transcript, besides the records of `protocols.transcript`.

Each note states its fields and its phase in a run; ``SCHEMA`` is made of them. Writers and readers of a transcript use
the same names. All values here are public.
"""

from dataclasses import dataclass

from parties.mpc.exclusion import Exclusion
from parties.session import result_digests
from protocols import fields
from protocols.fields import Fields
from protocols.steps import Phase
from protocols.transcript import RECORDS, schema

PROTOCOL = "distaim"


@dataclass(frozen=True, slots=True)
class Note:
    """A note: its name, its fields, and its phase in a run (None: any phase)."""

    what: str
    phase: Phase | None
    fields: Fields


AGREED = Note(
    "agreed",
    None,
    {
        "session": fields.hex64,
        "last_round": fields.optional_natural,
        "initial": fields.natural,
        "sigmas": fields.numbers,
        "wasted": fields.numbers,
    },
)
"""Point at which a run goes on. ``wasted``: costs of charges that two servers have and that will release nothing."""
COUNTED = Note("counted", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.texts})
TOTAL = Note("total", Phase.ARRIVALS, {"round": fields.natural, "commitment": fields.digest})
"""Running total of a round: ``RunningTotal.commitment`` under a key that only this server has."""
ACCUSED = Note(
    "accused",
    Phase.ARRIVALS,
    {"round": fields.natural, "client": fields.text, "shown": fields.table},
)
"""A client whose component holders report a difference: by component, the digests that they show."""
COUNTING = Note(
    "counting",
    Phase.ARRIVALS,
    {"round": fields.natural, "form": fields.text, "capacities": fields.table},
)
"""A batch that servers count, with the capacities of its participants: rows by client, in the batch's order."""
RECOUNTING = Note(
    "recounting",
    Phase.ARRIVALS,
    {"round": fields.natural, "form": fields.text, "capacities": fields.table},
)
"""As ``COUNTING``, for a batch of counted participants: into the cells that round 0 chose."""
INCOMPLETE = Note("incomplete", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.table})
"""Clients that some servers list and others do not, with the servers that do not."""
WITHDRAWN = Note("withdrawn", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.table})
"""Withdrawals: by client the last version withdrawn, with signature and certificate."""
REPLACED = Note("replaced", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.table})
"""Clients whose later version replaces a decided one: by client the digests of the two uploads."""
REVOKED = Note("revoked", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.table})
"""Clients that all three operators revoke: by client the upload that is taken out, an empty text if there was none."""
CLOSED = Note("closed", Phase.ARRIVALS, {"round": fields.natural})
"""All three operators have closed the run to participants: no further upload is taken."""
FINISHING = Note("finishing", Phase.ARRIVALS, {"round": fields.natural})
"""All three operators end the run with the rounds done: this round, which had not begun, is not taken."""
REMOVALS = (WITHDRAWN, REPLACED, REVOKED)
ROUND = Note("round", Phase.BEGUN, {"round": fields.natural, "clients": fields.natural})
INPUTS = Note(
    "inputs",
    Phase.BEGUN,
    {
        "round": fields.natural,
        "digest": fields.hex64,
        "noise": fields.hex64,
        "made": fields.natural,
        "skip": fields.natural,
    },
)
"""Inputs of the round, recorded by all three servers: `parties.mpc.openings`."""
REPEATED = Note(
    "repeated",
    None,
    {
        "round": fields.natural,
        "step": fields.text,
        "event": fields.table,
        "opening": fields.hex64,
    },
)
"""Repetition of an opening that was charged before a restart, with the same inputs and noise: nothing is charged."""
CLAIMED = Note("claimed", None, {"party": fields.natural, "charges": fields.texts})
"""Charges that one server alone reports, by their openings: no other server enters them."""
SELECTING = Note(
    "selecting",
    Phase.CANDIDATES,
    {
        "round": fields.natural,
        "candidates": fields.hex_bytes,
        "kept": fields.flag,
        "made": fields.hex_bytes,
        "samples": fields.natural,
        "skip": fields.natural,
    },
)
"""Candidates of a selection, its bits and its noise samples.

``kept``: the selection uses bits of the counts. ``made``: candidates whose bits are made now. ``samples``: noise
samples made now, of which ``skip`` are skipped because they were used before a restart.
"""
SELECTED = Note(
    "selected",
    Phase.CHOSEN,
    {"round": fields.natural, "candidate": fields.natural, "query": fields.text},
)
PUBLISHED = Note(result_digests.NOTE, None, result_digests.FIELDS)
"""Digests of the lead's files, as it sent them: `parties.session.result_digests`. All three seal them at the end."""
FINISHED = Note("finished", None, {"rounds": fields.natural, "clients": fields.natural})

_ALL = (
    AGREED,
    COUNTED,
    ACCUSED,
    COUNTING,
    RECOUNTING,
    INCOMPLETE,
    WITHDRAWN,
    REPLACED,
    REVOKED,
    CLOSED,
    FINISHING,
    TOTAL,
    ROUND,
    INPUTS,
    REPEATED,
    CLAIMED,
    SELECTING,
    SELECTED,
    PUBLISHED,
    FINISHED,
)
NOTES = {n.what: n for n in _ALL}
SCHEMA = schema(
    {
        "protocol": fields.text,
        "run": fields.text,
        "party": fields.natural,
        "name": fields.text,
        "config": fields.table,
        "config_sha256": fields.hex64,
        "workload_sha256": fields.hex64,
        "version": fields.text,
        "wire": fields.natural,
        "plan": fields.text,
    },
    {what: note.fields for what, note in NOTES.items()},
    {
        **RECORDS,
        "ledger": {**RECORDS["ledger"], "opening": fields.hex64},
        "client": {**RECORDS["client"], "reason": fields.one_of("", *Exclusion)},
    },
)
