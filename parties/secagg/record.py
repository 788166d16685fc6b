"""The transcript of one SecAgg server: every message, the sum that was opened, who survived, and why it ended.

Provides ``SessionRecord``, the log of a `parties.secagg.server.RoundServer`, and ``SCHEMA``, what may stand in it.
Messages stand in it by digests under the session's own digest, which both ends know: what they carry is encrypted,
masked or random. A sum is written down only where the session has noise; of one without, its length alone. Public: all
of it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parties.config import CertificateFiles
from parties.files import disk_errors
from parties.secagg.steps import SESSION, SUM, step_of
from parties.tls import load_identity, signer
from parties.version import version
from protocols import fields
from protocols.digests import message_digest
from protocols.transcript import RECORDS, Transcript, Value, schema
from secagg import SecAggServer
from secagg.noise import NoiseKind

PROTOCOL = "secagg"
LEFT, ABORTED = "left", "aborted"
SCHEMA = schema(
    {
        "protocol": fields.text,
        "name": fields.text,
        "version": fields.text,
        "session": fields.text,
        "parameters": fields.hex_bytes,
        "parameters_sha256": fields.hex64,
        "clients": fields.texts,
    },
    {LEFT: {"client": fields.text, "reason": fields.text}, ABORTED: {"reason": fields.text}},
    # A session has no rounds, and its clients sign no digest of what they submit.
    {
        **RECORDS,
        "opened": {**RECORDS["opened"], "round": fields.optional_natural},
        "client": {**RECORDS["client"], "digest": fields.text},
    },
)
"""The records of a session's transcript."""


class SessionRecord:
    """A transcript at ``path`` for the session of ``server`` among ``names``; ``close`` seals it. Raises StoreError."""

    def __init__(
        self, path: Path, files: CertificateFiles, server: SecAggServer, names: Sequence[str]
    ) -> None:
        parameters = server.parameters
        header: dict[str, Value] = {
            "protocol": PROTOCOL,
            "name": load_identity(files).name,
            "version": version(),
            "session": parameters.session.hex(),
            "parameters": parameters.to_bytes().hex(),
            "parameters_sha256": parameters.digest.hex(),
            "clients": list(names),
        }
        with disk_errors(path):
            self._transcript = Transcript(path, sign=signer(files), header=header)
        self._key = parameters.digest
        self._names = tuple(names)
        self._label = 0

    def message(self, *, sent: bool, client: int, data: bytes) -> None:
        """One message to or from ``client``."""
        self._label += 1
        self._transcript.message(
            step=step_of(data),
            round=None,
            direction="sent" if sent else "received",
            peer=client,
            label=self._label,
            size=len(data),
            digest=message_digest(self._key, np.frombuffer(data, np.uint8)),
        )

    def left(self, client: int, reason: str) -> None:
        """A client's connection is of no use any more."""
        self._transcript.note(LEFT, client=self._names[client], reason=reason)

    def finished(self, server: SecAggServer) -> None:
        """The sum is there."""
        for client, name in enumerate(self._names):
            there = client in server.survivors
            self._transcript.client(
                client=name,
                digest="",
                round=0,
                accepted=there,
                reason="" if there else "dropped out",
            )
        scaled = server.scaled_result
        noisy = server.parameters.noise.kind is not NoiseKind.NONE
        value = scaled.astype("<i8").tobytes() if noisy else b""
        self._transcript.opened(step=SESSION, round=None, what=SUM, count=scaled.size, value=value)

    def aborted(self, reason: str) -> None:
        """There is no sum."""
        self._transcript.note(ABORTED, reason=reason)

    def close(self) -> None:
        """Seal and close."""
        self._transcript.close()
