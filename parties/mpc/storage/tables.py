"""Tables of one compute server's store, and the migrations of an older store.

`parties.foundation.version` has the version. A change of an existing table raises the version and adds the migration
from the one before, with a test that begins with the older tables; a new table needs neither. All values here are
public.
"""

import sqlite3

from parties.mpc.participants.finalized import TABLES as SETTLED_TABLES
from parties.mpc.participants.registry import TABLES as ROLL_TABLES
from parties.mpc.storage.bodies import TABLE as BODY_TABLE
from parties.mpc.storage.outbox import TABLES as OUTBOX_TABLES
from parties.mpc.storage.traffic import TRAFFIC_TABLE
from parties.storage.privacy_ledger import LEDGER
from parties.storage.sqlite import lacks_columns

STORE_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS submission (
    client TEXT NOT NULL, version INTEGER NOT NULL, header TEXT NOT NULL, digest TEXT NOT NULL, proof TEXT NOT NULL,
    body_digest TEXT NOT NULL, own_digest TEXT NOT NULL, next_digest TEXT NOT NULL,
    first_round INTEGER NOT NULL, size INTEGER NOT NULL, path TEXT NOT NULL, received_at REAL NOT NULL,
    PRIMARY KEY (client, version)) STRICT""",
    TRAFFIC_TABLE,
    """CREATE TABLE IF NOT EXISTS total (
    round INTEGER PRIMARY KEY, clients TEXT NOT NULL, digest TEXT NOT NULL, path TEXT NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS standing (
    client TEXT PRIMARY KEY, digest TEXT NOT NULL, round INTEGER NOT NULL, excluded TEXT, servers TEXT NOT NULL)
    STRICT""",
    """CREATE TABLE IF NOT EXISTS checkpoint (
    round INTEGER, candidate INTEGER, sigma REAL NOT NULL, clients INTEGER NOT NULL, digest TEXT NOT NULL,
    path TEXT NOT NULL, PRIMARY KEY (round, candidate)) STRICT""",
    """CREATE TABLE IF NOT EXISTS inputs (
    round INTEGER PRIMARY KEY, digest TEXT NOT NULL, noise TEXT NOT NULL, made INTEGER NOT NULL, skip INTEGER NOT NULL)
    STRICT""",
    """CREATE TABLE IF NOT EXISTS estimate (
    round INTEGER PRIMARY KEY, digest TEXT NOT NULL, path TEXT NOT NULL) STRICT""",
    BODY_TABLE,
    *OUTBOX_TABLES,
    *SETTLED_TABLES,
    *ROLL_TABLES,
    *LEDGER,
)


def _first_version(db: sqlite3.Connection) -> str | None:
    """Reason against migration of a store without a version; None if it has the uploads and exclusions of version 1."""
    if lacks_columns(db, "submission", "version", "proof") or lacks_columns(
        db, "standing", "servers"
    ):
        return "owners' uploads had another form, which its servers cannot go on with"
    return None


def _named_charges(db: sqlite3.Connection) -> str | None:
    """Reason against migration: a run that has charged anything has to go on with its own version.

    Its charges do not say which openings they paid for.
    """
    if db.execute("SELECT 1 FROM ledger LIMIT 1").fetchone():
        return "its charges do not say which openings they pay for"
    return None


def _same_bins(db: sqlite3.Connection) -> str | None:
    """Reason against migration: a run that has charged anything has to go on with its own version.

    Such a run may have private bins.
    """
    if db.execute("SELECT 1 FROM ledger LIMIT 1").fetchone():
        return "its private bins were chosen by another rule"
    return None


STORE_MIGRATIONS = {0: _first_version, 2: _named_charges, 4: _same_bins}
"""Migrations of older stores to ``STORE_VERSION``, by their version.

From 1 to 2 nothing changes, except that small bodies are stored in the table ``body`` from then on.
"""
