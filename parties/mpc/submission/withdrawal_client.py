"""Client of withdrawals: the participant signs, and asks all three servers until two of them have signed, too.

``await_withdrawal`` ends when two have confirmed, one reports that it is too late, two that the study is over, or the
deadline comes. Servers agree on a withdrawal, or on a replacing upload, when they next compare their lists; a server's
signature comes after that. Two signatures are enough: an opening takes all three servers, at most one deviates, and
the other one has deleted its shares. Secret: nothing.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self

from parties.config import CertificateFiles, Config, PartySection
from parties.foundation.errors import CertificateError
from parties.foundation.untrusted_text import parse_json
from parties.identity.tls import certificate_bytes, load_identity, signer
from parties.mpc.submission.http_api import withdrawal_path
from parties.mpc.submission.messages import MAX_VERSION
from parties.mpc.submission.sealed_upload import (
    ServerReceipt,
    Tombstone,
    check_tombstone,
    receipts_in,
)
from parties.mpc.submission.status import ServerAnswer, ask_server
from parties.mpc.submission.withdrawal import SignedWithdrawal, Withdrawal

_PAUSE_S = 0.3
_SIGNED = ("party", "key", "signature")
_SIGNATURES = 2
"""Signatures of servers that settle it; at least one is of a server that does not deviate."""


@dataclass(slots=True)
class WithdrawalProgress:
    """Progress towards the confirmation that nothing of ``client`` up to ``version`` is counted.

    ``confirmed`` has each server's signature and the version that it covers. ``counted`` has, by server, the round in
    which it reports the client as counted. ``waiting`` are servers that know of the withdrawal and have not agreed on
    it; ``problems`` are the other servers' problems.
    """

    client: str
    version: int
    confirmed: dict[str, tuple[int, ServerReceipt]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    void: set[str] = field(default_factory=set)
    """Servers that have signed that the study is over, and that nothing of it was opened."""
    closed: dict[str, str] = field(default_factory=dict)
    """Final answers of servers where the study is over, without such a signature."""

    @property
    def complete(self) -> bool:
        """True if two servers have signed: an opening takes all three."""
        return len(self.confirmed) >= _SIGNATURES

    @property
    def hopeless(self) -> bool:
        """True if no further answer can complete it: the study is over at two servers that have not signed."""
        return not self.complete and len(self.closed) > 3 - _SIGNATURES

    @property
    def proof(self) -> str:
        """Signatures of the servers, as JSON."""
        signed = {
            name: {"version": version, **receipt.to_dict()}
            for name, (version, receipt) in sorted(self.confirmed.items())
        }
        return json.dumps({"client": self.client, "servers": signed, "void": sorted(self.void)})

    @classmethod
    def from_proof(cls, proof: str, version: int) -> Self:
        """Progress with the signatures of an earlier proof. Raises ValueError on anything else."""
        match parse_json(proof):
            case {"client": str() as client, "servers": dict() as servers, **more}:
                signed = {name: _confirmed(said) for name, said in servers.items()}
                # Earlier proofs do not say so; their servers sign for every version only of a study that is over.
                every = [name for name, (covered, _) in signed.items() if covered == MAX_VERSION]
                said = more.get("void", every)
                void = {name for name in signed if isinstance(said, list) and name in said}
                return cls(client, version, signed, void=void)
        raise ValueError("not a proof: expected client and servers")

    def to_dict(self) -> dict[str, object]:
        """JSON form."""
        return {
            "client": self.client,
            "version": self.version,
            "complete": self.complete,
            "confirmed": sorted(self.confirmed),
            "counted": dict(sorted(self.counted.items())),
            "waiting": sorted(self.waiting),
            "problems": dict(sorted(self.problems.items())),
        }


def _confirmed(said: object) -> tuple[int, ServerReceipt]:
    match said:
        case {"version": int() as version, **signed}:
            return version, ServerReceipt.from_dict(signed)
    raise ValueError("not a proof: expected version, party, key and signature")


def check_proof(config: Config, client: str, proof: str, version: int) -> None:
    """Verifies that two servers of ``config`` have signed that nothing of ``client`` up to ``version`` is counted.

    Raises ValueError, CertificateError.
    """
    found = WithdrawalProgress.from_proof(proof, version)
    if found.client != client:
        raise ValueError("it is another owner's")
    for name, (covered, receipt) in found.confirmed.items():
        if receipt.party != name or covered < version:
            raise ValueError(f"the signature of {name} is for something else")
        check_tombstone(receipt, _tombstone(config, client, covered), config)
    if not found.complete:
        raise ValueError(f"it has the signatures of {len(found.confirmed)} servers")


def sign_withdrawal(config: Config, files: CertificateFiles, version: int) -> SignedWithdrawal:
    """Withdrawal of all versions up to ``version``, signed with the certificate's key. Raises CertificateError."""
    withdrawal = Withdrawal(config.run.id, config.digest(), load_identity(files).name, version)
    signature = signer(files)(withdrawal.message())
    return SignedWithdrawal(withdrawal, signature, certificate_bytes(files))


