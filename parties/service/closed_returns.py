"""Answers to owners of a study without a process: what is true of their submissions, and what of them was released.

Signed statements say that nothing of theirs was opened, and that their shares are gone.

A study that is finished or cancelled signs for every version of an owner that its releases did not include, once its
secrets are deleted. A study that has failed may be approved again, and keeps its secrets: it signs for what an owner
withdraws, after the owner's shares are deleted, as a running one does. The registry of releases is the record of what
was released. Nothing here is secret. Known limits: a server that has lost its registry signs although something may
have been opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parties.config import Config, load_config
from parties.identity.signing import Issuer
from parties.mpc.intake.known_releases import releases_answer
from parties.mpc.outputs import STORE_FOLDER, has_store
from parties.mpc.storage.store import Store
from parties.mpc.submission.sealed_upload import (
    ReceiptSigner,
    Tombstone,
    tombstone_answer,
    void_answer,
)
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.service.identity import ServiceIdentity
from parties.service.known_studies import KnownStudies
from parties.service.study_record import StudyRecord, StudyState
from parties.storage.release_registry import ReleaseRegistry
from parties.storage.user_paths import registry_path

_OVER = (StudyState.FINISHED, StudyState.CANCELLED)


@dataclass(frozen=True, slots=True)
class OwnerRequest:
    """A request about a withdrawal by the owner ``client``, known by its ``certificate`` (DER).

    ``headers`` are those of a withdrawal that it has signed, None where it only asks.
    """

    client: str
    certificate: bytes
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ReleasesRequest:
    """A request of the owner with the hash ``key`` about its releases; ``query`` as in the ingest API."""

    key: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClosedReturns:
    """Statements of the service ``identity``; ``register`` is the file of its release registry, None: the usual one."""

    identity: ServiceIdentity
    studies: KnownStudies
    register: Path | None

    def answer(self, study: StudyRecord, request: OwnerRequest) -> Mapping[str, object] | None:
        """Returns the signed statement that is true of the owner of a study, None if there is none.

        Raises ConfigError, CertificateError, StoreError, FieldError. Blocks.
        """
        folder, name = self.studies.folder(study), self.identity.own.name
        over, failed = study.state in _OVER, study.state is StudyState.FAILED
        if not (failed or (over and not folder.seal.exists())):
            return None
        config = load_config(folder.config)
        registry = ReleaseRegistry(registry_path(self.register))
        if registry.has_released_client(config.digest(), name, request.client):
            return None
        signer = ReceiptSigner.load(name, config.require_tls(self.identity.pid))
        if over:
            return void_answer(config, request.client, signer)
        if not has_store(folder.work):
            return None
        with Store(folder.work / STORE_FOLDER, config.digest()) as store:
            return _settled(config, store, request, signer=signer)

    def releases(self, request: ReleasesRequest) -> Mapping[str, object] | None:
        """Returns the owner's releases in all studies, None for an unknown configuration.

        Raises StoreError. Blocks.
        """
        registry = ReleaseRegistry(registry_path(self.register))
        return releases_answer(
            registry, request.key, party=self.identity.own.name, query=request.query
        )


def _settled(
    config: Config, store: Store, request: OwnerRequest, *, signer: ReceiptSigner
) -> Mapping[str, object] | None:
    """Settles a withdrawal in the store of a failed study, and returns the statement; None without anything settled."""
    client, finalized = request.client, store.finalized
    if finalized.final(client) is not None:
        return None
    if request.headers is not None:
        signed = SignedWithdrawal.of_owner(
            config.run.id, config.digest(), client, request.certificate, request.headers
        )
        authority = Issuer.load(config.require_tls().ca)
        authority.signatory(request.certificate)
        signed.check(authority, config.run.id, config.digest())
        if signed.withdrawal.version > finalized.version(client):
            store.submissions.settle(client, signed.withdrawal.version, signed)
    version = finalized.version(client)
    if not version:
        return None
    return tombstone_answer(Tombstone(config.run.id, config.digest(), client, version), signer)
