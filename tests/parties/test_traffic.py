"""Messages between the servers look the same for any rows of the data owners: runs of real servers over TLS.

In the test's build a runtime keeps the payloads that it sends. Kept are those that are made from secrets; what the
protocol makes public (lists of names, models, openings) is left out. Two tables are as different as they can be:
every row in one cell, and rows at random. Statistics, each in standard deviations or a normal approximation of it, with
a limit of 6.5 (some 20,000 comparisons: a false alarm is rarer than once in 10^5 runs of the test):

- bytes by step and link, all messages together: chi-square over the 256 values (n > 2,000 bytes catches a byte value
  that is twice as frequent as it should be);
- the two tables' bytes: chi-square of homogeneity by step and link;
- messages of one size to one server: their bits agree in half the places, as those of independent masks do; a mask that
  is used twice shows here;
- what servers 1 and 2 hold of an upload against the counts in it: bits agree in half the places.

Order, number and sizes of messages are the same for both tables. The controls take a mask away: the zero share of every
product, and the mask of the clients' uploads; results stay right, and each is found.
"""

import asyncio
import contextvars
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import parties.mpc.mesh
import parties.mpc.server
import protocols.base
import protocols.measure
import protocols.select
import protocols.upload
from mechanisms.workload import count_marginals
from parties.config import CertificateFiles
from parties.mpc.storage.submissions import SubmissionStore
from parties.mpc.submission.submit import submit
from protocols.context import Context, Payload, StepCost
from protocols.keystream import Keystream
from protocols.ring import Ring, RingArray
from protocols.runtime import PartyRuntime
from protocols.steps import MEASURE_NOISE, MEASURE_OPEN, SELECT_CHOOSE, SELECT_SCORES
from protocols.upload import SEEDED, parse_upload
from tests.parties.mesh import EVERYONE, Cluster, make_uniform
from tests.parties.support import make_config

LIMIT = 6.5
SECRET_STEPS = frozenset(
    step.name for step in (SELECT_SCORES, SELECT_CHOOSE, MEASURE_NOISE, MEASURE_OPEN)
)
ROWS = 60
CELLS = 56

Certificates = dict[str, CertificateFiles]
Codes = Callable[[int], NDArray[np.int32]]
_opening = contextvars.ContextVar("opening", default=False)


@dataclass(frozen=True, repr=False)
class Kept:
    """A message made from secrets."""

    sender: int
    receiver: int
    step: str
    round: int
    payload: NDArray[np.uint8]


@dataclass(frozen=True, repr=False)
class Seen:
    """A run: the messages made from secrets that servers sent, and x2 of every upload, as its holders have it."""

    messages: list[Kept]
    components: list[bytes]


