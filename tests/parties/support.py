"""Support for the tests of `parties`: a small run with free ports and its three listening servers."""

import asyncio
import atexit
import contextlib
import functools
import hashlib
import resource
import sqlite3
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from parties.config import CertificateFiles, Config, config_from_dict
from parties.identity.signing import Issuer
from parties.identity.tls import certificate_bytes, make_certificates, public_keys, signer
from parties.local.children import free_ports
from parties.mpc.inputs import InputForm, SubmissionBatch
from parties.mpc.intake.listener import start_ingest
from parties.mpc.participants.admission import Admission
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.participants.running_count import CountedForms
from parties.mpc.participants.waiting_text import WaitStatus
from parties.mpc.records import RunningTotal
from parties.mpc.replay.effects import Effects, ParticipantView
from parties.mpc.storage.store import Store
from parties.mpc.submission.messages import Submission
from parties.mpc.submission.sealed_upload import (
    SealedUpload,
    SignedUpload,
    Upload,
    seal_boxes,
    seal_common,
)
from parties.session.operator_commands import OperatorCommands
from parties.session.study import Study
from parties.storage.release_registry import ReleaseRegistry
from protocols.context import Context
from protocols.ring import R32
from protocols.shares import Share
from protocols.upload import UploadParts, UploadSeeds, upload

PARTIES = ("party-0", "party-1", "party-2")
OWNERS = ("clinic-a", "clinic-b", "clinic-c", "clinic-d")


