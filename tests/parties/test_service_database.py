"""A service's database: migrations, SQLite and PostgreSQL alike, and what is refused."""

import contextlib
import datetime
import logging
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool

from parties.cli.main import cli
from parties.foundation.errors import ConfigError, StoreError
from parties.observability.events import Progress
from parties.service import database, main
from parties.service.database import VARIABLE, database_url, open_service_database
from parties.service.identity import ServiceIdentity
from parties.service.main import ServeOptions
from parties.service.studies import StudyEvent, StudyRepository, utc_now
from parties.service.study_record import StoredProposal, StudyRecord, StudyState
from parties.service.tables import METADATA, SERVICE_VERSION
from tests.golden.archives import unpack
from tests.golden.stores import ARCHIVE
from tests.parties.serving import make_identities
from tests.postgres import postgresql

SERVER = "ab" * 32
DIGEST = "cd" * 32


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[URL]:
    if request.param == "sqlite":
        yield database_url(tmp_path_factory.mktemp("service"))
        return
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with postgresql() as location:
        yield database_url(Path(), variable=location)


@pytest.fixture
def engine(url: URL) -> Iterator[Engine]:
    with open_service_database(url, SERVER) as engine:
        yield engine
        with engine.begin() as connection:
            for table in reversed(METADATA.sorted_tables):
                if table.name not in ("service", "alembic_version"):
                    connection.execute(table.delete())


PROPOSED = StoredProposal("[run]", {"ca.crt": "PEM"})


def study(**changes: object) -> StudyRecord:
    at = utc_now()
    return replace(
        StudyRecord(DIGEST, "distaim", "stays", "alpha", at, StudyState.PROPOSED, at),
        **changes,  # type: ignore[arg-type]
    )


def entry(what: str, actor: str = "alpha") -> StudyEvent:
    return StudyEvent(utc_now(), DIGEST, actor, what, "words")


def test_new_database_has_the_tables_and_the_version_of_the_program(engine: Engine) -> None:
    with engine.connect() as connection:
        found = inspect(connection)
        assert set(found.get_table_names()) == set(METADATA.tables)
        for name, table in METADATA.tables.items():
            columns = {(one["name"], one["nullable"]) for one in found.get_columns(name)}
            assert columns == {(column.name, column.nullable) for column in table.columns}
        number = connection.scalar(text("SELECT version_num FROM alembic_version"))
        assert number == f"{SERVICE_VERSION:04}" == "0001"


