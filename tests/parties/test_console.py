"""The console: who is let in, what a page may do, and what an operator sees and does in a browser."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from parties.local.children import free_ports
from parties.observability.events import Progress
from parties.observability.status import (
    BudgetUse,
    ParticipantState,
    ParticipantStatus,
    Phase,
    RunInfo,
    RunStatus,
)
from parties.service.admin_listener import SOCKET_NAME, AdminListener, admin_thread, listen_unix
from parties.service.console.gate import ENTER, Loopback
from parties.service.console.pages import add_console
from parties.service.console.upstream import DisplayedStudy, RunUpstream
from parties.service.console.view import bytes_in_words, duration, page_values
from parties.service.run_api import CommandHandlers, run_application
from tests.browser import browser, needs_browser, playwright
from tests.parties.support import make_config
from tests.until import until

__all__ = ["browser"]
EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>&quot;\''


@dataclass
class Server:
    """A server's admin API without a server behind it, and a console that shows it."""

    folder: Path
    board: RunStatus
    gate: Loopback
    port: int
    told: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{ENTER}?token={self.gate.token}"

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: str | None = None,
        cookie: str | None = None,
        host: str | None = None,
    ) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        headers = {"Host": host or f"127.0.0.1:{self.port}"}
        if cookie is not None:
            headers["Cookie"] = cookie
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response, text

    def enter(self) -> str:
        """Use the token; the cookie."""
        response, _ = self.ask(f"{ENTER}?token={self.gate.token}")
        assert (response.status, response.headers["Location"]) == (303, "/console/")
        return response.headers["Set-Cookie"]


@contextlib.contextmanager
def served(folder: Path, board: RunStatus) -> Iterator[Server]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = Server(folder, board, Loopback(port), port)
    orders = CommandHandlers(
        close=lambda: server.told.append("close"),
        cancel=lambda: server.told.append("cancel"),
        revoke=lambda owner: server.told.append(f"revoke {owner}"),
    )

    def console() -> web.Application:
        app = web.Application()
        app.router.add_get(ENTER, server.gate.enter)
        add_console(app, RunUpstream(folder), server.gate)
        return app

    with (
        admin_thread(
            lambda: run_application(board, orders),
            [AdminListener(listen_unix(folder / SOCKET_NAME))],
        ),
        admin_thread(console, [AdminListener(listening)]),
    ):
        yield server


def about(study: str = "stays") -> RunInfo:
    return replace(RunInfo.of_server(make_config(), 0), study=study)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path, RunStatus(about())) as found:
        yield found


HERE = "/console/studies/stays"


def test_console_lets_in_once_and_with_a_cookie_that_no_script_sees(server: Server) -> None:
    cookie = server.enter()
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    own = cookie.split(";")[0]
    response, text = server.ask(HERE, cookie=own)
    assert response.status == 200
    assert "<h1>stays</h1>" in text
    for path in (f"{ENTER}?token=", f"{ENTER}?token=x", f"{ENTER}?token=%00"):
        response, text = server.ask(path)
        assert response.status == 403
        assert "used already" in text


@pytest.mark.parametrize("path", ["/console/", HERE, f"{HERE}/events", f"{HERE}/files/result.json"])
@pytest.mark.parametrize(
    "cookie", [None, "syncret-console=x", "a=b; ; =;;\x7f", "syncret-console-1=é"]
)
def test_console_shows_nothing_without_the_cookie(
    server: Server, path: str, cookie: str | None
) -> None:
    response, text = server.ask(path, cookie=cookie)
    # What is no header of HTTP does not get as far as the gate.
    assert response.status == (400 if cookie and "\x7f" in cookie else 403)
    assert "stays" not in text


def test_console_has_no_other_name_than_this_hosts(server: Server) -> None:
    """A page of evil.example whose name points to 127.0.0.1 has the cookie's port, and another Host."""
    own = server.enter().split(";")[0]
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        "127.0.0.1",
        f"[::1]:{server.port}",
    ):
        response, text = server.ask(HERE, cookie=own, host=host)
        assert response.status == 421, host
        assert "stays" not in text
    assert server.ask(HERE, cookie=own, host=f"localhost:{server.port}")[0].status == 200


def test_console_says_what_a_browser_may_do(server: Server) -> None:
    own = server.enter().split(";")[0]
    for path in (HERE, "/console/nowhere", "/console/static/console.js"):
        headers = server.ask(path, cookie=own)[0].headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "body", ["", "csrf=", "csrf=wrong", "csrf=a&csrf=b", "x" * (1 << 15), "%ff=%fe"]
)
def test_console_takes_no_order_without_its_own_form(server: Server, body: str) -> None:
    own = server.enter().split(";")[0]
    response, _ = server.ask(f"{HERE}/close", "POST", body, cookie=own)
    assert response.status in (403, 413)
    assert server.told == []


