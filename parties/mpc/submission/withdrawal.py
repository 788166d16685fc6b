"""Withdrawal of a submission: a statement that the participant signs, and that any server may forward.

A withdrawal covers all versions of a client's submission up to one, so that sending an earlier one again cannot bring
it back; a later version is another submission. A withdrawal names no upload's digest: it also covers uploads that the
participant no longer knows. No holder of a withdrawal, not even a lying server, can invent one or extend it.

Secret: nothing. Source: docs/decisions/0028.
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
    """Statement: in run ``run`` of configuration ``config``, nothing of ``client`` up to ``version`` may be counted."""

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
        """Bytes that the participant signs."""
        said = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return _LABEL + said.encode("ascii")

    def digest(self) -> str:
        """Hex SHA-256 of the message, by which results list the withdrawal."""
        return hashlib.sha256(self.message()).hexdigest()


@dataclass(frozen=True, slots=True)
class SignedWithdrawal:
    """A ``withdrawal`` with its participant's ``signature`` and ``certificate`` (DER)."""

    withdrawal: Withdrawal
    signature: bytes
    certificate: bytes

    def check(self, authority: Issuer, run: str, config: str) -> None:
        """Raises CertificateError unless the withdrawal's own client has signed it, for this run.

        Certificates are verified without their dates, so that all servers and later auditors come to the same result.
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
        """HTTP headers without the certificate, which the participant's own connection has shown."""
        return {
            **ingest_headers(),
            VERSION_HEADER: str(self.withdrawal.version),
            SIGNATURE_HEADER: base64.b64encode(self.signature).decode("ascii"),
        }

    @classmethod
    def of_owner(
        cls, run: str, config: str, client: str, certificate: bytes, headers: Mapping[str, str]
    ) -> Self:
        """Withdrawal of ``client`` from its headers; its connection has shown the certificate. Raises FieldError."""
        text = headers.get(VERSION_HEADER, "")
        require_field(re.fullmatch(r"[0-9]{1,6}", text), "version", f"1 to {MAX_VERSION}")
        withdrawal = Withdrawal(run, config, client, int(text))
        return cls(withdrawal, signature_in(headers), certificate)

    def to_dict(self) -> dict[str, str | int]:
        """JSON form."""
        return {
            "client": self.withdrawal.client,
            "version": self.withdrawal.version,
            "signature": base64.b64encode(self.signature).decode("ascii"),
            "certificate": base64.b64encode(self.certificate).decode("ascii"),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, object], run: str, config: str) -> Self:
        """Parses ``to_dict``'s value, for this run. Raises ValueError on anything else."""
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
