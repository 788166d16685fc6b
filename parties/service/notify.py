"""Notifications of a service's operator, by webhook and by mail: what waits for it, what ends, what is missing.

``Notifier`` looks every few seconds at what holds (`parties.service.notices`), and delivers each notice to each target
until that has taken it or the notice holds no more; failures are retried at growing intervals. Deliveries run beside
the service's work: a target that is slow or away delays no study, and takes none of its threads. A message is sent at
least once; its identifier stays the same.

A webhook is a POST by HTTPS as in Standard Webhooks (https://www.standardwebhooks.com): JSON with ``type``,
``timestamp`` and ``data``, and the headers webhook-id, webhook-timestamp and webhook-signature, HMAC-SHA256 with the
secret of `[notify] secret`. Redirects are not followed, proxies and cookies not used, and of an answer nothing but the
status is read; the server is known by the system's authorities or those of a file. Mail goes over STARTTLS alone, with
a verified certificate (RFC 3207), as plain text.

Secret: the webhook's secret and the mail server's password, each in a file of its own. No message has anything secret:
names of studies and servers, codes, times.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import logging
import math
import smtplib
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from http.client import HTTPSConnection
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from parties.config import Address
from parties.crypto.hpke import read_private
from parties.foundation.errors import CertificateError, ConfigError, PartyError
from parties.foundation.report_limit import ReportLimit
from parties.foundation.times import iso_time
from parties.service.events import EventName
from parties.service.notices import (
    LINGER_S,
    HeldNotice,
    MissingOwners,
    Notice,
    NoticeBoard,
    notices,
)
from parties.service.service import Service
from parties.service.settings import FILE, NotifySection
from parties.service.status_client import get_document
from parties.service.study_record import ACTIVE

_LOGGER = logging.getLogger("syncret.service")

CHECK_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 3_600.0
_OWNERS_S = 300.0
"""Interval between questions for the data owners of a study that closes soon, in seconds."""
MOST_AN_HOUR = 30
"""Number of notices that a target gets within an hour; one more says that others wait."""
_HOUR_S = 3_600.0
_ATTEMPT_S, _LIMIT_S = 20.0, 60.0
"""Time for each answer of a target, and for a whole attempt, in seconds."""
_PREFIX, _LEAST_SECRET, _MOST_SECRET = "whsec_", 24, 64
_OWN_EVENTS = (EventName.STUDY_WAITS_HERE, EventName.OWNER_MISSING, EventName.KEY_WAITS_HERE)
"""Notices whose beginning is reported here; that of others is reported where it happens."""


class NotDelivered(PartyError):
    """A target has not taken a message; the text names the reason, and neither its URL nor its answer."""


class Target(Protocol):
    """Receiver of notices; ``name`` is for people, and has nothing secret."""

    name: str

    async def send(self, server: str, held: HeldNotice) -> None:
        """Delivers a notice of this ``server``. Raises NotDelivered."""


def message_document(server: str, held: HeldNotice) -> dict[str, object]:
    """Returns the body of a webhook."""
    data = {"server": server, **held.notice.fields, "text": held.notice.text}
    return {"type": held.notice.event.value, "timestamp": iso_time(held.since), "data": data}


def signature(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Returns the value of the header webhook-signature."""
    said = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, said, hashlib.sha256).digest()).decode("ascii")


def read_secret(path: Path) -> bytes:
    """Returns a webhook's secret. Raises CertificateError for a file that others may read, or another content."""
    text = read_private(path, "webhook's secret", "whsec_ and base64").decode(errors="replace")
    try:
        secret = base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not _LEAST_SECRET <= len(secret) <= _MOST_SECRET:
        raise CertificateError(
            f"{path}: is no webhook's secret; expected {_PREFIX} and {_LEAST_SECRET} to {_MOST_SECRET} bytes in "
            "base64, such as of: openssl rand -base64 32"
        )
    return secret


def _context(folder: Path, ca: str | None, key: str) -> ssl.SSLContext:
    """Returns the context for a target, known by the authorities in the file ``ca`` or the system's."""
    path = None if ca is None else folder / ca
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        text = f"is {path}, which cannot be used: {error}; expected a PEM file of authorities"
        raise ConfigError(str(folder / FILE), key, text) from error


