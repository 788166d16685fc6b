"""Notifications by real servers on this host: webhooks over HTTPS, and mail over SMTP with STARTTLS."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import math
import ssl
from collections.abc import AsyncIterator, Mapping
from email import message_from_bytes
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trustme
from aiohttp import web

from parties.foundation.errors import CertificateError, ConfigError
from parties.observability.events import Event, Progress
from parties.service import notify
from parties.service.events import EventName
from parties.service.notices import HeldNotice, MissingOwners, Notice, NoticeBoard
from parties.service.notify import Mail, NotDelivered, Notifier, Webhook, missing_owners
from parties.service.settings import FILE, NotifySection, load_settings
from tests.until import eventually

SECRET = bytes(range(32))
NOTICE = Notice(
    EventName.STUDY_WAITS_HERE,
    "d1 approval",
    "stays waits for approval at alpha",
    {"study": "stays", "reason": "approval"},
)


def held(notice: Notice = NOTICE, since: float = 1_800_000_000.0) -> HeldNotice:
    return HeldNotice(notice, since, since)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def folder(tmp_path: Path, authority: trustme.CA) -> Path:
    (tmp_path / "notify").mkdir()
    secret = tmp_path / "notify" / "webhook.secret"
    secret.write_text("whsec_" + base64.b64encode(SECRET).decode() + "\n")
    secret.chmod(0o600)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path


def server_context(authority: trustme.CA, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


class Receiver:
    """A webhook's server, which answers as a test says, and keeps what came."""

    def __init__(self) -> None:
        self.status = 204
        self.headers: dict[str, str] = {}
        self.came: list[tuple[Mapping[str, str], bytes]] = []
        self.release = asyncio.Event()
        self.release.set()
        self.port = 0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.came.append((request.headers.copy(), await request.read()))
        await self.release.wait()
        return web.Response(status=self.status, headers=self.headers)

    def section(self, **changes: Any) -> NotifySection:
        url = f"https://localhost:{self.port}/hooks/t0ken"
        return NotifySection(**{"url": url, "ca": "ca.pem", **changes})


@contextlib.asynccontextmanager
async def receiving(context: ssl.SSLContext) -> AsyncIterator[Receiver]:
    made = Receiver()
    server = web.Server(made.answer)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, ssl=context)
    made.port = listening.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.release.set()
        listening.close()
        await server.shutdown(1.0)


@pytest.fixture
async def receiver(authority: trustme.CA) -> AsyncIterator[Receiver]:
    async with receiving(server_context(authority)) as made:
        yield made


async def test_webhook_is_signed_as_the_standard_says(receiver: Receiver, folder: Path) -> None:
    """Verified as a receiver does: https://github.com/standard-webhooks, "Verifying webhook authenticity"."""
    await Webhook(folder, receiver.section()).send("alpha", held())
    ((headers, body),) = receiver.came
    said = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET, said, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == {
        "type": "study.waits-here",
        "timestamp": "2027-01-15T08:00:00Z",
        "data": {
            "server": "alpha",
            "study": "stays",
            "reason": "approval",
            "text": "stays waits for approval at alpha",
        },
    }