def tables_of(path: Path) -> set[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return set(database.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def test_tables_are_those_that_alembic_made(tmp_path: Path) -> None:
    """The recorded database is of a program that used Alembic; this one makes the same, to the letter, and a log."""
    recorded = unpack(ARCHIVE, tmp_path / "stores") / "service.sqlite"
    with open_service_database(database_url(tmp_path), SERVER):
        pass
    made, before = tables_of(tmp_path / "service.sqlite"), tables_of(recorded)
    assert before <= made
    assert {name for _, name, *_ in made - before} == {"operators_log"}


def test_what_the_pool_keeps_is_open_from_the_start(engine: Engine) -> None:
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    assert (pool.size(), pool.checkedin(), pool.checkedout()) == (2, 2, 0)


def test_book_keeps_a_study_and_what_happened(url: URL, engine: Engine) -> None:
    book = StudyRepository(engine, Path("database"))
    kept = study()
    book.add(kept, PROPOSED, entry("proposed"))
    for server in ("alpha", "beta"):
        kept = replace(kept, approvals=kept.approvals | {server})
        kept = book.change(kept, entry("approved", server))
    kept = book.change(replace(kept, state=StudyState.RUNNING, turn=3), entry("started"))
    assert book.studies() == [kept]
    assert kept.approvals == {"alpha", "beta"}
    assert kept.proposed_at.tzinfo is datetime.UTC
    assert [item.what for item in book.entries(DIGEST)] == [
        "proposed",
        "approved",
        "approved",
        "started",
    ]
    assert [item.what for item in book.entries(limit=1)] == ["started"]
    assert book.entries("ef" * 32) == []
    # Opened once more, it is all there.
    with open_service_database(url, SERVER) as again:
        assert StudyRepository(again, Path("database")).studies() == [kept]
        assert StudyRepository(again, Path("database")).proposed(DIGEST) == PROPOSED


def test_book_changes_nothing_where_a_part_is_refused(engine: Engine) -> None:
    book = StudyRepository(engine, Path("database"))
    book.add(study(), PROPOSED, entry("proposed"))
    with pytest.raises(StoreError, match="database does not answer"):
        book.add(study(), PROPOSED, entry("proposed-again"))
    assert [item.what for item in book.entries()] == ["proposed"]


def test_opened_refuses_the_database_of_another_server(url: URL, engine: Engine) -> None:
    with (
        pytest.raises(StoreError, match="of another server"),
        open_service_database(url, "12" * 32),
    ):
        pass


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("9999", "made by a newer syncret: its version is 9999; expected at most 1"),
        ("1975ea83b712", "newer version of Syncret than this one, or of another program"),
    ],
)
def test_opened_refuses_a_newer_database_and_another_programs(
    tmp_path: Path, number: str, words: str
) -> None:
    url = database_url(tmp_path)
    set_number = text("UPDATE alembic_version SET version_num = :number").bindparams(number=number)
    with open_service_database(url, SERVER) as engine, engine.begin() as connection:
        connection.execute(set_number)
    with pytest.raises(StoreError, match=words), open_service_database(url, SERVER):
        pass


def test_opened_takes_no_tables_of_another_program(tmp_path: Path) -> None:
    url = database_url(tmp_path)
    with contextlib.closing(sqlite3.connect(str(url.database))) as database:
        database.execute("CREATE TABLE studies (digest TEXT)")
    with pytest.raises(StoreError, match="already exists"), open_service_database(url, SERVER):
        pass


