"""An owner's program on a real disk and simulated links: it dies at any durable step or message, and is started again.

``Program`` runs commands of an owner with ``owner``'s own code (`parties.mpc.submission`, `parties.federation.client`):
what is simulated are the servers. Each transaction of the budget, each rename and deletion of a file and each message
are events, of which one may be the last: nothing that the program does from then on reaches a disk or a server. At each
event ``check`` compares the budget on the disk with what left and what was opened.
"""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import aiohttp

from parties.config import CertificateFiles, Config, PartySection
from parties.federation import channel
from parties.federation.channel import ClientConnection
from parties.federation.client_session import SumSession
from parties.federation.messages import (
    FederationMessage,
    MessageKind,
    Refusal,
    RefusalMessage,
    Welcome,
    is_secagg_message,
)
from parties.federation.unopened import UnopenedSigner
from parties.foundation.errors import FrameConnectError, FramePeerClosed
from parties.mpc.submission import (
    acceptance,
    delivery,
    earlier_releases,
    status,
    withdrawal_client,
)
from parties.mpc.submission.http_api import COUNTED_STATUS, run_path, withdrawal_path
from parties.mpc.submission.sealed_upload import (
    ReceiptSigner,
    Tombstone,
    Upload,
    tombstone_answer,
    void_answer,
)
from parties.mpc.submission.status import ServerAnswer
from parties.storage import shared_database
from secagg import wire
from tests.parties.support import certificates

SPENT = (
    "SELECT count(*) FROM release WHERE config = ? AND submission LIKE ? "
    "AND entry NOT IN (SELECT entry FROM returned)"
)


class Killed(BaseException):
    """The program has died."""


