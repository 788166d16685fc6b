"""Messages between servers, clients and owners as fuzzing targets.

A message that carries a checksum gets a new one after damage: otherwise no code behind the check would be reached.
Signatures are not made anew, except the owners', who may sign anything.
"""

import asyncio
import contextlib
import hashlib
import json
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from mechanisms.domain import Domain
from mechanisms.flaim_client import FlaimClient
from mechanisms.flaim_messages import Brief, Layout, decode_choices, encode_choices
from mechanisms.model import Model
from mechanisms.workload import Workload
from parties.config import Config
from parties.config.diff import differences_text
from parties.crypto.hpke import SealKey
from parties.federation import messages as flaim
from parties.federation.key_directory import (
    OwnClientKey,
    pack_client_keys,
    pack_members,
    unpack_members,
)
from parties.federation.messages import Refusal, RefusalMessage
from parties.federation.release_statements import (
    ReleaseStatement,
    statement_for,
    statements_in,
)
from parties.foundation.version import version
from parties.identity.signing import Issuer, signatory_of
from parties.identity.tls import certificate_bytes
from parties.methods.flaim.client import FlaimClientSession
from parties.methods.flaim.settings import flaim_release, settings_of
from parties.mpc.finishing import read_traffic
from parties.mpc.inputs import input_forms
from parties.mpc.participants.listing import (
    ListedUpload,
    Listing,
    WithdrawalScope,
    parse_resume_reply,
)
from parties.mpc.restart import parse_reply, parse_reported_state
from parties.mpc.submission.http_api import refusal_text
from parties.mpc.submission.messages import FieldError
from parties.mpc.submission.sealed_upload import (
    ReceiptSigner,
    SignedUpload,
    UploadSizes,
    check_receipt,
    open_part,
    receipts_in,
)
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.mpc.submission.withdrawal_client import WithdrawalProgress, sign_withdrawal
from parties.network.client_hello import ClientHello
from parties.service.peer_state import PeerState, StudySnapshot
from parties.service.study_intake import check_proposal
from parties.service.study_record import StudyState
from parties.session.result_digests import ResultDigests
from parties.session.study import Study
from protocols.exchanger import PeerExchanger
from protocols.frames import HEADER
from protocols.keystream import KEY_BYTES
from protocols.pairing import frames_stream
from protocols.sealing import BoxKey
from secagg import wire
from secagg.client import SecAggClient
from secagg.parameters import Parameters
from secagg.server import SecAggServer
from secagg.simulation import policy_for
from tests.robustness.fuzzing.corpus import OWNERS, PARTIES, SERVER, Corpus, codes_of
from tests.robustness.fuzzing.mutate import Mutator
from tests.robustness.fuzzing.target import OURS, Target

_CLIENTS = 5
_MOST_SAID = 1 << 16
"""Bytes that a socket takes before its reader reads."""
_MESSAGES = 400
"""Number of damaged messages after which a session begins anew, since messages that pass advance it."""


def message_targets(corpus: Corpus) -> Iterator[tuple[str, Callable[[], Target]]]:
    """Yields each target's name and its maker, bound to the corpus."""
    for name, make in _MAKERS.items():
        yield name, partial(make, corpus)


# Secure aggregation.


def _parameters() -> Parameters:
    return Parameters(
        session=hashlib.sha256(b"session").digest(),
        graph_seed=hashlib.sha256(b"graph").digest(),
        clients=_CLIENTS,
        neighbours=_CLIENTS - 1,
        threshold=3,
        min_survivors=4,
        length=9,
        low=0,
        high=1000,
    )


def _new_client(number: int) -> SecAggClient:
    values = np.arange(9, dtype=np.int64)
    return SecAggClient(number, values, policy_for(_parameters()))


def _round() -> tuple[list[bytes], list[bytes]]:
    """Returns all messages of a round: upstream and downstream."""
    server, clients = SecAggServer(_parameters()), [_new_client(u) for u in range(_CLIENTS)]
    up, down, waiting = [], [], server.start()
    while waiting:
        u, message = waiting.pop(0)
        down.append(message)
        answer = clients[u].receive(message)
        if answer is not None:
            up.append(answer)
            waiting += server.receive(u, answer)
    return up, down