async def await_withdrawal(
    config: Config,
    files: CertificateFiles,
    version: int,
    *,
    signed: SignedWithdrawal | None = None,
    limit_s: float | None = None,
) -> WithdrawalProgress:
    """Asks all three servers, with ``signed`` for a withdrawal, until they confirm or the deadline comes.

    The deadline is timeouts.submit_s or ``limit_s``, in seconds. Without ``signed`` the client only asks: a later
    version replaces all up to ``version``, or the operators have ended it. The call ends earlier if a server reports
    the client as counted and no other server is still waiting. Raises CertificateError.
    """
    found = WithdrawalProgress(load_identity(files).name, version)
    deadline = time.monotonic() + (config.timeouts.submit_s if limit_s is None else limit_s)
    while True:
        left = [p for p in config.require_parties() if p.name not in found.confirmed]
        await asyncio.gather(
            *(_ask_withdrawal(config, files, party, found, signed) for party in left)
        )
        over = found.complete or found.hopeless or (found.counted and not found.waiting)
        if over or time.monotonic() + _PAUSE_S >= deadline:
            return found
        await asyncio.sleep(_PAUSE_S)


async def known_versions(config: Config, files: CertificateFiles) -> dict[str, int]:
    """Newest version of the certificate's client at each server that answers, 0 for none.

    Impossible versions are left out, so that no server alone can keep a participant from withdrawing the versions that
    others have.
    """
    path, there = withdrawal_path(config.run.id), {}
    for party in config.require_parties():
        heard = await ask_server(config, party, files, path=path)
        if heard.says is not None:
            said = [heard.says.get(name) for name in ("stored", "asked", "settled")]
            known = [n for n in said if type(n) is int and 0 < n <= MAX_VERSION]
            there[party.name] = max(known, default=0)
    return there


async def _ask_withdrawal(
    config: Config,
    files: CertificateFiles,
    party: PartySection,
    found: WithdrawalProgress,
    signed: SignedWithdrawal | None,
) -> None:
    heard = await ask_server(
        config,
        party,
        files,
        path=withdrawal_path(config.run.id),
        method="GET" if signed is None else "PUT",
        headers=None if signed is None else signed.headers(),
    )
    for known in (found.problems, found.counted, found.closed):
        known.pop(party.name, None)
    found.waiting.discard(party.name)
    if heard.says is None:
        found.problems[party.name] = heard.problem
        if heard.status == HTTPStatus.GONE:
            found.closed[party.name] = heard.problem
        return
    try:
        _record_answer(config, heard, found)
    except (ValueError, CertificateError) as error:
        found.problems[party.name] = f"its answer does not hold: {error}"


def _record_answer(config: Config, heard: ServerAnswer, found: WithdrawalProgress) -> None:
    """Enters a server's answer. Raises ValueError or CertificateError if it is malformed or unsigned."""
    name, says = heard.party.name, heard.says or {}
    version, counted = says.get("settled"), says.get("counted")
    if not isinstance(version, int) or says.get("party") != name:
        raise ValueError("expected what is settled of this owner")
    if version < found.version:
        if isinstance(counted, int):
            found.counted[name] = counted
        else:
            found.waiting.add(name)
        return
    (receipt,) = receipts_in(dict(says))
    if receipt.party != name:
        raise ValueError("the signature is another server's")
    check_tombstone(receipt, _tombstone(config, found.client, version), config)
    found.confirmed[name] = (version, receipt)
    if says.get("void") is True and version == MAX_VERSION:
        found.void.add(name)


def _tombstone(config: Config, client: str, version: int) -> Tombstone:
    return Tombstone(config.run.id, config.digest(), client, version)