@dataclass
class Machine:
    """The disk of an owner below ``folder``, and the event at which its program dies, None for never."""

    folder: Path
    budget: Path
    config: str
    dies_at: int | None = None
    events: int = 0
    dead: bool = False
    left: set[str] = field(default_factory=set)
    """Submissions of which a byte that depends on the table has left."""
    opened: set[str] = field(default_factory=set)
    replacing: bool = False
    """True if a charge may move from one submission to another."""
    gone: set[str] = field(default_factory=set)
    """Submissions of which nothing was opened or will be, at all servers."""

    def event(self) -> None:
        """Before and after each durable step and message."""
        if not self.dead:
            self.check()
            self.dead = self.events == self.dies_at
            self.events += 1
        if self.dead:
            raise Killed

    def spent(self, submission: str = "%") -> int:
        """Number of charges on the disk that are spent for a submission, by default for any."""
        if not self.budget.exists():
            return 0
        with contextlib.closing(sqlite3.connect(f"{self.budget.as_uri()}?mode=ro", uri=True)) as db:
            return int(db.execute(SPENT, (self.config, submission)).fetchone()[0])

    def check(self) -> None:
        """The charge is never lower than what was opened, or may be: servers count one version of a table at most."""
        held = self.opened | (self.left - self.gone)
        if self.replacing:
            assert not held or self.spent() >= 1, "something left that is not charged"
        else:
            assert all(self.spent(one) == 1 for one in held), "something left that is not charged"
        assert len(self.opened) <= 1
        assert not self.opened & self.gone, "the model's own servers signed what is not true"

    def put_back(self, copy: bytes | None) -> None:
        """An older copy of the budget is put back, None for none; what is spent is known by the servers alone then."""
        self.budget.unlink(missing_ok=True)
        if copy is not None:
            self.budget.write_bytes(copy)
        self.left.clear()
        self.opened.clear()

    def restart(self, dies_at: int | None = None) -> None:
        """The machine starts again."""
        self.dead, self.events, self.dies_at = False, 0, dies_at

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Within it durable steps are events."""
        real_transaction = shared_database.immediate_transaction

        @contextlib.contextmanager
        def transaction(db: sqlite3.Connection) -> Iterator[None]:
            with real_transaction(db):
                yield
                self.event()
            self.event()

        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.object(shared_database, "immediate_transaction", transaction))
            for name in ("replace", "rename", "unlink"):
                stack.enter_context(patch.object(os, name, self._step(getattr(os, name))))
            yield

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(path: Any, *rest: Any, **named: Any) -> Any:
            if not Path(os.fspath(path)).is_relative_to(self.folder):
                return real(path, *rest, **named)
            self.event()
            done = real(path, *rest, **named)
            self.event()
            return done

        return step


# DistAIM


@dataclass
class Servers:
    """Three servers of DistAIM as an owner finds them."""

    machine: Machine
    config: Config
    client: str
    reach: str = ""
    """Problem of each connection; empty: they answer."""
    over: str = ""
    """Words of the answer 410 of those that sign nothing; empty: the study runs."""
    takes: bool = True
    other: bool = False
    opens: bool = False
    """True if they open what they get at once, so that nothing can be taken back."""
    alone: tuple[int, ...] = ()
    """Servers that say of a running study that it is over."""
    void: tuple[int, ...] = ()
    """Servers that sign that nothing was opened, once the study is over."""
    settles: tuple[int, ...] = (0, 1, 2)
    """Servers that settle a withdrawal."""
    stored: dict[int, Upload] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)

    def _newest(self) -> Upload | None:
        version = max(self.stored, default=0)
        return self.stored[version] if version > max(self.settled.values(), default=0) else None

    def revoke(self) -> None:
        """The operators revoke the owner."""
        self.takes = False
        for pid in range(3):
            self._settle(pid, 999)

    def end(self, *void: int) -> None:
        """The study is over, and nothing of it was opened; servers ``void`` sign that."""
        self.over, self.void = "it was cancelled", void
        if len(void) >= 2:
            self.machine.gone |= {upload.submission.digest() for upload in self.stored.values()}

    def _settle(self, pid: int, version: int) -> None:
        self.settled[pid] = max(version, self.settled.get(pid, 0))
        if len(self.settled) >= 2:
            least = sorted(self.settled.values())[-2]
            self.machine.gone |= {
                upload.submission.digest() for v, upload in self.stored.items() if v <= least
            }

    async def ask(
        self,
        config: Config,
        party: PartySection,
        files: object,
        *,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        most: int = 0,
    ) -> ServerAnswer:
        """In place of ``ask_server``."""
        self.machine.event()
        answer = self._answer(party, path, method, headers or {})
        self.machine.event()
        return answer

    def _answer(
        self, party: PartySection, path: str, method: str, headers: Mapping[str, str]
    ) -> ServerAnswer:
        pid = [one.name for one in self.config.require_parties()].index(party.name)
        if self.reach:
            return ServerAnswer(party, None, self.reach, 0)
        if pid in self.alone:
            return ServerAnswer(party, None, "answered 410: it is over", HTTPStatus.GONE)
        if path == withdrawal_path(self.config.run.id):
            found = self._about_withdrawal(pid, party.name, method, headers)
            if found is not None:
                return ServerAnswer(party, found, "", HTTPStatus.OK)
        if self.over:
            return ServerAnswer(party, None, f"answered 410: {self.over}", HTTPStatus.GONE)
        assert path == run_path(self.config.run.id)
        newest = self._newest()
        upload = None if newest is None else newest.digest()
        says = {
            "config": "0" * 64 if self.other else self.config.digest(),
            "open": self.takes,
            "turned_away": None if self.takes else "it was revoked",
            "upload": upload,
            "counted": self.opens and upload is not None,
            "round": 0 if self.opens and upload is not None else None,
            "excluded": None,
            "counted_from": 0,
            "settled": self.settled.get(pid, 0),
        }
        return ServerAnswer(party, says, "", HTTPStatus.OK)

    def _about_withdrawal(
        self, pid: int, name: str, method: str, headers: Mapping[str, str]
    ) -> dict[str, object] | None:
        signer = ReceiptSigner.load(name, certificates()[name])
        if self.over and not self.settles:
            return void_answer(self.config, self.client, signer) if pid in self.void else None
        if method == "PUT" and not self.opens and pid in self.settles:
            self._settle(pid, int(headers["Syncret-Version"]))
        version = self.settled.get(pid, 0)
        if self.over and not version:
            return None
        made = Tombstone(self.config.run.id, self.config.digest(), self.client, version)
        answer = tombstone_answer(made, signer)
        return {
            **answer,
            "stored": max(self.stored, default=0),
            "counted": 0 if self.opens and self.stored else None,
            "receipts": answer["receipts"] if version else [],
        }

    async def exchange(
        self,
        upload: Upload,
        method: str,
        headers: Mapping[str, str],
        content: bytes | None,
    ) -> tuple[int, dict[str, object]]:
        """In place of a connection of ``deliver``."""
        self.machine.event()
        if self.reach:
            raise aiohttp.ClientConnectionError(self.reach)
        if self.over:
            return 410, {"error": {"what": self.over, "reason": "closed"}}
        if not self.takes:
            return 403, {"error": {"what": "it was revoked", "reason": "revoked"}}
        submission = upload.submission
        if content is not None:
            self.machine.left.add(submission.digest())
            self.machine.check()
            if submission.version <= max(self.settled.values(), default=0):
                return 409, {"error": {"what": "it was withdrawn"}}
            if self.opens and self.stored.keys() - {submission.version}:
                return COUNTED_STATUS, {"error": {"what": "its rows are counted"}}
            self.stored[submission.version] = upload
            if self.opens:
                self.machine.opened.add(submission.digest())
            for pid in self.settles if submission.version > 1 else ():
                self._settle(pid, submission.version - 1)
        elif submission.version not in self.stored:
            return 404, {"error": {"what": "nothing is here"}}
        names = [party.name for party in self.config.require_parties()]
        signers = [ReceiptSigner.load(name, certificates()[name]) for name in names]
        self.machine.event()
        return 201, {
            "run": submission.run,
            "client": submission.client,
            "upload": upload.digest(),
            "first_round": submission.first_round,
            "counted_from": 0,
            "receipts": [signer.make(upload).to_dict() for signer in signers],
            "kept_for": [],
            "refused": {},
        }

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Within it they are what the owner's program reaches."""

        async def exchange(link: Any, *rest: Any) -> tuple[int, dict[str, object]]:
            status, answer = await self.exchange(*rest)
            return status, {**answer, "party": link.party.name}

        async def no_differences(*_: object) -> str:
            return "run.epsilon"

        async def unreached(_: Config, party: PartySection, *rest: object, **named: object) -> Any:
            # Of earlier releases it hears nothing; `test_earlier_releases` has servers that tell.
            return ServerAnswer(party, problem="no connection")

        with contextlib.ExitStack() as stack:
            for module in (acceptance, status, withdrawal_client):
                stack.enter_context(patch.object(module, "ask_server", self.ask))
            stack.enter_context(patch.object(earlier_releases, "ask_server", unreached))
            for module in (acceptance, delivery):
                stack.enter_context(patch.object(module, "ask_differences", no_differences))
            stack.enter_context(patch.object(delivery._ServerConnection, "_exchange", exchange))
            stack.enter_context(patch.object(acceptance, "_ACCEPTANCE_PAUSE_S", 60.0))
            yield


