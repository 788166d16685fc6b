"""The owner's way to take back what it has submitted: it signs, and asks all three servers until each has signed, too.

Provides ``await_withdrawal``, which asks until all three have confirmed, one says that it is too late, or the deadline
comes, and ``WithdrawalProgress``. Servers meet over a withdrawal, or over an upload that takes the place of another
one, when they next compare their lists; a server's signed word comes after that. Secret: nothing.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class WithdrawalProgress:
    """How far it is that of ``client`` nothing up to ``version`` is counted.

    ``confirmed`` has each server's signature with the version that it is of; ``counted`` the round in which the client
    is counted, by whom; ``waiting`` are servers that know of it and have not met over it, ``problems`` says what else.
    """

    client: str
    version: int
    confirmed: dict[str, tuple[int, ServerReceipt]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all three servers have signed it."""
        return len(self.confirmed) == 3

    @property
    def proof(self) -> str:
        """What they have signed, as JSON."""
        signed = {
            name: {"version": version, **receipt.to_dict()}
            for name, (version, receipt) in sorted(self.confirmed.items())
        }
        return json.dumps({"client": self.client, "servers": signed})

    @classmethod
    def from_proof(cls, proof: str, version: int) -> Self:
        """What all three have signed before. Raises ValueError on anything else."""
        match parse_json(proof):
            case {"client": str() as client, "servers": dict() as servers}:
                return cls(client, version, {name: _confirmed(s) for name, s in servers.items()})
        raise ValueError("not a proof: expected client and servers")

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
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


def sign_withdrawal(config: Config, files: CertificateFiles, version: int) -> SignedWithdrawal:
    """All up to ``version`` is withdrawn, as the owner of the certificate says. Raises CertificateError."""
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
    """Ask all three servers, with ``signed`` for a withdrawal, until they confirm; timeouts.submit_s or ``limit_s``.

    Without ``signed`` it only asks: a later version takes the place of all up to ``version``. It ends earlier where a
    server says that the client is counted and no other one is still waiting. Raises CertificateError.
    """
    found = WithdrawalProgress(load_identity(files).name, version)
    deadline = time.monotonic() + (config.timeouts.submit_s if limit_s is None else limit_s)
    while True:
        left = [p for p in config.require_parties() if p.name not in found.confirmed]
        await asyncio.gather(
            *(_ask_withdrawal(config, files, party, found, signed) for party in left)
        )
        over = found.complete or (found.counted and not found.waiting)
        if over or time.monotonic() + _PAUSE_S >= deadline:
            return found
        await asyncio.sleep(_PAUSE_S)


async def known_versions(config: Config, files: CertificateFiles) -> dict[str, int]:
    """Of the client of this certificate the newest version that each server knows that answers, 0 for none.

    What no version can be is left out, so that no server alone can keep an owner from withdrawing what others have.
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
    for known in (found.problems, found.counted):
        known.pop(party.name, None)
    found.waiting.discard(party.name)
    if heard.says is None:
        found.problems[party.name] = heard.problem
        return
    try:
        _record_answer(config, heard, found)
    except (ValueError, CertificateError) as error:
        found.problems[party.name] = f"its answer does not hold: {error}"


def _record_answer(config: Config, heard: ServerAnswer, found: WithdrawalProgress) -> None:
    """Take in what a server says. Raises ValueError or CertificateError where it is something else."""
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


def _tombstone(config: Config, client: str, version: int) -> Tombstone:
    return Tombstone(config.run.id, config.digest(), client, version)
