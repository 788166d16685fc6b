"""The server's view does not depend on the vectors beyond their sum. Every property has a control that must fail.

Statistics are chi-squared over the cells named, normalised to mean 0 and deviation 1, on 6,000 coordinates of one
seeded round; 8 deviations are a false alarm in less than 10^6 runs with 15 degrees of freedom. A coordinate that is a
constant, or the plain vector, gives hundreds.
"""

import contextlib
import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import secagg.client
import secagg.keys
import secagg.server
from secagg import wire
from secagg.keys import HybridKey, Usage, derive
from secagg.masks import Vector, add_mask, unpack
from secagg.parameters import Parameters
from secagg.server import SecAggServer, Stage
from secagg.simulation import Report, run_round
from secagg.wire import Kind
from tests.secagg.support import (
    identities,
    lost_mask_key,
    repeatable,
    seeded,
    session,
    vectors,
)

LENGTH = 6000


class View:
    """All a server sees in a round: messages by client and kind, and the secrets it recovers."""

    def __init__(
        self,
        parameters: Parameters,
        values: list[NDArray[np.int64]],
        patch: pytest.MonkeyPatch,
        label: str = "view",
        drops: dict[int, Stage] | None = None,
    ) -> None:
        self.parameters = parameters
        self.messages: dict[tuple[int, Kind], bytes] = {}
        self.seeds: dict[int, bytes] = {}
        self.keys: dict[int, HybridKey] = {}
        self.boxes: dict[int, dict[int, bytes]] = {}
        self.revealed: dict[int, bytes] = {}
        recovered_seed, recovered_key = SecAggServer._recovered_seed, SecAggServer._recovered_key

        def keep_seed(server: SecAggServer, client: int) -> bytes:
            self.seeds[client] = recovered_seed(server, client)
            return self.seeds[client]

        def keep_key(server: SecAggServer, client: int) -> HybridKey:
            self.boxes[client] = server._secrets[client]
            self.keys[client] = recovered_key(server, client)
            return self.keys[client]

        patch.setattr(SecAggServer, "_recovered_seed", keep_seed)
        patch.setattr(SecAggServer, "_recovered_key", keep_key)
        opened = secagg.server.open_revealed

        def keep_revealed(parameters: Parameters, client: int, *rest: Any) -> bytes:
            self.revealed[client] = opened(parameters, client, *rest)
            return self.revealed[client]

        patch.setattr(secagg.server, "open_revealed", keep_revealed)

        def keep(client: int, message: bytes) -> list[bytes]:
            envelope = wire.open_envelope(message, 1 << 20)
            self.messages[client, envelope.kind] = envelope.body
            # A late vector: the server has it, and counts its owner as dropped.
            late = drops is not None and client in drops and envelope.kind is Kind.MASKED
            return [] if late else [message]

        self.report: Report = run_round(parameters, values, random_bytes=seeded(label), tamper=keep)

    def masked(self, client: int) -> Vector:
        """Ring elements (length,) that the client sent."""
        body = self.messages[client, Kind.MASKED]
        return unpack(body, self.parameters.length, self.parameters.bits)

    def without_self_mask(self, client: int) -> Vector:
        """Rest of a vector when the server takes off the mask whose seed it recovered."""
        found = self.masked(client)
        seed = self.seeds[client]
        add_mask(found, derive(seed, Usage.SELF_MASK, self.parameters.digest), negative=True)
        return found & found.dtype.type((1 << self.parameters.bits) - 1)

    def without_pair_masks(self, client: int) -> Vector:
        """Rest of a late vector when the server takes off all masks in common with others."""
        found = self.masked(client)
        for other in self.parameters.graph.neighbours(client):
            public = wire.decode_keys(self.messages[other, Kind.ADVERTISE], signed=False).mask
            box = self.boxes[client].get(other, b"")
            key = self.keys[client]
            common = lost_mask_key(self.parameters, key, client, other, public, box)
            add_mask(found, common, negative=other > client)
        return found & found.dtype.type((1 << self.parameters.bits) - 1)


def statistic(cells: int, *coordinates: Vector) -> float:
    """Uniformity of the tuples of ``coordinates`` over all ``cells`` ** len(coordinates)."""
    flat = np.ravel_multi_index(
        tuple(c.astype(np.int64) for c in coordinates), (cells,) * len(coordinates)
    )
    count = cells ** len(coordinates)
    expected = flat.size / count
    chi = float(((np.bincount(flat, minlength=count) - expected) ** 2 / expected).sum())
    return abs(chi - (count - 1)) / np.sqrt(2 * (count - 1))


def three(patch: pytest.MonkeyPatch, values: list[int], label: str = "three") -> View:
    """Three clients whose vectors repeat one bit each; a ring of two bits."""
    parameters = session(3, length=LENGTH, high=1, min_survivors=3)
    assert parameters.bits == 2
    return View(parameters, [np.full(LENGTH, value) for value in values], patch, label)


