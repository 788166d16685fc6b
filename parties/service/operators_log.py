"""Operators' log of a service: every event of its history as a hash-chained line, signed with the server's key.

``OperatorsLog`` makes the lines, in the transaction of the change that they record (`parties.service.studies`), and the
seal of an export. ``check_log`` verifies an export without the service. All of it is public.

A line is a JSON object with sorted keys and no spaces: ``number`` from 1, ``at``, ``server``, ``event``, the event's
fields, ``key`` (hash of the signing key), ``prev`` (SHA-256 of the line before, of 64 zeros at the first) and
``signature`` (Ed25519, base64) of all that precedes it. The first line is ``log.begun``, with the server's public file.
Where the server's key was replaced, a line ``log.key`` has the announcements that the former keys signed
(`parties.service.rotation`), so that each key of a log vouches for the next. The last line of an export is a seal: the
number of entries, the hash of the last one, and a signature.

Known limits: whoever has the server's key can write another log. A service whose database is emptied begins another
log, which is whole by itself: it is found by the time of its beginning (``check_log``'s ``begun_by``). Entries that are
deleted from the end of the database before an export are missing in it without a trace, except where an earlier export
is at hand (``check_log``'s ``earlier``) or the service's own log, which names each entry's event.
"""

import base64
import binascii
import datetime
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Connection, insert, select

from parties.foundation.errors import CertificateError, StoreError
from parties.foundation.exit_codes import AuditFailed
from parties.foundation.untrusted_text import parse_json, printable
from parties.identity.tls import signer
from parties.service import rotation
from parties.service.identity import ServerFile, ServiceIdentity, server_path
from parties.service.tables import OPERATORS_LOG
from parties.storage.files import disk_errors

VERSION = 1
BEGUN, KEY = "log.begun", "log.key"
MAX_LINE_BYTES = 1 << 20
_START = "0" * 64
_MAX_SHOWN = 40
_ENTRY, _SEAL = b"syncret operators' log, entry 1\n", b"syncret operators' log, seal 1\n"


class LogInvalid(AuditFailed):
    """An exported log is not what its server has written."""


