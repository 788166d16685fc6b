"""A server that tells the two others different things about what is public: nobody goes on with it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import parties.mpc.server
from parties.config import CertificateFiles
from parties.mpc.steps import (
    AGREE,
    CLIENTS_AGREE,
    CLIENTS_COMPARE,
    CLIENTS_RESUME,
    DIGEST_BYTES,
    ESTIMATE,
    FINISH,
)
from parties.session.result_digests import ENCODED_SIZE
from protocols import echo
from protocols.context import Context
from protocols.errors import ProtocolViolation
from tests.parties.mesh import EVERYONE, Cluster, make_uniform
from tests.parties.support import make_config

Lie = Callable[[bytes], bytes]


def space(payload: bytes) -> bytes:
    """The same document, said otherwise."""
    return payload + b" " if payload.endswith((b"}", b"]")) else payload


def another_config(payload: bytes) -> bytes:
    """One of the others hears that this server has another configuration."""
    if not payload.startswith(b'{"identity"'):
        return payload
    said = json.loads(payload)
    said["identity"]["config"] = "00" * 32
    return json.dumps(said).encode()


def unusable(payload: bytes) -> bytes:
    """An owner is dropped before one of the others only."""
    return b'{"%s": "unusable"}' % EVERYONE[0].encode() if payload == b"{}" else payload


def another_mask(payload: bytes) -> bytes:
    """Another model, which can be read: after the kind of message, the first candidate is allowed or not."""
    if len(payload) <= DIGEST_BYTES:
        return payload
    return payload[:1] + bytes([payload[1] ^ 0x80]) + payload[2:]


def last_byte(payload: bytes) -> bytes:
    """Another table."""
    return payload[:-1] + bytes([payload[-1] ^ 1]) if len(payload) > ENCODED_SIZE else payload


@pytest.mark.parametrize(
    ("step", "lie", "liar"),
    [
        (AGREE.name, space, 2),
        (AGREE.name, another_config, 1),
        (CLIENTS_RESUME.name, space, 1),
        (CLIENTS_AGREE.name, space, 2),
        (CLIENTS_COMPARE.name, unusable, 1),
        (ESTIMATE.name, another_mask, 0),
        (FINISH.name, last_byte, 0),
    ],
)
async def test_run_party_ends_when_a_server_tells_the_others_different_things(
    step: str,
    lie: Lie,
    liar: int,
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    post = Context._post_public

    def lying(self: Context, role: int, label: int, payload: bytes) -> None:
        lies = self.pid == liar and role == self.next_pid and self.cost.step == step
        post(self, role, label, lie(payload) if lies else payload)

    complain = echo._differ

    def complaining(ctx: Context, peer: int, author: int) -> None:
        # The liar does not leave first, with a complaint about who heard its lie.
        if ctx.pid != liar:
            complain(ctx, peer, author)

    monkeypatch.setattr(Context, "_post_public", lying)
    monkeypatch.setattr(echo, "_differ", complaining)
    cluster = Cluster(make_config({"run.check": "none"}), tmp_path, certificates)
    ended = await cluster.run(owners=EVERYONE)
    honest = [error for pid, error in enumerate(ended) if pid != liar]
    assert None not in ended
    named = [error for error in honest if isinstance(error, ProtocolViolation)]
    assert any(error.pid == liar and step in str(error) for error in named), ended
