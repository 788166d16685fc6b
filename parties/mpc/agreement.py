"""Agreement of the three servers when they meet: the same run, and the point at which an interrupted run goes on.

Each server sends the others its version, the digests of configuration and workload, its measurements and selections,
the recorded inputs of rounds, and its ledger. All of that is public, and echoed: no server can tell the two others
different things.

One rule holds throughout: all servers adopt the values that two of them hold alike; the word of one server alone
changes nothing that another holds. A release that only one server holds is lost, since it may never have been opened.
Every release after it is lost too, because a run has no gaps. A charge that one server claims alone is shown and not
entered: an opening takes all three servers, and each has its own charge on disk before it takes part, so that each
honest ledger bounds by itself the openings made.

Of noise keys, only commitments are exchanged. Nothing secret is exchanged here.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mechanisms.accounting import LedgerEntry, Schedule
from mechanisms.domain import Domain
from mechanisms.workload import Workload
from parties.config import Config
from parties.config.diff import MAX_BYTES, agreed_bytes, differences_text
from parties.foundation.version import WIRE_VERSION, version
from parties.mpc.noise_keys import KeysClaim, agree_on_keys
from parties.mpc.openings import Openings
from parties.mpc.planning.budget import make_plan, security_bits
from parties.mpc.restart import (
    ReportedState,
    RestartConclusion,
    conclude_restart,
    parse_reply,
    parse_reported_state,
    release_content,
)
from parties.mpc.storage.store import Store
from parties.session.study import Study
from parties.storage.privacy_ledger import DurableLedger
from protocols.context import MAX_PUBLIC_BYTES, Context, NoiseKeys
from protocols.echo import echo
from protocols.errors import CheckFailed

_SELECTED = "selected/"
_BYTES_A_CELL = 11
"""Size of a noisy count in JSON, in bytes: 8 bytes in base64."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Facts that all three servers must have in common."""

    run: str
    config: str
    workload: str
    version: str
    wire: int
    plan: str

    def check(self, other: object, *, peer: str, differences: str = "") -> None:
        """Raises CheckFailed, naming the peer and the difference, unless ``other`` is the same identity.

        ``differences`` is the text that is shown if the configurations differ.
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


def run_identity(study: Study) -> RunIdentity:
    """Identity of this server's run. Raises ConfigError, as ``make_plan``."""
    config, plan = study.config, make_plan(study)
    numbers = f"{plan.noise} within 2^-{security_bits(study)} rho={plan.rho!r} "
    numbers += f"sigma={plan.initial_sigma!r}, {plan.sigma!r} epsilon={plan.epsilon!r}"
    return RunIdentity(
        config.run.id, config.digest(), study.workload.digest(), version(), WIRE_VERSION, numbers
    )


@dataclass(frozen=True, slots=True, eq=False)
class ResumePoint:
    """Point at which the run goes on: the conclusion from the three servers' states, and the charges adopted from it.

    ``session`` (hex) names the mesh; each restart makes another one. ``openings`` holds the noise keys and the recorded
    inputs of rounds.
    """

    conclusion: RestartConclusion
    adopted: tuple[LedgerEntry, ...]
    session: str
    openings: Openings

    @property
    def last_round(self) -> int | None:
        """Last round that released a measurement."""
        return max((checkpoint.round for checkpoint in self.conclusion.history), default=None)

    @property
    def initial(self) -> int:
        """Number of measurements that round 0 has released."""
        return sum(checkpoint.round == 0 for checkpoint in self.conclusion.history)

    @property
    def sigmas(self) -> list[float]:
        """Deviations that the measurements of later rounds were charged for."""
        return [checkpoint.sigma for checkpoint in self.conclusion.history if checkpoint.round > 0]


def save_selection(store: Store, round: int, candidate: int) -> None:
    """Stores an opened selection, so that a restart need not pay for it again. Durable on return."""
    store.set_meta(f"{_SELECTED}{round}", str(candidate))


def load_selections(store: Store, rounds: int) -> dict[int, int]:
    """Opened selections, candidate by round."""
    kept = {number: store.meta(f"{_SELECTED}{number}") for number in range(1, rounds + 1)}
    return {number: int(value) for number, value in kept.items() if value is not None}


def release_state(store: Store, rounds: int) -> dict[str, object]:
    """Public state of a server: its openings and charges so far, as it sends them to the others."""
    return {
        "checkpoints": [checkpoint.to_dict() for checkpoint in store.releases.checkpoints()],
        "ledger": [entry.to_dict() for entry in DurableLedger(store).entries],
        "selections": {str(k): v for k, v in load_selections(store, rounds).items()},
        "inputs": [inputs.to_list() for inputs in store.releases.inputs()],
        "models": {str(k): v for k, v in store.releases.estimates().items()},
    }