def _checked(draw: Mutator, data: bytes) -> bytes:
    """Damages the content, with right length and checksum; sometimes damages the message as it is."""
    if draw.draw.random() < 0.2:
        return draw.several(draw.damage, data)
    head = wire.OVERHEAD_BYTES - 16
    body = draw.several(draw.damage, data[head:-16]) if draw.draw.random() < 0.8 else data[head:-16]
    front = bytearray(data[: head - 4])
    if draw.draw.random() < 0.3:
        front[draw.draw.randrange(5, len(front))] ^= 1 << draw.draw.randrange(8)
    whole = bytes(front) + len(body).to_bytes(4, "big")
    return whole + body + hashlib.sha256(whole + body).digest()[:16]


class _Sessions:
    """A server or client at any of its stages, reached by real messages."""

    def __init__(self, *, servers: bool) -> None:
        self._servers = servers
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        self._clients = [_new_client(u) for u in range(_CLIENTS)]
        self._server = SecAggServer(_parameters())
        self._left = _MESSAGES
        self._number += 1
        waiting = self._server.start()
        # This many messages are real; the last one is left out, so that the stage is not over.
        for _ in range(self._number * 7 % 50):
            if len(waiting) < 2:
                break
            u, message = waiting.pop(0)
            answer = self._clients[u].receive(message)
            if answer is not None:
                waiting += self._server.receive(u, answer)

    def read(self, data: bytes) -> object:
        self._left -= 1
        ended = self._server.over if self._servers else self._clients[-1].awaits.value is None
        if self._left <= 0 or ended:
            self._begin()
        # Mostly over the message's own channel: sender and recipient are in its envelope.
        ends = (data[6:10], data[10:14])
        end = int.from_bytes(ends[not self._servers], "big")
        number = end if end < _CLIENTS else self._left % _CLIENTS
        if self._servers:
            return self._server.receive(number, data)
        return self._clients[number].receive(data)


def _secagg_server(_: Corpus) -> Target:
    return Target(
        "secagg-server", _round()[0], _Sessions(servers=True).read, _checked, share=170, fresh=False
    )


def _secagg_client(_: Corpus) -> Target:
    return Target(
        "secagg-client",
        _round()[1],
        _Sessions(servers=False).read,
        _checked,
        share=130,
        fresh=False,
    )


# FLAIM.


def _model(workload: Workload) -> Model:
    domain: Domain = workload.domain
    cliques = tuple((name,) for name in domain.names)
    marginals = tuple(np.full(domain.sizes(q), 1 / domain.size(q)) for q in cliques)
    return Model(domain, cliques, (-1,) * len(cliques), marginals)


def _flaim_messages(workload: Workload) -> list[bytes]:
    """Returns one packed message of each kind; CHOICES and PLAIN as they are within their boxes."""
    asked = partial(flaim.pack_sealed_request, BoxKey.generate().public)
    candidates = len(workload.candidates)
    allowed, model = np.ones(candidates, np.bool_), _model(workload)
    one_way = np.full(sum(workload.domain.shape), 0.2)
    layout = Layout(1, 0, 3, 4.0, True, (4,)).encode()
    kinds = flaim.MessageKind
    bodies = [
        (kinds.HELLO, flaim.ClientGreeting(bytes(32), bytes(32), 60, "1").pack()),
        (kinds.WELCOME, flaim.Welcome(1, 3, bytes(32)).pack()),
        (kinds.REFUSED, RefusalMessage(Refusal.MISMATCH, "another config").pack()),
        (kinds.BRIEF, asked(Brief(workload, 1, 0.1, 3.0, 1.0, 60, allowed, model, None).encode())),
        (
            kinds.BRIEF,
            asked(Brief(workload, 2, 0.1, 3.0, 1.0, 60, allowed, None, one_way).encode()),
        ),
        (kinds.CHOICES, encode_choices(1, (4,))),
        (kinds.LAYOUT, flaim.pack_task(0, layout)),
        (kinds.LAYOUT, flaim.pack_task(None, asked(layout))),
        (kinds.OUT, flaim.pack_reason("too slow")),
        (kinds.SKIPPED, flaim.pack_reason("few")),
        (kinds.GOODBYE, flaim.pack_reason("done")),
        (kinds.PLAIN, flaim.pack_plain(np.arange(9))),
    ]
    return [flaim.FederationMessage(kind, 1, body).pack() for kind, body in bodies]


