"""Listings of participants that the servers exchange, and the agreement that all three conclude from them.

``Listing`` is a page of one server's list, made of a ``Page`` of its store. ``agree_on_listings`` concludes from three
listings the due uploads, the earlier versions to remove, and the withdrawals. ``agreed_finalized`` concludes the
clients counted for good after a restart. Of a client's versions, the highest that all three servers have counts: an
upload that replaces another takes effect at all three servers or at none. A withdrawal holds as soon as any server
shows it, since the participant has signed it: a server that withholds or invents one changes nothing. All values here
are public.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from parties.config import NAME_PATTERN
from parties.foundation.errors import CertificateError
from parties.identity.signing import Issuer
from parties.mpc.participants.finalized import Finalized
from parties.mpc.records import StoredSubmission
from parties.mpc.submission.messages import DIGEST_PATTERN, MAX_VERSION
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.session.operator_commands import CommandSet
from protocols.errors import ProtocolViolation

MAX_PAGE_UPLOADS, MAX_PAGE_WITHDRAWALS = 1000, 100
"""Maximum numbers of uploads and of withdrawals in a listing: further ones come in the next."""
MAX_PENDING_VERSIONS = 4
"""Maximum number of one client's submissions that wait for the servers to agree on one; all are in one listing."""


@dataclass(frozen=True, slots=True)
class ListedUpload:
    """An upload in a listing, by its digest."""

    client: str
    digest: str
    first_round: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class IncompleteSubmission:
    """A submission that the servers ``missing`` did not list in ``round``, although others did.

    ``final`` is True if the client is counted for good.
    """

    digest: str
    round: int
    missing: tuple[int, ...]
    final: bool = False


@dataclass(frozen=True, slots=True)
class WithdrawalScope:
    """Required scope of withdrawals: the run, its configuration's digest, and the participants' ``authority``."""

    run: str
    config: str
    authority: Issuer


