"""Admission to submit: list, dates, operators' commands; at a server's port and at the owner itself."""

import asyncio
import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mechanisms.source import TableSource
from parties.config import CertificateFiles, Config
from parties.foundation.errors import ConfigError, NotEnrolled, PartialSubmission, SubmissionRefused
from parties.foundation.exit_codes import Status, describe
from parties.mpc.participants.enrollment_wait import EnrollmentWait
from parties.mpc.submission.participation import submit_rows
from parties.mpc.submission.submit import submit
from parties.observability.events import Progress
from parties.session.enrollment import (
    Enrollment,
    EnrollmentRefusalReason,
    check_enrolled,
    close_enrollment,
    enrollment_wait_s,
)
from parties.session.operator_commands import OperatorCommands
from parties.session.owner import DataOwner, Table
from parties.storage.database import Database
from parties.storage.owner_budget import OwnerBudget
from tests.parties.support import OWNERS, make_codes, make_config, running_servers

Certificates = dict[str, CertificateFiles]
A, B, C, D = OWNERS
NAMES = {"clients.names": [A, B, C]}
NOON = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)


def at(hour: int, config: Config, orders: OperatorCommands | None = None) -> Enrollment:
    time = NOON.replace(hour=hour)
    return Enrollment(
        config.owners, config.clients, orders or OperatorCommands(), clock=lambda: time
    )


def test_enrolment_goes_by_list_dates_and_revocation() -> None:
    dates = {
        "clients.opens": "2026-12-01T10:00:00+01:00",
        "clients.closes": "2026-12-01T14:00:00Z",
    }
    config, orders = make_config(NAMES | dates), OperatorCommands()
    orders.ask(revoke=[C])
    expected = {
        (8, A): EnrollmentRefusalReason.NOT_OPEN,
        (9, A): None,
        (13, A): None,
        (14, A): EnrollmentRefusalReason.CLOSED,
        (13, C): EnrollmentRefusalReason.REVOKED,
        (13, D): EnrollmentRefusalReason.NOT_LISTED,
    }
    for (hour, owner), reason in expected.items():
        away = at(hour, config, orders).refusal(owner)
        assert (None if away is None else away.reason) == reason
    away = at(8, config).refusal(A)
    assert away is not None
    assert away.what == (
        "the run opens to data owners at 2026-12-01 09:00:00 UTC; it is 2026-12-01 08:00:00 UTC"
    )


def test_everybody_with_a_certificate_may_come_without_a_list() -> None:
    assert at(8, make_config()).refusal(D) is None


def test_names_are_as_many_as_expected_and_say_how_many() -> None:
    config = make_config(NAMES | {"clients.expected": None})
    assert (config.clients.expected, config.clients.minimum) == (3, 3)
    assert make_config(config_values(config)).digest() == config.digest()
    with pytest.raises(ConfigError, match="has 2 names; expected 3, as many as clients"):
        make_config({"clients.names": [A, B]})
    with pytest.raises(ConfigError, match="has a name twice"):
        make_config({"clients.names": [A, A, B]})


def config_values(config: Config) -> dict[str, object]:
    return {"clients": config.to_dict()["clients"], "party": config.to_dict()["party"]}


def test_list_and_dates_are_part_of_what_all_agree_on() -> None:
    """And a configuration without them has the digest that it always had."""
    plain = make_config()
    assert "names" not in plain.agreed()["clients"]  # type: ignore[operator]
    changes: list[dict[str, object]] = [
        NAMES,
        {"clients.opens": "2026-12-01T10:00:00Z"},
        {"clients.grace_s": 5.0},
    ]
    digests = {plain.override(change).digest() for change in changes}
    assert len(digests | {plain.digest()}) == 4
    time = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
    assert plain.override({"clients.opens": time}).clients.opening == time


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients.opens": "2026-12-01T10:00:00"}, "another time at each place"),
        ({"clients.opens": "soon"}, "expected a time with its offset"),
        ({"clients.opens": 7}, "expected text"),
        (
            {"clients.opens": "2026-12-01T10:00:00Z", "clients.closes": "2026-12-01T10:00:00Z"},
            "expected a time after clients.opens",
        ),
        ({"clients.names": "north"}, "expected a list of names"),
        ({"clients.grace_s": -1}, "clients.grace_s"),
    ],
)
def test_bad_dates_and_names_are_refused_with_words(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_config(changes)


def test_patience_is_until_the_closing_or_from_the_opening_on() -> None:
    soon = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=100)).isoformat()
    assert enrollment_wait_s(make_config({"clients.wait_s": 7.0}).clients) == 7
    assert 80 < enrollment_wait_s(make_config({"clients.closes": soon}).clients) <= 100
    opens = make_config({"clients.opens": soon, "clients.wait_s": 7.0})
    assert 87 < enrollment_wait_s(opens.clients) <= 107
    assert enrollment_wait_s(make_config({"clients.closes": "2020-01-01T00:00:00Z"}).clients) == 0


