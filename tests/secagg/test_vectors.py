"""Known answers: tests/vectors/secagg.json against secagg and against a verifier that shares no code with it.

``python -m tests.secagg.test_vectors`` writes the file anew, after a change of the wire format's version.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg import errors, keys, wire
from secagg.client import SecAggClient
from secagg.keys import HybridKey, Identity
from secagg.parameters import Parameters
from secagg.server import SecAggServer, Stage
from secagg.simulation import policy_for
from tests.secagg.support import seeded, session
from tests.secagg.verifier import BASE, Round, chacha20_block, hkdf, x25519

PATH = Path(__file__).parent.parent / "vectors" / "secagg.json"
GOOD_KEYS = {
    "name",
    "parameters",
    "identities",
    "server",
    "randoms",
    "encapsulations",
    "vectors",
    "dropouts",
    "messages",
    "sum",
}
BAD_KEYS = {"name", "of", "sender", "message", "error"}


def recorded(client: int, data: bytes) -> Any:
    position = 0

    def random_bytes(count: int) -> bytes:
        nonlocal position
        position += count
        found = data[position - count : position]
        assert len(found) == count, f"client {client} draws more than was recorded"
        return found

    return random_bytes


class Encapsulations:
    """ML-KEM's, by client in the order of its calls: those of the case, or fresh ones that it is given."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.client, self.fresh = 0, "encapsulations" not in case
        made = case.setdefault("encapsulations", [[] for _ in case["randoms"]])
        self.made, self.left = made, [list(own) for own in made]
        self.original = keys.encapsulate

    def __call__(self, public: bytes, peer: int | None = None) -> tuple[bytes, bytes]:
        if self.fresh:
            both = self.original(public, peer)
            self.made[self.client].append([part.hex() for part in both])
            return both
        secret, ciphertext = self.left[self.client].pop(0)
        return bytes.fromhex(secret), bytes.fromhex(ciphertext)


def play(case: dict[str, Any]) -> tuple[SecAggServer, dict[str, str]]:
    """The round of a good case: its server, and all clients' messages as ``client/kind``."""
    encapsulations = Encapsulations(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "encapsulate", encapsulations)
        return _played(case, encapsulations)


def _played(
    case: dict[str, Any], encapsulations: Encapsulations
) -> tuple[SecAggServer, dict[str, str]]:
    parameters = Parameters.from_bytes(bytes.fromhex(case["parameters"]))
    people = [Identity(bytes.fromhex(i)) for i in case["identities"]]
    roster = [person.public for person in people] or None
    clients = [
        SecAggClient(
            u,
            np.array(case["vectors"][u]),
            policy_for(parameters),
            identity=people[u] if people else None,
            roster=roster,
            random_bytes=recorded(u, bytes.fromhex(case["randoms"][u])),
        )
        for u in range(parameters.clients)
    ]
    drops = {int(u): Stage[name] for u, name in case["dropouts"].items()}
    server, messages = SecAggServer(parameters, roster=roster), dict[str, str]()
    server._key = HybridKey(bytes.fromhex(case["server"]))
    queue = server.start()
    while not server.over:
        stage, following = server.stage, []
        for u, message in queue:
            encapsulations.client = u
            answer = clients[u].receive(message)
            if answer is not None and drops.get(u, Stage.ABORTED) > stage:
                messages[f"{u}/{wire.open_envelope(answer, 1 << 20).kind.name}"] = answer.hex()
                following += server.receive(u, answer)
        queue = following or server.close_stage()
    return server, messages


def load() -> dict[str, Any]:
    found = json.loads(PATH.read_text(encoding="utf-8"))
    assert set(found) == {"good", "bad"}
    assert all(set(case) == GOOD_KEYS for case in found["good"])
    assert all(set(case) == BAD_KEYS for case in found["bad"])
    return dict(found)


VECTORS = load() if PATH.exists() else {"good": [], "bad": []}


@pytest.mark.parametrize("case", VECTORS["good"], ids=lambda case: str(case["name"]))
def test_secagg_gives_the_recorded_messages_and_sum(case: dict[str, Any]) -> None:
    server, messages = play(case)
    assert messages == case["messages"]
    assert server.result.tolist() == case["sum"]


