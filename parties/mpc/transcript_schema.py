"""What a DistAIM server's transcript says besides the records of `protocols.transcript`: its header and its notes.

Provides the notes, each with its fields and where it stands in a run, and ``SCHEMA``. Who writes a transcript and who
reads it use the same names. Public: everything.
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
    """A note: what it says, its fields, and where it stands in a run: None, wherever it is."""

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
"""Where a run goes on. ``wasted``: the costs of what two servers have charged and nothing will be released for."""
COUNTED = Note("counted", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.texts})
TOTAL = Note("total", Phase.ARRIVALS, {"round": fields.natural, "commitment": fields.digest})
"""The running total that a round uses: ``Total.commitment`` under a key that only this server has."""
ACCUSED = Note(
    "accused",
    Phase.ARRIVALS,
    {"round": fields.natural, "client": fields.text, "shown": fields.table},
)
"""A client of whom servers say, each of its own component, that the holders differ: by component what these show."""
COUNTING = Note(
    "counting",
    Phase.ARRIVALS,
    {"round": fields.natural, "form": fields.text, "capacities": fields.table},
)
"""A batch that servers count, whose owners weigh at most their capacities: rows by client, in the batch's order."""
RECOUNTING = Note(
    "recounting",
    Phase.ARRIVALS,
    {"round": fields.natural, "form": fields.text, "capacities": fields.table},
)
"""As ``COUNTING``: a batch of owners who are counted already, into the cells that round 0 has chosen."""
INCOMPLETE = Note("incomplete", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.table})
"""The clients that some servers list and others do not, with the servers that do not."""
WITHDRAWN = Note("withdrawn", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.table})
"""What owners have withdrawn: by client the version up to which, with its signature and certificate."""
REPLACED = Note("replaced", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.table})
"""The clients of whom a later version takes the place of what was decided on: by client the two uploads' digests."""
REVOKED = Note("revoked", Phase.ARRIVALS, {"round": fields.natural, "clients": fields.table})
"""Whom all three operators revoke: by client the upload that is taken out, an empty text where there was none."""
CLOSED = Note("closed", Phase.ARRIVALS, {"round": fields.natural})
"""All three operators have closed the run to data owners: no further upload is taken."""
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
"""What the round goes by, which all three have recorded: `parties.mpc.openings`."""
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
"""An opening that was charged before a restart is made again, with the same inputs and noise: nothing is charged."""
CLAIMED = Note("claimed", None, {"party": fields.natural, "charges": fields.texts})
"""Charges that a server alone says it has made, by their openings: no other server enters them."""
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
"""What is chosen from; whether from bits of the counts that are kept, and of which candidates these are made now; how
many samples of noise are made now, of which some are skipped that were used before a restart."""
SELECTED = Note(
    "selected",
    Phase.CHOSEN,
    {"round": fields.natural, "candidate": fields.natural, "query": fields.text},
)
PUBLISHED = Note(result_digests.NOTE, None, result_digests.FIELDS)
"""What the lead has written, as it told the others: `parties.session.result_digests`. All three seal it at the end."""
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