def test_an_older_database_is_brought_forward_whole_or_not_at_all(
    url: URL, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SQLite files are: a step for a changed table, none for a new one, and all of it one transaction."""
    StudyRepository(engine, Path("database")).add(study(), PROPOSED, entry("proposed"))
    reasons = iter(("the tables had another form", None))

    def rename(connection: Connection) -> str | None:
        connection.execute(text("UPDATE studies SET run = 'renamed'"))
        return next(reasons)

    monkeypatch.setattr(database, "SERVICE_VERSION", 2)
    monkeypatch.setattr(database, "SERVICE_MIGRATIONS", {1: rename})
    with (
        pytest.raises(StoreError, match=r"version is 1\).*version 2: the tables had another form"),
        open_service_database(url, SERVER),
    ):
        pass
    assert [one.run for one in StudyRepository(engine, Path("d")).studies()] == ["stays"]
    for _ in range(2):
        with open_service_database(url, SERVER) as newer, newer.begin() as connection:
            assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "0002"
            assert connection.scalar(text("SELECT run FROM studies")) == "renamed"
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))


def test_opened_refuses_what_is_no_database(tmp_path: Path) -> None:
    url = database_url(tmp_path)
    Path(str(url.database)).write_bytes(b"no database, but long enough to have a header" * 50)
    with (
        pytest.raises(StoreError, match="file is not a database"),
        open_service_database(url, SERVER),
    ):
        pass


def test_a_database_whose_making_was_interrupted_is_made_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its tables, or none: a kill leaves what a failure does."""
    url = database_url(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(database, "_check_owner", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), open_service_database(url, SERVER):
            pytest.fail("opened")
    with open_service_database(url, SERVER) as engine:
        assert StudyRepository(engine, tmp_path).studies() == []


def test_sqlite_is_its_owners_alone(tmp_path: Path) -> None:
    url = database_url(tmp_path)
    with open_service_database(url, SERVER):
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


# Where it is.

SECRET = "open-sesame"


@pytest.mark.parametrize("at", [f"me:{SECRET}@host/db", f"me@host/db?password={SECRET}"])
def test_database_url_refuses_a_password_that_every_user_of_the_host_sees(
    tmp_path: Path, at: str
) -> None:
    with pytest.raises(ConfigError, match=VARIABLE) as caught:
        database_url(tmp_path, f"postgresql://{at}")
    assert SECRET not in str(caught.value)


def test_database_url_takes_a_password_from_a_file_or_the_environment(tmp_path: Path) -> None:
    text = f"postgresql://me:{SECRET}@host/db"
    (tmp_path / "url").write_text(text + "\n")
    for url in (
        database_url(tmp_path, file=tmp_path / "url"),
        database_url(tmp_path, variable=text),
    ):
        assert url.password == SECRET
        assert url.drivername == "postgresql+psycopg"
        assert SECRET not in repr(url)
        assert SECRET not in str(url)


@pytest.mark.parametrize(
    "text", ["", "nonsense", f"me:{SECRET}@host", "mysql://host/db", "sqlite://", "http://x:y/"]
)
def test_database_url_says_what_it_expects(tmp_path: Path, text: str) -> None:
    (tmp_path / "url").write_text(text)
    with pytest.raises(ConfigError, match="expected postgresql://") as caught:
        database_url(tmp_path, file=tmp_path / "url")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("at", [f"me:{SECRET}@127.0.0.1:1/db?", f"/db?password={SECRET}&"])
def test_opened_says_that_nobody_answers_and_no_password(tmp_path: Path, at: str) -> None:
    url = database_url(tmp_path, variable=f"postgresql://{at}host={tmp_path}")
    with (
        pytest.raises(StoreError, match="does not answer") as caught,
        open_service_database(url, SERVER),
    ):
        pass
    problem: BaseException | None = caught.value
    while problem is not None:
        assert SECRET not in str(problem)
        problem = problem.__cause__


def test_opened_shows_no_wrong_password(url: URL) -> None:
    if url.get_backend_name() == "sqlite":
        return
    with pytest.raises(StoreError, match="authentication failed") as caught:
        contextlib.ExitStack().enter_context(
            open_service_database(url.set(password=SECRET), SERVER)
        )
    assert SECRET not in str(caught.value)


def test_a_connection_to_sqlite_remembers_little(tmp_path: Path) -> None:
    with (
        open_service_database(database_url(tmp_path), SERVER) as engine,
        engine.begin() as connection,
    ):
        assert connection.execute(text("PRAGMA cache_size")).scalar() == -256
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"


class Begun(Exception):
    """A service that would begin now."""


def test_serve_opens_the_database_and_the_register_that_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(identity: ServiceIdentity, options: ServeOptions, progress: Progress) -> None:
        raise Begun(options)

    # The command has a handler of its own in its process.
    own = logging.getLogger("syncret")
    monkeypatch.setattr(own, "handlers", list(own.handlers))
    monkeypatch.setattr(main, "serve_studies", begin)
    monkeypatch.setenv("SYNCRET_REGISTER", str(tmp_path / "usual"))
    (folder,) = make_identities(tmp_path, ("alpha",))
    (tmp_path / "url").write_text("sqlite:////of/a/file\n")

    def options(*given: str) -> tuple[str | None, Path]:
        ended = CliRunner().invoke(cli, ["serve", "--dir", str(folder), *given])
        assert isinstance(ended.exception, Begun), ended.output
        found = ended.exception.args[0]
        return found.database.database, found.register

    assert options() == (str(folder / "service.sqlite"), tmp_path / "usual")
    assert options("--database", "sqlite:////of/an/option")[0] == "/of/an/option"
    assert options("--database-file", str(tmp_path / "url"))[0] == "/of/a/file"
    assert options("--register", "/a/register")[1] == Path("/a/register")