@dataclass(frozen=True, slots=True)
class Page:
    """Undecided submissions and withdrawals of a server, of clients by name up to ``upto`` (None: up to the last)."""

    submissions: tuple[StoredSubmission, ...] = ()
    withdrawn: tuple[SignedWithdrawal, ...] = ()
    upto: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Uncounted uploads and withdrawals of a server, and its readiness to go on.

    Of clients by name, up to ``upto`` (None: up to the last). ``asked`` are its operator's commands.
    """

    ready: bool
    uploads: frozenset[ListedUpload]
    withdrawn: tuple[SignedWithdrawal, ...] = ()
    asked: CommandSet = field(default_factory=CommandSet)
    upto: str | None = None

    def to_bytes(self) -> bytes:
        """Encoded form for the other servers."""
        uploads = sorted(self.uploads, key=lambda item: (item.client, item.version))
        return json.dumps(
            {
                "ready": self.ready,
                "clients": [[i.client, i.digest, i.first_round, i.version] for i in uploads],
                "withdrawn": [signed.to_dict() for signed in self.withdrawn],
                "asked": self.asked.to_dict(),
                "upto": self.upto,
            }
        ).encode()

    @classmethod
    def parse(cls, reply: bytes, pid: int, scope: WithdrawalScope, after: str = "") -> Self:
        """Parses server ``pid``'s listing of the clients behind ``after``.

        Raises ProtocolViolation if it is malformed, of other clients, has an unsigned withdrawal, or is more or less
        than a page.
        """
        match _document(reply, pid):
            case {
                "ready": bool() as ready,
                "clients": list() as uploads,
                "withdrawn": list() as w,
                "asked": dict() as asked,
                "upto": None | str() as upto,
            } if len(uploads) <= MAX_PAGE_UPLOADS and len(w) <= MAX_PAGE_WITHDRAWALS:
                listed = [_parse_upload(item, pid) for item in uploads]
                if len({(item.client, item.version) for item in listed}) != len(listed):
                    raise ProtocolViolation(f"party {pid} lists a client twice", pid)
                withdrawn = tuple(_parse_withdrawal(item, pid, scope) for item in w)
                page = cls(ready, frozenset(listed), withdrawn, _parse_commands(asked, pid), upto)
                page._check_range(pid, after)
                return page
        raise ProtocolViolation(f"party {pid} sent a malformed list of clients", pid)

    def _check_range(self, pid: int, after: str) -> None:
        """Raises ProtocolViolation for names out of range, or a page that ends too early.

        Without this check, a server could send pages for ever.
        """
        upto = self.upto
        if upto is not None:
            full = (
                len(self.uploads) >= MAX_PAGE_UPLOADS - MAX_PENDING_VERSIONS
                or len(self.withdrawn) == MAX_PAGE_WITHDRAWALS
            )
            if not (full and NAME_PATTERN.fullmatch(upto)):
                raise ProtocolViolation(f"party {pid} ends a list of clients too early", pid)
        if any(name <= after or (upto is not None and name > upto) for name in self.names()):
            raise ProtocolViolation(f"party {pid} lists clients out of their order", pid)

    def names(self) -> set[str]:
        """Clients with an upload or a withdrawal in the listing."""
        withdrawn = {signed.withdrawal.client for signed in self.withdrawn}
        return withdrawn | {item.client for item in self.uploads}

    def up_to(self, last: str | None) -> "Listing":
        """The listing without the clients behind ``last`` (None: unchanged)."""
        if last is None or last == self.upto:
            return self
        uploads = frozenset(item for item in self.uploads if item.client <= last)
        withdrawn = tuple(one for one in self.withdrawn if one.withdrawal.client <= last)
        return replace(self, uploads=uploads, withdrawn=withdrawn, upto=last)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Conclusion from three listings: ``due`` is the upload that counts of each client with one at all three servers.

    ``withdrawn`` is each client's withdrawal with the highest version; ``incomplete`` are clients without a common
    upload.
    """

    due: Mapping[str, ListedUpload] = field(default_factory=dict)
    withdrawn: Mapping[str, SignedWithdrawal] = field(default_factory=dict)
    incomplete: dict[str, IncompleteSubmission] = field(default_factory=dict)


def agree_on_listings(
    listings: Sequence[Listing],
    final: Mapping[str, str],
    round: int,
    settled: Mapping[str, int] | None = None,
) -> Agreement:
    """Agreement of ``listings``; ``final`` are the uploads of clients that are counted for good.

    Nothing of a client counts up to its ``settled`` version, which all three know to be withdrawn or decided on.
    """
    withdrawn: dict[str, SignedWithdrawal] = {}
    for listing in listings:
        for signed in listing.withdrawn:
            client, version = signed.withdrawal.client, signed.withdrawal.version
            known = withdrawn.get(client)
            if client not in final and (known is None or known.withdrawal.version < version):
                withdrawn[client] = signed
    gone = dict(settled or {})
    for client, signed in withdrawn.items():
        gone[client] = max(gone.get(client, 0), signed.withdrawal.version)

    def counts(item: ListedUpload) -> bool:
        kept = final.get(item.client, item.digest) == item.digest
        return kept and item.version > gone.get(item.client, 0)

    left = [set(filter(counts, listing.uploads)) for listing in listings]
    due: dict[str, ListedUpload] = {}
    for item in sorted(set.intersection(*left), key=lambda item: (item.client, item.version)):
        due[item.client] = item
    return Agreement(
        due, dict(sorted(withdrawn.items())), find_incomplete(left, due.values(), round)
    )


def find_incomplete(
    listings: Sequence[Collection[ListedUpload]], common: Collection[ListedUpload], round: int
) -> dict[str, IncompleteSubmission]:
    """Clients that are listed and not in ``common``, by name, each with the upload of the first server with one."""
    there = {item.client for item in common}
    found: dict[str, IncompleteSubmission] = {}
    for listing in listings:
        for item in sorted(set(listing), key=lambda item: (item.client, item.version)):
            if item.client not in there:
                missing = tuple(pid for pid in range(3) if item not in listings[pid])
                found.setdefault(item.client, IncompleteSubmission(item.digest, round, missing))
    return dict(sorted(found.items()))


