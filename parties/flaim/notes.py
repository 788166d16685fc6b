"""What a FLAIM server's transcript says besides the records of `protocols.transcript`: its header and its notes.

Provides the notes' names and ``SCHEMA``. Who writes and who reads a transcript use the same names. Public: everything.
"""

from collections.abc import Mapping

from parties import published
from protocols import fields
from protocols.fields import Fields
from protocols.transcript import schema

PROTOCOL = "flaim"
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
NOTES: Mapping[str, Fields] = {
    JOINED: _CONNECTION,
    LEFT: _CONNECTION,
    REFUSED: _CONNECTION,
    EARLIER: {"spent": fields.number},
    ROUND: {"round": fields.natural, "clients": fields.natural, "present": fields.natural},
    SELECTED: {"round": fields.natural, "candidates": fields.numbers},
    ABORTED: {"round": fields.natural, "reason": fields.text},
    published.NOTE: published.FIELDS,
    FINISHED: {"rounds": fields.natural, "clients": fields.natural},
}
SCHEMA = schema(
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
    NOTES,
)