def flaim_seeds(config: Config) -> list[bytes]:
    """Returns valid messages to FLAIM's server: a greeting of a client of this run, and one message of each kind."""
    workload = config.build_workload()
    digests = bytes.fromhex(config.digest()), bytes.fromhex(workload.digest())
    hello = flaim.ClientGreeting(*digests, None, version()).pack()
    greeting = flaim.FederationMessage(flaim.MessageKind.HELLO, 0, hello).pack()
    return [greeting, *_flaim_messages(workload), *_round()[0]]


def _flaim_message(corpus: Corpus) -> Target:
    workload, own = corpus.workload, corpus.certificates[OWNERS[0]]
    certificate = certificate_bytes(own)
    participant = signatory_of(certificate)
    statement = ReleaseStatement(flaim_release(corpus.flaim), "ledger").sign(own)

    def read(data: bytes) -> object:
        if flaim.is_secagg_message(data):
            return wire.open_envelope(data, 1 << 20)
        message = flaim.FederationMessage.unpack(data, "peer")
        kinds, body = flaim.MessageKind, message.body
        match message.kind:
            case kinds.HELLO:
                return flaim.ClientGreeting.unpack(body, "peer")
            case kinds.WELCOME:
                return flaim.Welcome.unpack(body, "peer")
            case kinds.REFUSED:
                return RefusalMessage.unpack(body, "peer")
            case kinds.BRIEF:
                brief = Brief.decode(flaim.unpack_sealed_request(body, "peer")[1], workload)
                return brief.totals if brief.model is not None else brief
            case kinds.LAYOUT:
                place, task = flaim.unpack_task(body, "peer")
                layout = task if place is not None else flaim.unpack_sealed_request(task, "peer")[1]
                return Layout.decode(layout, workload).cells(workload)
            case kinds.CHOICES:
                return decode_choices(body, workload, round=1, count=2)
            case kinds.PLAIN:
                return flaim.unpack_plain(body, 9, 1000, "peer")
            case kinds.RELEASES:
                kept = statement_for(corpus.flaim, certificate, body)
                return kept, statements_in(b"[" + body + b"]", participant, "peer")
        return flaim.unpack_reason(body)

    question = flaim.FederationMessage(flaim.MessageKind.RELEASES, 0, statement).pack()
    seeds = [*_flaim_messages(workload), question]
    return Target("flaim-message", seeds, read, _damaged, share=200)


def _damaged(draw: Mutator, data: bytes) -> bytes:
    return draw.several(draw.damage, data)


def _flaim_client(corpus: Corpus) -> Target:
    config, workload = corpus.flaim, corpus.flaim.build_workload()
    settings, left, sessions = settings_of(config), 0, list[FlaimClientSession]()

    def read(data: bytes) -> object:
        nonlocal left
        if left <= 0 or sessions[0].over:
            client = FlaimClient(codes_of(0), workload, settings, random_bytes=np.random.bytes)
            made = FlaimClientSession(
                config,
                workload,
                client,
                client.ledger,
                server=SERVER,
                random_bytes=np.random.bytes,
            )
            sessions[:], left = [made], _MESSAGES
        left -= 1
        return sessions[0].receive(data)

    seeds = [*_flaim_messages(workload), *_round()[1]]
    return Target("flaim-client", seeds, read, _damaged, share=60, fresh=False)


def _flaim_roster(corpus: Corpus) -> Target:
    """Signed keys of other clients, as a server sends them, and the clients of a sum."""
    changes = {"run.security": "malicious", "flaim.noise": "distributed"}
    config = corpus.flaim.override(changes)
    own = OwnClientKey.make(config, corpus.certificates[OWNERS[0]])
    cards = {
        number: OwnClientKey.make(config, corpus.certificates[OWNERS[number]]).card
        for number in (1, 2)
    }

    def read(data: bytes) -> object:
        if len(data) < 64:
            return unpack_members(data, SERVER)
        own.learn(data, SERVER)
        return own.roster

    seeds = [*pack_client_keys(cards), pack_members((0, 1, 2))]
    return Target("flaim-roster", seeds, read, _damaged, share=20)


