"""A participant's signed statements of what it releases in a study, which its server keeps and tells it later.

Before it joins, a participant signs a ``ReleaseStatement``: the most that this participation may cost, and the name of
its ledger. Once the participant has sent anything of its table, the server keeps that in its release registry, by the
hash of the participant's key, before a sum is unmasked and before it uses answers that it can read. To a participant
that asks (RELEASES), the server tells the statements of the key that its connection has proved, of all studies in that
registry. The participant believes its own signature alone: a lying server can withhold, and can show a statement of a
run that released nothing, but it can invent no study and no cost. Nothing here is secret to that participant and its
server. A statement is a JSON object

    statement (text that is signed: a release, its submission and mark, in JSON) | signature (Base64)
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from parties.config import CertificateFiles, Config
from parties.config.diff import agreed_bytes
from parties.foundation.errors import CertificateError, FederationProtocolError
from parties.foundation.untrusted_text import certificate_from_der
from parties.identity.signing import Signatory, signatory_of
from parties.identity.tls import signer
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import Release
from parties.storage.release_registry import ReleaseRegistry, SignedInputs
from parties.storage.told_releases import EarlierRelease
from protocols.mesh import key_hash

_LABEL = b"syncret participant's release 1\n"
MAX_TOLD_BYTES = 1 << 24
"""Maximum size of a server's answer in bytes."""


@dataclass(frozen=True, slots=True)
class ReleaseStatement:
    """Statement of one participation: at most ``release``, paid for as ``submission``, the name of its ledger.

    The ``mark`` is of the population that pays (`parties.storage.population_mark`), "" without one.
    """

    release: Release
    submission: str
    mark: str = ""

    def sign(self, files: CertificateFiles) -> bytes:
        """Returns the statement with the signature of the certificate's key. Raises CertificateError."""
        said = {**asdict(self.release), "submission": self.submission, "mark": self.mark}
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        signature = base64.b64encode(signer(files)(_LABEL + text.encode("ascii"))).decode("ascii")
        return json.dumps({"statement": text, "signature": signature}).encode("ascii")

    @classmethod
    def of(cls, document: object, participant: Signatory) -> Self | None:
        """Returns the statement that ``participant`` has signed, from its JSON object; None for anything else."""
        match document:
            case {"statement": str() as text, "signature": str() as signature}:
                pass
            case _:
                return None
        try:
            message = _LABEL + text.encode("ascii")
            participant.verify(base64.b64decode(signature, validate=True), message)
            said = json.loads(text)
            submission, mark = said.pop("submission"), said.pop("mark", "")
            return cls(Release(**said), submission, mark)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None  # Of a version that is not known.
        except CertificateError:
            return None  # Of somebody else.


def statement_for(config: Config, certificate: bytes, document: bytes) -> str:
    """Returns a participant's statement for the registry, "" for one that is not its own or of another study.

    ``certificate`` (DER) is the participant's own, verified.
    """
    try:
        shown = json.loads(document)
        said = ReleaseStatement.of(shown, signatory_of(certificate))
    except (ValueError, RecursionError, CertificateError):
        return ""
    fits = said is not None and said.release.config == config.digest()
    return json.dumps(shown, sort_keys=True) if fits else ""


def signed_statements(config: Config, statements: Sequence[tuple[bytes, str]]) -> SignedInputs:
    """Returns the registry's entries of ``statements``, each with its participant's certificate (DER)."""
    return SignedInputs(
        agreed_bytes(config).decode(),
        [(key_hash(certificate_from_der(own)), text) for own, text in statements],
    )


def told_statements(registry: ReleaseRegistry, certificate: bytes) -> bytes:
    """Returns the answer to a participant with this certificate (DER): the statements of its key, a JSON array.

    Blocks. Raises StoreError.
    """
    own, signatory = key_hash(certificate_from_der(certificate)), signatory_of(certificate)
    # The registry has submissions to DistAIM as well, with other contents.
    shown = (json.loads(text) for _, text in registry.released_to(own))
    found = [item for item in shown if ReleaseStatement.of(item, signatory) is not None]
    return json.dumps(found).encode("ascii")


def statements_in(body: bytes, participant: Signatory, server: str) -> list[ReleaseStatement]:
    """Returns the statements in a server's answer that ``participant`` has signed; all else is ignored.

    Raises FederationProtocolError if the answer is no list.
    """
    try:
        listed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FederationProtocolError(server, "tells releases that are no JSON") from error
    if not isinstance(listed, list):
        raise FederationProtocolError(server, "tells releases that are no list")
    found = dict[tuple[Release, str], ReleaseStatement]()
    for statement in (ReleaseStatement.of(item, participant) for item in listed):
        if statement is None:
            continue
        before = found.setdefault((statement.release, statement.submission), statement)
        if before.mark != statement.mark:
            # One participation that was charged to two populations: nothing tells whose it is.
            found[statement.release, statement.submission] = replace(statement, mark="")
    return list(found.values())


def missing_releases(
    budget: Path, known: Sequence[ReleaseStatement], server: str
) -> list[EarlierRelease]:
    """Returns the releases that ``server`` has told and the budget lacks.

    A charge that was given back by a server's signature is not lacking: one server's word does not enter it again.
    Blocks. Raises StoreError.
    """
    found = OwnerBudget(budget) if known and budget.exists() else None
    return [
        EarlierRelease(item.release, item.submission, (server,), item.mark)
        for item in known
        if found is None or found.lacks(item.release.config, item.submission, sure=False)
    ]
