"""Conditions that an operator is notified of: when they hold, and that their texts quote nobody else."""

import datetime
from types import SimpleNamespace
from typing import Any

from parties.observability.failure_causes import Cause, Obstacle
from parties.service.expiry import SERVER, CertificateEnd
from parties.service.notices import ENDED_S, PEER_AWAY_S, MissingOwners, Notice, notices
from parties.service.study_record import StudyRecord, StudyState

AT = datetime.datetime(2027, 1, 15, 8, tzinfo=datetime.UTC)
NOW = AT.timestamp()
DIGEST = "d1" * 32


def study(state: StudyState, **changes: Any) -> StudyRecord:
    known = {"reason": "beta: </b> a reason of another server", "approvals": frozenset({"beta"})}
    return StudyRecord(DIGEST, "distaim", "stays", "beta", AT, state, AT, **{**known, **changes})


def found(missing: MissingOwners | None = None, **changes: Any) -> list[Notice]:
    """The notices of a service of which the test says what is not as it should be."""
    values: dict[str, Any] = {
        "name": "alpha",
        "obstacle": None,
        "studies": {},
        "workers": {},
        "peers": {},
        "certificates": SimpleNamespace(all=list),
        "key_changes": SimpleNamespace(announced=list),
    }
    service: Any = SimpleNamespace(**{**values, **changes})
    return notices(service, {} if missing is None else {DIGEST: missing}, now=NOW)


def of_study(record: StudyRecord, obstacle: Obstacle | None = None, **rest: Any) -> list[Notice]:
    workers = {} if obstacle is None else {DIGEST: SimpleNamespace(obstacle=obstacle)}
    return found(studies={DIGEST: record}, workers=workers, **rest)


def test_nothing_is_a_notice_where_nothing_is_wrong() -> None:
    assert found() == []
    for state in (StudyState.APPROVED, StudyState.QUEUED, StudyState.RUNNING, StudyState.CLOSED):
        assert of_study(study(state)) == []


def test_study_waits_here_for_approval_until_it_is_given_here() -> None:
    (notice,) = of_study(study(StudyState.PROPOSED))
    assert (notice.event, notice.fields["reason"]) == ("study.waits-here", "approval")
    assert notice.text == "stays waits for approval at alpha"
    # Nobody asks for admission with the begin of a digest.
    assert notice.fields["digest"] == DIGEST[:12] != DIGEST
    both = frozenset({"alpha", "beta"})
    assert of_study(study(StudyState.PROPOSED, approvals=both)) == []


def test_study_waits_here_for_what_this_operator_alone_can_cure() -> None:
    (notice,) = of_study(study(StudyState.WAITING), Obstacle(Cause.DISK_FULL))
    assert (notice.event, notice.fields["reason"]) == ("study.waits-here", "disk-full")
    for passing in (Cause.NETWORK, Cause.KILLED, Cause.STOPPED, Cause.FAULT):
        assert of_study(study(StudyState.WAITING), Obstacle(passing)) == []


def test_missing_owners_are_a_number_and_no_names() -> None:
    missing = MissingOwners(2, 5, NOW + 3_600)
    (notice,) = of_study(study(StudyState.RUNNING), missing=missing)
    assert notice.event == "owner.missing"
    assert notice.fields["missing"] == 2
    assert "2 of 5 data owners are missing" in notice.text
    assert of_study(study(StudyState.CANCELLED), missing=missing) == []


def test_end_of_a_study_is_a_notice_for_a_day_without_the_reason_of_others() -> None:
    for state in (StudyState.FINISHED, StudyState.FAILED, StudyState.CANCELLED):
        for age, there in ((60.0, True), (ENDED_S - 1, True), (ENDED_S + 1, False)):
            ended = AT - datetime.timedelta(seconds=age)
            made = of_study(study(state, ended_at=ended))
            assert [each.event for each in made] == [f"study.{state.value}"] * there
            assert "another server" not in repr(made)


def test_server_is_away_only_after_a_while() -> None:
    def of_peer(since: float | None) -> list[Notice]:
        peer = SimpleNamespace(server=SimpleNamespace(name="beta"), away_since=since)
        return found(peers={1: peer})

    assert of_peer(None) == []
    assert of_peer(NOW - PEER_AWAY_S + 1) == []
    (notice,) = of_peer(NOW - PEER_AWAY_S)
    assert (notice.event, notice.fields) == ("peer.away", {"peer": "beta"})


def test_certificate_is_a_notice_when_it_ends_soon_and_another_when_it_has_ended() -> None:
    def of_end(days: float) -> list[Notice]:
        at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        end = CertificateEnd(SERVER, "alpha", at.replace(microsecond=0), "renew it")
        return found(certificates=SimpleNamespace(all=lambda: [end]))

    assert of_end(31) == []
    (soon,), (over,) = of_end(29), of_end(-1)
    assert soon.event == over.event == "certificate.ends"
    assert soon.key != over.key
    assert (
        soon.key == of_end(29)[0].key or soon.fields["expires"] != of_end(29)[0].fields["expires"]
    )


def test_key_of_another_server_waits_here_until_it_is_confirmed() -> None:
    def of_key(**changes: Any) -> list[Notice]:
        key = SimpleNamespace(
            **{
                **{"name": "beta", "key": "k1", "renews": False, "waits_for": ("alpha",)},
                "sentence": lambda own: "beta announces a new key",
                **changes,
            }
        )
        return found(key_changes=SimpleNamespace(announced=lambda: [key]))

    assert [each.event for each in of_key()] == ["key.waits-here"]
    # Another key with every statement is no further notice.
    assert of_key(key="k2")[0].key == of_key()[0].key
    assert of_key(renews=True) == []
    assert of_key(waits_for=()) == []
    assert of_key(name="alpha", waits_for=("beta", "gamma")) == []


def test_service_that_is_blocked_says_why() -> None:
    (notice,) = found(obstacle=Obstacle(Cause.DATABASE))
    assert (notice.event, notice.fields) == ("service.blocked", {"reason": "database"})
