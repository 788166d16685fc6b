"""Roles of operators: who may order what by the admin API and the console, and studies that two have to approve."""

import asyncio
import datetime
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from parties.foundation.errors import ConfigError
from parties.identity.join_documents import fingerprint_words
from parties.local.children import free_ports
from parties.observability.status import RunInfo, RunStatus
from parties.service import four_eyes
from parties.service.access import PASS_HEADER, Access, Passes, Principal, Role, required_role
from parties.service.api import service_application
from parties.service.events import event_words
from parties.service.exposed_run import with_admin_api
from parties.service.four_eyes import ApprovalRefused, FourEyes
from parties.service.run_api import CommandHandlers
from parties.service.settings import load_settings
from parties.service.studies import utc_now
from parties.service.study_record import StudyState
from tests.parties.support import make_config
from tests.parties.test_admin_tls import client, operator
from tests.parties.test_console_service import console_of
from tests.parties.test_service import Three, processes, three

__all__ = ["processes", "three"]
VIEWER, OPERATOR, APPROVER = Role


def test_a_command_that_nobody_has_listed_needs_an_approver() -> None:
    for path in ("/studies/x/approve", "/studies/x/cancel", "/servers/beta/confirm", "/new", "/"):
        assert required_role("POST", path) is APPROVER, path
    for path in ("/studies", "/studies/x/admit", "/studies/x/close", "/v1/studies/x/revoke/"):
        assert required_role("POST", path) is OPERATOR, path
    assert required_role("DELETE", "/servers/beta/confirm") is APPROVER
    assert required_role("GET", "/studies/x/approve") is VIEWER
    assert [role.covers(OPERATOR) for role in Role] == [False, True, True]


def test_a_pass_is_of_the_process_that_made_it() -> None:
    passes, berta = Passes(), Principal("berta", VIEWER)
    good = passes.issue(berta)
    assert passes.read(good) == berta
    for wrong in ("", "x", "é", good[:-4] + "AAA=", good + "AAAA", Passes().issue(berta)):
        assert passes.read(wrong) is None, wrong


async def test_roles_are_enforced_by_the_admin_api(three: Three) -> None:
    digest = await three.propose("stays")
    alpha, access = three.services[0], Access()
    statuses: dict[Role, list[int]] = {}
    orders: list[tuple[str, dict[str, Any]]] = [
        ("/studies", {}),
        (f"/studies/{digest}/admit", {}),
        (f"/studies/{digest}/collect", {}),
        ("/servers/beta/confirm", {"words": "mouse"}),
        (f"/studies/{digest}/approve", {"digest": digest}),
        (f"/studies/{digest}/cancel", {"reason": "over"}),
    ]
    async with TestClient(TestServer(service_application(alpha, access))) as api:
        for role in Role:
            headers = {PASS_HEADER: access.passes.issue(Principal("berta", role))}
            async with api.get(f"/studies/{digest}", headers=headers) as answer:
                assert answer.status == 200
            found = []
            for path, body in orders:
                async with api.post(path, json=body, headers=headers) as answer:
                    found.append(answer.status)
            statuses[role] = found
            state = StudyState.CANCELLED if role is APPROVER else StudyState.PROPOSED
            assert alpha.studies[digest].state is state
        headers = {PASS_HEADER: Passes().issue(Principal("berta", APPROVER))}
        async with api.get("/status", headers=headers) as answer:
            assert answer.status == 403
    assert statuses[VIEWER] == [403] * 6
    assert statuses[OPERATOR][3:] == [403] * 3
    assert 403 not in statuses[OPERATOR][:3]
    assert 403 not in statuses[APPROVER]
    actors = {
        event_words(entry.what): entry.actor for entry in alpha.studies.repository.entries(digest)
    }
    assert actors["approved"] == actors["cancelled"] == "operator berta"