def test_owner_off_the_list_or_the_dates_sends_nothing() -> None:
    with pytest.raises(NotEnrolled, match="nothing was sent") as raised:
        check_enrolled(make_config(NAMES), D)
    assert describe(raised.value).status == Status.NOT_ENROLLED
    with pytest.raises(NotEnrolled, match="was closed to data owners at 2020-01-01"):
        check_enrolled(make_config({"clients.closes": "2020-01-01T00:00:00Z"}), A)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients.names": [A, B, D]}, "'clinic-c' is not among the 3 data owners that this run"),
        ({"clients.opens": "2999-01-01T00:00:00Z"}, "opens to data owners at 2999-01-01"),
        ({"clients.closes": "2020-01-01T00:00:00Z"}, "was closed to data owners at 2020-01-01"),
    ],
)
async def test_server_turns_an_owner_away_by_list_and_date(
    changes: dict[str, object], words: str, tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config(changes)
    async with running_servers(config, tmp_path, certificates) as stores:
        with pytest.raises(NotEnrolled, match=words) as raised:
            await submit(config, make_codes(20), certificates[C])
        assert describe(raised.value).status == Status.NOT_ENROLLED
        assert [store.submissions.count() for store in stores.values()] == [0, 0, 0]


async def test_run_that_its_operators_closed_takes_nobody_new(
    tmp_path: Path, certificates: Certificates
) -> None:
    """An admitted owner may ask again, and gets the same answer."""
    config = make_config()
    state = tmp_path / "state"
    async with running_servers(config, tmp_path, certificates) as stores:
        sent = await submit(config, make_codes(20), certificates[A], state=state)
        for store in stores.values():
            close_enrollment(store)
        with pytest.raises(NotEnrolled, match="the operators closed the run to data owners at"):
            await submit(config, make_codes(20), certificates[B])
        again = await submit(config, make_codes(20), certificates[A], state=state)
        assert (sent.complete, again.complete) == (True, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "the operators closed the run to data owners at .*; nothing was charged or sent"),
        ({"run.epsilon": 0.5}, "run.epsilon: 0.5 here, 1.0 at party-.; nothing was charged or"),
    ],
)
async def test_owner_that_no_server_would_take_is_not_charged(
    changes: dict[str, object], words: str, tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    (tmp_path / "stays.csv").write_text("sex,ward,age\n")
    table = Table(TableSource(str(tmp_path / "stays.csv")), ignore_extra=False)
    files, budget = certificates[A], tmp_path / "budget"
    named = {"ca": files.ca, "cert": files.cert, "key": files.key}
    owner = DataOwner.of(config.override(changes), table, budget=budget, dataset="stays", **named)
    async with running_servers(config, tmp_path, certificates) as stores:
        for store in stores.values():
            close_enrollment(store)
        with pytest.raises(SubmissionRefused, match=words):
            await submit_rows(owner, make_codes(20), capacity=None, state=None, progress=Progress())
    found = OwnerBudget(budget)
    assert (found.datasets(), found.intended()) == ([], [])


async def test_owner_is_charged_and_sends_where_servers_take_it(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    (tmp_path / "stays.csv").write_text("sex,ward,age\n")
    table = Table(TableSource(str(tmp_path / "stays.csv")), ignore_extra=False)
    files, budget = certificates[A], tmp_path / "budget"
    named = {"ca": files.ca, "cert": files.cert, "key": files.key}
    owner = DataOwner.of(config, table, budget=budget, dataset="stays", **named)
    async with running_servers(config, tmp_path, certificates):
        sent = await submit_rows(
            owner, make_codes(20), capacity=None, state=None, progress=Progress()
        )
    assert sent.complete
    assert budget.exists()


async def test_run_that_has_ended_says_so_with_the_same_status(
    tmp_path: Path, certificates: Certificates
) -> None:
    config = make_config()
    async with running_servers(config, tmp_path, certificates) as stores:
        for store in stores.values():
            store.state.close_to_clients()
        with pytest.raises(NotEnrolled, match="takes no submissions any more") as raised:
            await submit(config, make_codes(20), certificates[A])
        assert (raised.value.status, describe(raised.value).status) == (410, Status.NOT_ENROLLED)


async def test_revoked_owner_is_turned_away_by_the_server_that_revokes_it(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The other servers say which one it is; an owner that was there before may not come back either."""
    config, orders = make_config(), OperatorCommands()
    async with running_servers(config, tmp_path, certificates, orders={1: orders}) as stores:
        await submit(config, make_codes(20), certificates[B])
        orders.ask(revoke=[A, B])
        with pytest.raises((PartialSubmission, NotEnrolled), match="was revoked by this server"):
            await submit(config, make_codes(20), certificates[A])
        assert stores[1].submissions.upload_digest(A) is None


def test_closing_is_remembered(tmp_path: Path) -> None:
    config = make_config()
    with Database(tmp_path / "store", "ab", []) as database:
        enrolment = Enrollment.of(config, OperatorCommands(), database)
        assert enrolment.time() is None
        close_enrollment(database)
        first = enrolment.time()
        close_enrollment(database)
        assert first == enrolment.time() is not None


def test_a_patient_server_waits_for_missing_parts_until_time_or_operators_end_it() -> None:
    """All expected have sent, and too few are complete: a server has lost its folder, and owners send again."""
    clients = make_config(
        {"clients.expected": 3, "clients.minimum": 3, "clients.wait_s": 60}
    ).clients
    registry = SimpleNamespace(counted=2, held=0)
    participants = SimpleNamespace(submissions=SimpleNamespace(count=lambda: 3), registry=registry)
    asked = SimpleNamespace(close=False)
    control = SimpleNamespace(
        closed=asyncio.Event(), commands=SimpleNamespace(asked=asked, by_server={})
    )
    observer = SimpleNamespace(waiting=lambda state: None)
    parts: Any = (clients, participants, control, observer)
    wait = EnrollmentWait(*parts)
    wait.begin(0)
    assert wait.ready({})
    assert not wait.ready({}, patient=True)
    registry.held = 1
    assert wait.ready({}, patient=True)
    registry.held = 0
    control.closed.set()
    assert wait.ready({}, patient=True)