def document() -> dict[str, object]:
    """A config's TOML document: 3 columns, all 2-way queries, 2*3 + 2*10 + 3*10 = 56 cells."""
    ports = free_ports(6)
    return {
        "run": {
            "id": "trial",
            "epsilon": 1.0,
            "delta": 1e-5,
            "rounds": 4,
            "input": "counts",
        },
        "workload": {"degree": 2, "count": "all"},
        "clients": {"expected": 3, "rows_per_client": 100},
        "timeouts": {"connect_s": 2.0, "receive_s": 5.0, "submit_s": 5.0},
        "column": [
            {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
            {"name": "ward", "kind": "categorical", "categories": ["x", "y", "z"]},
            {"name": "age", "kind": "integer", "low": 0, "high": 9},
        ],
        "party": [
            {
                "name": name,
                "mesh": f"127.0.0.1:{ports[2 * pid]}",
                "ingest": f"127.0.0.1:{ports[2 * pid + 1]}",
                **keys_of(certificates()[name]),
            }
            for pid, name in enumerate(PARTIES)
        ],
    }


@functools.cache
def certificates() -> dict[str, CertificateFiles]:
    """One authority, three servers, four data owners; made once a process, gone at its end."""
    folder = tempfile.TemporaryDirectory(prefix="syncret-certificates-")
    atexit.register(folder.cleanup)
    return make_certificates(Path(folder.name), PARTIES, OWNERS)


def keys_of(files: CertificateFiles) -> dict[str, str]:
    """A server's key and seal, as [[party]] has them."""
    return public_keys(files.cert, files.seal)


def make_config(overrides: Mapping[str, object] | None = None) -> Config:
    """The small run as a Config, with overrides by dotted key."""
    config = config_from_dict(document(), source="trial.toml", base=Path())
    return config.override(overrides) if overrides else config


def make_codes(rows: int, seed: int = 0) -> NDArray[np.int32]:
    """Random rows of the small run's domain."""
    shape = (2, 3, 10)
    return np.random.default_rng(seed).integers(0, shape, (rows, 3)).astype(np.int32)


def make_total(
    round: int,
    clients: tuple[str, ...],
    own: NDArray[np.uint32],
    next_: NDArray[np.uint32] | None = None,
) -> RunningTotal:
    """A server's running total; both components alike unless ``next_`` is given."""
    share = Share(R32, 0, own, own if next_ is None else next_)
    return RunningTotal(round, share, [(client, "ab" * 32) for client in clients])


def make_submission(client: str = "clinic-a", **changes: object) -> Submission:
    """A valid submission record, not bound to any body."""
    values: dict[str, object] = {
        "run": "trial",
        "client": client,
        "config": "ef" * 32,
        "workload": "ab" * 32,
        "cells": 56,
        "ring": 32,
        "form": "seeded",
        "capacity": 100,
        "first_round": 1,
        "nonce": "0f" * 16,
    }
    return Submission(**{**values, **changes})  # type: ignore[arg-type]


def make_upload(submission: Submission, sealed: str = "") -> SignedUpload:
    """An upload that says what it is and was signed by nobody; ``sealed`` makes its common part another one."""
    digests = [
        hashlib.sha256(f"{submission.nonce} {number}".encode()).hexdigest() for number in range(3)
    ]
    first, second, third = digests
    common = hashlib.sha256(sealed.encode()).hexdigest()
    return SignedUpload(
        Upload(submission, (first, second, third), common), b"signature", b"certificate"
    )


@dataclass(frozen=True)
class Ready:
    """An owner's upload as its owner made it, to be sent by whoever has it."""

    parts: UploadParts
    sealed: SealedUpload
    signed: SignedUpload


def sealed_upload(
    config: Config,
    client: str = "clinic-a",
    /,
    *,
    counts: NDArray[np.uint32] | None = None,
    signed_by: str | None = None,
    **changes: object,
) -> Ready:
    """An upload of the small run, sealed to the servers of `config` and signed; `changes` are of the submission."""
    workload = config.build_workload()
    values = np.arange(workload.maximal_cells, dtype=np.uint32) if counts is None else counts
    right = {"config": config.digest(), "workload": workload.digest(), "form": config.run.upload}
    submission = make_submission(client, **{**right, **changes})
    parts = upload(values, config.run.upload, UploadSeeds(bytes(16), bytes(range(16))))
    servers = [party.seal_to for party in config.require_parties()]
    key = bytes(range(32))
    common = seal_common(parts, submission, key)
    boxes = seal_boxes(parts, submission, servers, key=key, common=common)
    sealed = SealedUpload(boxes, common, parts.holders)
    return Ready(parts, sealed, sign(sealed.describe(submission), signed_by or client))


def sign(described: Upload, owner: str) -> SignedUpload:
    """With an owner's certificate."""
    files = certificates()[owner]
    return SignedUpload(described, signer(files)(described.message()), certificate_bytes(files))


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file may grow past `size` bytes: what a write meets on a full disk, for this process only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.asynccontextmanager
async def running_servers(
    config: Config,
    folder: Path,
    certificates: Mapping[str, CertificateFiles],
    pids: tuple[int, ...] = (0, 1, 2),
    orders: Mapping[int, OperatorCommands] | None = None,
    registries: Mapping[int, ReleaseRegistry] | None = None,
) -> AsyncIterator[dict[int, Store]]:
    """The ingest APIs of `pids`, listening; yields their stores. `orders` are what some servers' operators ask."""
    async with contextlib.AsyncExitStack() as stack:
        stores = {}
        for pid in pids:
            store = stack.enter_context(Store(folder / f"party-{pid}", config.digest()))
            asked = (orders or {}).get(pid)
            ingest = await start_ingest(
                store,
                Study.of(config),
                pid,
                certificates[PARTIES[pid]],
                commands=asked,
                registry=(registries or {}).get(pid),
            )
            stack.push_async_callback(ingest.close)
            stores[pid] = store
        yield stores


async def hangs_up_after_a_late_handshake(
    port: int, context: ssl.SSLContext, name: str, end: Callable[[], Awaitable[object]]
) -> None:
    """Connect to the server, `end` it, and only then shake hands: no connection may stay open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.sleep(0.1)  # Sleeps: head start.
    await end()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.start_tls(context, server_hostname=name)
        assert await asyncio.wait_for(reader.read(), 2) == b""
    writer.transport.abort()


def bodies_in(store: Path, folder: str) -> list[str]:
    """Content of a store's ``submissions`` or ``outbox``: names of files, and of small bodies in its database."""
    with contextlib.closing(sqlite3.connect(store / "store.sqlite")) as db:
        rows = db.execute("SELECT path FROM body WHERE path LIKE ?", (f"{folder}/%",)).fetchall()
    files = [path.name for path in (store / folder).glob("*")]
    return sorted([*files, *(row[0].removeprefix(f"{folder}/") for row in rows)])


@dataclass(frozen=True)
class Unobserved:
    """``AdmissionObserver`` that is told of waiting alone."""

    waiting: Callable[[WaitStatus], object] = lambda state: None

    def counting(self, batch: SubmissionBatch) -> None:
        pass

    def closed(self) -> None:
        pass


def make_arrivals(
    ctx: Context,
    config: Config,
    holdings: ParticipantView,
    forms: Mapping[str, InputForm],
    cells: int,
    *,
    on_client: Callable[..., object] = lambda **_: None,
    on_waiting: Callable[[WaitStatus], object] = lambda state: None,
) -> Admission:
    """

    server's count of whom ``holdings`` has, with nobody's orders; its transcript tells ``on_client`` alone.
    """
    transcript = SimpleNamespace(client=on_client, note=lambda what, **_: None, flush=lambda: None)
    return Admission(
        ctx,
        config,
        holdings,
        forms=CountedForms(forms, cells),
        transcript=transcript,  # type: ignore[arg-type]
        effects=Effects(),
        control=AdmissionControl(asyncio.Event()),
        authority=cast(Issuer, None),
        observer=Unobserved(on_waiting),
    )