# Owners' uploads.


def _headers(draw: Mutator, data: bytes) -> bytes:
    return draw.json(data)


def _texts(data: bytes) -> Mapping[str, str]:
    """Returns headers as HTTP could bring them: names and values are texts."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return {str(k): str(v) for k, v in document.items()} if isinstance(document, dict) else {}


def _upload_headers(corpus: Corpus) -> Target:
    signed, run = corpus.prepared.upload, corpus.config.run.id
    authority = Issuer.load(corpus.certificates[PARTIES[0]].ca)
    seed = json.dumps(signed.headers_between_servers()).encode()

    def read(data: bytes) -> object:
        upload = SignedUpload.between_servers(run, _texts(data))
        upload.check(authority)
        return upload

    return Target("upload-headers", [seed], read, _headers, (*OURS, FieldError), share=40)


def _withdrawal_headers(corpus: Corpus) -> Target:
    config, files = corpus.config, corpus.certificates[OWNERS[0]]
    signed = sign_withdrawal(config, files, 1)
    seed = json.dumps(signed.headers()).encode()

    def read(data: bytes) -> object:
        return SignedWithdrawal.of_owner(
            config.run.id, config.digest(), OWNERS[0], signed.certificate, _texts(data)
        )

    return Target("withdrawal", [seed], read, _headers, (*OURS, FieldError), share=20)


def _owners_certificate(corpus: Corpus) -> Target:
    files = corpus.certificates[OWNERS[0]]
    authority, certificate = Issuer.load(files.ca), certificate_bytes(files)
    return Target("owners-certificate", [certificate], authority.signatory, _damaged, share=20)


def _part(corpus: Corpus) -> Target:
    """A server's part of an upload, whose sizes were checked before: its box, or the common part, is damaged."""
    config, prepared = corpus.config, corpus.prepared
    upload, form = prepared.upload.upload, input_forms(Study(config, corpus.workload))["seeded"]
    sizes = UploadSizes.of(form, upload.submission.capacity)
    key = SealKey.load(corpus.certificates[PARTIES[1]].seal)

    def read(data: bytes) -> object:
        return open_part(1, key, upload, sizes.received(1, data))

    def damage(draw: Mutator, data: bytes) -> bytes:
        return draw.several(draw.damage, data)[: len(data)].ljust(len(data), b"\0")

    content = prepared.sealed.for_server(1).content
    return Target("part", [content], read, damage, share=3)


# Between servers.


def _json(draw: Mutator, data: bytes) -> bytes:
    return draw.json(data)


class _Owner:
    """Owner of an exchanger: passes the reason of a lost peer on to it."""

    exchanger: PeerExchanger

    def fail(self, error: Exception) -> None:
        """See `protocols.exchanger.Owner`."""
        self.exchanger.fail(error)


async def _heard(data: bytes) -> bytes:
    """Plays a peer that sends ``data`` and leaves, to a party that waits for two messages of that peer."""
    (says, incoming), (outgoing, hears) = socket.socketpair(), socket.socketpair()
    owner = _Owner()
    # Frames are below TLS's records: to an exchanger both are sockets.
    ends = cast("tuple[ssl.SSLSocket, ssl.SSLSocket]", (outgoing, incoming))
    streams = (frames_stream(bytes(KEY_BYTES), 0, 1), frames_stream(bytes(KEY_BYTES), 1, 0))
    made = PeerExchanger(
        owner, 1, *ends, streams=streams, digest_key=bytes(32), sent=lambda *_: None
    )
    owner.exchanger = made
    with says, hears:
        says.settimeout(1.0)
        with contextlib.suppress(OSError):
            says.sendall(data[:_MOST_SAID])
            says.shutdown(socket.SHUT_WR)
        try:
            first = await made.receive(1, 1.0, 64)
            second = await made.receive(2, 1.0, 1 << 23)
            return first.payload.tobytes() + second.payload.tobytes()
        finally:
            made.end()