async def test_a_viewer_that_posts_in_the_console_changes_nothing(three: Three) -> None:
    digest = await three.propose("stays")
    alpha, reader = three.services[0], Principal("vera", VIEWER, "one")
    words = [("words", fingerprint_words(digest)), ("heard", "beta"), ("heard", "gamma")]
    form = f"studies/{digest}/approve"
    async with console_of(alpha, lambda: reader) as pages:
        await pages.get(form)
        status, _, page = await pages.post(form, words)
        assert (status, "vera is a viewer" in page) == (403, True)
        assert alpha.studies[digest].state is StudyState.PROPOSED
        # The form of one session is no form of another one, whose reader may approve.
        reader = Principal("vera", APPROVER, "two")
        assert (await pages.post(form, words))[0] == 403
        assert alpha.studies[digest].state is StudyState.PROPOSED
        await pages.get(form)
        assert (await pages.post(form, words))[0] == 303
    assert alpha.studies.repository.entries(digest)[-1].actor == "operator vera"


async def test_four_eyes_are_two_approvers_of_whom_none_has_proposed(three: Three) -> None:
    alpha = three.services[0]
    alpha.four_eyes.required = True
    study = await alpha.propose(await three.proposal("stays"), "operator anna")
    digest = study.digest
    await three.until_states(digest, "proposed")

    async def approve(name: str) -> StudyState:
        return (await alpha.approve(digest, f"operator {name}")).state

    with pytest.raises(ApprovalRefused, match="anna has proposed"):
        await approve("anna")
    assert [await approve("berta"), await approve("berta")] == [StudyState.PROPOSED] * 2
    # What was approved once survives a start, and does not reach the other servers.
    again = FourEyes(alpha.studies)
    await again.load()
    assert again.first == alpha.four_eyes.first == {digest: "operator berta"}
    await asyncio.sleep(0.2)  # Sleeps: quiet.
    assert three.services[1].studies[digest].approvals == frozenset()
    with pytest.raises(ApprovalRefused):
        await approve("anna")
    assert await approve("carl") is StudyState.APPROVED
    assert alpha.four_eyes.first == {}
    for service in three.services[1:]:
        await service.approve(digest, "operator")
    await three.until_states(digest, "running")
    three.processes["alpha", digest].end(StudyState.FAILED, "the disk is full")
    await three.until_states(digest, "failed")
    # Another attempt takes two again, and many events in between forget nobody.
    for _ in range(120):
        await alpha.asked(digest, "operator", "close")
    assert [await approve("carl"), await approve("carl")] == [StudyState.FAILED] * 2
    with pytest.raises(ApprovalRefused):
        await approve("anna")
    assert await approve("berta") is StudyState.APPROVED


async def test_a_certificate_and_a_sign_in_of_one_person_are_two_eyes(
    three: Three, tmp_path: Path
) -> None:
    (tmp_path / "settings.toml").write_text(
        '[admin]\nfour_eyes = true\n[admin.people]\nanna = ["anna", "oidc:8f2a", "root"]\n'
    )
    alpha = three.services[0]
    alpha.four_eyes.required = True
    alpha.four_eyes.people = load_settings(tmp_path).admin.persons
    digest = (await alpha.propose(await three.proposal("stays"), "operator carl")).digest

    async def approve(study: str, subject: str) -> StudyState:
        return (await alpha.approve(study, Principal(subject, APPROVER).actor)).state

    assert [await approve(digest, "anna"), await approve(digest, "anna")] == [
        StudyState.PROPOSED
    ] * 2
    for other in ("oidc:8f2a", "root"):
        with pytest.raises(ApprovalRefused, match="approved this study first, as operator anna"):
            await approve(digest, other)
    assert alpha.studies[digest].state is StudyState.PROPOSED
    assert await approve(digest, "oidc:77") is StudyState.APPROVED
    # Nor does who has proposed it approve it by another subject.
    other = (await alpha.propose(await three.proposal("visits"), "operator oidc:8f2a")).digest
    with pytest.raises(ApprovalRefused, match="anna has proposed this study"):
        await approve(other, "anna")


