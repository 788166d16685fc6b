"""An owner takes back what it has submitted: a statement that it signs, which any server may pass on.

Provides ``Withdrawal`` and ``SignedWithdrawal``. A withdrawal is of all versions of a client's submission up to one, so
that what was sent before cannot be brought back by sending it again; a later version is another submission. It says
nothing of an upload's digest: it holds for what an owner no longer knows, too. Whoever has it, a server that lies among
them, can neither make one up nor make it reach further.

Secret: nothing. Source: parties/README.md, Decisions.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from parties.config import NAME_PATTERN
from parties.foundation.errors import CertificateError
from parties.foundation.version import ingest_headers
from parties.identity.signing import Issuer
from parties.mpc.submission.messages import (
    DIGEST_PATTERN,
    MAX_VERSION,
    VERSION_HEADER,
    require_field,
)
from parties.mpc.submission.sealed_upload import (
    MAX_CERTIFICATE,
    MAX_SIGNATURE,
    SIGNATURE_HEADER,
    signature_in,
)

_LABEL = b"syncret withdrawal 1\n"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """In run ``run`` of configuration ``config`` nothing of ``client`` up to ``version`` is to be counted."""

    run: str
    config: str
    client: str
    version: int

    def __post_init__(self) -> None:
        require_field(DIGEST_PATTERN.fullmatch(self.config), "config", "64 hex digits")
        for name in (self.run, self.client):
            require_field(NAME_PATTERN.fullmatch(name), "client", "a name")
        right = type(self.version) is int and 1 <= self.version <= MAX_VERSION
        require_field(right, "version", f"1 to {MAX_VERSION}")

    def message(self) -> bytes:
        """What the owner signs."""
        said = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return _LABEL + said.encode("ascii")

    def digest(self) -> str:
        """Hex SHA-256 of it: what results say was withdrawn."""
        return hashlib.sha256(self.message()).hexdigest()


@dataclass(frozen=True, slots=True)
class SignedWithdrawal:
    """A ``withdrawal`` with its owner's ``signature`` and ``certificate`` (DER)."""

    withdrawal: Withdrawal
    signature: bytes
    certificate: bytes

    def check(self, authority: Issuer, run: str, config: str) -> None:
        """Raises CertificateError unless its own client has signed it, for this run.

        Certificates are looked at without their dates: all servers, and whoever looks later, come to the same.
        """
        if (self.withdrawal.run, self.withdrawal.config) != (run, config):
            raise CertificateError("the withdrawal is of another run")
        owner = authority.holder(self.certificate)
        if owner.name != self.withdrawal.client:
            raise CertificateError(
                f"the certificate is of {owner.name!r}, the withdrawal of {self.withdrawal.client!r}"
            )
        owner.verify(self.signature, self.withdrawal.message())

    def headers(self) -> dict[str, str]:
        """The HTTP headers but for the certificate, which the owner's own connection has shown."""
        return {
            **ingest_headers(),
            VERSION_HEADER: str(self.withdrawal.version),
            SIGNATURE_HEADER: base64.b64encode(self.signature).decode("ascii"),
        }

    @classmethod
    def of_owner(
        cls, run: str, config: str, client: str, certificate: bytes, headers: Mapping[str, str]
    ) -> Self:
        """What the owner ``client`` withdraws, whose connection has shown the certificate. Raises FieldError."""
        text = headers.get(VERSION_HEADER, "")
        require_field(re.fullmatch(r"[0-9]{1,6}", text), "version", f"1 to {MAX_VERSION}")
        withdrawal = Withdrawal(run, config, client, int(text))
        return cls(withdrawal, signature_in(headers), certificate)

    def to_dict(self) -> dict[str, str | int]:
        """For JSON."""
        return {
            "client": self.withdrawal.client,
            "version": self.withdrawal.version,
            "signature": base64.b64encode(self.signature).decode("ascii"),
            "certificate": base64.b64encode(self.certificate).decode("ascii"),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object], run: str, config: str) -> Self:
        """What ``to_dict`` said, of this run. Raises ValueError on anything else."""
        match value:
            case {
                "client": str() as client,
                "version": int() as version,
                "signature": str() as signature,
                "certificate": str() as certificate,
            } if len(value) == 4:
                signed, shown = (
                    base64.b64decode(text, validate=True) for text in (signature, certificate)
                )
                if len(signed) > MAX_SIGNATURE or len(shown) > MAX_CERTIFICATE:
                    raise ValueError("not a withdrawal: its signature or certificate is too long")
                return cls(Withdrawal(run, config, client, version), signed, shown)
        raise ValueError("not a withdrawal: expected client, version, signature and certificate")
