"""Waits speak: who is missing, who has to send again, and where configurations differ, within seconds and again."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import cast

import pytest

import parties.mpc.participants.notices
import parties.mpc.progress_text
import parties.mpc.server
from parties.config import CertificateFiles
from parties.config.diff import agreed_bytes, differences_text
from parties.federation.attendance import Attendance
from parties.foundation.errors import FrameConnectError, SubmissionRefused, SubmitError
from parties.foundation.exit_codes import NotYet
from parties.mpc.participants.notices import OperatorNotices
from parties.mpc.participants.waiting_text import WaitStatus
from parties.mpc.storage.store import Store
from parties.mpc.submission import status
from parties.mpc.submission.preview import ServerAvailability
from parties.mpc.submission.status import ServerAnswer, ask_servers, await_begin
from parties.mpc.submission.submit import submit
from parties.observability.heartbeat import Throttle, repeated_notice
from parties.session.study import Study
from protocols.errors import CheckFailed, ConnectTimeout
from tests.parties.flaim_support import Events, codes_of, run_client
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.support import make_codes, make_config, running_servers
from tests.parties.test_orders import Operated, names
from tests.parties.test_withdrawal import Who

Certificates = dict[str, CertificateFiles]
A, B, C = EVERYONE


@pytest.fixture(autouse=True)
def _uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)


def test_reminder_is_due_at_once_and_then_at_growing_intervals() -> None:
    now = 0.0
    reminder = Throttle(lambda: now)
    due = []
    for second in range(200):
        now = float(second)
        if reminder.due("the same"):
            due.append(second)
    assert due == [0, 5, 15, 35, 75, 135, 195]
    assert reminder.due("another")
    assert not reminder.due("another")


class _NobodyElse:
    """The store of a server to which named owners have yet to come."""

    @property
    def submissions(self) -> "_NobodyElse":
        return self

    @staticmethod
    def missing(_: object) -> tuple[str, ...]:
        return ()


def test_who_is_here_is_said_when_it_changes_and_else_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A day's wait for owners or clients: the same words stand ten times in the first hours, not each minute."""
    now, said = 0.0, list[float]()
    progress = Recording(lambda *_: said.append(now))
    monkeypatch.setattr(parties.mpc.participants.notices, "_WAITING_NOTICE_S", -1e9)
    study = Study.of(make_config())
    notices = OperatorNotices(study, 0, cast(Store, _NobodyElse()), progress)
    monkeypatch.setattr(notices._throttle, "_clock", lambda: now)
    for second in range(0, 86_400, 5):
        now = float(second)
        notices.waiting(WaitStatus(1, 1, 1e6))
    assert said[:7] == [0, 5, 15, 35, 75, 155, 315]
    assert len(said) < 36
    now += 5
    notices.waiting(WaitStatus(2, 2, 1e6))
    assert said[-1] == now
    assert progress.texts[-1].startswith("2 of ")


def test_a_federations_server_says_it_as_rarely() -> None:
    now = 0.0
    attendance = Attendance(*[None] * 6)  # type: ignore[arg-type]
    attendance.reminder._clock = lambda: now
    due = 0
    for second in range(0, 86_400, 5):
        now = float(second)
        due += attendance.reminder.due("the same")
    assert due < 36


async def test_saying_is_silent_where_the_wait_is_short() -> None:
    said: list[float] = []
    async with repeated_notice(said.append, quiet_s=0.1):
        await asyncio.sleep(0.01)  # Sleeps: lasts.
    await asyncio.sleep(0.15)  # Sleeps: quiet.
    assert said == []
    async with repeated_notice(said.append, quiet_s=0.02):
        await asyncio.sleep(0.1)  # Sleeps: lasts.
    assert said == [0.02]


async def test_server_without_peers_says_which_and_where(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parties.mpc.progress_text, "_FIRST_NOTICE_S", 0.3)
    cluster = Cluster(make_config(), tmp_path, certificates)
    record = Recording()
    (ended,) = await cluster.run(pids=(0,), records={0: record})
    assert isinstance(ended, ConnectTimeout)
    (text,) = [t for n, t in zip(record.events, record.texts, strict=True) if n == "connecting"]
    addresses = [party.mesh for party in cluster.config.require_parties()]
    assert text == (
        "waiting for the other servers, for 2 s more: "
        f"server 1 (party-1) at {addresses[1]}: nothing listens there; "
        f"server 2 (party-2) at {addresses[2]}: nothing listens there"
    )


async def test_owner_without_servers_is_told_at_once_and_again(certificates: Certificates) -> None:
    config, said = make_config({"timeouts.submit_s": 1.0}), list[str]()
    with pytest.raises(SubmitError, match="no server has confirmed"):
        await submit(config, make_codes(20), certificates[A], on_retry=said.append)
    assert len([text for text in said if "nothing listens there" in text]) == 3
    (all_of_them,) = [text for text in said if text.startswith("none of the three servers")]
    assert "or their run is over" in all_of_them


async def test_flaim_client_without_its_server_says_so(
    tmp_path: Path, certificates: Certificates
) -> None:
    flaim = {"address": "127.0.0.1:9", "key": "0" * 64, "clients": list(EVERYONE)}
    config = make_config({"flaim": flaim, "timeouts.connect_s": 0.5, "party": None})
    events = Events()
    with pytest.raises(FrameConnectError, match="does not answer within"):
        await run_client(config, codes_of(0), certificates[A], tmp_path / "a", progress=events)
    (text,) = events.texts("retry")
    assert "127.0.0.1:9: nothing listens there; it may not have been started, or the run" in text