async def kept_from(
    folder: Path, certificates: Certificates, codes: Codes, patch: pytest.MonkeyPatch
) -> Seen:
    """A run on these tables, of all three servers."""
    kept: list[Kept] = []

    class KeepingRuntime(PartyRuntime):
        def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
            if cost.step in SECRET_STEPS and not _opening.get():
                message = Kept(self.pid, peer, cost.step, cost.round or 0, payload.copy())
                kept.append(message)
            super().post(peer, label, payload, cost)

    def marked(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def opening(*arguments: Any, **named: Any) -> Any:
            token = _opening.set(True)
            try:
                return await real(*arguments, **named)
            finally:
                _opening.reset(token)

        return opening

    patch.setattr(parties.mpc.mesh, "PartyRuntime", KeepingRuntime)
    patch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    for module in (protocols.select, protocols.measure):
        patch.setattr(module, "open_value", marked(protocols.base.open_value))
    config = make_config({"run.rounds": 1, "run.noise": "discrete-gaussian"})
    cluster = Cluster(config, folder, certificates)
    components = components_kept(patch)

    async def owners() -> None:
        for number, owner in enumerate(EVERYONE):
            state = folder / f"{owner}.state"
            await submit(config, codes(number), certificates[owner], state=state)

    running = asyncio.create_task(cluster.run())
    for _ in range(100):
        await asyncio.sleep(0.05)
        if all((cluster.directory(pid) / "transcript.jsonl").exists() for pid in range(3)):
            break
    await owners()
    assert await running == [None] * 3
    return Seen(kept, components)


def components_kept(patch: pytest.MonkeyPatch) -> list[bytes]:
    """Records the components x2 that servers 1 and 2 read from their stores: they are deleted at the end of a run."""
    found: list[bytes] = []
    real = SubmissionStore.read

    def keeping(store: SubmissionStore, client: str, version: int) -> bytes:
        body, server = real(store, client, version), store.directory.parent.name
        for pid in (1, 2):
            if server == f"server-{pid}":
                parts = parse_upload(pid, SEEDED, body, CELLS)
                found.append((parts.next if pid == 1 else parts.own).data)
        return body

    patch.setattr(SubmissionStore, "read", keeping)
    return found


def one_cell(owner: int) -> NDArray[np.int32]:
    return np.zeros((ROWS, 3), np.int32)


def anything(owner: int) -> NDArray[np.int32]:
    generator = np.random.default_rng(owner)
    return generator.integers(0, (2, 3, 10), (ROWS, 3)).astype(np.int32)


def links(kept: list[Kept]) -> dict[tuple[str, int, int], NDArray[np.uint8]]:
    """All bytes by step, sender and receiver."""
    found: dict[tuple[str, int, int], list[NDArray[np.uint8]]] = defaultdict(list)
    for message in kept:
        found[message.step, message.sender, message.receiver].append(message.payload)
    return {link: np.concatenate(payloads) for link, payloads in sorted(found.items())}


def chi_square(observed: NDArray[np.int64], expected: NDArray[np.float64], freedom: int) -> float:
    """Standard deviations of the statistic above its mean (Wilson and Hilferty)."""
    there = expected > 0
    statistic = float(((observed - expected)[there] ** 2 / expected[there]).sum()) / freedom
    spread = 2 / (9 * freedom)
    return float((np.cbrt(statistic) - (1 - spread)) / np.sqrt(spread))


def agreement(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Distance of the number of equal bits from a half, in standard deviations."""
    equal = int(np.unpackbits(~(one ^ other)).sum())
    bits = 8 * one.size
    return abs(equal - bits / 2) / np.sqrt(bits / 4)


def find_bias(kept: list[Kept]) -> str | None:
    """Describes bytes of one run that are not uniform, or None."""
    for link, data in links(kept).items():
        counts = np.bincount(data, minlength=256)
        score = chi_square(counts, np.full(256, data.size / 256), 255)
        if data.size > 2000 and score > LIMIT:
            return f"the bytes of {link} are not uniform: {score:.1f}"
        # Few bytes: the number of ones alone.
        if agreement(data, np.zeros_like(data)) > LIMIT:
            return f"the bits of {link} are not fair"
    by_size: dict[tuple[int, int], list[Kept]] = defaultdict(list)
    for message in kept:
        if message.payload.size >= 16:
            by_size[message.receiver, message.payload.size].append(message)
    for messages in by_size.values():
        for one, other in itertools.combinations(messages[:60], 2):
            if agreement(one.payload, other.payload) > LIMIT:
                return f"two messages to server {one.receiver} in {one.step} and {other.step} are alike"
    return None


def find_difference(one: list[Kept], other: list[Kept]) -> str | None:
    """Describes two runs' bytes with different distributions, or None."""
    second = links(other)
    for link, data in links(one).items():
        rows = np.array([np.bincount(d, minlength=256) for d in (data, second[link])])
        expected = rows.sum(axis=1, keepdims=True) * rows.sum(axis=0) / rows.sum()
        if min(data.size, second[link].size) > 2000 and chi_square(rows, expected, 255) > LIMIT:
            return f"the bytes of {link} depend on the table"
    return None


def find_counts(seen: Seen, codes: Codes) -> str | None:
    """Describes a component of a server that reveals something of a client's counts, or None."""
    workload = make_config().build_workload()
    counts = [
        count_marginals(codes(owner), workload).astype("<u4").view(np.uint8)
        for owner in range(len(EVERYONE))
    ]
    for component in seen.components:
        for real in counts:
            if agreement(np.frombuffer(component, np.uint8), real) > LIMIT:
                return "a component looks like the counts"
    return None


def shapes(kept: list[Kept]) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Steps and sizes by link; what is measured in round 1 depends on the choice, which is public."""
    found: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    for message in kept:
        if not (message.round == 1 and message.step.startswith("measure")):
            link = message.sender, message.receiver
            found[link].append((message.step, message.payload.size))
    return {link: sorted(messages) for link, messages in found.items()}


async def test_payloads_are_uniform_and_independent_of_the_rows(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for number, codes in enumerate((one_cell, anything)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with monkeypatch.context() as patch:
            seen = await kept_from(folder, certificates, codes, patch)
        kept = seen.messages
        assert find_bias(kept) is None
        assert len(seen.components) == 2 * len(EVERYONE)
        assert find_counts(seen, codes) is None
        assert {message.step for message in kept} == SECRET_STEPS - {MEASURE_OPEN.name}
        runs.append(kept)
    assert find_difference(*runs) is None
    assert shapes(runs[0]) == shapes(runs[1])


async def test_payloads_without_the_zero_share_are_found(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products are sent as they are: their terms add up to the same, so that nothing else shows it."""

    def no_zero_share(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> RingArray:
        return ring.zeros(shape)

    monkeypatch.setattr(protocols.base, "zero", no_zero_share)
    seen = await kept_from(tmp_path, certificates, one_cell, monkeypatch)
    assert find_bias(seen.messages) is not None


async def test_payloads_without_the_upload_mask_are_found(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients' seeds expand to nothing: servers 1 and 2 hold the counts."""

    class Nothing(Keystream):
        def read(self, size: int) -> NDArray[np.uint8]:
            return np.zeros(size, np.uint8)

    monkeypatch.setattr(protocols.upload, "Keystream", Nothing)
    seen = await kept_from(tmp_path, certificates, anything, monkeypatch)
    assert find_counts(seen, anything) is not None
