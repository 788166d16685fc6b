"""Names of openings, and the inputs of a round that the three servers record before they charge for it.

An opening's name is a digest of everything that decides the opened value except its noise: configuration, noise keys,
members' uploads, round, step, candidates, the model's answers, candidate, sigma and bins. The noise is a function of
the servers' noise keys and of a name, so that the same inputs give the same value after any number of restarts. A
charge carries the name of its opening, and pays for it once.

Noise of a measurement is drawn under the measurement's own name. Two kinds are made before their opening's name is
known: that of round 0, while the servers wait for participants, and selections' samples, for several rounds at once.
The record binds such noise to an opening: each server has the record on its disk before it takes part, and after a
restart a round of which two servers hold the record uses these inputs or does not run at all. A record that one server
alone claims is not followed; its noise is avoided, since the claimed opening may have been made.

Public: everything but the noise keys. Source: README of ``parties``, section on restarts.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mechanisms.scores import ScoreSpec
from parties.mpc.records import RoundInputs
from parties.mpc.steps import COMMIT
from parties.mpc.storage.releases import ReleaseStore
from protocols.context import Context, NoiseKeys, NoiseSource
from protocols.errors import CheckFailed, ProtocolViolation

_LABEL = "syncret opening 1"


def _name(*parts: object) -> str:
    """Computes a name: hex SHA-256 of parts in JSON, told apart by their positions. All names are made here."""
    return hashlib.sha256(json.dumps([_LABEL, *parts]).encode()).hexdigest()


def choice_name(inputs: RoundInputs) -> str:
    """Name of the opening of a choice, in a round with these ``inputs``."""
    return _name("select", inputs.digest, inputs.noise, inputs.made, inputs.skip)


def measurement_name(inputs: RoundInputs, candidate: int, sigma: float) -> str:
    """Name of the opening of a candidate's noisy counts, in a round with these ``inputs``."""
    return _name("measure", inputs.digest, inputs.noise, candidate, sigma.hex())


@dataclass(frozen=True, slots=True)
class Openings:
    """Source of names in a run: ``keys`` for the openings' noise, and the records from before a restart.

    ``keyset`` stands for the noise keys of all three, ``config`` is the configuration's digest. ``recorded`` are the
    inputs that two servers have recorded alike, by round; ``claimed`` are, by round, the other reports of single
    servers. ``problem`` is the reason why nothing may be opened with these keys.
    """

    keys: NoiseKeys
    keyset: str
    config: str
    recorded: Mapping[int, RoundInputs] = field(default_factory=dict)
    claimed: Mapping[int, Sequence[str]] = field(default_factory=dict)
    problem: str = ""

    def require_keys(self) -> None:
        """Raises CheckFailed if nothing may be opened with these keys."""
        if self.problem:
            raise CheckFailed(self.problem)

    def source(self, name: str) -> NoiseSource:
        """Noise source of this name. Raises as ``require_keys``."""
        self.require_keys()
        return NoiseSource(self.keys, bytes.fromhex(name))

    def first_noise(self, workload: str, sigma: float) -> str:
        """Name of round 0's noise, which is made for all its measurements while the servers wait for participants."""
        if 0 in self.recorded:
            return self.recorded[0].noise
        return self.noise(0, workload, sigma.hex())

    def noise(self, round: int, *parts: str) -> str:
        """Name of noise that is made in a round, different from any noise that a server claims to have recorded there.

        A claimed opening may have been made; because of this difference, its noise is not used for anything else.
        """
        claimed = sorted(self.claimed.get(round, ()))
        return _name("noise", self.keyset, self.config, round, claimed, *parts)

    def first(self, workload: str, members: str, sigma: float) -> RoundInputs:
        """Inputs of round 0, with the digests of the workload and of the counted members."""
        digest = self._of("first", 0, workload, members, sigma.hex())
        return RoundInputs(0, digest, self.first_noise(workload, sigma))

    def selection(
        self, round: int, workload: str, members: str, spec: ScoreSpec, epsilon: float
    ) -> str:
        """Digest of the inputs of a round that chooses with this specification."""
        answers = hashlib.sha256(spec.answers.astype("<u4").tobytes()).hexdigest()
        numbers = [list(map(int, label)) for label in (spec.candidates, spec.gains, spec.offsets)]
        return self._of(
            "inputs", round, workload, members, answers, numbers, spec.max_rows, epsilon.hex()
        )

    def is_avoided(self, round: int) -> bool:
        """True if ``round`` must not use noise made before, because a server claims an opening there."""
        return round not in self.recorded and bool(self.claimed.get(round))

    def _of(self, step: str, round: int, *parts: object) -> str:
        return _name(step, self.keyset, self.config, round, *parts)


async def commit_inputs(
    ctx: Context,
    releases: ReleaseStore,
    openings: Openings,
    *,
    inputs: RoundInputs,
    register: Callable[[], None],
) -> RoundInputs:
    """Records a round's ``inputs`` at all three servers before its first charge; durable on return.

    ``register`` enters the round's participants in this server's registry of releases.

    Returns the earlier record, with its noise, if two servers had recorded the round before a restart.

    All three compare their inputs before any of them records: by then each has its total and its model on disk, and a
    server that lost them could not come to the same inputs again. All three compare again after recording, before any
    of them charges. One server and the share of another open a value, so that a deviating server may let one of the two
    others go on alone: by then the third has registered the release as well, and signs for none of these participants.

    Leaks: nothing; the inputs are public. Rounds: 2. Communication: 64 bytes to each. Raises CheckFailed if the round
    had other inputs before, ProtocolViolation, naming the peer, if a server has other inputs than this one;
    ChannelError, StoreError.
    """
    openings.require_keys()
    known = openings.recorded.get(inputs.round)
    if known is not None and known.digest != inputs.digest:
        raise CheckFailed(
            f"round {inputs.round} goes by other inputs (members, model or parameters) than were recorded before the "
            "restart, with which something may have been opened; expected the same, from the servers' own folders"
        )
    inputs = known or inputs
    with ctx.step(COMMIT.name, round=inputs.round) as c:
        await _compare(c, inputs)
        releases.save_inputs(inputs)
        register()
        await _compare(c, inputs)
    return inputs


async def _compare(ctx: Context, inputs: RoundInputs) -> None:
    mine = hashlib.sha256(json.dumps(inputs.to_list()).encode()).digest()
    replies = await ctx.exchange(mine, max_bytes=len(mine))
    for peer in (ctx.next_pid, ctx.prev_pid):
        if replies[peer] != mine:
            raise ProtocolViolation(
                f"party {peer} goes by other inputs in round {inputs.round} than this server", peer
            )