async def test_server_that_lost_its_disk_says_who_has_to_send_again(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config({"run.rounds": 1, "clients.minimum": 2, "timeouts.connect_s": 9.0})
    cluster = Cluster(config, tmp_path, certificates)
    before = Operated(cluster)
    owners = [Who(A, cluster), Who(B, cluster)]
    for seed, owner in enumerate(owners):
        assert (await owner.submit(make_codes(20, seed))).complete
    await before.end()
    shutil.rmtree(cluster.directory(1))
    again = Operated(cluster)
    await again.said("this server has nothing of clinic-a, clinic-b: if it has lost its folder", 1)
    await again.said("server 1 (party-1) has nothing of clinic-a, clinic-b", 0)
    for seed, owner in enumerate(owners):
        assert await owner.replace(make_codes(20, seed)) is not None
    for orders in again.orders:
        orders.ask(close=True)
    assert await again.task == [None] * 3
    assert names(again.result()["counted"]) == [A, B]


# Configurations that differ


def test_differences_are_shown_key_by_key() -> None:
    config = make_config()
    columns = config.to_dict()["column"]
    assert isinstance(columns, list)
    changed = [dict(column) for column in columns]
    changed[2]["high"] = 12
    other = config.override(
        {"run.epsilon": 2.0, "column": changed, "clients.names": list(EVERYONE)}
    )
    assert differences_text(config, agreed_bytes(other), "beta").split("; ") == [
        "column.age.high: 9 here, 12 at beta",
        "run.epsilon: 1.0 here, 2.0 at beta",
        'clients.names: nothing here, ["clinic-a", "clinic-b", "clinic-c"] at beta',
    ]
    assert differences_text(config, agreed_bytes(config), "x") == "x shows the same configuration"
    order = config.override({"column": [columns[1], columns[0], columns[2]]})
    assert differences_text(config, agreed_bytes(order), "x") == (
        'column (their order): ["sex", "ward", "age"] here, ["ward", "sex", "age"] at x'
    )


@pytest.mark.parametrize("told", [b"", b"[]", b"{", b"\xff", b"[" * 60_000])
def test_differences_from_a_peer_that_tells_nonsense(told: bytes) -> None:
    text = differences_text(make_config(), told, "x")
    assert text == "x does not show its configuration"


def test_differences_move_no_cursor_and_are_not_endless() -> None:
    config = make_config()
    told = json.loads(agreed_bytes(config))
    told["run"] |= {f"\x1b[2J{number}": "\x07" * 500 for number in range(50)}
    text = differences_text(config, json.dumps(told).encode(), "x")
    assert text.isprintable()
    assert text.endswith("; and 42 more")
    assert len(text) < 2000


async def test_servers_of_different_configurations_show_what_differs(
    tmp_path: Path, certificates: Certificates
) -> None:
    cluster = Cluster(make_config(), tmp_path, certificates)
    configs = cluster.with_own_certificates()
    configs[2] = configs[2].override({"run.rounds": 5, "clients.minimum": 2})
    ended = await cluster.run(configs=configs)
    assert any(isinstance(error, CheckFailed) for error in ended)
    # Whoever finds it leaves with it as its reason, which another server may hear before it finds it itself.
    by_most = "clients.minimum: 3 here, 2 at party-2; run.rounds: 4 here, 5 at party-2"
    by_one = "clients.minimum: 2 here, 3 at party-0; run.rounds: 5 here, 4 at party-0"
    for text in map(str, ended):
        assert by_most in text or by_one in text, text
        assert "the same config file" in text


async def test_owner_of_another_configuration_sees_what_differs(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    other = config.override({"run.epsilon": 0.1})
    async with running_servers(config, tmp_path, certificates):
        with pytest.raises(
            SubmissionRefused, match=r"run.epsilon: 0.1 here, 1.0 at party-"
        ) as told:
            await submit(other, make_codes(20), certificates[A])
        assert "made with another configuration" in str(told.value)
        heard = await ask_servers(other, certificates[A])
        assert not ServerAvailability.of(heard[0], other, "run.epsilon: ...").takes


@pytest.mark.parametrize(
    ("statuses", "begun"),
    [
        ((200, 0, 0), True),
        ((410, 410, 200), True),
        ((410, 410, 0), False),
        ((410, 403, 0), True),
        ((410, 0, 503), None),
        ((0, 0, 0), None),
    ],
)
async def test_owner_waits_until_a_server_runs_the_study_or_two_say_that_it_is_over(
    statuses: tuple[int, ...],
    begun: bool | None,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = make_config()

    async def heard(*_: object) -> list[ServerAnswer]:
        said = {200: {"state": "here"}}
        return [
            ServerAnswer(party, said.get(code), "away", code)
            for party, code in zip(config.require_servers(), statuses, strict=True)
        ]

    monkeypatch.setattr(status, "ask_servers", heard)
    waiting = await_begin(config, certificates[A], wait_s=0.0, progress=Recording())
    if begun is None:
        with pytest.raises(NotYet, match="has not begun yet: party-0: away"):
            await waiting
    else:
        assert await waiting is begun