def test_signature_is_the_standards_known_answer() -> None:
    """From the test of the reference libraries of Standard Webhooks."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    given = notify.signature(
        secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert given == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_webhook_follows_no_redirect_and_keeps_nothing_of_an_answer(
    receiver: Receiver, folder: Path
) -> None:
    async with receiving(server_context(trustme.CA())) as other:
        receiver.status, receiver.headers = 307, {"Location": f"https://localhost:{other.port}/"}
        with pytest.raises(NotDelivered, match="answered 307; expected 2xx") as raised:
            await Webhook(folder, receiver.section()).send("alpha", held())
        assert other.came == []
    assert str(other.port) not in str(raised.value)


async def test_webhook_speaks_to_no_server_of_another_authority_or_name(
    receiver: Receiver, folder: Path, authority: trustme.CA
) -> None:
    async with receiving(server_context(trustme.CA())) as stranger:
        with pytest.raises(NotDelivered, match="its certificate is not accepted"):
            await Webhook(folder, stranger.section()).send("alpha", held())
        assert stranger.came == []
    async with receiving(server_context(authority, "other.example")) as stranger:
        with pytest.raises(NotDelivered, match="its certificate is not accepted"):
            await Webhook(folder, stranger.section()).send("alpha", held())
        assert stranger.came == []
    # Without `ca` the system's authorities count, which do not know this one.
    with pytest.raises(NotDelivered, match="its certificate is not accepted"):
        await Webhook(folder, receiver.section(ca=None)).send("alpha", held())
    assert receiver.came == []


def test_secret_that_others_may_read_is_refused(folder: Path) -> None:
    section = NotifySection(url="https://localhost/")
    path = folder / section.secret
    path.chmod(0o644)
    with pytest.raises(CertificateError, match=r"webhook.secret"):
        Webhook(folder, section)
    path.chmod(0o600)
    for content in ("short", "whsec_" + base64.b64encode(bytes(8)).decode(), "whsec_?"):
        path.write_text(content)
        with pytest.raises(CertificateError, match="is no webhook's secret"):
            Webhook(folder, section)


class MailServer:
    """An SMTP server, as far as this program needs one; ``mails`` are what it has taken, with recipients."""

    def __init__(self, context: ssl.SSLContext, *, starttls: bool = True) -> None:
        self.context = context
        self.starttls = starttls
        self.login = ""
        self.clear: list[str] = []
        self.mails: list[tuple[list[str], bytes]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def say(*lines: str) -> None:
            writer.write("".join(f"{line}\r\n" for line in lines).encode())
            await writer.drain()

        secure, recipients = False, list[str]()
        await say("220 localhost ESMTP")
        while line := (await reader.readline()).decode().strip():
            verb = line.split()[0].upper()
            if not secure:
                self.clear.append(verb)
            if verb == "EHLO":
                more = ["250-STARTTLS"] if self.starttls and not secure else ["250-AUTH PLAIN"]
                await say("250-localhost", *more, "250 8BITMIME")
            elif verb == "STARTTLS":
                await say("220 go")
                await writer.start_tls(self.context)
                secure = True
            elif verb == "AUTH":
                self.login = base64.b64decode(line.split()[2]).decode()
                await say("235 ok")
            elif verb == "RCPT":
                recipients.append(line[8:])
                await say("250 ok")
            elif verb == "DATA":
                await say("354 go")
                self.mails.append((recipients, await reader.readuntil(b"\r\n.\r\n")))
                await say("250 ok")
            elif verb == "QUIT":
                await say("221 bye")
                break
            else:
                await say("250 ok")
        writer.close()


@contextlib.asynccontextmanager
async def mailing(server: MailServer) -> AsyncIterator[MailServer]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


def mail_section(server: MailServer, **changes: Any) -> NotifySection:
    return NotifySection(
        **{
            "smtp": f"localhost:{server.port}",
            "smtp_ca": "ca.pem",
            "mail_from": "syncret@example.org",
            "mail_to": ("anna@example.org", "ben@example.org"),
            **changes,
        }
    )


async def test_mail_goes_over_starttls_with_a_login(folder: Path, authority: trustme.CA) -> None:
    path = folder / "notify" / "smtp.password"
    path.write_text("pa55\n")
    path.chmod(0o600)
    async with mailing(MailServer(server_context(authority))) as server:
        target = Mail(folder, mail_section(server, smtp_user="syncret"))
        await target.send("alpha", held())
    ((recipients, data),) = server.mails
    assert recipients == ["<anna@example.org>", "<ben@example.org>"]
    mail = message_from_bytes(data)
    assert mail["Subject"] == "[syncret alpha] stays waits for approval at alpha"
    assert mail["Auto-Submitted"] == "auto-generated"
    body = cast("bytes", mail.get_payload(decode=True)).decode()
    assert "event: study.waits-here" in body
    assert "reason: approval" in body
    assert server.login == "\0syncret\0pa55"
    assert b"pa55" not in data
    assert set(server.clear) == {"EHLO", "STARTTLS"}


async def test_mail_is_not_sent_in_the_clear_nor_to_a_server_of_another_authority(
    folder: Path, authority: trustme.CA
) -> None:
    async with mailing(MailServer(server_context(authority), starttls=False)) as server:
        with pytest.raises(NotDelivered, match="no STARTTLS"):
            await Mail(folder, mail_section(server)).send("alpha", held())
    assert "MAIL" not in server.clear
    async with mailing(MailServer(server_context(trustme.CA()))) as server:
        with pytest.raises(NotDelivered, match="its certificate is not accepted"):
            await Mail(folder, mail_section(server)).send("alpha", held())
    assert server.mails == []


def test_text_of_a_notice_adds_no_header_to_a_mail(folder: Path) -> None:
    section = NotifySection(
        smtp="mx:25", mail_from="syncret@example.org", mail_to=("anna@example.org",)
    )
    evil = Notice(EventName.PEER_AWAY, "x", "away\r\nBcc: eve@example.org\r\n\r\nhello")
    message = Mail(folder, section).message("alpha", held(evil))
    parsed = message_from_bytes(message.as_bytes())
    assert parsed["Bcc"] is None
    assert parsed["Subject"] == "[syncret alpha] away Bcc: eve@example.org hello"


def service(folder: Path, **changes: Any) -> Any:
    """As much of a service as a notifier looks at, with the events that it emits."""
    taken: list[Event] = []
    values: dict[str, Any] = {
        "name": "alpha",
        "identity": SimpleNamespace(folder=folder),
        "obstacle": None,
        "studies": {},
        "workers": {},
        "peers": {},
        "certificates": SimpleNamespace(all=list),
        "key_changes": SimpleNamespace(announced=list),
        "taken": taken,
        "events": Progress(SimpleNamespace(take=taken.append)),
    }
    return SimpleNamespace(**{**values, **changes})


class Current:
    """The notices that hold, as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: Notice) -> None:
        self.found = list(found)
        monkeypatch.setattr(notify, "notices", lambda *_, **__: self.found)
        for name in ("CHECK_S", "FIRST_PAUSE_S"):
            monkeypatch.setattr(notify, name, 0.02)


