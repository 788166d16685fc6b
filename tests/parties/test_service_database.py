"""A service's database: migrations, SQLite and PostgreSQL alike, and what is refused."""

import contextlib
import datetime
import importlib
import pkgutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool

from parties.foundation.errors import ConfigError, StoreError
from parties.service import database
from parties.service.database import VARIABLE, database_url, open_service_database
from parties.service.migrations import versions
from parties.service.studies import (
    StoredProposal,
    StudyEvent,
    StudyRecord,
    StudyRepository,
    StudyState,
    utc_now,
)
from parties.service.tables import METADATA, REVISION
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
                if table.name != "service":
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


def test_migrations_make_the_tables_of_the_program(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == REVISION


def test_what_the_pool_keeps_is_open_from_the_start(engine: Engine) -> None:
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    assert (pool.size(), pool.checkedin(), pool.checkedout()) == (2, 2, 0)


def test_the_newest_migration_is_the_programs_revision() -> None:
    modules = [
        importlib.import_module(f"{versions.__name__}.{module.name}")
        for module in pkgutil.iter_modules(versions.__path__)
    ]
    followed = {module.down_revision for module in modules}
    assert [m.revision for m in modules if m.revision not in followed] == [REVISION]


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


def test_opened_refuses_a_newer_database(tmp_path: Path) -> None:
    url = database_url(tmp_path)
    with open_service_database(url, SERVER) as engine, engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="newer version"), open_service_database(url, SERVER):
        pass


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