def _line(document: Mapping[str, object]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def line_hash(line: str) -> str:
    """Returns the hash that the next line states."""
    return hashlib.sha256(line.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LogPage:
    """Consecutive ``lines`` of a log; with the last of them the ``seal`` of all."""

    lines: list[str]
    seal: str | None


@dataclass(frozen=True, slots=True)
class UnsealedPage:
    """A page as it was read; ``seal`` is of what was there then, and not signed yet."""

    lines: list[str]
    seal: Mapping[str, object] | None


@dataclass(slots=True)
class OperatorsLog:
    """Writer of the log of the service of ``identity``; one process at a time, in one transaction at a time."""

    identity: ServiceIdentity
    _signers: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)

    def append(self, connection: Connection, event: Mapping[str, object]) -> None:
        """Adds an event, within the caller's transaction. Raises StoreError if the server's key cannot be used."""
        last = self._last(connection)
        if last is None:
            text = self._server_text()
            last = self._write(connection, None, {"event": BEGUN, "file": text} | _now())
        if (before := json.loads(last)["key"]) != self.identity.own.key:
            proof = rotation.announcements_since(self.identity, before)
            last = self._write(connection, last, {"event": KEY, "announcements": proof} | _now())
        self._write(connection, last, event)

    def page(self, connection: Connection, after: int, limit: int) -> UnsealedPage:
        """Returns the lines that follow entry ``after``, ``limit`` at most. Like ``append``, one at a time."""
        query = select(OPERATORS_LOG.c.line).where(OPERATORS_LOG.c.number > after)
        lines = list(connection.scalars(query.order_by(OPERATORS_LOG.c.number).limit(limit)))
        if len(lines) == limit:
            return UnsealedPage(lines, None)
        last = self._last(connection)
        count, head = (0, _START) if last is None else (json.loads(last)["number"], line_hash(last))
        seal = {"seal": VERSION, "entries": count, "head": head} | _now()
        return UnsealedPage(lines, seal)

    def sealed(self, page: UnsealedPage) -> LogPage:
        """Returns the page with its seal, signed; needs no transaction. Raises StoreError as ``append``."""
        return LogPage(page.lines, None if page.seal is None else self._signed(_SEAL, page.seal))

    @staticmethod
    def _last(connection: Connection) -> str | None:
        query = select(OPERATORS_LOG.c.line).order_by(OPERATORS_LOG.c.number.desc()).limit(1)
        found = connection.scalar(query)
        return None if found is None else str(found)

    def _write(
        self, connection: Connection, before: str | None, event: Mapping[str, object]
    ) -> str:
        number = 1 if before is None else int(json.loads(before)["number"]) + 1
        prev = _START if before is None else line_hash(before)
        line = self._signed(_ENTRY, {**event, "number": number, "prev": prev})
        connection.execute(insert(OPERATORS_LOG).values(number=number, line=line))
        return line

    def _signed(self, purpose: bytes, document: Mapping[str, object]) -> str:
        own = self.identity.own
        try:
            sign = self._signers.get(own.key)
            if sign is None:
                self._signers = {own.key: (sign := signer(self.identity.files))}
        except CertificateError as error:
            raise StoreError(
                self.identity.files.key, f"signs no entry of the log: {error}"
            ) from error
        content = {**document, "server": own.name, "key": own.key}
        signature = base64.b64encode(sign(purpose + _line(content).encode())).decode("ascii")
        return _line({**content, "signature": signature})

    def _server_text(self) -> str:
        path = server_path(self.identity.folder, self.identity.pid, self.identity.own.name)
        with disk_errors(path, "read"):
            return path.read_text(encoding="utf-8")


def _now() -> dict[str, object]:
    return {"at": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")}


# Verification, without the service.


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """A verified log of ``server``: ``entries``, ``keys`` that have signed them in turn, and the ``sealed`` time."""

    server: ServerFile
    entries: tuple[Mapping[str, object], ...]
    keys: tuple[str, ...]
    head: str
    sealed: str

    @property
    def begun(self) -> str:
        """Time of the first entry, in UTC."""
        return _shown(self.entries[0].get("at"))


def check_log(
    lines: Iterable[str],
    *,
    server: ServerFile | None = None,
    earlier: Iterable[str] | None = None,
    begun_by: datetime.datetime | None = None,
) -> CheckedLog:
    """Returns the content of an exported log.

    ``server`` is the server as its operator has handed it over: its key has to be among those of the log. ``earlier``
    is an earlier export, which this one has to continue. ``begun_by`` is the time by which its first entry has to be
    there. Raises LogInvalid, which names the line.
    """
    checker, found = _Checker(), []
    for number, line in enumerate(lines, 1):
        found.append(line.removesuffix("\n"))
        checker.take(number, found[-1])
    if checker.sealed is None or checker.server is None:
        raise LogInvalid(
            f"line {len(found) + 1}: the seal is missing; expected it at the end: the file was cut there, or the "
            "export was not"
        )
    if server is not None and server.key not in checker.keys:
        raise LogInvalid(
            f"it is signed with {checker.keys[-1][:16]}...; expected the key of {server.name}, {server.key[:16]}..."
        )
    if earlier is not None:
        _check_continues(found, [line.removesuffix("\n") for line in earlier])
    log = CheckedLog(
        checker.server, tuple(checker.entries), tuple(checker.keys), checker.head, checker.sealed
    )
    if begun_by is not None:
        _check_begun(log.begun, begun_by)
    return log


def _check_begun(begun: str, by: datetime.datetime) -> None:
    """Raises LogInvalid unless ``begun``, the time of a first entry, is ``by`` or before."""
    try:
        in_time = datetime.datetime.fromisoformat(begun) <= by
    except (ValueError, TypeError):
        in_time = False
    if not in_time:
        raise LogInvalid(
            f"line 1: the log begins at {begun}; expected one that has begun by {by.isoformat()}: earlier entries "
            "are missing, or the service has recorded nothing before"
        )


def _check_continues(found: list[str], earlier: list[str]) -> None:
    """Raises LogInvalid unless the entries of an ``earlier`` export are the first of ``found``, sealed no earlier."""
    entries, seal = found[:-1], ""
    # Within an entry's text these quotes would have backslashes.
    if earlier and '"seal":' in earlier[-1]:
        *earlier, seal = earlier
    if not earlier:
        raise LogInvalid(
            "the earlier export has no entries; expected the file of an earlier `study log`"
        )
    for number, (ours, theirs) in enumerate(zip(entries, earlier, strict=False), 1):
        if ours != theirs:
            raise LogInvalid(f"line {number}: is another one in the earlier export")
    if len(earlier) > len(entries):
        raise LogInvalid(
            f"it has {len(entries)} entries; expected the {len(earlier)} of the earlier export, at least: "
            "entries were deleted from its end"
        )
    sealed, before = _sealed_at(found[-1]), _sealed_at(seal)
    if sealed < before:
        raise LogInvalid(
            f"it was sealed {_shown(sealed)}, before the earlier export was, {_shown(before)}; expected the later "
            "one of the two"
        )


def _sealed_at(seal: str) -> str:
    """Returns the time of a seal, in UTC; "" of none."""
    try:
        document = parse_json(seal)
    except (ValueError, RecursionError):
        return ""
    return str(document.get("at", "")) if isinstance(document, dict) else ""


class _Checker:
    """State of a verification: the chain's ``head``, the key at work, and the entries so far."""

    def __init__(self) -> None:
        self.entries: list[Mapping[str, object]] = []
        self.keys: list[str] = []
        self.head = _START
        self.sealed: str | None = None
        self.server: ServerFile | None = None

    def take(self, number: int, line: str) -> None:
        """Verifies a line. Raises LogInvalid."""
        where = f"line {number}"
        if self.sealed is not None:
            raise LogInvalid(f"{where}: follows the seal; expected nothing after it")
        document = _parsed(line, where)
        if "seal" in document:
            self._check_seal(document, where)
            return
        self._check_chain(document, where)
        if document.get("event") == BEGUN and number == 1:
            self._begin(document, where)
        elif document.get("event") == KEY:
            self._change_key(document, where)
        self._check_signature(_ENTRY, document, where)
        self.entries.append(document)
        self.head = line_hash(line)

    def _check_chain(self, document: Mapping[str, object], where: str) -> None:
        expected = len(self.entries) + 1
        if document.get("number") != expected:
            raise LogInvalid(
                f"{where}: is entry {_shown(document.get('number'))}; expected {expected}: entries are missing, "
                "swapped or doubled here"
            )
        if document.get("prev") != self.head:
            raise LogInvalid(
                f"{where}: does not follow from the entry before; one of the two was replaced"
            )

    def _begin(self, document: Mapping[str, object], where: str) -> None:
        try:
            self.server = rotation.read_server_file(str(document.get("file")), where)
        except CertificateError as error:
            raise LogInvalid(str(error)) from error
        self.keys.append(self.server.key)

    def _change_key(self, document: Mapping[str, object], where: str) -> None:
        """Follows the announcements from the key at work to the next, each signed with the one before."""
        proof, at_work = document.get("announcements"), self._known(where)
        for text in proof if isinstance(proof, list) else []:
            try:
                at_work = rotation.Announcement.signed_by(str(text), at_work).server
            except (CertificateError, ValueError) as error:
                raise LogInvalid(
                    f"{where}: the key was not replaced under the former one: {error}"
                ) from error
        if document.get("key") != at_work.key:
            raise LogInvalid(
                f"{where}: the key was replaced without an announcement under the former one; expected a log of one "
                "server"
            )
        self.server = at_work
        self.keys.append(at_work.key)

    def _known(self, where: str) -> ServerFile:
        if self.server is None:
            raise LogInvalid(
                f"{where}: is no beginning; expected {BEGUN} first: the file was cut there"
            )
        return self.server

    def _check_signature(self, purpose: bytes, document: Mapping[str, object], where: str) -> None:
        server = self._known(where)
        if document.get("key") != server.key or document.get("server") != server.name:
            raise LogInvalid(
                f"{where}: is of another key or server; expected {server.name}'s {server.key[:16]}..."
            )
        content = {key: value for key, value in document.items() if key != "signature"}
        public = server.certificate.public_key()
        try:
            signature = base64.b64decode(str(document.get("signature")), validate=True)
            if not isinstance(public, Ed25519PublicKey):
                raise LogInvalid(f"{where}: the key is of another kind; expected Ed25519")
            public.verify(signature, purpose + _line(content).encode())
        except (InvalidSignature, binascii.Error, ValueError) as error:
            raise LogInvalid(f"{where}: its signature is not right; it was changed") from error

    def _check_seal(self, document: Mapping[str, object], where: str) -> None:
        if document.get("entries") != len(self.entries) or document.get("head") != self.head:
            raise LogInvalid(
                f"{where}: the seal is of {_shown(document.get('entries'))} entries; {len(self.entries)} precede "
                "it, or other ones: expected all of them"
            )
        self._check_signature(_SEAL, document, where)
        self.sealed = _shown(document.get("at"))


def _shown(value: object) -> str:
    """Returns a value of a file that anybody may have written, for a terminal."""
    return printable(str(value), _MAX_SHOWN).replace("\n", "?")


def _parsed(line: str, where: str) -> Mapping[str, object]:
    """Returns the object in a line, which has to be spelt as a service does. Raises LogInvalid."""
    try:
        document = parse_json(line) if len(line) <= MAX_LINE_BYTES else None
        if isinstance(document, dict) and _line(document) == line:
            return document
    except (ValueError, RecursionError):
        pass
    raise LogInvalid(
        f"{where}: is no line of a log; expected one as `syncret study log` exports it"
    )


def read_lines(path: Path) -> Iterable[str]:
    """Yields the lines of an exported file. Raises StoreError, LogInvalid."""
    with disk_errors(path, "read"), path.open(encoding="utf-8", newline="\n") as file:
        try:
            while line := file.readline(MAX_LINE_BYTES + 1):
                yield line
        except UnicodeDecodeError as error:
            raise LogInvalid(f"{path}: is no text; expected an exported log") from error