@pytest.mark.parametrize("case", VECTORS["good"], ids=lambda case: str(case["name"]))
def test_verifier_rebuilds_the_recorded_messages_and_sum(case: dict[str, Any]) -> None:
    found = Round(
        bytes.fromhex(case["parameters"]),
        [bytes.fromhex(r) for r in case["randoms"]],
        [bytes.fromhex(i) for i in case["identities"]],
        bytes.fromhex(case["server"]),
        [
            [(bytes.fromhex(secret), bytes.fromhex(sealed)) for secret, sealed in made]
            for made in case["encapsulations"]
        ],
    )
    order = ["ADVERTISE", "SHARES", "MASKED", "SIGNATURE", "REVEAL"]

    def present(kind: str) -> set[int]:
        return {
            u
            for u in range(found.n)
            if str(u) not in case["dropouts"]
            or order.index(case["dropouts"][str(u)]) > order.index(kind)
        }

    present_keys, sharing, alive = present("ADVERTISE"), present("SHARES"), present("MASKED")
    rebuilt = {}
    for u in present_keys:
        rebuilt[f"{u}/ADVERTISE"] = found.advertise(u)
    for u in sharing:
        rebuilt[f"{u}/SHARES"] = found.shares(u, present_keys)
    for u in alive:
        rebuilt[f"{u}/MASKED"] = found.masked(u, case["vectors"][u], sharing)
    for u in present("SIGNATURE") if case["identities"] else ():
        rebuilt[f"{u}/SIGNATURE"] = found.signature(u, alive)
    for u in present("REVEAL"):
        rebuilt[f"{u}/REVEAL"] = found.reveal(u, sharing, alive)
    assert {key: message.hex() for key, message in rebuilt.items()} == case["messages"]
    columns = zip(*(case["vectors"][u] for u in sorted(alive)), strict=True)
    assert [sum(column) for column in columns] == case["sum"]


@pytest.mark.parametrize("case", VECTORS["bad"], ids=lambda case: str(case["name"]))
def test_server_refuses_the_bad_vectors(case: dict[str, Any]) -> None:
    good = next(g for g in VECTORS["good"] if g["name"] == case["of"])
    server = SecAggServer(Parameters.from_bytes(bytes.fromhex(good["parameters"])))
    with pytest.raises(getattr(errors, case["error"])) as caught:
        server.receive(case["sender"], bytes.fromhex(case["message"]))
    assert type(caught.value).__name__ == case["error"]
    assert server.waiting == frozenset(range(server.parameters.clients))


def test_verifier_knows_the_published_test_vectors() -> None:
    # RFC 7748, section 5.2: the first iteration of the Diffie-Hellman loop.
    assert x25519(BASE, BASE).hex() == (
        "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    )
    # RFC 5869, appendix A.1, its first 32 bytes.
    found = hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)))
    assert found.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    # RFC 8439, appendix A.1, test vector 1: the keystream under zeros.
    assert chacha20_block(bytes(32), 0).hex().startswith("76b8e0ada0f13d90405d6ae55386bd28")


def _case(
    name: str, parameters: Parameters, signed: bool, dropouts: dict[str, str]
) -> dict[str, Any]:
    n = parameters.clients
    draws = 4 + 2 * (parameters.threshold - 1)
    generator = np.random.default_rng(7)
    vectors = generator.integers(
        parameters.low, parameters.high, (n, parameters.length), endpoint=True
    )
    seeds = seeded("identities")
    return {
        "name": name,
        "parameters": parameters.to_bytes().hex(),
        "identities": [seeds(32).hex() for _ in range(n)] if signed else [],
        "server": seeded(f"{name} server")(32).hex(),
        "randoms": [seeded(f"{name} {u}")(32 * draws).hex() for u in range(n)],
        "vectors": vectors.tolist(),
        "dropouts": dropouts,
    }


def write() -> None:
    """Writes the vectors anew."""
    cases = [
        _case("complete", session(4, length=5), False, {}),
        _case(
            "sparse with dropouts",
            session(8, neighbours=4, threshold=2, min_survivors=4, low=-3, high=12, scale=5),
            False,
            {"0": "MASKED", "2": "REVEAL", "5": "SHARES", "7": "ADVERTISE"},
        ),
        _case(
            "signed, 41 bits",
            session(5, True, length=3, high=1 << 38, threshold=3, min_survivors=4),
            True,
            {"0": "MASKED"},
        ),
    ]
    for case in cases:
        server, case["messages"] = play(case)
        case["sum"] = [int(value) for value in server.result]
    good = bytes.fromhex(cases[0]["messages"]["2/ADVERTISE"])
    bad = [
        ("truncated", 2, good[:-1], "MalformedMessage"),
        ("one byte more", 2, good + b"\0", "MalformedMessage"),
        ("another version", 2, good[:4] + b"\x01" + good[5:], "MalformedMessage"),
        ("damaged body", 2, good[:50] + bytes([good[50] ^ 1]) + good[51:], "MalformedMessage"),
        ("another client's", 3, good, "ForeignMessage"),
        ("a later stage", 2, bytes.fromhex(cases[0]["messages"]["2/MASKED"]), "UnexpectedMessage"),
        (
            "another session",
            2,
            bytes.fromhex(cases[1]["messages"]["2/ADVERTISE"]),
            "ForeignMessage",
        ),
        ("empty", 2, b"", "MalformedMessage"),
    ]
    found = {
        "good": cases,
        "bad": [
            {"name": name, "of": "complete", "sender": u, "message": m.hex(), "error": error}
            for name, u, m, error in bad
        ],
    }
    PATH.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