def test_console_takes_an_order_from_its_own_form_once_asked(server: Server) -> None:
    own = server.enter().split(";")[0]
    _, text = server.ask(f"{HERE}/close", cookie=own)
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found is not None
    assert server.told == []
    response, _ = server.ask(f"{HERE}/close", "POST", f"csrf={found[1]}", cookie=own)
    assert response.status == 303
    assert response.headers["Location"] == f"{HERE}?did=close"
    assert server.told == ["close"]
    assert "asks to take no more owners" in server.ask(f"{HERE}?did=close", cookie=own)[1]
    # An order that this server does not know, and an end after which it knows none.
    assert server.ask(f"{HERE}/finish", cookie=own)[0].status == 409
    server.board.enter(Phase.FINISHED)
    response, _ = server.ask(f"{HERE}/cancel", "POST", f"csrf={found[1]}", cookie=own)
    assert response.status == 409
    assert server.told == ["close"]


def test_console_turns_away_the_owner_that_its_form_names(server: Server) -> None:
    own = server.enter().split(";")[0]
    server.board.sources.owners = lambda: [ParticipantStatus("north", ParticipantState.HERE)]
    _, text = server.ask(f"{HERE}/revoke", cookie=own)
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found is not None
    assert '<option value="north">' in text
    for bad in ("", "&owner=", "&owner=..%2fnorth", "&owner=%3Cb%3E", "&digest=north"):
        response, text = server.ask(f"{HERE}/revoke", "POST", f"csrf={found[1]}{bad}", cookie=own)
        assert response.status == 409
        assert "no data owner" in text
    assert server.told == []
    body = f"csrf={found[1]}&digest=x&owner=north"
    response, _ = server.ask(f"{HERE}/revoke", "POST", body, cookie=own)
    assert response.headers["Location"] == f"{HERE}?did=revoke"
    assert server.told == ["revoke north"]


def test_console_hands_out_what_is_public_and_only_in_the_end(server: Server) -> None:
    own = server.enter().split(";")[0]
    (server.folder / "synthetic.csv").write_text("a\n1\n")
    (server.folder / "secret.key").write_text("KEY")
    (server.folder / "report.json").symlink_to(server.folder / "secret.key")
    path = f"{HERE}/files/synthetic.csv"
    assert server.ask(path, cookie=own)[0].status == 404
    server.board.enter(Phase.FINISHED)
    response, text = server.ask(path, cookie=own)
    assert (response.status, text) == (200, "a\n1\n")
    assert (
        response.headers["Content-Disposition"]
        == "attachment; filename*=UTF-8''stays-synthetic.csv"
    )
    for name in (
        "secret.key",
        "report.json",
        "../secret.key",
        "..%2fsecret.key",
        "store",
        "%2e%2e",
        "",
    ):
        response, text = server.ask(f"{HERE}/files/{name}", cookie=own)
        assert response.status == 404, name
        assert "KEY" not in text


def test_console_answers_bad_requests_with_a_page_and_shows_no_other_study(server: Server) -> None:
    own = server.enter().split(";")[0]
    for path in (
        "/console/studies/other",
        "/console/studies/%3Cscript%3E",
        "/console/x",
        f"{HERE}/x",
    ):
        response, text = server.ask(path, cookie=own)
        assert response.status == 404, path
        assert "<script>alert" not in text
    assert server.ask(HERE, "DELETE", cookie=own)[0].status == 405


def test_page_values_of_many_owners_show_those_with_a_problem() -> None:
    board = RunStatus(about())
    board.sources.owners = lambda: [
        *(ParticipantStatus(f"o{i}", ParticipantState.COUNTED) for i in range(600)),
        ParticipantStatus("z", ParticipantState.INCOMPLETE, ("beta",)),
    ]
    values = page_values(DisplayedStudy("stays", "stays", Path(), (), False, board.status()))
    assert isinstance(values["shown_owners"], list)
    assert values["shown_owners"][0]["name"] == "z"
    assert (len(values["shown_owners"]), values["chosen_owners"]) == (1, 1)


def test_page_values_say_who_asks_and_who_does_not_yet() -> None:
    board = RunStatus(about())
    own, one, other = "party-0", "party-1", "party-2"
    nothing = {"close": False, "finish": False, "revoked": []}
    board.sources.asked = lambda: {
        "here": nothing | {"close": True, "finish": True},
        "told": [nothing | {"party": one, "finish": True, "revoked": ["north"]}],
        "agreed": nothing | {"finish": True},
    }
    values = page_values(DisplayedStudy("stays", "stays", Path(), (), False, board.status()))
    assert values["asked"] == [
        f"Asked by {own}, not yet by {one} and {other}: take no more owners.",
        "Agreed by all: end with the rounds done.",
        f"Asked by {one}, not yet by {own} and {other}: turn north away.",
    ]


