"""What a silos' server's transcript says besides the records of `protocols.transcript`: its header and its notes.

Provides the notes' names and ``SCHEMA``. Who writes and who reads a transcript use the same names. Public: everything.
"""

from collections.abc import Mapping

from parties.flaim import notes as flaim
from protocols import fields
from protocols.fields import Fields
from protocols.transcript import schema

PROTOCOL = "silos"
JOINED, LEFT, REFUSED = flaim.JOINED, flaim.LEFT, flaim.REFUSED
EARLIER, ABORTED = flaim.EARLIER, flaim.ABORTED
ASKED, FILES, FINISHED = "asked", "files", "finished"

NOTES: Mapping[str, Fields] = {
    **{name: flaim.NOTES[name] for name in (JOINED, LEFT, REFUSED, EARLIER, ABORTED)},
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
SCHEMA = schema(
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
    NOTES,
)
