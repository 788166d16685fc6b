"""The signed log of a service's operators: whole as exported, and every change of it is found at its line."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parties.cli.main import cli
from parties.foundation.exit_codes import Status, describe
from parties.service import rotation
from parties.service.database import database_url, open_service_database
from parties.service.events import Actor, EventName
from parties.service.identity import ServerFile, ServiceIdentity
from parties.service.operators_log import CheckedLog, LogInvalid, OperatorsLog, check_log
from parties.service.studies import StudyEvent, StudyRepository, utc_now
from tests.parties.serving import make_identities

DIGEST = "d1" * 32
ANNA = Actor("operator anna", "CN=anna,O=Clinic")


@pytest.fixture
def identity(tmp_path: Path) -> ServiceIdentity:
    return ServiceIdentity.load(make_identities(tmp_path, ("alpha",))[0])


@pytest.fixture
def repository(identity: ServiceIdentity) -> Iterator[StudyRepository]:
    with opened(identity) as made:
        yield made


def opened(identity: ServiceIdentity) -> Any:
    """The repository of a service, as at its start."""
    import contextlib

    @contextlib.contextmanager
    def opening() -> Iterator[StudyRepository]:
        former = [each.key for each in identity.former]
        with open_service_database(
            database_url(identity.folder), identity.own.key, former
        ) as engine:
            yield StudyRepository(engine, identity.folder, OperatorsLog(identity))

    return opening()


def approve(repository: StudyRepository, number: int) -> None:
    text = f"here {number}"
    entry = StudyEvent(utc_now(), DIGEST, ANNA, EventName.STUDY_APPROVED, text)
    repository.note(entry)


def export(repository: StudyRepository, page: int = 1_000) -> list[str]:
    lines: list[str] = []
    while True:
        found = repository.log_page(len(lines), page)
        lines += found.lines
        if found.seal is not None:
            return [*lines, found.seal]


def rotate(identity: ServiceIdentity) -> str:
    """Puts a new key to work, and returns the former one's hash."""
    former = identity.own.key
    rotation.announce(identity, new_key=True)
    rotation.activate(identity)
    assert identity.own.key != former
    return former


def test_export_has_every_entry_with_the_actors_subject(
    repository: StudyRepository, identity: ServiceIdentity
) -> None:
    for number in range(5):
        approve(repository, number)
    for page in (1_000, 6, 2, 1):
        found = check_log(export(repository, page), server=identity.own)
        assert found.keys == (identity.own.key,)
        begun, *entries = found.entries
        assert begun["event"] == "log.begun"
        assert [entry["reason"] for entry in entries] == [f"here {number}" for number in range(5)]
        assert [entry["number"] for entry in entries] == [2, 3, 4, 5, 6]
        assert {(entry["actor"], entry["subject"]) for entry in entries} == {
            ("operator anna", "CN=anna,O=Clinic")
        }


def test_empty_log_is_sealed_and_says_so(repository: StudyRepository) -> None:
    """Without an entry nothing says whose it is, so that it proves nothing."""
    with pytest.raises(LogInvalid, match="line 1: is no beginning"):
        check_log(export(repository))


def edited(line: str, **changes: object) -> str:
    return json.dumps({**json.loads(line), **changes}, sort_keys=True, separators=(",", ":"))


