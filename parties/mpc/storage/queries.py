"""Queries for a store's undecided participants, page by page: never all of them in memory.

The queries join a store's database (`parties.mpc.storage.store`) and the registry in it
(`parties.mpc.participants.registry`). A page is of clients by name, all versions of a client in one. Secret: nothing.
"""

import json
from collections.abc import Collection, Iterable

from parties.foundation.errors import StoreError
from parties.mpc.participants.finalized import signed_withdrawal
from parties.mpc.participants.listing import MAX_PAGE_UPLOADS, MAX_PAGE_WITHDRAWALS, Page
from parties.mpc.records import StoredSubmission
from parties.mpc.submission.messages import Submission
from parties.storage.database import Database, Row

_ALL = """
SELECT header, digest, body_digest, own_digest, next_digest, size, received_at FROM submission
ORDER BY client, version"""
# Of a client that is counted for good the counted version, of others the newest.
_COUNTED = """
SELECT s.proof FROM submission s LEFT JOIN final f ON f.client = s.client
WHERE iif(f.client IS NULL, s.version = (SELECT max(version) FROM submission t WHERE t.client = s.client),
s.digest = f.upload) AND s.client IN (SELECT value FROM json_each(?))"""
_ONE = """
SELECT header, digest, body_digest, own_digest, next_digest, size, received_at FROM submission
WHERE client = ? AND digest = ?"""
# Not listed are clients whose upload is in a total, and versions no later than a held or decided one. A client that is
# counted for good is listed with its final upload alone, even if this server's operator revokes it.
_UPLOADS = """
SELECT s.header, s.digest, s.body_digest, s.own_digest, s.next_digest, s.size, s.received_at FROM submission s
LEFT JOIN roll r ON r.client = s.client LEFT JOIN final f ON f.client = s.client
WHERE s.client > ?1 AND s.first_round <= ?2 AND (r.client IS NULL OR s.version > r.version)
AND iif(f.client IS NULL, s.client NOT IN (SELECT value FROM json_each(?3)), r.place IS NULL AND s.digest = f.upload)
ORDER BY s.client, s.version LIMIT ?4"""
_WITHDRAWALS = """
SELECT w.document, w.run, w.config FROM withdrawal w
LEFT JOIN gone g ON g.client = w.client LEFT JOIN final f ON f.client = w.client
WHERE w.client > ?1 AND f.client IS NULL AND (g.client IS NULL OR g.version < w.version)
ORDER BY w.client LIMIT ?2"""


def undecided_page(
    database: Database, up_to_round: int, after: str, revoked: Collection[str]
) -> Page:
    """Next clients behind ``after``: uploads first counted in ``up_to_round`` or before, without clients ``revoked``.

    The page also has the withdrawals that not all three servers know yet. Raises StoreError.
    """
    names = json.dumps(sorted(revoked))
    with database.held():
        uploads = database.rows(_UPLOADS, after, up_to_round, names, MAX_PAGE_UPLOADS)
        withdrawals = database.rows(_WITHDRAWALS, after, MAX_PAGE_WITHDRAWALS)
    submissions = _stored(uploads)
    withdrawn = [signed_withdrawal(*row) for row in withdrawals]
    ends = []
    if len(submissions) == MAX_PAGE_UPLOADS:
        # There may be further versions of the last client.
        cut = submissions[-1].submission.client
        ends.append(max(s.submission.client for s in submissions if s.submission.client != cut))
    if len(withdrawn) == MAX_PAGE_WITHDRAWALS:
        ends.append(withdrawn[-1].withdrawal.client)
    if not ends:
        return Page(tuple(submissions), tuple(withdrawn))
    upto = min(ends)
    return Page(
        tuple(s for s in submissions if s.submission.client <= upto),
        tuple(w for w in withdrawn if w.withdrawal.client <= upto),
        upto,
    )


def missing_clients(database: Database, clients: Collection[str]) -> list[str]:
    """Those of ``clients`` without a stored submission, by name."""
    query = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT client FROM submission) ORDER BY value"
    return [row[0] for row in database.rows(query, json.dumps(sorted(clients)))]


def find_submission(database: Database, client: str, upload: str) -> StoredSubmission:
    """Submission of ``client`` with this ``upload``. Raises StoreError if it is not here."""
    for found in _stored(database.rows(_ONE, client, upload)):
        return found
    raise StoreError(database.directory, f"holds another submission of client {client!r}, or none")


def signed_uploads(database: Database, clients: Collection[str]) -> list[str]:
    """Uploads of counted ``clients`` as they signed them (`SignedUpload.to_json`), of those that are here."""
    return [row[0] for row in database.rows(_COUNTED, json.dumps(list(clients)))]


def all_submissions(database: Database) -> list[StoredSubmission]:
    """All submissions, by client name and version, in memory at once."""
    return _stored(database.rows(_ALL))


def _stored(rows: Iterable[Row]) -> list[StoredSubmission]:
    return [StoredSubmission.of(Submission.from_canonical(row[0]), *row[1:]) for row in rows]
