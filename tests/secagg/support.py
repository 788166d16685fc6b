"""Sessions, vectors and seeded bytes for the tests of secagg."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import keys
from secagg.boxes import open_pair_secret, pair_mask_key, pair_secret
from secagg.keys import HybridKey, Identity
from secagg.parameters import Parameters, roster_digest
from secagg.wire import Envelope, open_envelope, pack_envelope


def seeded(label: str) -> Callable[[int], bytes]:
    """A stream of bytes that repeats; for tests only."""
    counter = 0

    def random_bytes(count: int) -> bytes:
        nonlocal counter
        counter += 1
        return hashlib.shake_256(f"{label}/{counter}".encode()).digest(count)

    return random_bytes


def repeatable(label: str) -> Callable[..., tuple[bytes, bytes]]:
    """An encapsulation that gives the same again for the same ``label`` and the same order of calls."""
    fresh, count = keys.encapsulate, 0

    def encapsulate(public: bytes, peer: int | None = None) -> tuple[bytes, bytes]:
        nonlocal count
        count += 1
        call = (label, count, public)
        if call not in _ENCAPSULATED:
            _ENCAPSULATED[call] = fresh(public, peer)
        return _ENCAPSULATED[call]

    return encapsulate


_ENCAPSULATED: dict[tuple[str, int, bytes], tuple[bytes, bytes]] = {}


def lost_mask_key(
    parameters: Parameters, key: HybridKey, lost: int, other: int, public: bytes, box: bytes
) -> bytes:
    """s_uv of ``lost`` and ``other`` for who has the mask key of ``lost`` and what was sealed to it."""
    if parameters.graph.first(lost, other):
        secret = pair_secret(parameters, key, lost, other)
    else:
        secret = open_pair_secret(parameters, key, lost, other, public, box)
    return pair_mask_key(parameters, key, lost, other, public, secret)


def identities(count: int) -> list[Identity]:
    random_bytes = seeded("identities")
    return [Identity(random_bytes(32)) for _ in range(count)]


def session(clients: int = 6, signed: bool = False, **changes: Any) -> Parameters:
    neighbours = changes.pop("neighbours", clients - 1)
    threshold = neighbours // 2 + 1
    if signed and neighbours < clients - 1:
        threshold = (neighbours + 1) // 2 + 1
    values: dict[str, Any] = {
        "session": hashlib.sha256(b"session").digest(),
        "clients": clients,
        "neighbours": neighbours,
        "threshold": threshold,
        "min_survivors": threshold + 1,
        "length": 9,
        "low": 0,
        "high": 1000,
        "graph_seed": hashlib.sha256(b"graph").digest(),
    }
    if signed:
        values["roster_digest"] = roster_digest([i.public for i in identities(clients)])
    return Parameters(**{**values, **changes})


def vectors(parameters: Parameters, seed: int = 0) -> list[NDArray[np.int64]]:
    generator = np.random.default_rng(seed)
    return [
        generator.integers(parameters.low, parameters.high, parameters.length, endpoint=True)
        for _ in range(parameters.clients)
    ]


def exact_sum(values: list[NDArray[np.int64]], survivors: frozenset[int]) -> NDArray[np.int64]:
    return np.sum([values[u] for u in sorted(survivors)], axis=0)


def rewritten(message: bytes, **changes: Any) -> bytes:
    """The message with other fields and a right checksum: what a malicious peer can send."""
    old = open_envelope(message, 1 << 30)
    fields = {
        name: getattr(old, name) for name in ("kind", "sender", "recipient", "session", "body")
    }
    return pack_envelope(Envelope(**{**fields, **changes}))