@contextlib.asynccontextmanager
async def running(notifier: Notifier) -> AsyncIterator[Notifier]:
    task = asyncio.create_task(notifier.run())
    try:
        yield notifier
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_notifier_tries_again_until_the_target_takes_it_and_never_twice(
    receiver: Receiver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor after a restart; and each attempt has the same identifier."""
    Current(monkeypatch, NOTICE)
    receiver.status = 503
    ours = service(folder)
    async with running(Notifier(ours, receiver.section())) as notifier:
        await eventually(lambda: len(receiver.came) == 2)
        (state,) = notifier.to_list()
        assert state["target"] == "webhook localhost"
        assert (state["pending"], state["problem"]) == (1, "answered 503; expected 2xx")
        receiver.status = 200
        await eventually(lambda: notifier.to_list()[0]["delivered"])
        attempts = len(receiver.came)
        assert notifier.to_list()[0] == {
            **{"target": "webhook localhost", "pending": 0, "delivered": 1},
            **{"failed": attempts - 1, "problem": ""},
        }
        await asyncio.sleep(0.2)  # Sleeps: quiet.
    assert len({headers["webhook-id"] for headers, _ in receiver.came}) == 1
    names = [event.name for event in ours.taken]
    assert names == ["study.waits-here", "notice.undelivered"]
    assert "t0ken" not in repr(ours.taken)
    assert "t0ken" not in repr(state)
    again = service(folder)
    async with running(Notifier(again, receiver.section())):
        await asyncio.sleep(0.3)  # Sleeps: quiet.
    assert len(receiver.came) == attempts
    assert again.taken == []


async def test_notice_that_holds_no_more_is_not_sent(
    receiver: Receiver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = Current(monkeypatch, NOTICE)
    receiver.status = 500
    async with running(Notifier(service(folder), receiver.section())) as notifier:
        await eventually(lambda: receiver.came)
        current.found = []
        await eventually(lambda: notifier.to_list()[0]["pending"] == 0)
        receiver.status, came = 200, len(receiver.came)
        await asyncio.sleep(0.3)  # Sleeps: quiet.
        assert len(receiver.came) <= came + 1
        assert notifier.to_list()[0]["delivered"] == 0


async def test_target_that_hangs_keeps_neither_the_other_nor_the_service_waiting(
    receiver: Receiver, folder: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    Current(monkeypatch, NOTICE)
    receiver.release.clear()
    async with mailing(MailServer(server_context(authority))) as server:
        mail = mail_section(server)
        section = receiver.section(
            smtp=mail.smtp, smtp_ca="ca.pem", mail_from=mail.mail_from, mail_to=mail.mail_to
        )
        async with running(Notifier(service(folder), section)) as notifier:
            await eventually(lambda: receiver.came and server.mails)
            hook, post = notifier.to_list()
            assert (hook["pending"], hook["delivered"]) == (1, 0)
            await eventually(lambda: notifier.to_list()[1]["delivered"])
            # The default pool, in which the service's work waits for disks, is free.
            assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), 5) == 7
        assert len(receiver.came) == 1
    assert post["target"] == "mail localhost"


async def test_events_that_are_not_wanted_are_not_sent(
    receiver: Receiver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = Notice(EventName.CERTIFICATE_ENDS, "server alpha", "a certificate ends")
    Current(monkeypatch, NOTICE, ends)
    section = receiver.section(events=("certificate.ends",))
    async with running(Notifier(service(folder), section)) as notifier:
        await eventually(lambda: notifier.to_list()[0]["delivered"])
        await asyncio.sleep(0.1)  # Sleeps: quiet.
    assert [json.loads(body)["type"] for _, body in receiver.came] == ["certificate.ends"]


def test_condition_that_comes_and_goes_is_one(tmp_path: Path) -> None:
    board = NoticeBoard(tmp_path)
    assert board.update([NOTICE], 100.0) == [NOTICE]
    (first,) = board.holding(100.0)
    assert board.update([], 200.0) == []
    assert board.holding(200.0) == []
    assert board.update([NOTICE], 300.0) == []
    assert board.holding(300.0)[0].id == first.id
    board.update([], 901.0)
    assert board.update([NOTICE], 902.0) == [NOTICE]
    assert board.holding(902.0)[0].id != first.id


def test_damaged_file_of_notices_is_as_none(tmp_path: Path) -> None:
    for content in ("", "[]", '{"x": 1}', '{"x": {"since": "?", "targets": []}}', "\0"):
        (tmp_path / "notices.json").write_text(content)
        assert NoticeBoard(tmp_path).update([NOTICE], 1.0) == [NOTICE]


def test_owners_are_missing_only_shortly_before_the_closing() -> None:
    status = {"owners": {"expected": 5, "here": 3}, "time": {"closing_s": 3_600.0}}
    assert missing_owners(status, 2, 1_000.0) == MissingOwners(2, 5, 4_600.0)
    assert missing_owners(status, 0.5, 1_000.0) is None
    assert missing_owners({**status, "time": {"closing_s": None}}, 2, 0.0) is None
    assert missing_owners({**status, "owners": {"expected": 5, "here": 5}}, 2, 0.0) is None
    assert missing_owners({"error": {"what": "?"}}, 2, 0.0) is None


@pytest.mark.parametrize("left", [-math.inf, math.inf, math.nan, -1e300, -1, 10**400, True])
def test_times_that_no_study_has_are_none(left: float) -> None:
    """A study's process is not trusted."""
    status = {"owners": {"expected": 5, "here": 3}, "time": {"closing_s": left}}
    assert missing_owners(status, 2, 1_000.0) is None
    for here in (-1, True):
        odd = {"owners": {"expected": 5, "here": here}, "time": {"closing_s": 1.0}}
        assert missing_owners(odd, 2, 0.0) is None


class Taking:
    """A target that takes everything."""

    name = "taking"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[Notice] = []
        monkeypatch.setattr(notify, "targets_of", lambda *_: [self])

    async def send(self, server: str, held: HeldNotice) -> None:
        self.taken.append(held.notice)


async def test_look_that_fails_ends_no_notifications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    current, target = Current(monkeypatch, NOTICE), Taking(monkeypatch)
    current.found = cast("Any", None)
    async with running(Notifier(service(tmp_path), NotifySection())):
        await eventually(lambda: caplog.records)
        current.found = [NOTICE]
        await eventually(lambda: target.taken)
    assert [record.getMessage() for record in caplog.records] == [
        "a look at what waits for the operator failed"
    ]


async def test_target_gets_so_many_notices_an_hour_and_one_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [Notice(EventName.STUDY_FAILED, f"{number}", "failed") for number in range(50)]
    Current(monkeypatch, *many)
    target = Taking(monkeypatch)
    async with running(Notifier(service(tmp_path), NotifySection())) as notifier:
        await eventually(lambda: len(target.taken) > notify.MOST_AN_HOUR)
        await asyncio.sleep(0.1)  # Sleeps: quiet.
        (state,) = notifier.to_list()
    assert [notice.event for notice in target.taken[30:]] == ["notice.undelivered"]
    assert "20 more wait" in target.taken[-1].text
    assert (state["delivered"], state["pending"]) == (30, 20)
    assert "30 notices within an hour; 20 wait" in str(state["problem"])


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('url = "http://hooks.example.org/x"', "notify.url: is no https URL"),
        ('url = "https://user:pw@hooks.example.org/x"', "notify.url: is no https URL"),
        ('url = "https://hooks.example.org/x\\r\\nHost: y"', "notify.url: is no https URL"),
        ('smtp = "mx.example.org"', "notify.smtp: is 'mx.example.org'; expected host:port"),
        ('smtp = "mx:25"', "notify.mail_from: is missing"),
        ('smtp = "mx:25"\nmail_from = "a@b"', "notify.mail_to: is empty"),
        ('mail_to = ["a@b\\nBcc: c@d"]', "notify.mail_to: has"),
        ('events = ["study.approved"]', "notify.events: has 'study.approved'"),
        ("owner_missing_hours = -1", "notify.owner_missing_hours: is -1"),
        ('owner_missing_hours = "3"', "notify.owner_missing_hours: is '3'; expected a number"),
        ("token = 1", "notify.token: is unknown"),
    ],
)
def test_setting_that_cannot_be_right_is_named(tmp_path: Path, lines: str, says: str) -> None:
    (tmp_path / FILE).write_text(f"[notify]\n{lines}\n")
    with pytest.raises(ConfigError) as raised:
        load_settings(tmp_path)
    assert says in str(raised.value)


def test_settings_are_read_as_written(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        '[notify]\nurl = "https://hooks.example.org:8443/x?y=1"\nevents = ["owner.missing"]\n'
        'smtp = "[::1]:587"\nmail_from = "a@b.example"\nmail_to = ["c@d.example"]\n'
        "owner_missing_hours = 24\n"
    )
    section = load_settings(tmp_path).notify
    assert section.events == ("owner.missing",)
    assert section.mail_to == ("c@d.example",)
    assert section.owner_missing_hours == 24
    assert section.wants("owner.missing")
    assert not section.wants("study.failed")