def without(patch: pytest.MonkeyPatch, usage: Usage) -> None:
    """Clients that leave out one kind of mask: what the controls break."""
    original = secagg.client.add_mask
    if usage is Usage.PAIR_MASK:
        patch.setattr(secagg.client, "pair_mask_key", lambda *_: b"")
    else:
        derived = secagg.client.derive
        patch.setattr(
            secagg.client, "derive", lambda s, u, *rest: b"" if u is usage else derived(s, u, *rest)
        )

    def selective(total: Vector, key: bytes, *, negative: bool = False) -> None:
        if key:
            original(total, key, negative=negative)

    patch.setattr(secagg.client, "add_mask", selective)


INPUTS = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("values", INPUTS)
@pytest.mark.parametrize("client", [0, 1, 2])
def test_masked_vector_is_uniform_whatever_the_input(
    monkeypatch: pytest.MonkeyPatch, values: list[int], client: int
) -> None:
    view = three(monkeypatch, values)
    assert statistic(4, view.masked(client)) < 8


@pytest.mark.parametrize("values", INPUTS)
def test_view_after_unmasking_is_uniform_among_vectors_of_that_sum(
    monkeypatch: pytest.MonkeyPatch, values: list[int]
) -> None:
    # The server recovers all three seeds. What remains is uniform over 16 pairs, and the third is what the sum says.
    view = three(monkeypatch, values)
    rest = [view.without_self_mask(u) for u in range(3)]
    for first, second in itertools.combinations(range(3), 2):
        assert statistic(4, rest[first], rest[second]) < 8
    assert set(((rest[0] + rest[1] + rest[2]) & 3).tolist()) == {1}


def test_view_after_unmasking_depends_on_inputs_without_pair_masks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, Usage.PAIR_MASK)
    view = three(monkeypatch, [0, 0, 1])
    # The sum is right and each vector looks uniform as sent: only the view after unmasking shows the fault.
    assert view.report.server.exact_result.tolist() == [1] * LENGTH
    assert statistic(4, view.masked(0)) < 8
    rest = [view.without_self_mask(u) for u in range(3)]
    assert [r[0] for r in rest] == [0, 0, 1]
    assert statistic(4, rest[0], rest[1]) > 100


def late(patch: pytest.MonkeyPatch, value: int) -> View:
    """Four clients; the vector of client 1 comes late, so that the server has it and all its pair masks."""
    parameters = session(4, length=LENGTH, high=1, threshold=2, min_survivors=3)
    values = [np.full(LENGTH, value) for _ in range(4)]
    return View(parameters, values, patch, drops={1: Stage.MASKED})


@pytest.mark.parametrize("value", [0, 1])
def test_late_vector_stays_uniform_once_its_owner_counts_as_dropped(
    monkeypatch: pytest.MonkeyPatch, value: int
) -> None:
    view = late(monkeypatch, value)
    assert view.report.server.survivors == {0, 2, 3}
    assert set(view.keys) == {1}
    assert 1 not in view.seeds
    cells = 1 << view.parameters.bits
    assert statistic(cells, view.without_pair_masks(1)) < 8


def test_late_vector_is_laid_bare_without_its_own_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, Usage.SELF_MASK)
    # The sum is garbage then, since the server takes off masks nobody put on: also something to notice.
    view: list[View] = []
    original = View.__init__

    def keep(self: View, *args: object, **kwargs: object) -> None:
        view.append(self)
        original(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(View, "__init__", keep)
    with contextlib.suppress(secagg.SecAggError):
        late(monkeypatch, 1)
    bare = view[0].without_pair_masks(1)
    assert statistic(1 << view[0].parameters.bits, bare) > 100
    assert set(bare.tolist()) == {1}


@pytest.mark.parametrize("signed", [False, True])
def test_every_message_changes_under_fresh_randomness(
    monkeypatch: pytest.MonkeyPatch, signed: bool
) -> None:
    parameters = session(5, signed)
    values = vectors(parameters)
    people = identities(5) if signed else None

    def bodies(label: str) -> dict[tuple[int, Kind], bytes]:
        found: dict[tuple[int, Kind], bytes] = {}

        def keep(client: int, message: bytes) -> list[bytes]:
            envelope = wire.open_envelope(message, 1 << 20)
            found[client, envelope.kind] = envelope.body
            return [message]

        with monkeypatch.context() as patch:
            patch.setattr(secagg.keys, "encapsulate", repeatable(label))
            patch.setattr(secagg.server.secrets, "token_bytes", seeded(f"server {label}"))
            run_round(
                parameters, values, random_bytes=seeded(label), tamper=keep, identities=people
            )
        return found

    first, second, stale = bodies("first"), bodies("second"), bodies("first")
    assert first.keys() == second.keys()
    constant = {key for key in first if first[key] == second[key]}
    # Signatures over the same survivors are deterministic and public.
    assert {kind for _, kind in constant} == ({Kind.SIGNATURE} if signed else set())
    # The control: randomness that repeats is seen.
    assert first == stale


def test_revealed_shares_are_below_the_threshold_for_the_other_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = late(monkeypatch, 1)
    for client in (0, 2, 3):
        revealed = wire.decode_revealed(
            view.revealed[client], view.parameters.graph.neighbours(client)
        )
        assert {v: share.key for v, share in revealed.items()} == {
            v: v == 1 for v in range(4) if v != client
        }
