"""Receipts: each server's own signature that it has its part of an upload, whoever passed it on.

Provides ``Receipt``, what a server says and signs with the key that the configuration pins, ``ReceiptMaker``, which
makes a server's own, and ``check_receipt``. An upload is complete with three valid ones over the same digest: the
server that took it can neither lose nor alter a part of it unseen. ``check_settled`` is for what a server signs when
an upload was withdrawn or replaced (`parties.distaim.withdrawal`). Public: everything here.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from parties.config import CertificateFiles, Config
from parties.distaim.sealed import Upload
from parties.errors import CertificateError
from parties.signing import pinned_signatory, public_key_of
from parties.tls import load_certificate, signer

_LABEL = b"syncret receipt 1\n"
_SETTLED = b"syncret settled 1\n"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Server ``party``'s ``signature``, by the public ``key`` (SubjectPublicKeyInfo, DER) that is pinned."""

    party: str
    key: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        encoded = (base64.b64encode(data).decode("ascii") for data in (self.key, self.signature))
        return {"party": self.party, **dict(zip(("key", "signature"), encoded, strict=True))}

    @classmethod
    def from_dict(cls, value: object) -> Self:
        """The inverse of ``to_dict``. Raises ValueError on anything else."""
        match value:
            case {"party": str() as party, "key": str() as key, "signature": str() as signature}:
                decoded = (base64.b64decode(text, validate=True) for text in (key, signature))
                return cls(party, *decoded)
        raise ValueError("not a receipt: expected party, key and signature")


def receipt_message(upload: Upload, party: str) -> bytes:
    """What server ``party`` signs when it has its part of ``upload``."""
    submission = upload.submission
    said = {
        "run": submission.run,
        "config": submission.config,
        "client": submission.client,
        "upload": upload.digest(),
        "first_round": submission.first_round,
        "party": party,
    }
    return _LABEL + json.dumps(said, sort_keys=True, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True, slots=True)
class Settled:
    """That of ``client`` nothing of a ``version`` up to this one was counted in run ``run``, or ever will be.

    Whoever signs it has deleted its shares of them. ``config`` is the configuration's digest.
    """

    run: str
    config: str
    client: str
    version: int

    def message(self, party: str) -> bytes:
        """What server ``party`` signs of it."""
        said = {**asdict(self), "party": party}
        return _SETTLED + json.dumps(said, sort_keys=True, separators=(",", ":")).encode("ascii")


def check_settled(receipt: Receipt, settled: Settled, config: Config) -> None:
    """Raises CertificateError unless one of the configuration's servers has signed this."""
    _check(receipt, settled.message(receipt.party), config)


def check_receipt(receipt: Receipt, upload: Upload, config: Config) -> None:
    """Raises CertificateError unless one of the configuration's servers has signed this of ``upload``."""
    _check(receipt, receipt_message(upload, receipt.party), config)


def _check(receipt: Receipt, message: bytes, config: Config) -> None:
    pins = {party.name: party.pinned for party in config.require_parties()}
    if receipt.party not in pins:
        raise CertificateError(
            f"a receipt is of {receipt.party[:80]!r}, who is no server of the run"
        )
    server = pinned_signatory(pins[receipt.party], receipt.key)
    server.verify(receipt.signature, message)


@dataclass(frozen=True, slots=True)
class ReceiptMaker:
    """What makes a server's own receipts."""

    party: str
    key: bytes
    sign: Callable[[bytes], bytes] = field(repr=False)

    @classmethod
    def load(cls, party: str, files: CertificateFiles) -> Self:
        """With the key of its certificate. Raises CertificateError."""
        key = public_key_of(load_certificate(files.cert, "certificate"))
        return cls(party, key, signer(files))

    def make(self, upload: Upload) -> Receipt:
        """This server's receipt for ``upload``, which has to be on its disk."""
        return Receipt(self.party, self.key, self.sign(receipt_message(upload, self.party)))

    def settle(self, settled: Settled) -> Receipt:
        """This server's word that ``settled`` holds, which has to be so in its store."""
        return Receipt(self.party, self.key, self.sign(settled.message(self.party)))


def receipts_in(answer: Mapping[str, object]) -> Sequence[Receipt]:
    """The receipts in a server's answer, unchecked. Raises ValueError on anything else."""
    found = answer.get("receipts")
    if not isinstance(found, list):
        raise ValueError("no receipts")
    return [Receipt.from_dict(item) for item in found]
