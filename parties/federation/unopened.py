"""A server's signed statement to a participant: nothing of this study was opened, and nothing that was sent will be.

The server makes it when an attempt ends, if no sum of the study was opened and no participant has sent an answer that
it can read, in this attempt or before; what it holds of masked vectors is in the memory of the process that ends. The
promises of a federation rest on this server, but for `run.security = "malicious"`, where it makes no such statement,
and for answers that are private by themselves. Only there a participant's charge is not returned by it
(`parties.federation.participant_charge`). The body of an UNOPENED is

    size of key 2 | the server's public key (SubjectPublicKeyInfo, DER) | signature

Nothing here is secret.
"""

import base64
import json
from dataclasses import asdict, dataclass, field
from typing import Self

from parties.config import CertificateFiles, Config
from parties.foundation.errors import CertificateError
from parties.identity.signing import pinned_signatory, public_key_of
from parties.identity.tls import load_certificate, signer

_LABEL = b"syncret unopened 1\n"
_SIZE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Unopened:
    """Statement to ``client``: nothing of run ``run`` was opened, and nothing sent so far will be."""

    run: str
    config: str
    client: str
    server: str

    @classmethod
    def of(cls, config: Config, client: str) -> Self:
        """Returns the statement of a configuration's server."""
        return cls(config.run.id, config.digest(), client, config.require_federation().server)

    def message(self) -> bytes:
        """Bytes that the server signs."""
        said = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return _LABEL + said.encode("ascii")


@dataclass(frozen=True, slots=True)
class UnopenedSigner:
    """Signer of a server's statements about its study."""

    config: Config
    key: bytes = field(repr=False)
    files: CertificateFiles

    @classmethod
    def load(cls, config: Config, files: CertificateFiles) -> Self:
        """Returns the signer with the key of the server's certificate. Raises CertificateError."""
        return cls(config, public_key_of(load_certificate(files.cert, "certificate")), files)

    def body(self, client: str) -> bytes:
        """Returns the body of an UNOPENED to ``client``. Raises CertificateError."""
        signature = signer(self.files)(Unopened.of(self.config, client).message())
        return len(self.key).to_bytes(_SIZE_BYTES, "big") + self.key + signature


def unopened_proof(config: Config, client: str, body: bytes) -> str:
    """Returns the statement in an UNOPENED's body as a proof for the owner's budget, in JSON.

    Raises CertificateError unless the server that ``config`` pins has signed it to ``client``.
    """
    end = _SIZE_BYTES + int.from_bytes(body[:_SIZE_BYTES], "big")
    key, signature = body[_SIZE_BYTES:end], body[end:]
    if not key or not signature:
        raise CertificateError("a statement without a key or a signature")
    said = Unopened.of(config, client)
    pinned_signatory(config.require_federation().pinned, key).verify(signature, said.message())
    shown = {
        name: base64.b64encode(data).decode("ascii")
        for name, data in (("key", key), ("signature", signature))
    }
    return json.dumps({**asdict(said), **shown})