def find_lost(
    listings: Sequence[Listing], final: Mapping[str, str], round: int
) -> dict[str, IncompleteSubmission]:
    """Clients counted for good, each with the servers that do not list its final upload."""
    there = [{item.digest for item in listing.uploads} for listing in listings]
    return {
        client: IncompleteSubmission(
            upload, round, tuple(p for p in range(3) if upload not in there[p]), True
        )
        for client, upload in final.items()
    }


def agreed_finalized(replies: Sequence[Sequence[Finalized]]) -> list[Finalized]:
    """Clients counted for good by the word of at least two servers.

    Nothing with a client in it is charged before all three servers have the round's total on disk, and with it the
    final clients. So a server that alone claims a final client was killed before, or lies.
    """
    holders = Counter((item.client, item.upload) for finals in replies for item in finals)
    found: dict[str, Finalized] = {}
    for item in sorted(item for finals in replies for item in finals):
        if holders[item.client, item.upload] > 1:
            found.setdefault(item.client, item)
    return [found[client] for client in sorted(found)]


def parse_resume_reply(reply: bytes, pid: int) -> tuple[dict[int, str], list[Finalized]]:
    """Totals that server ``pid`` has, by round, and its clients counted for good. Raises ProtocolViolation."""
    match _document(reply, pid):
        case {"totals": list() as totals, "final": list() as finals}:
            return dict(_parse_total(item, pid) for item in totals), [
                _parse_finalized(i, pid) for i in finals
            ]
    raise ProtocolViolation(f"party {pid} sent something that is no list", pid)


def _parse_total(item: object, pid: int) -> tuple[int, str]:
    match item:
        case [int() as round, str() as digest] if not isinstance(round, bool):
            return round, digest
    raise ProtocolViolation(f"party {pid} sent a malformed total", pid)


def _parse_finalized(item: object, pid: int) -> Finalized:
    match item:
        case [str() as client, str() as upload, int() as round] if NAME_PATTERN.fullmatch(
            client
        ) and DIGEST_PATTERN.fullmatch(upload):
            return Finalized(client, upload, round)
    raise ProtocolViolation(f"party {pid} sent a malformed client", pid)


def _document(reply: bytes, pid: int) -> object:
    try:
        return json.loads(reply)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"party {pid} sent a list that is not JSON", pid) from error


def _parse_upload(item: object, pid: int) -> ListedUpload:
    match item:
        case [str() as client, str() as digest, int() as first_round, int() as version] if (
            NAME_PATTERN.fullmatch(client)
            and DIGEST_PATTERN.fullmatch(digest)
            and not isinstance(first_round, bool)
            and not isinstance(version, bool)
            and 1 <= version <= MAX_VERSION
        ):
            return ListedUpload(client, digest, first_round, version)
    raise ProtocolViolation(f"party {pid} sent a malformed client", pid)


def _parse_commands(value: Mapping[str, object], pid: int) -> CommandSet:
    try:
        return CommandSet.from_dict(value)
    except ValueError as error:
        raise ProtocolViolation(f"party {pid} asks for what cannot be asked", pid) from error


def _parse_withdrawal(item: object, pid: int, scope: WithdrawalScope) -> SignedWithdrawal:
    try:
        signed = SignedWithdrawal.from_dict(
            item if isinstance(item, dict) else {}, scope.run, scope.config
        )
        signed.check(scope.authority, scope.run, scope.config)
    except (ValueError, CertificateError) as error:
        raise ProtocolViolation(
            f"party {pid} shows a withdrawal that its owner has not signed: {error}", pid
        ) from error
    return signed