# One server, and participants that mask


SECAGG = {kind: wire.MAGIC + bytes([wire.VERSION, kind]) for kind in wire.Kind}
ANSWERS = {
    wire.Kind.ANNOUNCE: wire.Kind.ADVERTISE,
    wire.Kind.KEYS: wire.Kind.SHARES,
    wire.Kind.INBOX: wire.Kind.MASKED,
    wire.Kind.SURVIVORS: wire.Kind.REVEAL,
    wire.Kind.SIGNATURES: wire.Kind.SIGNATURE,
}
"""A participant's answer to each message of a sum; the order of signatures is of no matter here."""


def own(kind: MessageKind, body: bytes = b"") -> bytes:
    """A message of the server's."""
    return FederationMessage(kind, 0, body).pack()


class Scripted(SumSession):
    """A session that answers every message by its kind, from a table."""

    def _answer_request(self, message: FederationMessage) -> bytes | None:
        answers = {MessageKind.BRIEF: MessageKind.CHOICES, MessageKind.LAYOUT: MessageKind.PLAIN}
        kind = answers.get(message.kind)
        return None if kind is None else own(kind)

    def _answer_secagg(self, data: bytes) -> bytes | None:
        kind = ANSWERS.get(wire.Kind(data[5]))
        return None if kind is None else SECAGG[kind]