TAMPERED: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "a field edited": (
        lambda x: [*x[:3], edited(x[3], actor="operator ben"), *x[4:]],
        "line 4: its signature is not right",
    ),
    "a subject edited": (
        lambda x: [*x[:3], edited(x[3], subject="CN=ben"), *x[4:]],
        "line 4: its signature is not right",
    ),
    "a line left out": (lambda x: [*x[:3], *x[4:]], "line 4: is entry 5; expected 4"),
    "two lines swapped": (
        lambda x: [*x[:2], x[3], x[2], *x[4:]],
        "line 3: is entry 4; expected 3",
    ),
    "a line twice": (lambda x: [*x[:3], x[2], *x[3:]], "line 4: is entry 3; expected 4"),
    "renumbered": (
        lambda x: [*x[:3], edited(x[4], number=4), *x[5:]],
        "line 4: does not follow from the entry before",
    ),
    "cut at its beginning": (lambda x: x[2:], "line 1: is entry 3; expected 1"),
    "cut at its end": (lambda x: x[:-1], "line 7: the seal is missing"),
    "entries cut before the seal": (
        lambda x: [*x[:-2], x[-1]],
        "line 6: the seal is of 6 entries; 5 precede it",
    ),
    "cut within a line": (lambda x: [*x[:4], x[4][:50]], "line 5: is no line of a log"),
    "a line after the seal": (lambda x: [*x, x[1]], "line 8: follows the seal"),
    "another seal": (
        lambda x: [*x[:-2], edited(x[-1], entries=5, head=json.loads(x[-2])["prev"])],
        "line 6: its signature is not right",
    ),
    "a number for a terminal": (
        lambda x: [x[0], edited(x[1], number="\x1b[2J\n"), *x[2:]],
        "line 2: is entry ?[2J?; expected 2",
    ),
    "spelt otherwise": (
        lambda x: [x[0], x[1].replace(":", ": ", 1), *x[2:]],
        "is no line of a log",
    ),
    "an entry as a seal": (lambda x: [*x[:3], edited(x[3], seal=1)], "line 4: the seal is of None"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_every_change_of_an_export_is_found_at_its_line(
    repository: StudyRepository, what: str
) -> None:
    for number in range(5):
        approve(repository, number)
    lines = export(repository)
    assert len(check_log(lines).entries) == 6
    tamper, says = TAMPERED[what]
    with pytest.raises(LogInvalid) as raised:
        check_log(tamper(lines))
    assert says in str(raised.value)


def test_log_of_another_server_of_the_name_is_refused(
    repository: StudyRepository, identity: ServiceIdentity, tmp_path: Path
) -> None:
    """A log that somebody has written with a key of their own is whole by itself."""
    (tmp_path / "thief").mkdir()
    thief = ServiceIdentity.load(make_identities(tmp_path / "thief", ("alpha",))[0])
    with opened(thief) as forged:
        approve(forged, 1)
        lines = export(forged)
    assert check_log(lines).server.name == identity.own.name
    with pytest.raises(LogInvalid, match="expected the key of alpha"):
        check_log(lines, server=identity.own)


def test_entries_deleted_from_the_end_of_the_database_are_found_by_an_earlier_export(
    repository: StudyRepository, identity: ServiceIdentity
) -> None:
    for number in range(3):
        approve(repository, number)
    earlier = export(repository)
    approve(repository, 3)
    assert len(check_log(export(repository), earlier=earlier).entries) == 5
    with opened(identity) as other, other._transaction() as connection:
        connection.exec_driver_sql("DELETE FROM operators_log WHERE number > 3")
    cut = export(repository)
    # By itself it is whole: the server's key has signed each entry, and the seal.
    assert len(check_log(cut).entries) == 3
    with pytest.raises(LogInvalid, match="3 entries; expected the 4 of the earlier export"):
        check_log(cut, earlier=earlier)
    approve(repository, 4)
    approve(repository, 5)
    with pytest.raises(LogInvalid, match="line 4: is another one in the earlier export"):
        check_log(export(repository), earlier=earlier)


def test_log_that_begins_anew_in_an_emptied_database_is_found_by_its_beginning(
    repository: StudyRepository, identity: ServiceIdentity
) -> None:
    before = utc_now()
    approve(repository, 1)
    after = utc_now() + timedelta(milliseconds=1)
    assert check_log(export(repository), begun_by=after).begun <= after.isoformat()
    with pytest.raises(LogInvalid, match=r"line 1: the log begins at 2\S*; expected .* begun by 2"):
        check_log(export(repository), begun_by=before - timedelta(milliseconds=1))
    time.sleep(0.01)  # Sleeps: lasts.
    with opened(identity) as other, other._transaction() as connection:
        connection.exec_driver_sql("DELETE FROM operators_log")
    approve(repository, 2)
    assert len(check_log(export(repository), server=identity.own).entries) == 2
    with pytest.raises(LogInvalid, match="earlier entries are missing"):
        check_log(export(repository), begun_by=after)


def test_earlier_export_has_entries_and_is_the_earlier_one(repository: StudyRepository) -> None:
    """An empty file in its place, or the two exchanged, would prove nothing."""
    approve(repository, 1)
    lines = export(repository)
    for nothing in ([], lines[-1:]):
        with pytest.raises(LogInvalid, match="the earlier export has no entries"):
            check_log(lines, earlier=nothing)
    *entries, seal = lines
    later = [*entries, edited(seal, at="2999-01-01T00:00:00.000+00:00")]
    with pytest.raises(LogInvalid, match="before the earlier export was, 2999"):
        check_log(lines, earlier=later)
    assert check_log(lines, earlier=lines).entries


def test_seal_is_of_what_was_read_and_is_signed_without_the_lock(
    repository: StudyRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    approve(repository, 1)
    signed = OperatorsLog.sealed

    def slow(log: OperatorsLog, page: Any) -> Any:
        approve(repository, 2)
        return signed(log, page)

    monkeypatch.setattr(OperatorsLog, "sealed", slow)
    assert len(check_log(export(repository)).entries) == 2


def checked(lines: list[str], identity: ServiceIdentity) -> CheckedLog:
    return check_log(lines, server=identity.own)


def test_log_goes_on_under_the_next_key_which_the_former_one_has_announced(
    repository: StudyRepository, identity: ServiceIdentity
) -> None:
    approve(repository, 1)
    before = identity.own
    first = rotate(identity)
    approve(repository, 2)
    # Two in turn, without an entry between them.
    second, third = rotate(identity), rotate(identity)
    approve(repository, 3)
    lines = export(repository)
    found = checked(lines, identity)
    assert found.keys == (first, second, identity.own.key)
    assert third not in found.keys
    assert check_log(lines, server=before).keys == found.keys
    assert [entry["event"] for entry in found.entries] == [
        *("log.begun", "study.approved", "log.key", "study.approved", "log.key", "study.approved")
    ]
    # Without what the former key has signed, another key does not go on with a log.
    number = next(i for i, line in enumerate(lines) if json.loads(line)["event"] == "log.key")
    forged = [*lines[:number], edited(lines[number], announcements=[]), *lines[number + 1 :]]
    with pytest.raises(LogInvalid, match=r"line 3: the key was replaced without an announcement"):
        check_log(forged)


def test_thief_of_the_database_goes_on_with_no_log(
    repository: StudyRepository, identity: ServiceIdentity, tmp_path: Path
) -> None:
    """Its own key has no announcement under the server's."""
    approve(repository, 1)
    (tmp_path / "thief").mkdir()
    thief = ServiceIdentity.load(make_identities(tmp_path / "thief", ("alpha",))[0])
    with repository._writing, repository._transaction() as connection:
        OperatorsLog(thief).append(connection, {"event": "study.approved", "at": "2026"})
    with pytest.raises(LogInvalid, match="line 3: the key was replaced without an announcement"):
        check_log(export(repository))


def test_event_that_the_database_refuses_leaves_no_line(repository: StudyRepository) -> None:
    approve(repository, 1)
    entry = StudyEvent(utc_now(), DIGEST, ANNA, EventName.STUDY_APPROVED, "lost")

    def refused() -> None:
        with repository._writing, repository._transaction() as connection:
            repository._insert_event(connection, entry, "stays", state="approved")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        refused()
    approve(repository, 2)
    entries = check_log(export(repository)).entries
    assert [entry.get("reason") for entry in entries] == [None, "here 1", "here 2"]


def test_check_log_is_a_command_that_needs_no_service(
    repository: StudyRepository, identity: ServiceIdentity, tmp_path: Path
) -> None:
    approve(repository, 1)
    lines, server = export(repository), identity.folder / "alpha.server"
    file = tmp_path / "alpha.log"
    file.write_text("".join(f"{line}\n" for line in lines))
    arguments = ["study", "check-log", str(file), "--server", str(server), "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["server"], said["entries"], said["pinned"]) == ("alpha", 2, True)
    assert ServerFile.load(server).key == said["keys"][0]
    assert CliRunner().invoke(cli, [*arguments, "--begun-by", "2999-01-01"]).exit_code == 0
    late = CliRunner().invoke(cli, [*arguments, "--begun-by", "2000-01-01T00:00Z"])
    assert isinstance(late.exception, LogInvalid)
    assert said["begun"][:4] in str(late.exception)
    unclear = CliRunner().invoke(cli, [*arguments, "--begun-by", "yesterday"])
    assert "expected a time such as" in unclear.output
    approve(repository, 2)
    later = tmp_path / "later.log"
    later.write_text("".join(f"{line}\n" for line in export(repository)))
    assert CliRunner().invoke(cli, [*arguments, "--earlier", str(file)]).exit_code == 0
    cut = CliRunner().invoke(cli, [*arguments, "--earlier", str(later)])
    assert "expected the 3 of the earlier export" in str(cut.exception)
    file.write_text("".join(f"{line}\n" for line in lines[:-1]))
    failed = CliRunner().invoke(cli, arguments)
    assert failed.exception is not None
    assert describe(failed.exception).status is Status.AUDIT
    file.write_bytes(b"\xff\xfe")
    failed = CliRunner().invoke(cli, arguments)
    assert isinstance(failed.exception, LogInvalid)
