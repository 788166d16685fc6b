"""What the three servers settle when they meet: that they run the same thing, and where an interrupted run goes on.

Each tells the others its version, its digests of configuration and workload, the measurements and selections that it
holds, the inputs of rounds that it has recorded, and its ledger. All of that is public, and echoed: nobody can tell the
two others different things. One rule holds for all of it: what two of the three hold alike, all adopt; what one says
alone changes nothing that another holds. A release that only one holds is lost: it may never have been opened; and so
is what was released after it, for a run has no gaps. A charge that one claims alone is shown and not entered: an
opening takes all three, and each has its own charge on its disk before it takes part, so that each honest ledger bounds
by itself what was opened. Of noise keys, commitments alone are exchanged. Nothing secret is exchanged here.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import TypeVar

from mechanisms.accounting import LedgerEntry, Schedule, rho
from mechanisms.domain import Domain
from mechanisms.workload import Workload
from parties.config import Config
from parties.config.differences import MAX_BYTES, agreed_bytes, differences_text
from parties.distaim.noise_keys import KeysClaim, agreed_keys
from parties.distaim.openings import Openings, measurement_name
from parties.distaim.store import Store
from parties.distaim.stored import Checkpoint, Inputs
from parties.ledger import DurableLedger
from parties.texts import json_of
from parties.version import WIRE_VERSION, version
from protocols.context import MAX_PUBLIC_BYTES, Context, NoiseKeys
from protocols.echo import echo
from protocols.errors import CheckFailed, ProtocolViolation
from protocols.steps import MEASURE, SELECT

Key = TypeVar("Key", int, tuple[int, int])
Held = TypeVar("Held", int, str, Checkpoint, Inputs)
_SELECTED = "selected/"
_BYTES_A_CELL = 11
"""Of a noisy count as JSON has it: 8 bytes in base64."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What all three servers have to have in common."""

    run: str
    config: str
    workload: str
    version: str
    wire: int
    plan: str

    def check(self, other: object, *, peer: str, differences: str = "") -> None:
        """Raises CheckFailed, naming the peer and what differs, unless ``other`` is the same.

        ``differences`` of the configurations are shown where those do.
        """
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
                values = f"{str(its)[:60]}, here {str(mine)[:60]}"
                shown = differences if name == "config" and differences else values
                raise CheckFailed(
                    f"{peer} has another {text}: {shown}; all three servers need the same config file and the same "
                    "version of syncret"
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

    ``session`` (hex) names the mesh that the three have made: another one after each restart. ``lost`` are the rounds
    of releases that only this server held, ``contradicted`` those of which two servers hold different ones.
    ``openings`` has the inputs that rounds go by; ``models`` says of rounds whose model two servers have whether all
    three do. ``wasted`` is the cost of what two servers hold as charged and nothing will be released for; ``claimed``
    is what each server alone says that it has charged.
    """

    history: tuple[Checkpoint, ...]
    selections: Mapping[int, int]
    adopted: tuple[LedgerEntry, ...]
    session: str
    openings: Openings
    lost: tuple[int, ...] = ()
    contradicted: tuple[int, ...] = ()
    models: Mapping[int, bool] = field(default_factory=dict)
    wasted: tuple[float, ...] = ()
    claimed: tuple[tuple[LedgerEntry, ...], ...] = ((), (), ())

    @property
    def last_round(self) -> int | None:
        """The last round that released a measurement."""
        return max((checkpoint.round for checkpoint in self.history), default=None)


def save_selection(store: Store, round: int, candidate: int) -> None:
    """Keep an opened selection: a restart need not pay for it again. Durable on return."""
    store.set_meta(f"{_SELECTED}{round}", str(candidate))


def load_selections(store: Store, rounds: int) -> dict[int, int]:
    """The opened selections, candidate by round."""
    kept = {number: store.meta(f"{_SELECTED}{number}") for number in range(1, rounds + 1)}
    return {number: int(value) for number, value in kept.items() if value is not None}


def state_of(store: Store, rounds: int) -> dict[str, object]:
    """What a server has opened and charged so far, as it tells the others."""
    return {
        "checkpoints": [checkpoint.to_dict() for checkpoint in store.checkpoints()],
        "ledger": [entry.to_dict() for entry in DurableLedger(store).entries],
        "selections": {str(k): v for k, v in load_selections(store, rounds).items()},
        "inputs": [inputs.to_list() for inputs in store.inputs()],
        "models": {str(k): v for k, v in store.estimates().items()},
    }


def largest_state(workload: Workload, rounds: int, first: Domain | None = None) -> int:
    """More bytes than a server's state as JSON ever has: every round may have measured the largest marginal.

    ``first``: the domain that round 0 measures, where that is not the workload's.
    """
    sizes = [workload.domain.size(query) for query in workload.candidates]
    cells = sum((first or workload.domain).shape) + rounds * max(sizes)
    return MAX_PUBLIC_BYTES + _BYTES_A_CELL * cells


async def agree(
    ctx: Context,
    identity: Identity,
    store: Store,
    *,
    config: Config,
    rounds: int,
    initial: Sequence[int],
    budget: float,
    nonce: str,
    keys: NoiseKeys | None,
    max_bytes: int,
) -> Resumed:
    """Compare identities, then bring all three servers to the furthest point that two of them have reached.

    Where their configurations differ they show them to one another (one exchange more), and fail with what differs.

    ``initial`` are the candidates that round 0 measures, in their order; no charge is larger than the ``budget``;
    ``nonce`` (hex) is this server's part in the name of the mesh; ``keys`` are the noise keys that it has;
    ``max_bytes`` is ``largest_state``.
    Leaks: what the servers already opened or charged, to one another. Rounds: 2. Communication: the state as JSON, and
    96 bytes, to each.
    Raises CheckFailed where identities differ or releases contradict, ProtocolViolation for malformed state or one told
    differently.
    """
    mine, fresh = DurableLedger(store), ctx.fresh_noise_keys()
    said = {
        "identity": {name: getattr(identity, name) for name in Identity.__dataclass_fields__},
        "nonce": nonce,
        "noise": KeysClaim.of(keys, fresh).to_dict(),
        **state_of(store, rounds),
    }
    replies = await ctx.exchange(json.dumps(said).encode(), max_bytes=max_bytes)
    # From here on all three go by the same words: who is told something else would take another way than the third, and
    # each of these two would blame the other.
    await echo(ctx, dict(enumerate(replies)))
    documents = [_document(reply, pid) for pid, reply in enumerate(replies)]
    names = [party.name for party in config.require_parties()]
    differences = await _differences(ctx, documents, config, names)
    for pid in (ctx.next_pid, ctx.prev_pid):
        peer, differs = f"party {pid} ({names[pid]})", differences.get(pid, "")
        identity.check(documents[pid].get("identity"), peer=peer, differences=differs)
    states = [
        _permitted(_state(document, pid, rounds), pid, rounds, budget)
        for pid, document in enumerate(documents)
    ]
    checkpoints, selections = _held_by_two(states, initial)
    contradicted = _contradicted(states)
    claims = [KeysClaim.from_dict(d.get("noise"), pid) for pid, d in enumerate(documents)]
    agreed = agreed_keys(ctx, claims, keys, fresh, charged=bool(mine.entries))
    if not agreed.problem and not store.ended:
        store.save_noise_keys(agreed.keys)
    lost = _settle(store, states[ctx.pid], checkpoints, selections)
    common = _charged_by_two(states)
    adopted = mine.adopt([entry for entry in common if mine.paid(entry.opening) is None])
    recorded, claimed = _inputs_of_two(states)
    openings = Openings(
        agreed.keys, agreed.keyset, identity.config, recorded, claimed, agreed.problem
    )
    nonces = [str(document.get("nonce")) for document in documents]
    session = hashlib.sha256(json.dumps(nonces).encode()).hexdigest()
    models = _common([s.models for s in states], _itself)
    due = 1 + max((c.round for c in checkpoints), default=-1)
    return Resumed(
        tuple(checkpoints),
        selections,
        tuple(adopted),
        session,
        openings,
        lost,
        contradicted,
        models={
            n: all(s.models.get(n) == digest for s in states)
            for n, digest in models.items()
            if n <= due
        },
        wasted=tuple(entry.rho for entry in _wasted(common, checkpoints, recorded)),
        claimed=tuple(_alone(state, common) for state in states),
    )


def _charged_by_two(states: Sequence["_State"]) -> list[LedgerEntry]:
    """The charges that two servers or all three hold alike, in one order."""
    held = Counter(entry for state in states for entry in set(state.entries))
    common = [entry for entry, holders in held.items() if holders > 1]
    return sorted(common, key=lambda entry: (entry.round, entry.step, entry.opening))


def _alone(state: "_State", common: Sequence[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    return tuple(entry for entry in state.entries if entry not in common)


def _inputs_of_two(
    states: Sequence["_State"],
) -> tuple[dict[int, Inputs], dict[int, tuple[str, ...]]]:
    """What rounds go by as two servers or all three have recorded it; and by round what is said of others."""
    tables = [state.inputs for state in states]
    recorded = _common(tables, _itself)
    claimed: dict[int, set[str]] = {}
    for number, inputs in (item for table in tables for item in table.items()):
        if number not in recorded:
            claimed.setdefault(number, set()).add(json.dumps(inputs.to_list()))
    return recorded, {number: tuple(sorted(said)) for number, said in claimed.items()}


def _wasted(
    common: Sequence[LedgerEntry], history: Sequence[Checkpoint], recorded: Mapping[int, Inputs]
) -> list[LedgerEntry]:
    """The charges for openings that are not released and will not be: of inputs that no round goes by any more."""
    released = {c.round for c in history}
    due = {inputs.digest for inputs in recorded.values()}
    due |= {
        measurement_name(recorded[c.round].digest, c.candidate, c.sigma)
        for c in history
        if c.round in recorded
    }
    # Of a round that is done again, what it measures is known when its choice is.
    again = {number for number in recorded if number not in released or number == 0}
    return [
        e
        for e in common
        if e.opening not in due and not (e.round in again and e.step == MEASURE.name)
    ]


async def _differences(
    ctx: Context,
    documents: Sequence[Mapping[str, object]],
    config: Config,
    names: Sequence[str],
) -> dict[int, str]:
    """Where a server says that it has another configuration, all three show theirs: what differs, by server.

    Whoever has the same one as a second server sees that the third has not.
    """
    digests = [_config_digest(document) for document in documents]
    if len(set(digests)) == 1:
        return {}
    shown = await ctx.exchange(agreed_bytes(config), max_bytes=MAX_BYTES)
    return {
        pid: differences_text(config, shown[pid], names[pid])
        for pid in (ctx.next_pid, ctx.prev_pid)
        if digests[pid] != digests[ctx.pid]
    }


def _config_digest(document: Mapping[str, object]) -> str:
    identity = document.get("identity")
    return str(identity.get("config")) if isinstance(identity, Mapping) else ""


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """What one server has opened and charged, by its own account."""

    checkpoints: Mapping[tuple[int, int], Checkpoint]
    selections: Mapping[int, int]
    entries: tuple[LedgerEntry, ...]
    inputs: Mapping[int, Inputs] = field(default_factory=dict)
    models: Mapping[int, str] = field(default_factory=dict)


def _document(reply: bytes, pid: int) -> Mapping[str, object]:
    try:
        document = json_of(reply)
    except ValueError as error:
        raise ProtocolViolation(f"party {pid} sent a state that is not JSON", pid) from error
    if not isinstance(document, dict):
        raise ProtocolViolation(f"party {pid} sent a state that is not a table", pid)
    return document


def _state(document: Mapping[str, object], pid: int, rounds: int) -> _State:
    """Raises ProtocolViolation for a malformed one."""
    try:
        checkpoints = [Checkpoint.from_dict(item) for item in _list(document, "checkpoints")]
        entries = [LedgerEntry.from_dict(item) for item in _list(document, "ledger")]
        chosen = {int(k): int(v) for k, v in _table(document, "selections").items()}  # type: ignore[call-overload]
        told = document.get("inputs")
        inputs = [Inputs.from_list(item) for item in (told if isinstance(told, list) else [])]
        models = {int(k): str(v) for k, v in _table(document, "models").items()}
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolViolation(f"party {pid} sent a malformed state: {error}", pid) from error
    return _State(
        {(checkpoint.round, checkpoint.candidate): checkpoint for checkpoint in checkpoints},
        {number: candidate for number, candidate in chosen.items() if 1 <= number <= rounds},
        tuple(entries),
        {one.round: one for one in inputs if one.round <= rounds},
        {number: digest for number, digest in models.items() if 1 <= number <= rounds},
    )


def read_state(reply: bytes, pid: int, *, rounds: int, budget: float) -> tuple[LedgerEntry, ...]:
    """What server ``pid`` has charged, of what it says of itself. Raises ProtocolViolation for what none can say."""
    return _permitted(_state(_document(reply, pid), pid, rounds), pid, rounds, budget).entries


def _permitted(state: _State, pid: int, rounds: int, budget: float) -> _State:
    """Raises ProtocolViolation for charges that nobody can have made: with them another's word would be adopted."""
    names = [entry.opening for entry in state.entries]
    if "" in names or len(set(names)) < len(names):
        raise ProtocolViolation(
            f"party {pid} claims a charge for no opening, or two for one; each pays for one opening",
            pid,
        )
    total = sum((Fraction(entry.rho) for entry in state.entries), Fraction(0))
    if total > Fraction(budget):
        raise ProtocolViolation(
            f"party {pid} claims charges of {float(total):.6g} in all; the plan has {budget:.6g}",
            pid,
        )
    for entry in state.entries:
        known = entry.round <= rounds and entry.step in (SELECT.name, MEASURE.name)
        if not known or entry.rho != rho(entry.event) or entry.rho > budget:
            raise ProtocolViolation(f"party {pid} claims a charge that no plan has", pid)
    return state


def _held_by_two(
    states: Sequence[_State], initial: Sequence[int]
) -> tuple[list[Checkpoint], dict[int, int]]:
    """The measurements and the selections that two servers or all three hold alike, as far as they follow one another.

    Two honest servers hold no different ones of one place: of an opening in which one is told a lie the other alone
    keeps the value. Raises CheckFailed where two pairs hold different ones of one round.
    """
    measured = _common([s.checkpoints for s in states], _content)
    chosen = _common([s.selections for s in states], _itself)
    history = _in_sequence(measured, initial)
    next_round = 0 if len(history) < len(initial) else history[-1].round + 1
    return history, {n: candidate for n, candidate in chosen.items() if n <= next_round}


def _in_sequence(
    measured: Mapping[tuple[int, int], Checkpoint], initial: Sequence[int]
) -> list[Checkpoint]:
    """Measurements up to the first that is missing: all of round 0 in its order, then one for each round.

    What two honest servers hold has no gap; one that lies beside one that has forgotten can make some.
    Raises CheckFailed where there are two for a round.
    """
    places = [(0, candidate) for candidate in initial]
    places += sorted(place for place in measured if place[0] > 0)
    history: list[Checkpoint] = []
    for place in places:
        due = history[-1].round + 1 if len(history) >= len(initial) else 0
        if place[0] < due:
            raise CheckFailed(f"two pairs of parties hold different releases of round {place[0]}")
        if place not in measured or place[0] > due:
            break
        history.append(measured[place])
    return history


def _content(checkpoint: Checkpoint) -> object:
    return checkpoint.to_dict()


def _itself(held: object) -> object:
    return held


def _common(
    tables: Sequence[Mapping[Key, Held]], content: Callable[[Held], object]
) -> dict[Key, Held]:
    """What two or three of three ``tables`` have, with the same ``content``."""
    common = dict[Key, Held]()
    for first, second in combinations(tables, 2):
        both = (key for key in first if key in second and key not in common)
        common |= {key: first[key] for key in both if content(first[key]) == content(second[key])}
    return common


def _contradicted(states: Sequence[_State]) -> tuple[int, ...]:
    """The rounds of releases of which two servers hold different ones: one of the two does not tell what was opened."""
    found = set[int]()
    for one, other in combinations(states, 2):
        measured, others = one.checkpoints, other.checkpoints
        both = measured.keys() & others.keys()
        found |= {key[0] for key in both if _content(measured[key]) != _content(others[key])}
        chosen = one.selections.keys() & other.selections.keys()
        found |= {n for n in chosen if one.selections[n] != other.selections[n]}
    return tuple(sorted(found))


def _settle(
    store: Store, mine: _State, checkpoints: Sequence[Checkpoint], selections: Mapping[int, int]
) -> tuple[int, ...]:
    """Keep what is common and nothing else; the rounds of releases that only this server had."""
    with store.transaction():
        kept = {(c.round, c.candidate): _content(c) for c in checkpoints}
        lost = [key for key, held in mine.checkpoints.items() if kept.get(key) != _content(held)]
        for round, candidate in lost:
            store.drop_checkpoint(round, candidate)
        for checkpoint in checkpoints:
            store.save_checkpoint(checkpoint)
        unshared = [n for n, candidate in mine.selections.items() if selections.get(n) != candidate]
        for number in unshared:
            store.drop_meta(f"{_SELECTED}{number}")
        for number, candidate in selections.items():
            save_selection(store, number, candidate)
    return tuple(sorted({*(round for round, _ in lost), *unshared}))


def fill(store: Store, document: Mapping[str, object], rounds: int) -> None:
    """Make a store hold what ``state_of`` said of another one: what a replay begins with. Raises ProtocolViolation."""
    state = _state(document, -1, rounds)
    for checkpoint in state.checkpoints.values():
        store.save_checkpoint(checkpoint)
    for number, candidate in state.selections.items():
        save_selection(store, number, candidate)
    for inputs in state.inputs.values():
        store.save_inputs(inputs)
    for number, digest in state.models.items():
        store.note_estimate(number, digest)
    DurableLedger(store).adopt(state.entries)


def _table(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _list(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    value = document.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{key} is no list of tables")
    return value