LOST = b"lost"
"""In a script: the connection is lost, and the server is gone for good."""
STATEMENT = b"statement"
"""In a script: the server signs that nothing was opened."""


@dataclass
class OneServer:
    """The server of a federation as a participant finds it; it says the messages of ``script``, and then nothing."""

    machine: Machine
    config: Config
    client: str
    files: Mapping[str, CertificateFiles]
    script: Sequence[bytes] = ()
    reach: str = ""
    refuses: bool = False
    signs_for: str = ""
    """Name of the participant in its statement; by default that of the one that it is sent to."""
    signs_as: str = ""
    """Name of the certificate whose key signs."""
    ahead: list[bytes] = field(default_factory=list)
    gone: bool = False

    async def connect(self, connection: ClientConnection) -> tuple[Any, Any]:
        self.machine.event()
        if self.reach or self.gone:
            raise FrameConnectError("flaim-server", self.reach or "does not answer")
        return object(), SimpleNamespace(transport=SimpleNamespace(abort=lambda: None))

    async def read(self, connection: ClientConnection, *_: object) -> bytes:
        message = self.ahead.pop(0)
        if message == LOST:
            self.gone = True
            raise FramePeerClosed("flaim-server", "hung up")
        if message == STATEMENT:
            return own(MessageKind.UNOPENED, self._statement(connection))
        self.machine.event()
        return message

    def _statement(self, connection: ClientConnection) -> bytes:
        signer = UnopenedSigner.load(self.config, self.files[self.signs_as or "flaim-server"])
        submission = connection.charge.submission
        true = not self.signs_for and not self.signs_as and connection.charge.returnable
        if true and submission not in self.machine.opened:
            self.machine.gone.add(submission)
        return signer.body(self.signs_for or self.client)

    async def write(self, connection: ClientConnection, _: object, data: bytes) -> None:
        self.machine.event()
        submission = connection.charge.submission
        if is_secagg_message(data):
            kind = wire.Kind(data[5])
            if kind in (wire.Kind.MASKED, wire.Kind.REVEAL):
                self.machine.left.add(submission)
                self.machine.gone.discard(submission)
            if kind is wire.Kind.REVEAL:
                self.machine.opened.add(submission)
        else:
            message = FederationMessage.unpack(data, "")
            if message.kind is MessageKind.HELLO:
                self.ahead = [*self._welcome(), *self.script]
            else:
                self.machine.left.add(submission)
                self.machine.opened.add(submission)
        self.machine.event()

    def _welcome(self) -> list[bytes]:
        if self.refuses:
            return [RefusalMessage(Refusal.MISMATCH, "has another configuration").message().pack()]
        names = self.config.require_federation().clients
        welcome = Welcome(names.index(self.client), len(names), bytes(32))
        return [own(MessageKind.WELCOME, welcome.pack())]

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Within it it is what the participant's program reaches."""

        async def close(_: object) -> None:
            pass

        async def releases(*_: object, **__: object) -> list[object]:
            # Tells of none; `test_participant_releases` has servers that do.
            self.machine.event()
            return []

        with contextlib.ExitStack() as stack:
            for name, value in (
                ("_connect_with_retries", self.connect),
                ("ask_releases", releases),
                ("_read", self.read),
                ("_write", self.write),
                ("close_writer", close),
            ):
                stack.enter_context(patch.object(channel, name, value))
            yield


def run(machine: Machine, servers: Servers | OneServer, command: Callable[[], Any]) -> object:
    """Runs a command to its end; its outcome, the error that it ended with, or None where the program died."""
    try:
        with machine.watched(), servers.reached():
            return asyncio.run(command())
    except Killed:
        return None
    except AssertionError:
        raise
    except Exception as error:  # noqa: BLE001  # However it ends, that is what it came to.
        return error
