"""What the three servers settle when they meet: that they run the same thing, and where an interrupted run goes on.

Each tells the others its version, its digests of configuration and workload, the measurements and selections that it
holds, and its ledger. All of that is public. What one of them has, all adopt: a value that was opened anywhere stays
released, and a charge made anywhere stays spent (the ledger is raised to the most that any server
holds). Nothing secret is exchanged here.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mechanisms.accounting import LedgerEntry, Schedule
from parties.config import Config
from parties.distaim.store import Store
from parties.distaim.stored import Checkpoint
from parties.errors import StoreError
from parties.ledger import DurableLedger
from parties.version import WIRE_VERSION, version
from protocols.context import Context
from protocols.errors import CheckFailed, ProtocolViolation

_SELECTED = "selected/"
MAX_STATE_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Identity:
    """What all three servers have to have in common."""

    run: str
    config: str
    workload: str
    version: str
    wire: int
    plan: str

    def check(self, other: object, *, peer: str) -> None:
        """Raises CheckFailed, naming the peer and what differs, unless ``other`` is the same."""
        what = {
            "run": "run id",
            "config": "configuration",
            "workload": "workload",
            "version": "version of syncret",
            "wire": "version of the messages",
            "plan": "division of the budget",
        }
        theirs = other if isinstance(other, Mapping) else {}
        for name, text in what.items():
            mine, its = getattr(self, name), theirs.get(name)
            if its != mine:
                raise CheckFailed(
                    f"{peer} has another {text}: {str(its)[:60]}, here {str(mine)[:60]}; all three servers need "
                    "the same config file and the same version of syncret"
                )


def identity_of(
    config: Config, workload_digest: str, plan: Schedule, security_bits: int
) -> Identity:
    """What this server runs; ``plan`` is that of a run that has not begun."""
    numbers = f"{plan.noise} within 2^-{security_bits} rho={plan.rho!r} sigma={plan.sigma!r} epsilon={plan.epsilon!r}"
    return Identity(
        config.run.id, config.digest(), workload_digest, version(), WIRE_VERSION, numbers
    )


@dataclass(frozen=True, slots=True, eq=False)
class Resumed:
    """Where the run goes on: the released measurements, and the selections whose measurement is still to come.

    ``session`` (hex) names the mesh that the three have made: another one after each restart.
    """

    history: tuple[Checkpoint, ...]
    selections: Mapping[int, int]
    adopted: tuple[LedgerEntry, ...]
    session: str

    @property
    def last_round(self) -> int | None:
        """The last round that released a measurement."""
        return max((checkpoint.round for checkpoint in self.history), default=None)


def save_selection(store: Store, round: int, candidate: int) -> None:
    """Keep an opened selection: a restart need not pay for it again. Durable on return."""
    store.set_meta(f"{_SELECTED}{round}", str(candidate))


def load_selections(store: Store, rounds: int) -> dict[int, int]:
    """The opened selections, candidate by round."""
    found = {number: store.meta(f"{_SELECTED}{number}") for number in range(1, rounds + 1)}
    return {number: int(value) for number, value in found.items() if value is not None}


def state_of(store: Store, rounds: int) -> dict[str, object]:
    """What a server has opened and charged so far, as it tells the others."""
    return {
        "checkpoints": [checkpoint.to_dict() for checkpoint in store.checkpoints()],
        "ledger": [entry.to_dict() for entry in DurableLedger(store).entries],
        "selections": {str(k): v for k, v in load_selections(store, rounds).items()},
    }


async def agree(
    ctx: Context,
    identity: Identity,
    store: Store,
    *,
    names: Sequence[str],
    rounds: int,
    nonce: str,
) -> Resumed:
    """Compare identities, then bring all three servers to the furthest point that any of them has reached.

    ``nonce`` (hex) is this server's part in the name of the mesh. Leaks: what the servers already opened or charged, to
    one another. Rounds: 1. Communication: the state as JSON.
    Raises CheckFailed where identities differ or measurements contradict, ProtocolViolation for malformed state.
    """
    state = {
        "identity": {name: getattr(identity, name) for name in Identity.__dataclass_fields__},
        "nonce": nonce,
        **state_of(store, rounds),
    }
    replies = await ctx.exchange(json.dumps(state).encode(), max_bytes=MAX_STATE_BYTES)
    peers = [pid for pid in range(3) if pid != ctx.pid]
    documents = {pid: _document(replies[pid], pid) for pid in peers}
    for pid in peers:
        identity.check(documents[pid].get("identity"), peer=f"party {pid} ({names[pid]})")
    adopted: list[LedgerEntry] = []
    for pid in peers:
        adopted += apply_state(store, documents[pid], pid, rounds)
    nonces = [str((documents.get(pid) or state).get("nonce")) for pid in range(3)]
    session = hashlib.sha256(json.dumps(nonces).encode()).hexdigest()
    selections = load_selections(store, rounds)
    return Resumed(tuple(store.checkpoints()), selections, tuple(adopted), session)


def _document(reply: bytes, pid: int) -> Mapping[str, object]:
    try:
        document = json.loads(reply)
    except ValueError as error:
        raise ProtocolViolation(f"party {pid} sent a state that is not JSON", pid) from error
    if not isinstance(document, dict):
        raise ProtocolViolation(f"party {pid} sent a state that is not a table", pid)
    return document


def apply_state(
    store: Store, document: Mapping[str, object], pid: int, rounds: int
) -> list[LedgerEntry]:
    """Keep what the peer has and this server lacks; returns the ledger entries among it.

    Raises ProtocolViolation for a malformed state, CheckFailed for one that contradicts this server's.
    """
    try:
        checkpoints = [Checkpoint.from_dict(item) for item in _list(document, "checkpoints")]
        entries = [LedgerEntry.from_dict(item) for item in _list(document, "ledger")]
        table = document.get("selections")
        selections = {int(k): int(v) for k, v in (table if isinstance(table, dict) else {}).items()}
    except (ValueError, TypeError) as error:
        raise ProtocolViolation(f"party {pid} sent a malformed state: {error}", pid) from error
    try:
        store.adopt_checkpoints(checkpoints)
    except StoreError as error:
        raise CheckFailed(f"the state of party {pid} contradicts this server's: {error}") from error
    known = load_selections(store, rounds)
    for number, candidate in selections.items():
        if known.get(number, candidate) != candidate:
            raise CheckFailed(f"party {pid} holds another selection for round {number}")
        if number not in known and 1 <= number <= rounds:
            save_selection(store, number, candidate)
    return DurableLedger(store).adopt(entries)


def _list(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    value = document.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{key} is no list of tables")
    return value