class _Attempts:
    """Attempts of one target, one at a time, each in a thread of its own: the standard library's clients block."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    async def run(self, attempt: Callable[[], object]) -> None:
        """Runs an attempt. Raises NotDelivered for every error, and after ``_LIMIT_S`` seconds."""
        if self._thread is not None and self._thread.is_alive():
            raise NotDelivered("the last attempt has not ended")
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        failure: list[Exception] = []

        def run() -> None:
            try:
                attempt()
            except Exception as error:  # noqa: BLE001  # Whatever a library raises: the message was not taken.
                failure.append(error)
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(done.set)

        # No thread of the service's pool, which its disks and databases wait for; the process's end waits for none.
        self._thread = threading.Thread(target=run, name="notify", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(_LIMIT_S):
                await done.wait()
        except TimeoutError as error:
            raise NotDelivered(f"no end within {_LIMIT_S:g} s") from error
        if failure:
            raise NotDelivered(_reason(failure[0])) from failure[0]


def _reason(error: Exception) -> str:
    """Returns the reason without the text of a server, which may quote what was sent."""
    if isinstance(error, NotDelivered):
        return str(error)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "the server has no STARTTLS, or no login"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"answered {error.smtp_code} ({type(error).__name__})"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "no recipient was accepted"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return f"no answer within {_ATTEMPT_S:g} s"
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


class Webhook:
    """Webhook of a service in ``folder``."""

    def __init__(self, folder: Path, section: NotifySection) -> None:
        """Raises ConfigError, CertificateError."""
        self._url = urlsplit(section.url or "")
        self._secret = read_secret(folder / section.secret)
        self._context = _context(folder, section.ca, "notify.ca")
        # The path may have a token in it.
        self.name = f"webhook {self._url.hostname}"
        self._attempts = _Attempts()

    async def send(self, server: str, held: HeldNotice) -> None:
        """See ``Target``."""
        body = json.dumps(message_document(server, held)).encode()
        await self._attempts.run(lambda: self._post(held.id, body))

    def _post(self, message_id: str, body: bytes) -> None:
        now, url = int(time.time()), self._url
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "syncret",
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(self._secret, message_id, now, body),
        }
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        # This client knows neither proxies nor redirects nor cookies.
        connection = HTTPSConnection(
            url.hostname or "", url.port, timeout=_ATTEMPT_S, context=self._context
        )
        with contextlib.closing(connection):
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
        if not 200 <= status < 300:
            raise NotDelivered(f"answered {status}; expected 2xx")


class Mail:
    """Mail by a server with STARTTLS, for a service in ``folder``."""

    def __init__(self, folder: Path, section: NotifySection) -> None:
        """Raises ConfigError, CertificateError."""
        self._address = Address.parse(section.smtp or "")
        self._from, self._to = section.mail_from or "", list(section.mail_to)
        self._context = _context(folder, section.smtp_ca, "notify.smtp_ca")
        self._login: tuple[str, str] | None = None
        if section.smtp_user is not None:
            data = read_private(folder / section.smtp_password, "mail password", "one line")
            self._login = (section.smtp_user, data.decode(errors="replace").strip())
        self.name = f"mail {self._address.host}"
        self._attempts = _Attempts()

    def message(self, server: str, held: HeldNotice) -> EmailMessage:
        """Returns the mail. Its headers have no line of a text: the library refuses one."""
        notice = held.notice
        made = EmailMessage(policy=SMTP)
        made["From"], made["To"] = self._from, ", ".join(self._to)
        made["Subject"] = f"[syncret {server}] {' '.join(notice.text.split())[:150]}"
        made["Date"] = formatdate()
        made["Message-ID"] = f"<{held.id}@syncret.invalid>"
        made["Auto-Submitted"] = "auto-generated"
        details = [f"{name}: {value}" for name, value in notice.fields.items()]
        lines = [notice.text, "", f"event: {notice.event}", f"server: {server}", *details]
        made.set_content("\n".join([*lines, f"since: {iso_time(held.since)}"]) + "\n")
        return made

    async def send(self, server: str, held: HeldNotice) -> None:
        """See ``Target``."""
        await self._attempts.run(lambda: self._send(self.message(server, held)))

    def _send(self, message: EmailMessage) -> None:
        host, port = self._address.host, self._address.port
        with smtplib.SMTP(host, port, timeout=_ATTEMPT_S) as client:
            # Raises where the server has no STARTTLS: nothing is ever sent in the clear.
            client.starttls(context=self._context)
            client.ehlo_or_helo_if_needed()
            if self._login is not None:
                client.login(*self._login)
            client.send_message(message, self._from, self._to)


def targets_of(folder: Path, section: NotifySection) -> list[Target]:
    """Returns the targets of the settings. Raises ConfigError, CertificateError."""
    found: list[Target] = [] if section.url is None else [Webhook(folder, section)]
    if section.smtp is not None:
        found.append(Mail(folder, section))
    return found


@dataclass(slots=True)
class _NoticeRetry:
    """Next attempt at one notice: its time (monotonic), and how many have failed."""

    at: float = 0.0
    failures: int = 0

    def fail(self) -> None:
        """Sets the next attempt, at growing intervals."""
        pause_s = min(FIRST_PAUSE_S * 2 ** min(self.failures, 30), LONGEST_PAUSE_S)
        self.at, self.failures = time.monotonic() + pause_s, self.failures + 1


@dataclass(slots=True)
class _Queue:
    """Deliveries to one target."""

    target: Target
    retries: dict[str, _NoticeRetry] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    pending: int = 0
    delivered: int = 0
    failed: int = 0
    problem: str = ""
    times: list[float] = field(default_factory=list)
    """Times of the deliveries of the last hour, by the monotonic clock."""
    summed_at: float = -math.inf

    def has_room(self) -> bool:
        """Returns true if the target may get another notice now."""
        since = time.monotonic() - _HOUR_S
        self.times = [at for at in self.times if at > since]
        return len(self.times) < MOST_AN_HOUR


class Notifier:
    """Notifier of ``service``, by ``section`` of its settings."""

    def __init__(
        self,
        service: Service,
        section: NotifySection,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ConfigError, CertificateError."""
        folder = service.identity.folder
        self._service = service
        self._section = section
        self._clock = clock
        self._board = NoticeBoard(folder)
        self._queues = [_Queue(target) for target in targets_of(folder, section)]
        self._faults = ReportLimit(_HOUR_S)
        self._began = clock()
        self._missing: dict[str, MissingOwners] = {}
        self._asked_at = -float("inf")
        self._asking: asyncio.Task[None] | None = None

    def to_list(self) -> list[dict[str, object]]:
        """Returns the JSON form of the deliveries to each target."""
        return [
            {
                "target": queue.target.name,
                "pending": queue.pending,
                "delivered": queue.delivered,
                "failed": queue.failed,
                "problem": queue.problem,
            }
            for queue in self._queues
        ]

    async def run(self) -> None:
        """Looks every few seconds until it is cancelled."""
        try:
            while True:
                try:
                    self._look()
                except Exception:
                    # A look that fails must not end all notifications.
                    if self._faults.admit() is not None:
                        _LOGGER.exception("a look at what waits for the operator failed")
                if (text := self._board.changed()) is not None:
                    await asyncio.to_thread(self._board.write, text)
                await asyncio.sleep(CHECK_S)
        finally:
            tasks = [queue.task for queue in self._queues if queue.task is not None]
            tasks += [self._asking] if self._asking is not None else []
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> None:
        """Updates the notices, reports those that have begun, and starts the deliveries that are due."""
        now = self._clock()
        self._ask_owners()
        current = notices(self._service, self._missing, now=now)
        for notice in self._board.update(current, now):
            if notice.event in _OWN_EVENTS:
                self._service.events.event(notice.event, notice.text, **notice.fields)
        if now - self._began > LINGER_S:
            self._board.forget_former()
        holding = [h for h in self._board.holding(now) if self._section.wants(h.notice.event)]
        for queue in self._queues:
            waiting = [held for held in holding if queue.target.name not in held.targets]
            queue.pending = len(waiting)
            known = {held.id for held in waiting}
            queue.retries = {key: retry for key, retry in queue.retries.items() if key in known}
            due = [held for held in waiting if self._retry(queue, held).at <= time.monotonic()]
            if not waiting:
                queue.problem = ""
            if due and (queue.task is None or queue.task.done()):
                queue.task = asyncio.create_task(self._deliver(queue, due))

    @staticmethod
    def _retry(queue: _Queue, held: HeldNotice) -> _NoticeRetry:
        return queue.retries.setdefault(held.id, _NoticeRetry())

    async def _deliver(self, queue: _Queue, due: list[HeldNotice]) -> None:
        """Attempts to deliver each notice once. The first failure of one is an event."""
        for number, held in enumerate(due):
            if not queue.has_room():
                await self._sum_up(queue, len(due) - number)
                return
            retry, target = self._retry(queue, held), queue.target
            try:
                await target.send(self._service.name, held)
            except NotDelivered as error:
                queue.failed, queue.problem = queue.failed + 1, str(error)
                retry.fail()
                if retry.failures == 1:
                    text = f"{target.name} has not taken {held.notice.event}: {error}"
                    fields = {"target": target.name, "notice": held.notice.event.value}
                    self._service.events.event(
                        EventName.NOTICE_UNDELIVERED, text, reason=str(error), **fields
                    )
            else:
                held.targets.add(target.name)
                queue.times.append(time.monotonic())
                queue.delivered, queue.problem = queue.delivered + 1, ""
                queue.pending = max(0, queue.pending - 1)

    async def _sum_up(self, queue: _Queue, waiting: int) -> None:
        """Tells a target once an hour that further notices wait: another server may cause them without end."""
        queue.problem = f"it got {MOST_AN_HOUR} notices within an hour; {waiting} wait"
        if time.monotonic() - queue.summed_at < _HOUR_S:
            return
        queue.summed_at, now = time.monotonic(), self._clock()
        name = self._service.name
        text = (
            f"{name} has sent {MOST_AN_HOUR} notices within an hour, and {waiting} more wait: see its console, or "
            "syncret serve status"
        )
        notice = Notice(EventName.NOTICE_UNDELIVERED, name, text, {"more": waiting})
        try:
            await queue.target.send(name, HeldNotice(notice, now, now))
        except NotDelivered as error:
            queue.failed, queue.problem = queue.failed + 1, str(error)

    # Data owners that are missing.

    def _ask_owners(self) -> None:
        """Starts a question for the data owners of all studies that run, once in a while."""
        idle = self._asking is None or self._asking.done()
        if idle and time.monotonic() - self._asked_at > _OWNERS_S:
            self._asked_at = time.monotonic()
            self._asking = asyncio.create_task(self._find_missing())

    async def _find_missing(self) -> None:
        found: dict[str, MissingOwners] = {}
        studies = self._service.studies
        for digest in list(self._service.workers):
            study = studies.get(digest)
            if study is None or study.state not in ACTIVE:
                continue
            with contextlib.suppress(PartyError):
                status = await asyncio.to_thread(get_document, studies.folder(study).work)
                missing = missing_owners(status, self._section.owner_missing_hours, self._clock())
                if missing is not None:
                    found[digest] = missing
        self._missing = found


def missing_owners(status: Mapping[str, object], hours: float, now: float) -> MissingOwners | None:
    """Returns the data owners that a study's status lacks if it closes within so many hours; None if it lacks none."""
    match status:
        case {
            "owners": {"expected": int() as expected, "here": int() as here},
            "time": {"closing_s": int() | float() as left},
        } if not any(isinstance(value, bool) for value in (expected, here, left)):
            # A study's process is not trusted. NaN and infinities are beyond these bounds.
            if 0 <= left <= hours * 3600 and 0 <= here < expected:
                return MissingOwners(expected - here, expected, now + left)
    return None


@contextlib.asynccontextmanager
async def notifying(service: Service, section: NotifySection) -> AsyncIterator[None]:
    """Notifies the operator of ``service`` while the block runs. Raises ConfigError, CertificateError."""
    notifier = Notifier(service, section)
    service.deliveries = notifier.to_list
    task = asyncio.create_task(notifier.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