def _mesh_frames(_: Corpus) -> Target:
    def frame(label: int, payload: bytes) -> bytes:
        return HEADER.pack(label, len(payload)) + payload

    seeds = [
        frame(1, bytes(64)) + frame(2, bytes(1000)),
        frame(2, b"") + frame(1, b"x") + frame(3, bytes(100)),
        frame(1, bytes(8)) + frame(2, bytes(8)) + frame(0, b"the run has ended"),
    ]

    def read(data: bytes) -> object:
        return asyncio.run(_heard(data))

    return Target("mesh-frames", seeds, read, _damaged, share=15)


def _listing(corpus: Corpus) -> Target:
    config, files = corpus.config, corpus.certificates[OWNERS[1]]
    whose = WithdrawalScope(config.run.id, config.digest(), Issuer.load(files.ca))
    upload = ListedUpload(OWNERS[0], corpus.prepared.upload.upload.digest(), 1)
    withdrawn = (sign_withdrawal(config, files, 1),)
    seed = Listing(True, frozenset([upload]), withdrawn).to_bytes()

    def read(data: bytes) -> object:
        return Listing.parse(data, 1, whose)

    return Target("listing", [seed], read, _json, share=50)


def _resumed(corpus: Corpus) -> Target:
    digest = corpus.config.digest()
    document = {"totals": [[0, digest], [1, digest]], "final": [[OWNERS[0], digest, 1]]}

    def read(data: bytes) -> object:
        return parse_resume_reply(data, 1)

    return Target("resumed", [json.dumps(document).encode()], read, _json, share=50)


_CHARGE = {
    "round": 0,
    "step": "measure",
    "event": json.dumps({"kind": "gaussian", "sensitivity": 1.0, "sigma": 4.0}),
    "rho": 0.03125,
    "opening": "ab" * 32,
}


def _state(corpus: Corpus) -> Target:
    """A server's state at agreement, compared and kept by `agreement.agree`."""
    noisy = np.arange(6, dtype="<f8").tobytes()
    from parties.mpc.records import Checkpoint

    checkpoint = Checkpoint(0, 0, 4.0, 3, np.frombuffer(noisy, "<f8").astype(np.float64))
    document = {
        "identity": {"config": corpus.config.digest()},
        "nonce": "ab" * 16,
        "checkpoints": [checkpoint.to_dict()],
        "ledger": [_CHARGE],
        "selections": {"1": 4},
        "inputs": [[1, "cd" * 32, "ef" * 32, 50, 5]],
        "models": {"1": "01" * 32},
    }

    def read(data: bytes) -> object:
        return parse_reported_state(parse_reply(data, 1), 1, rounds=2, budget=1.0)

    return Target("state", [json.dumps(document).encode()], read, _json, share=50)


def _traffic(_: Corpus) -> Target:
    document = {
        "sent": {"select.index": 4096, "measure.noise": 17},
        "passed_on": 12,
        "clients": 3,
        "from_clients": 5000,
        "to_clients": 100,
    }

    def read(data: bytes) -> object:
        return read_traffic([data, data, json.dumps(document).encode()])

    return Target("traffic", [json.dumps(document).encode()], read, _json, share=30)


def _published(_: Corpus) -> Target:
    seed = ResultDigests("ab" * 32, "cd" * 32, 60)

    def read(data: bytes) -> object:
        return ResultDigests.from_bytes(data)

    return Target("published", [seed.to_bytes()], read, _damaged, (*OURS, ValueError), share=10)


def _differences(corpus: Corpus) -> Target:
    config: Config = corpus.config

    def read(data: bytes) -> object:
        return differences_text(config, data, PARTIES[1])

    seed = json.dumps(config.agreed()).encode()
    return Target("other-configuration", [seed], read, _json, share=10)


def _statement(corpus: Corpus) -> Target:
    digest = corpus.config.digest()
    standing = StudySnapshot(StudyState.PROPOSED, None, True, False, "waits")
    said = PeerState(PARTIES[0], 2, 1, {digest: standing}, {"ab" * 32: "too large"}, {digest: 4})

    def read(data: bytes) -> object:
        document = json.loads(data)
        return PeerState.from_dict(document) if isinstance(document, dict) else None

    refuses = (*OURS, ValueError, RecursionError)  # JSON; callers of peers catch both
    return Target(
        "statement", [json.dumps(said.to_dict()).encode()], read, _json, refuses, share=40
    )


