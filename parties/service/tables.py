"""Tables of a service's database, in SQLAlchemy Core, and the migrations of an older database.

A change of an existing table raises the version and adds the migration from the one before, with a test that begins
with the older tables; a new table needs neither.

All values are public or belong to this server's administration: proposed studies, approvals, events. Shares, keys and
counts are not in the database; they stay in a study's own folder. Times are UTC.
"""

import datetime
from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Dialect,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
)

from parties.storage.migrations import Step

SERVICE_VERSION = 1
"""Version of a service's database, which this program requires."""
SERVICE_MIGRATIONS: Mapping[int, Step[Connection]] = {}
"""Migrations of older databases to ``SERVICE_VERSION``, by their version."""

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)


class Utc(TypeDecorator[datetime.datetime]):
    """Time in UTC, also for databases without time zones (SQLite)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> datetime.datetime | None:
        """Converts a value for the database, to UTC."""
        return value.astimezone(datetime.UTC) if isinstance(value, datetime.datetime) else None

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime.datetime | None:
        """Converts a value from the database, to UTC."""
        if not isinstance(value, datetime.datetime):
            return None
        naive = value.tzinfo is None
        return value.replace(tzinfo=datetime.UTC) if naive else value.astimezone(datetime.UTC)


VERSIONS = Table(
    "alembic_version",
    METADATA,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""The database's version, in four digits: a table of Alembic's form, by which earlier programs know it, too."""

SERVICE = Table(
    "service",
    METADATA,
    Column("key", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)
"""Owner of the database: ``server`` is the hash of the server's key."""

STUDIES = Table(
    "studies",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("kind", String(8), nullable=False),
    Column("run", String(200), nullable=False),
    Column("config", Text, nullable=False),
    Column("certificates", Text, nullable=False),
    Column("proposer", String(200), nullable=False),
    Column("proposed_at", Utc, nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("reason", Text, nullable=False, default=""),
    Column("turn", Integer, nullable=True),
    Column("changed_at", Utc, nullable=False),
    Column("started_at", Utc, nullable=True),
    Column("ended_at", Utc, nullable=True),
)
"""``config`` is TOML, ``certificates`` a JSON object of PEM texts; ``turn`` numbers starts, equally at all servers."""

APPROVALS = Table(
    "approvals",
    METADATA,
    Column("digest", String(64), ForeignKey(STUDIES.c.digest), primary_key=True),
    Column("server", String(200), primary_key=True),
    Column("at", Utc, nullable=False),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Utc, nullable=False),
    Column("digest", String(64), nullable=True, index=True),
    Column("actor", String(200), nullable=False),
    Column("what", String(40), nullable=False),
    Column("text", Text, nullable=False, default=""),
)
"""Event log: actor, action and time."""

OPERATORS_LOG = Table(
    "operators_log",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("line", Text, nullable=False),
)
"""Signed lines of `parties.service.operators_log`: an event each, chained by hashes."""
