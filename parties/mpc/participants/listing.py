"""What the servers tell one another of the owners that are here, and what they conclude from it, all three the same.

Provides ``Listing``, a page of one server's, made of a ``Page`` of what it holds, and ``agree_on_listings``, which
makes of three of them who is due, which earlier versions go, and who has withdrawn; ``agreed_finalized``, after a
restart, who is counted for good. Of a client's versions the highest counts that all three have: an upload that replaces
one either takes its place at all three or at none. A withdrawal holds as soon as any server shows it, for its owner has
signed it: one that keeps it back, or that makes one up, changes nothing. Public: everything here.
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
"""Uploads and withdrawals that a listing has at most: further ones come in the next."""
MAX_PENDING_VERSIONS = 4
"""Of one client's submissions that wait for the servers to agree on one; they are in one listing."""


@dataclass(frozen=True, slots=True)
class ListedUpload:
    """An upload as servers list it to one another, by its digest."""

    client: str
    digest: str
    first_round: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class IncompleteSubmission:
    """A submission that some servers listed in ``round`` and those ``missing`` it did not.

    ``final``: it is counted for good.
    """

    digest: str
    round: int
    missing: tuple[int, ...]
    final: bool = False


@dataclass(frozen=True, slots=True)
class WithdrawalScope:
    """The run that withdrawals have to be of, its configuration's digest, and the ``authority`` that knows owners."""

    run: str
    config: str
    authority: Issuer


@dataclass(frozen=True, slots=True)
class Page:
    """What a server holds that is not decided, of clients by name: all up to ``upto``, or to the last one for None."""

    submissions: tuple[StoredSubmission, ...] = ()
    withdrawn: tuple[SignedWithdrawal, ...] = ()
    upto: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The uploads that a server has and that are not counted yet, withdrawals, and whether it is ready to go on.

    Of clients by name, up to ``upto``, or to the last one for None. ``asked`` is what its operator asks of the run.
    """

    ready: bool
    uploads: frozenset[ListedUpload]
    withdrawn: tuple[SignedWithdrawal, ...] = ()
    asked: CommandSet = field(default_factory=CommandSet)
    upto: str | None = None

    def to_bytes(self) -> bytes:
        """For the other servers."""
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
        """What server ``pid`` said of the clients behind ``after``.

        Raises ProtocolViolation: malformed, of other clients, with a withdrawal that nobody signed, or more or less
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
        """Whether a page is where it belongs, and whole where others follow: else a server could go on for ever."""
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
        """The clients that something is said of."""
        withdrawn = {signed.withdrawal.client for signed in self.withdrawn}
        return withdrawn | {item.client for item in self.uploads}

    def up_to(self, last: str | None) -> "Listing":
        """Without the clients behind ``last``, None for nobody."""
        if last is None or last == self.upto:
            return self
        uploads = frozenset(item for item in self.uploads if item.client <= last)
        withdrawn = tuple(one for one in self.withdrawn if one.withdrawal.client <= last)
        return replace(self, uploads=uploads, withdrawn=withdrawn, upto=last)


@dataclass(frozen=True, slots=True)
class Agreement:
    """What three listings come to: ``due``, the upload that counts of each client that has one at all three servers.

    ``withdrawn`` is each client's withdrawal that reaches furthest; ``find_incomplete`` are those whose uploads are not
    at all three.
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
    """What ``listings`` come to where clients are counted for good with the ``final`` upload of each.

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
    """The clients that are listed and not in ``common``, by name: as the first server that lists it has it."""
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
    """Of clients that are counted for good, which servers do not list the upload that is."""
    there = [{item.digest for item in listing.uploads} for listing in listings]
    return {
        client: IncompleteSubmission(
            upload, round, tuple(p for p in range(3) if upload not in there[p]), True
        )
        for client, upload in final.items()
    }


def agreed_finalized(replies: Sequence[Sequence[Finalized]]) -> list[Finalized]:
    """Who is counted for good, of what the three servers say of it: those of whom two say so.

    Nothing that a client is in is charged before all three have its round's total on their disks, and with it who is
    final. So one that says so alone was killed before, or lies.
    """
    holders = Counter((item.client, item.upload) for finals in replies for item in finals)
    found: dict[str, Finalized] = {}
    for item in sorted(item for finals in replies for item in finals):
        if holders[item.client, item.upload] > 1:
            found.setdefault(item.client, item)
    return [found[client] for client in sorted(found)]


def parse_resume_reply(reply: bytes, pid: int) -> tuple[dict[int, str], list[Finalized]]:
    """The totals that server ``pid`` has, by round, and who is counted for good. Raises ProtocolViolation."""
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