def _proposal(corpus: Corpus) -> Target:
    identity, (toml, texts) = corpus.identity, corpus.proposal
    seed = json.dumps({"config": toml, "certificates": texts}).encode()

    def read(data: bytes) -> object:
        document = json.loads(data)
        return check_proposal(document, identity) if isinstance(document, dict) else None

    def damage(draw: Mutator, data: bytes) -> bytes:
        if draw.draw.random() < 0.3:
            return draw.json(data)
        config = draw.several(draw.spoil, toml.encode())
        document = {"config": config.decode(errors="surrogateescape"), "certificates": texts}
        return json.dumps(document).encode()

    return Target("proposal", [seed], read, damage, (*OURS, ValueError, RecursionError), share=2)


def _hello(_: Corpus) -> Target:
    name = b"ab" * 16 + b".syncret.invalid"
    entry = b"\0" + struct.pack(">H", len(name)) + name
    extension = struct.pack(">HHH", 0, len(entry) + 2, len(entry)) + entry
    extensions = struct.pack(">HH", 43, 3) + b"\2\3\4" + extension
    body = b"\3\3" + b"\1" * 32 + b"\x20" + b"\2" * 32 + b"\0\4\x13\1\x13\2" + b"\1\0"
    body += struct.pack(">H", len(extensions)) + extensions
    message = b"\1" + len(body).to_bytes(3, "big") + body
    seed = b"\x16\3\1" + struct.pack(">H", len(message)) + message
    return Target("client-hello", [seed], ClientHello.look, _damaged, share=50)


# Messages to owners.


def _answer(corpus: Corpus) -> Target:
    """A server's answer to an owner: receipts, or a refusal."""
    upload, config = corpus.prepared.upload.upload, corpus.config
    maker = ReceiptSigner.load(PARTIES[0], corpus.certificates[PARTIES[0]])
    answers: list[dict[str, object]] = [
        {"receipts": [maker.make(upload).to_dict()]},
        {"error": {"what": "no", "where": "path", "expected": "another", "reason": "x"}},
    ]

    def read(data: bytes) -> object:
        document = json.loads(data)
        if not isinstance(document, dict):
            return None
        if "receipts" not in document:
            return refusal_text(422, document)
        for receipt in receipts_in(document):
            check_receipt(receipt, upload, config)
        return None

    refuses = (*OURS, ValueError, RecursionError)
    seeds = [json.dumps(answer).encode() for answer in answers]
    return Target("answer", seeds, read, _json, refuses, share=30)


def _proof(corpus: Corpus) -> Target:
    maker = ReceiptSigner.load(PARTIES[0], corpus.certificates[PARTIES[0]])
    receipt = maker.make(corpus.prepared.upload.upload)
    seed = WithdrawalProgress(OWNERS[0], 1, {PARTIES[0]: (1, receipt)}).proof.encode()

    def read(data: bytes) -> object:
        return WithdrawalProgress.from_proof(data.decode(errors="surrogateescape"), 1)

    refuses = (*OURS, ValueError, KeyError, TypeError)
    return Target("proof", [seed], read, _json, refuses, share=10)


def folder_of(corpus: Corpus, name: str) -> Path:
    """Makes an empty folder for a target's own files."""
    path = corpus.path(f"fuzzing/{name}")
    path.mkdir()
    return path


_MAKERS: dict[str, Callable[[Corpus], Target]] = {
    "secagg-server": _secagg_server,
    "secagg-client": _secagg_client,
    "flaim-message": _flaim_message,
    "flaim-client": _flaim_client,
    "flaim-roster": _flaim_roster,
    "upload-headers": _upload_headers,
    "withdrawal": _withdrawal_headers,
    "owners-certificate": _owners_certificate,
    "part": _part,
    "mesh-frames": _mesh_frames,
    "listing": _listing,
    "resumed": _resumed,
    "state": _state,
    "traffic": _traffic,
    "published": _published,
    "other-configuration": _differences,
    "statement": _statement,
    "proposal": _proposal,
    "client-hello": _hello,
    "answer": _answer,
    "proof": _proof,
}
