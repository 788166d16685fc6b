"""Content of result.json, the server's record of a finished run, that all methods share.

All values here are public: charges, names and sizes of released values, bytes, times.
"""

from collections.abc import Mapping
from dataclasses import asdict

from mechanisms.accounting import Ledger
from parties.federation.members import ConnectedClients
from parties.federation.transcript import FederationTranscript

RESULT = "result.json"


def server_document(
    ledger: Ledger, record: FederationTranscript, members: ConnectedClients, *, who: str
) -> dict[str, object]:
    """Returns the part of result.json on charges, openings and bytes of frames; ``who`` is the participants' noun."""

    def by_name(by_number: Mapping[int, object]) -> dict[str, object]:
        return {members.names[number]: value for number, value in sorted(by_number.items())}

    return {
        "rho_total": ledger.budget,
        "ledger": [entry.to_dict() for entry in ledger.entries],
        "opened": [asdict(item) for item in record.opened],
        f"{who}_sent": by_name(members.received),
        f"{who}_received": by_name(members.sent),
        "by_kind": {direction: dict(kinds) for direction, kinds in record.by_kind.items()},
        "steps": {name: asdict(cost) for name, cost in record.by_step.items()},
        "lost": by_name(members.lost),
    }