async def test_a_first_approval_counts_for_a_week(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its approver's certificate may have been taken off the list since then."""
    alpha = three.services[0]
    alpha.four_eyes.required = True
    digest = (await alpha.propose(await three.proposal("stays"), "operator anna")).digest
    assert (await alpha.approve(digest, "operator thief")).state is StudyState.PROPOSED
    later = utc_now() + datetime.timedelta(days=8)
    monkeypatch.setattr(four_eyes, "utc_now", lambda: later)
    assert (await alpha.approve(digest, "operator berta")).state is StudyState.PROPOSED
    assert (await alpha.approve(digest, "operator carl")).state is StudyState.APPROVED


def test_an_empty_table_of_roles_makes_nobody_an_approver(tmp_path: Path) -> None:
    listed = "a" * 64
    for text, role in {"": APPROVER, "[admin.roles]": VIEWER}.items():
        (tmp_path / "settings.toml").write_text(f'[admin]\nclients = ["{listed}"]\n{text}\n')
        found = load_settings(tmp_path).admin.access().of_certificate(listed, "anna")
        assert found is not None
        assert found.role is role


async def test_the_console_says_that_a_second_approver_is_needed(three: Three) -> None:
    digest = await three.propose("stays")
    alpha, reader = three.services[0], Principal("berta", APPROVER)
    alpha.four_eyes.required = True
    words = [("words", fingerprint_words(digest)), ("heard", "beta"), ("heard", "gamma")]
    form = f"studies/{digest}/approve"
    async with console_of(alpha, lambda: reader) as pages:
        await pages.get(form)
        _, there, _ = await pages.post(form, words)
        assert "waits for another approver" in await pages.get(there.removeprefix("/console/"))
        assert "operator berta has approved; a second approver is needed." in await pages.get("")
        reader = Principal("carl", APPROVER)
        await pages.get(form)
        _, there, _ = await pages.post(form, words)
        assert "Approved here." in await pages.get(there.removeprefix("/console/"))


async def test_a_certificate_has_the_role_of_its_name(tmp_path: Path) -> None:
    anna, vera = operator(tmp_path), operator(tmp_path, "vera")
    port, called = free_ports(1)[0], list[str]()
    listed = json.dumps([anna.fingerprint, vera.fingerprint])
    (tmp_path / "settings.toml").write_text(
        f'[admin]\naddress = "127.0.0.1:{port}"\nclients = {listed}\n[admin.roles]\nanna = "operator"\n'
    )
    board = RunStatus(RunInfo.of_server(make_config(), 0))
    orders = CommandHandlers(
        close=lambda: called.append("close"), cancel=lambda: called.append("cancel")
    )

    def post(who: Any, order: str) -> tuple[int, str]:
        context = client(tmp_path, who)
        request = urllib.request.Request(f"https://127.0.0.1:{port}/{order}", method="POST")
        try:
            with urllib.request.urlopen(request, context=context, timeout=5) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["error"]["what"]

    async with with_admin_api(board, tmp_path, orders):
        found = [
            await asyncio.to_thread(post, who, order)
            for who, order in ((anna, "close"), (anna, "cancel"), (vera, "close"))
        ]
    assert [status for status, _ in found] == [202, 403, 403]
    assert "anna is an operator, and no approver" in found[1][1]
    assert "vera is a viewer" in found[2][1]
    assert called == ["close"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[admin.roles]\nanna = "boss"', "admin.roles.anna"),
        ('[admin]\nroles = "approver"', "admin.roles"),
        ('[admin]\nfour_eyes = "yes"', "admin.four_eyes"),
        ('[admin]\npeople = "anna"', "admin.people"),
        ('[admin.people]\nanna = "oidc:1"', "admin.people.anna"),
        ('[admin.people]\nanna = ["a", "oidc:1"]\nberta = ["oidc:1"]', "admin.people.berta"),
    ],
)
def test_settings_of_roles_that_are_none_are_refused(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(ConfigError, match="expected") as refused:
        load_settings(tmp_path)
    assert refused.value.key == key
