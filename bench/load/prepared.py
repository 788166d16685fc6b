"""Owners that are ready to send: certificates, sealed uploads as `syncret join` makes them, TLS contexts.

``Workshop`` makes each ``Owner``. Nothing here is secret: rows are random.
"""

import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bench.load.garbage import NO_BOX, ONE_BOX, OTHER_STUDY, Sendable
from bench.load.study import CAPACITY, CODES, COLUMNS
from bench.load.wire import Door, upload_head
from parties.config import CertificateFiles, Config
from parties.crypto.hpke import SealKey, SealTo
from parties.identity.tls import (
    certificate_bytes,
    client_context,
    load_identity,
    make_certificates,
    signer,
)
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.submission.http_api import submission_path
from parties.mpc.submission.sealed_upload import (
    SealedUpload,
    SignedUpload,
    Upload,
    seal_boxes,
    seal_common,
)
from parties.mpc.submission.state import SubmissionState
from parties.mpc.submission.submit import submission_of
from parties.network.port_sharing import study_sni_name
from parties.session.study import Study


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Owner:
    """An owner that tries ``server`` first, over ``context``; its ``files``, and its signed ``upload`` with bytes."""

    server: int
    context: ssl.SSLContext
    files: CertificateFiles
    head: bytes
    content: bytes
    upload: Upload

    @property
    def sendable(self) -> Sendable:
        """The owner's prepared upload to its first server."""
        return Sendable(self.context, self.head, self.content)


class Workshop:
    """Makes owners of the study of ``config``, and their certificates in the folder of its authority."""

    def __init__(self, config: Config, certificates: Path) -> None:
        self.config = config
        self._certificates = certificates
        self._workload = config.build_workload()
        self._other_study = config.override({"run.epsilon": 2.0})
        self._codes = np.random.default_rng(1).integers(
            0, CODES, (CAPACITY, COLUMNS), dtype=np.int32
        )

    @property
    def doors(self) -> tuple[Door, ...]:
        """Addresses of the three servers for owners."""
        name = study_sni_name(self.config.digest())
        parties = self.config.require_parties()
        return tuple(Door(party.ingest.host, party.ingest.port, name) for party in parties)

    def admit(self, names: Sequence[str]) -> None:
        """Makes certificates for these owners."""
        make_certificates(self._certificates, (), names)

    @cached_property
    def stranger(self) -> ssl.SSLContext:
        """TLS context of a client of another authority, which does not verify its server."""
        folder = self._certificates / f"strangers-{secrets.token_hex(4)}"
        files = make_certificates(folder, (), ["stranger"])["stranger"]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(files.cert, files.key)
        return context

    def context(self, files: CertificateFiles, server: int) -> ssl.SSLContext:
        """Returns an owner's TLS context for one of the servers."""
        return client_context(files, self.config.require_parties()[server].pinned)

    def owner(self, name: str, kind: str = "") -> Owner:
        """Makes an owner with a certificate; for some kinds of garbage its upload is wrong in itself."""
        folder, server = self._certificates, secrets.randbelow(3)
        files = CertificateFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
        config = self._other_study if kind == OTHER_STUDY else self.config
        sealed, upload = self._sealed(config, files, self._seals(kind, server))
        signed = SignedUpload(upload, signer(files)(upload.message()), certificate_bytes(files))
        content = sealed.content
        head = upload_head(submission_path(config.run.id), signed.headers(), len(content))
        return Owner(server, self.context(files, server), files, head, content, upload)

    def _seals(self, kind: str, server: int) -> list[SealTo]:
        """Returns the keys that the owner's boxes are sealed to."""
        right = [party.seal_to for party in self.config.require_parties()]
        if kind == NO_BOX:
            return [self._elsewhere] * 3
        if kind == ONE_BOX:
            right[(server + 1) % 3] = self._elsewhere
        return right

    @cached_property
    def _elsewhere(self) -> SealTo:
        return SealKey.generate().public

    def _sealed(
        self, config: Config, files: CertificateFiles, seals: Sequence[SealTo]
    ) -> tuple[SealedUpload, Upload]:
        own = OwnerInput.of(Study(config, self._workload), self._codes, CAPACITY)
        state = SubmissionState.draw(config, own, load_identity(files).name, 1, 1)
        submission = submission_of(config, state, self._workload)
        parts, key = own.form.share(own.values, state.seeds), bytes.fromhex(state.key)
        common = seal_common(parts, submission, key)
        boxes = seal_boxes(parts, submission, seals, key=key, common=common)
        sealed = SealedUpload(boxes, common, parts.holders)
        return sealed, sealed.describe(submission)