def max_state_bytes(workload: Workload, rounds: int, first: Domain | None = None) -> int:
    """Upper bound of a server's state as JSON, in bytes: every round may have measured the largest marginal.

    ``first`` is the domain that round 0 measures, if it is not the workload's.
    """
    sizes = [workload.domain.size(query) for query in workload.candidates]
    cells = sum((first or workload.domain).shape) + rounds * max(sizes)
    return MAX_PUBLIC_BYTES + _BYTES_A_CELL * cells


async def agree_on_resume(
    ctx: Context,
    identity: RunIdentity,
    store: Store,
    *,
    study: Study,
    plan: Schedule,
    nonce: str,
    keys: NoiseKeys | None,
    fresh: NoiseKeys | None,
) -> ResumePoint:
    """Compares identities, then brings all three servers to the furthest point that two of them have reached.

    If configurations differ, the servers show them to one another (one more exchange), and fail with the differences.

    No charge exceeds the budget of ``plan`` or has another cost than its accountant computes. ``nonce`` (hex) is this
    server's share of the mesh's name. ``keys`` are the noise keys that this server has, ``fresh`` those of this mesh.

    Leaks: earlier openings and charges of a server, to the other servers. Rounds: 2. Communication: the state as JSON,
    and 96 bytes, to each. Raises CheckFailed if identities differ or releases contradict each other, ProtocolViolation
    for malformed state or a state told differently to the two others.
    """
    mine, config, rounds = DurableLedger(store), study.config, plan.rounds
    said = {
        "identity": {name: getattr(identity, name) for name in RunIdentity.__dataclass_fields__},
        "nonce": nonce,
        "noise": KeysClaim.of(keys, fresh).to_dict(),
        **release_state(store, rounds),
    }
    largest = max_state_bytes(study.workload, rounds, config.domain)
    replies = await ctx.exchange(json.dumps(said).encode(), max_bytes=largest)
    # The echo makes all three go by the same words. Without it, a server that lies to one peer would send the two
    # honest servers different ways, and each would blame the other.
    await echo(ctx, dict(enumerate(replies)))
    documents = [parse_reply(reply, pid) for pid, reply in enumerate(replies)]
    names = [party.name for party in config.require_parties()]
    differences = await _differences(ctx, documents, config, names)
    for pid in (ctx.next_pid, ctx.prev_pid):
        peer, differs = f"party {pid} ({names[pid]})", differences.get(pid, "")
        identity.check(documents[pid].get("identity"), peer=peer, differences=differs)
    states = [
        parse_reported_state(
            document, pid, rounds=rounds, budget=plan.rho, accountant=plan.accountant
        )
        for pid, document in enumerate(documents)
    ]
    found = conclude_restart(states, ctx.pid, study.workload.one_way)
    claims = [KeysClaim.from_dict(d.get("noise"), pid) for pid, d in enumerate(documents)]
    agreed = agree_on_keys(
        ctx, claims, keys, fresh, bound=bool(mine.entries or store.releases.inputs())
    )
    if not agreed.problem and not store.state.ended:
        store.state.save_noise_keys(agreed.keys)
    _keep_common_releases(store, states[ctx.pid], found)
    adopted = mine.adopt([entry for entry in found.charged if mine.paid(entry.opening) is None])
    nonces = [str(document.get("nonce")) for document in documents]
    return ResumePoint(
        found,
        tuple(adopted),
        hashlib.sha256(json.dumps(nonces).encode()).hexdigest(),
        Openings(
            agreed.keys,
            agreed.keyset,
            identity.config,
            found.recorded,
            found.claims,
            agreed.problem,
        ),
    )


async def _differences(
    ctx: Context,
    documents: Sequence[Mapping[str, object]],
    config: Config,
    names: Sequence[str],
) -> dict[int, str]:
    """Differences between the configurations, by server; if digests differ, all three servers show theirs.

    Two servers with the same configuration see that the third has another one.
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


def _keep_common_releases(store: Store, mine: ReportedState, found: RestartConclusion) -> None:
    """Keeps the common releases, and no others."""
    with store.transaction():
        kept = {(c.round, c.candidate): release_content(c) for c in found.history}
        for key, held in mine.checkpoints.items():
            if kept.get(key) != release_content(held):
                store.releases.drop_checkpoint(*key)
        for checkpoint in found.history:
            store.releases.save_checkpoint(checkpoint)
        for number, candidate in mine.selections.items():
            if found.selections.get(number) != candidate:
                store.drop_meta(f"{_SELECTED}{number}")
        for number, candidate in found.selections.items():
            save_selection(store, number, candidate)


def restore_releases(store: Store, document: Mapping[str, object], rounds: int) -> None:
    """Restores the releases of ``release_state`` into a store, to begin a replay. Raises ProtocolViolation."""
    state = parse_reported_state(document, -1, rounds=rounds)
    for checkpoint in state.checkpoints.values():
        store.releases.save_checkpoint(checkpoint)
    for number, candidate in state.selections.items():
        save_selection(store, number, candidate)
    for inputs in state.inputs.values():
        store.releases.save_inputs(inputs)
    for number, digest in state.models.items():
        store.releases.note_estimate(number, digest)
    DurableLedger(store).adopt(state.entries)
