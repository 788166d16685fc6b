"""Database of a service: SQLite in its folder, or PostgreSQL by URL, migrated to this program's schema.

``database_url`` resolves the URL, and ``open_service_database`` opens an engine. A database of a newer program, or of
another server, is refused with an error. Secret: a password in the URL, which is never shown, and not taken from the
command line, where every user of the host would see it. Source: SQLAlchemy 2 (Core). Known limit: one service at a
time uses a database; its folder's lock ensures that.
"""

import contextlib
import importlib.util
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    delete,
    event,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from parties.foundation.errors import ConfigError, StoreError, StoreIncompatible
from parties.service.tables import (
    METADATA,
    SERVICE,
    SERVICE_MIGRATIONS,
    SERVICE_VERSION,
    VERSIONS,
)
from parties.storage.files import create, disk_errors
from parties.storage.migrations import migrate

VARIABLE = "SYNCRET_DATABASE"
FILE = "service.sqlite"
_CONNECT_S = 5
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    "busy_timeout=5000",
    # KB in each connection, instead of 2 MB: a year's studies are read once, and not again.
    "cache_size=-256",
)
_POOL = 2
"""Number of connections kept from the start; connections beyond it are closed after use."""
_SECRETS = frozenset({"password", "sslpassword"})
"""Secret parameters of PostgreSQL's URLs."""
_OTHER_WAYS = (
    f"expected it in {VARIABLE} or in a file (--database-file), or the password in ~/.pgpass"
)


def database_url(
    folder: Path, option: str | None = None, file: Path | None = None, variable: str | None = None
) -> URL:
    """Returns the database's URL: from ``option``, ``file`` (one line), ``variable`` or SQLite's file, in this order.

    Raises ConfigError, which does not show the URL.
    """
    if option is not None:
        url = _parsed(option, "--database")
        if url.password is not None or _SECRETS & url.query.keys():
            raise ConfigError("service", "--database", f"has a password in it; {_OTHER_WAYS}")
        return url
    if file is not None:
        with disk_errors(file, "read"):
            text = file.read_text(encoding="utf-8").strip()
        return _parsed(text, "--database-file")
    if variable:
        return _parsed(variable, VARIABLE)
    return URL.create("sqlite", database=str(folder / FILE))


def pop_environment_url() -> str | None:
    """Returns and removes the variable's value, so that processes started afterwards do not inherit it."""
    return os.environ.pop(VARIABLE, None)


def _parsed(text: str, where: str) -> URL:
    expected = "expected postgresql://USER@HOST/DATABASE or sqlite:///FILE"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The library's message may contain the URL.
        raise ConfigError("service", where, f"is no database's URL; {expected}") from None
    kind = url.get_backend_name()
    if kind == "postgresql":
        if importlib.util.find_spec("psycopg") is None:
            missing = "needs a package that is not installed: pip install 'syncret[sql]'"
            raise ConfigError("service", where, missing)
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and url.database and url.database != ":memory:":
        return url
    raise ConfigError("service", where, f"is of the kind {kind!r}; {expected}")


@contextlib.contextmanager
def open_service_database(url: URL, server: str, former: Collection[str] = ()) -> Iterator[Engine]:
    """Opens an engine on the migrated database of ``server`` (hash of its key). Raises StoreError.

    A database of one of the ``former`` keys is the server's own from before their replacement.
    """
    # A password may also be among the parameters.
    shown = Path(url.set(query={}).render_as_string(hide_password=True))
    sqlite = url.get_backend_name() == "sqlite"
    if sqlite:
        _make_private(Path(str(url.database)))
        shown = Path(str(url.database))
    arguments: dict[str, object] = {} if sqlite else {"connect_timeout": _CONNECT_S}
    engine = create_engine(
        url,
        connect_args=arguments,
        hide_parameters=True,
        pool_pre_ping=not sqlite,
        pool_size=_POOL,
    )
    if sqlite:
        event.listen(engine, "connect", _pragmas)
        event.listen(engine, "begin", _begin)
    try:
        with database_errors(shown), engine.begin() as connection:
            _migrate(connection, shown)
            _check_owner(connection, shown, server, former=former)
        _fill_pool(engine)
        yield engine
    finally:
        engine.dispose()


@contextlib.contextmanager
def database_errors(where: Path) -> Iterator[None]:
    """Raises errors of the database as StoreError, without statements and values."""
    try:
        yield
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or type(error).__name__).strip()
        raise StoreError(
            where,
            f"the database does not answer: {' '.join(reason.split())}; expected one that this server may write",
        ) from error


def _make_private(path: Path) -> None:
    with disk_errors(path, "opened"), contextlib.suppress(FileExistsError):
        os.close(create(path, secret=True))


def _pragmas(connection: object, record: object) -> None:
    # The driver would begin a transaction before the first change of a row, and leave the creation of tables out of it.
    connection.isolation_level = None  # type: ignore[attr-defined]
    cursor = connection.cursor()  # type: ignore[attr-defined]
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _fill_pool(engine: Engine) -> None:
    """Opens the pool's connections, so that their number does not depend on the load.

    A role with a lower limit of connections is served with fewer.
    """
    with contextlib.suppress(SQLAlchemyError), contextlib.ExitStack() as held:
        for _ in range(_POOL):
            held.enter_context(engine.connect()).scalar(select(SERVICE.c.value).limit(1))


def _migrate(connection: Connection, shown: Path) -> None:
    """Brings the database to ``SERVICE_VERSION`` and makes its missing tables. Raises StoreIncompatible."""
    new = not inspect(connection).has_table(VERSIONS.name)
    found = SERVICE_VERSION if new else _found_version(connection, shown)
    migrate(connection, shown, found=found, version=SERVICE_VERSION, steps=SERVICE_MIGRATIONS)
    # Another program's tables of the same names are not taken for this one's.
    METADATA.create_all(connection, checkfirst=not new)
    if new or found != SERVICE_VERSION:
        connection.execute(delete(VERSIONS))
        connection.execute(insert(VERSIONS).values(version_num=f"{SERVICE_VERSION:04}"))


def _found_version(connection: Connection, shown: Path) -> int:
    text = connection.scalar(select(VERSIONS.c.version_num))
    if text is None or not text.isdecimal():
        raise StoreIncompatible(
            shown,
            "is of a newer version of Syncret than this one, or of another program; expected that version here, or a "
            "copy from before it",
        )
    return int(text)


def _check_owner(
    connection: Connection, shown: Path, server: str, *, former: Collection[str]
) -> None:
    known = connection.scalar(select(SERVICE.c.value).where(SERVICE.c.key == "server"))
    if known is None:
        connection.execute(insert(SERVICE).values(key="server", value=server))
    elif known in former:
        connection.execute(update(SERVICE).where(SERVICE.c.key == "server").values(value=server))
    elif known != server:
        raise StoreError(
            shown,
            f"is the database of another server (its key is {known[:16]}..., this one's {server[:16]}...); "
            "expected one for each server",
        )
