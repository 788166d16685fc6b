"""The console of a service: the list of many studies, approval in sentences and by words, many owners, times."""

import contextlib
import datetime
import html
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from parties.foundation.errors import ConfigError
from parties.identity.join_documents import fingerprint_words
from parties.observability.status import ParticipantState, ParticipantStatus, RunInfo, RunStatus
from parties.service.access import PRINCIPAL, Access, Principal
from parties.service.admin_listener import SOCKET_NAME, listen_unix
from parties.service.api import service_application
from parties.service.console.gate import Gate
from parties.service.console.pages import add_console
from parties.service.console.upstream import DisplayedStudy, ServiceUpstream
from parties.service.console.view import ListView, OwnersView, ago, moment, page_values, render
from parties.service.events import EventName
from parties.service.pending import wrong_study_text
from parties.service.service import Service
from parties.service.studies import utc_now
from parties.service.study_list import StudyQuery, WrongQuery
from parties.service.study_record import StudyRecord, StudyState
from tests.parties.support import make_config
from tests.parties.test_service import Three, processes, three

__all__ = ["processes", "three"]


@dataclass
class Pages:
    """The console of a service, and its forms."""

    client: "TestClient[Any, Any]"
    csrf: str = ""

    async def get(self, path: str) -> str:
        async with self.client.get(f"/console/{path}") as answer:
            page = await answer.text()
            assert answer.status == 200, page
            if (found := re.search(r'name="csrf" value="(\w+)"', page)) is not None:
                self.csrf = found[1]
            return page

    async def post(self, path: str, fields: list[tuple[str, str]]) -> tuple[int, str, str]:
        """Send a form; status, address that it leads to, and page."""
        form = [("csrf", self.csrf), *fields]
        async with self.client.post(f"/console/{path}", data=form, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Location", ""), await answer.text()


@contextlib.asynccontextmanager
async def console_of(
    service: Service, reader: Callable[[], Principal] | None = None
) -> AsyncIterator[Pages]:
    """The console of a service, for a ``reader`` that a certificate or a sign-in gives."""
    folder, access = service.identity.folder, Access()
    runner = web.AppRunner(service_application(service, access))
    await runner.setup()
    await web.SockSite(runner, listen_unix(folder / SOCKET_NAME)).start()

    @web.middleware
    async def signed_in(request: web.Request, handler: Any) -> Any:
        if reader is not None:
            request[PRINCIPAL] = reader()
        return await handler(request)

    app = web.Application(middlewares=[signed_in])
    add_console(app, ServiceUpstream(folder), Gate(None if reader is None else access.passes))
    try:
        async with TestClient(TestServer(app)) as client:
            yield Pages(client)
    finally:
        await runner.cleanup()


def text_of(page: str) -> str:
    """The text of a page, as people read it."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page)))


async def test_what_waits_for_the_operator_comes_first_with_its_action(three: Three) -> None:
    digest = await three.propose("stays")
    async with console_of(three.services[1]) as pages:
        page = await pages.get("")
        assert page.index("Waits for you") < page.index('<h2 id="studies">')
        assert "Proposed by alpha: not approved here." in page
        assert f'href="/console/studies/{digest}/approve">Look and approve' in page
        await three.services[1].approve(digest, "operator")
        assert "Look and approve" not in await pages.get("")
        assert "Nothing." in await pages.get("")
        await three.services[0].approve(digest, "operator")
        await three.services[2].approve(digest, "operator")
        await three.until_states(digest, "running")
        three.processes["alpha", digest].end(StudyState.FAILED, "the disk is full")
        await three.until_states(digest, "failed")
        assert "It has failed: approve another attempt, or end it." in await pages.get("")


async def test_approving_takes_typed_words_and_every_other_operator(three: Three) -> None:
    digest, other = await three.propose("stays"), await three.propose("visits")
    alpha, words = three.services[0], fingerprint_words(digest)
    form, study = f"studies/{digest}/approve", alpha.studies
    heard = [("heard", "beta"), ("heard", "gamma")]
    async with console_of(alpha) as pages:
        page = text_of(await pages.get(form))
        assert "3 columns of the owners' tables: sex, ward and age." in page
        assert "spends epsilon 2 and delta 1e-05 for each row" in page
        assert (
            "At least 3 data owners and at most 3 take part, each with at most 1,000 rows." in page
        )
        assert "The servers are alpha, beta and gamma." in page
        refused = [
            ([("words", words), heard[0]], "The operator of gamma is not ticked"),
            ([("words", "mouse"), *heard], "word"),
            ([("words", words.replace(words.split()[4], "prety")), *heard], "word 5, prety, is no"),
            ([("words", fingerprint_words(other)), *heard], "THESE ARE THE WORDS OF ANOTHER STUDY"),
            ([("words", fingerprint_words("ab" * 32)), *heard], "NO STUDY HERE HAS THESE WORDS"),
        ]
        for fields, said in refused:
            status, _, page = await pages.post(form, fields)
            assert status == 409
            assert said in page
            assert study[digest].state is StudyState.PROPOSED
        # Ticks and words stay on the page.
        assert page.count(" checked") == 2
        done = f"/console/studies/{digest}?did=approve"
        assert (await pages.post(form, [("words", words), *heard]))[:2] == (303, done)
        assert study[digest].state is StudyState.APPROVED
        # Once more is fine.
        assert (await pages.post(form, [("words", words), *heard]))[:2] == (303, done)
        entry = study.repository.entries(digest)[-1]
        assert (entry.what, entry.text) == (
            EventName.STUDY_APPROVED,
            "here; the same words heard of beta and gamma",
        )


async def test_approving_says_what_differs_from_the_study_approved_before(three: Three) -> None:
    before = await three.approved("stays-2025")
    await three.until_states(before, "running")
    proposal = await three.proposal("stays-2026")
    proposal["config"] = proposal["config"].replace("rounds = 3", "rounds = 4")
    digest = (await three.services[0].propose(proposal, "operator")).digest
    async with console_of(three.services[0]) as pages:
        page = await pages.get(f"studies/{digest}/approve")
    table = page.split("What is different")[1].split("</section>")[0]
    assert f'href="/console/studies/{before}"' in table
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    assert [text_of(row) for row in rows[1:]] == ["run.rounds43"]


async def test_ending_for_good_takes_the_studys_name(three: Three) -> None:
    digest = await three.propose("stays")
    alpha = three.services[0]
    async with console_of(alpha) as pages:
        page = await pages.get(f"studies/{digest}")
        assert 'class="button good"' in page.split("Approve</a>")[0]
        assert 'class="button bad"' in page.split("Cannot be taken back")[1]
        path = f"studies/{digest}/cancel"
        assert 'class="danger"' in await pages.get(path)
        for wrong in ([], [("name", "visits")], [("name", "Stays")]):
            status, _, page = await pages.post(path, [("reason", "a new table"), *wrong])
            assert status == 409
            assert "Nothing is ended" in page
            assert 'value="a new table"' in page
        assert alpha.studies[digest].state is StudyState.PROPOSED
        assert (await pages.post(path, [("name", "stays"), ("reason", "a new table")]))[0] == 303
        assert alpha.studies[digest].reason == "cancelled by alpha: a new table"


def records(number: int) -> list[StudyRecord]:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return [
        StudyRecord(
            f"{i:032x}" * 2,
            "distaim",
            f"study-{i:03}",
            "alpha",
            at + datetime.timedelta(hours=i),
            StudyState.FINISHED if i % 2 else StudyState.PROPOSED,
            at + datetime.timedelta(hours=2 * number - i),
        )
        for i in range(number)
    ]


def test_a_list_is_filtered_sorted_and_cut_into_pages() -> None:
    studies = records(60)

    def names(**query: str) -> tuple[list[str], int]:
        found, total = StudyQuery.of(query).select(studies)
        return [study.run.removeprefix("study-") for study in found], total

    assert names() == ([f"{i:03}" for i in range(60)], 60)
    assert names(state="ended", limit="2", offset="2") == (["005", "007"], 30)
    assert names(state="proposed", sort="name", order="desc", limit="1") == (["058"], 30)
    assert names(sort="changed", limit="1") == (["059"], 60)
    assert names(q="STUDY-01") == ([f"01{i}" for i in range(10)], 10)
    assert names(q=f"{7:032x}") == (["007"], 1)
    assert names(offset="100") == ([], 60)
    for wrong in (
        {"state": "asleep"},
        {"sort": "x"},
        {"limit": "0"},
        {"offset": "-1"},
        {"limit": "²"},
    ):
        with pytest.raises(WrongQuery, match="expected"):
            StudyQuery.of(wrong)


def test_links_of_a_list_keep_filter_and_order() -> None:
    view = ListView.of({"state": "ended", "q": "a&b", "sort": "name", "order": "asc", "page": "3"})
    assert view.link(page=4) == "?state=ended&q=a%26b&sort=name&order=asc&page=4"
    assert view.link(state="open") == "?state=open&q=a%26b&sort=name&order=asc"
    assert view.sort_link("name") == "?state=ended&q=a%26b&sort=name"
    assert ListView.of({"state": "<b>", "sort": "x", "order": "y", "page": "-3"}) == ListView()
    assert OwnersView.of({"owners": "absent", "page": "2"}).link(page=3) == "?owners=absent&page=3"


async def test_the_list_has_pages_whose_links_lead_on(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = three.services[0]
    unread = ConfigError("run", "noise", "is of another version")
    monkeypatch.setattr(service.studies, "summary", AsyncMock(side_effect=unread))
    for study in records(60):
        service.studies.show(replace(study, state=StudyState.CANCELLED, ended_at=utc_now()))
    async with console_of(service) as pages:
        first = await pages.get("?state=ended&sort=name&order=asc")
        link = re.search(r'href="(\?[^"]*)" rel="next"', first)
        assert link is not None
        assert "study-<wbr>024" in first
        assert "study-<wbr>025" not in first
        second = await pages.get(link[1].replace("&amp;", "&"))
        assert "study-<wbr>025" in second
        assert "Page 2 of 3" in second
        assert 'data-events="/console/events?state=ended' in second
        found = await pages.get("?q=study-017")
        assert re.findall(r"study-<wbr>(\d+)", found) == ["017"]
        assert "No study is so" in await pages.get("?q=%3Cscript%3E&page=99999")


def test_500_owners_are_a_summary_and_a_table_of_the_missing() -> None:
    board = RunStatus(replace(RunInfo.of_server(make_config(), 0), expected=500))
    here = [ParticipantStatus(f"o{i:03}", ParticipantState.HERE) for i in range(440)]
    away = [ParticipantStatus(f"a{i:03}", ParticipantState.ABSENT) for i in range(60)]
    board.sources.owners = lambda: [*here, *away]
    shown = DisplayedStudy("stays", "stays", Path(), ("revoke",), False, board.status())

    def names(view: OwnersView) -> list[str]:
        values = page_values(shown, view) | {"here": "/console/studies/stays", "admits": False}
        page = render("_study.html", **values)
        assert "60 absent" in page
        assert "missing (60)" in page
        return re.findall(r'<th scope="row">([oa]\d+)', page)

    assert names(OwnersView()) == [f"a{i:03}" for i in range(50)]
    assert names(OwnersView(page=2)) == [f"a{i:03}" for i in range(50, 60)]
    assert names(OwnersView("here", 9)) == [f"o{i:03}" for i in range(400, 440)]
    assert len(names(OwnersView("all"))) == 50
    assert "revoke?owner=a000" in render(
        "_study.html", **page_values(shown) | {"here": "/console/studies/stays", "admits": False}
    )


def test_times_are_utc_with_an_age_until_a_script_makes_them_local() -> None:
    now = datetime.datetime.now(datetime.UTC)
    assert moment("2026-11-28T13:00:59Z") == "2026-11-28 13:00 UTC"
    assert moment("2026-11-28T14:00:59+01:00") == "2026-11-28 13:00 UTC"
    assert moment("no time") == "no time"
    past = {30: "just now", 90: "1 min ago", 7300: "2 h ago", 200_000: "2 d ago", -4000: "in 1 h"}
    for seconds, said in past.items():
        assert ago((now - datetime.timedelta(seconds=seconds)).isoformat()) == said


def test_words_of_another_study_and_of_none_are_told_apart() -> None:
    studies = records(2)
    assert "study-001" in wrong_study_text(fingerprint_words(studies[1].digest), studies)
    assert "NO STUDY HERE" in wrong_study_text(fingerprint_words("ab" * 32), studies)
    assert "64 digits" in wrong_study_text("abc", studies)