def test_units_are_those_that_people_read() -> None:
    assert [bytes_in_words(n) for n in (0, 999, 1000, 12_345_678)] == [
        "0 B",
        "999 B",
        "1 KB",
        "12.3 MB",
    ]
    assert [duration(s) for s in (None, 0.2, 61, 3700, 90_000)] == [
        "",
        "0 s",
        "1 min 1 s",
        "1 h 1 min",
        "1 d 1 h",
    ]


# In a browser.


@dataclass
class Looked:
    """A page, what it asked for, and what the browser complained about."""

    page: playwright.Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@contextlib.contextmanager
def looking(browser: playwright.Browser, server: Server, **context: object) -> Iterator[Looked]:
    """The console in a fresh browser profile; in the end nothing was asked of anybody else, and nothing complained."""
    opened = browser.new_context(**context)
    page = opened.new_page()
    page.set_default_timeout(10_000)
    looked = Looked(page)
    page.on("request", lambda request: looked.requests.append(request.url))
    page.on("console", lambda said: looked.complaints.append(said.text))
    page.on("pageerror", lambda error: looked.complaints.append(str(error)))
    page.goto(server.address)
    try:
        yield looked
        hosts = {urlsplit(url).netloc for url in looked.requests if not url.startswith("data:")}
        assert hosts == {f"127.0.0.1:{server.port}"}
        assert looked.complaints == []
    finally:
        opened.close()


@needs_browser
def test_page_shows_what_happens_as_it_happens(browser: playwright.Browser, server: Server) -> None:
    with looking(browser, server) as looked:
        page = looked.page
        assert page.url.endswith(HERE)
        page.get_by_text("Configuration and versions").click()
        Progress(server.board).event("waiting", "2 of 3 data owners are here")
        server.board.sources.owners = lambda: [ParticipantStatus("north", ParticipantState.HERE)]
        server.board.sources.spent = lambda: BudgetUse(0.5, 0.125, 2)
        Progress(server.board).event("round-done", "round 1 of 2 done", round=1, done=1)
        page.get_by_text("round 1 of 2 done").first.wait_for()
        assert page.get_by_role("progressbar", name="Budget spent").get_attribute("value") == "0.25"
        assert page.get_by_role("row", name="north here").is_visible()
        assert "1 of 4 rounds done" in page.get_by_role("status").inner_text()
        # What the reader has opened stays open.
        assert page.get_by_text("Words of the configuration").is_visible()


@needs_browser
def test_page_has_times_in_the_readers_zone_and_keeps_them_in_utc(
    browser: playwright.Browser, server: Server
) -> None:
    server.board.sources.owners = lambda: [
        ParticipantStatus("north", ParticipantState.ABSENT, since=1_780_000_000.0)
    ]
    with looking(browser, server, timezone_id="Asia/Tokyo") as looked:
        found = looked.page.locator("tr", has_text="north").locator("time")
        found.get_by_text("2026-05-29 05:26").wait_for()
        assert found.get_attribute("title") == "2026-05-28 20:26 UTC"
        (cookie,) = looked.page.context.cookies()
        _, without_scripts = server.ask(HERE, cookie=f"{cookie['name']}={cookie['value']}")
        assert ">2026-05-28 20:26 UTC</time>" in without_scripts


@needs_browser
def test_page_ends_with_the_report_and_downloads(
    browser: playwright.Browser, server: Server
) -> None:
    evil = "<script>parent.hacked = 1; document.title = 'hacked'</script>"
    (server.folder / "synthetic.csv").write_text("a\n1\n")
    with looking(browser, server) as looked:
        page = looked.page
        page.get_by_text("are here when the study is over").wait_for()
        server.board.enter(Phase.FINISHED)
        page.get_by_role("link", name="synthetic.csv").wait_for()
        # Pictures take a while: the report comes last.
        (server.folder / "report.html").write_text(
            f"<title>good</title>{evil}<p>The table is good."
        )
        page.locator("iframe").wait_for()
        assert page.locator("iframe").get_attribute("sandbox") == ""
        frame = page.frame_locator("iframe")
        frame.get_by_text("The table is good.").wait_for()
        with page.expect_download() as waiting:
            page.get_by_role("link", name="synthetic.csv").click()
        assert waiting.value.suggested_filename == "stays-synthetic.csv"
        assert page.evaluate("window.hacked") is None
        with page.expect_response(f"**{HERE}/report") as answer:
            page.get_by_role("link", name="The report on a page of its own").click()
        assert answer.value.headers["content-security-policy"].startswith("sandbox; default-src")
        page.get_by_text("The table is good.").wait_for()
        assert page.title() == "good"
        # A browser says so where it keeps a script from running: in the frame, and on the page.
        assert all("sandbox" in said or "script" in said for said in looked.complaints)
        assert looked.complaints
        looked.complaints.clear()


@needs_browser
def test_page_shows_markup_as_text_wherever_it_comes_from(
    browser: playwright.Browser, tmp_path: Path
) -> None:
    board = RunStatus(about(EVIL))
    board.sources.owners = lambda: [
        ParticipantStatus(EVIL, ParticipantState.INCOMPLETE, (EVIL,), reason=EVIL, round=1)
    ]
    board.peer(1, connected=False, problem=EVIL)
    with served(tmp_path, board) as server, looking(browser, server) as looked:
        page = looked.page
        for name in ("failed", "waiting"):
            Progress(board).event(name, f"{EVIL} {name}")
        board.enter(Phase.WAITING)
        board.rejected(EVIL, EVIL)
        page.get_by_text(f"{EVIL} waiting").first.wait_for()
        page.get_by_role("link", name="Take no more owners").click()
        page.get_by_role("strong").get_by_text(EVIL).wait_for()
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script").count() == 0


@needs_browser
def test_page_works_from_the_keyboard_alone(browser: playwright.Browser, server: Server) -> None:
    with looking(browser, server) as looked:
        page = looked.page
        page.keyboard.press("Tab")
        page.wait_for_function("document.activeElement.textContent == 'Skip to the content'")
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id == 'main'")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Take no more owners":
                break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Take no more owners?").wait_for()
        # A page has its heading before it has its focus.
        page.wait_for_function("document.activeElement.tagName == 'BUTTON'")
        assert server.told == []
        page.keyboard.press("Enter")
        page.get_by_role("alert").get_by_text("asks to take no more owners").wait_for()
        assert server.told == ["close"]


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_a_phone(browser: playwright.Browser, server: Server, scheme: str) -> None:
    long = "a" * 63
    server.board.sources.owners = lambda: [
        ParticipantStatus(long, ParticipantState.INCOMPLETE, ("beta", "gamma"))
    ]
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with looking(browser, server, color_scheme=scheme, **phone) as looked:
        page = looked.page
        page.get_by_text(long).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        small = page.evaluate(
            "[...document.querySelectorAll('main a.button')].filter(one => one.offsetHeight < 44).length"
        )
        assert small == 0
        assert page.locator("[aria-labelledby]").evaluate_all(
            "all => all.every(one => document.getElementById(one.getAttribute('aria-labelledby')))"
        )


@needs_browser
def test_page_says_when_its_server_is_gone(browser: playwright.Browser, tmp_path: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    gate = Loopback(listening.getsockname()[1])

    def console() -> web.Application:
        app = web.Application()
        app.router.add_get(ENTER, gate.enter)
        add_console(app, RunUpstream(tmp_path), gate)
        return app

    board = RunStatus(about())
    with admin_thread(console, [AdminListener(listening)]):
        server = Server(tmp_path, board, gate, listening.getsockname()[1])
        with contextlib.ExitStack() as stack:
            stack.enter_context(
                admin_thread(
                    lambda: run_application(board, CommandHandlers()),
                    [AdminListener(listen_unix(tmp_path / SOCKET_NAME))],
                )
            )
            looked = stack.enter_context(looking(browser, server))
            looked.page.get_by_text("starting").first.wait_for()
            (tmp_path / SOCKET_NAME).unlink()
            looked.page.get_by_text("The server does not answer").wait_for()


def test_console_command_prints_an_address_opens_it_and_ends_on_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, (port,) = RunStatus(about()), free_ports(1)
    opener, opened = tmp_path / "bin" / "xdg-open", tmp_path / "opened"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {opened}\n')
    opener.chmod(0o700)
    monkeypatch.setenv("PATH", f"{opener.parent}{os.pathsep}{os.environ['PATH']}")
    with admin_thread(
        lambda: run_application(board, CommandHandlers()),
        [AdminListener(listen_unix(tmp_path / SOCKET_NAME))],
    ):
        command = ["console", str(tmp_path), "--json", "--open", "--port", str(port)]
        with subprocess.Popen(
            [sys.executable, "-m", "parties", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                shown = json.loads(process.stdout.readline())["address"]
                address = urlsplit(shown)
                assert (address.hostname, address.port) == ("127.0.0.1", port)
                until(lambda: opened.exists() and opened.read_text() == shown, "a told browser")
                connection = http.client.HTTPConnection(address.netloc, timeout=10)
                connection.request("GET", f"{address.path}?{address.query}")
                assert connection.getresponse().status == 303
                connection.close()
                time.sleep(0.1)  # Sleeps: quiet.
                process.send_signal(signal.SIGINT)
                output, said = process.communicate(timeout=20)
                assert (process.returncode, output, said) == (0, "", "")
            finally:
                process.kill()
