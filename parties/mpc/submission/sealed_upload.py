"""Sealed upload: a participant's upload to one server, of which each of the three can read only its own part.

The participant's side seals an input form's parts into a ``SealedUpload`` (``seal_common``, ``seal_boxes``): a box for
each server (`parties.crypto.hpke`), and the common part, encrypted once with AES-256-GCM (in segments, if it is large)
under a key in the boxes of its holders. The servers' side, ``open_part``, turns a box and the common part into the
form's body. ``Upload`` holds the digests of everything that is sent; the participant signs its digest with its
certificate's key, so that a server that forwards an upload can neither invent nor alter it (``SignedUpload``).

A box opens only for the submission, the server and the common part that it was made for. AES-GCM does not commit to its
key: two boxes with different keys may open one common part to different bodies. The comparison of components by their
holders finds this (`parties.mpc.participants.admission`), like other lies of a participant.

A ``ServerReceipt`` is a server's signature, by the key that the configuration pins, on having its part of an upload,
whichever server forwarded it. An upload is complete with three valid receipts over the same digest: the server that
took it can neither lose nor alter a part of it unnoticed. ``check_tombstone`` verifies a server's signature on the
withdrawal or replacement of an upload (`parties.mpc.submission.withdrawal`).

Secret: parts, bodies, the common part's key. Public: sizes, digests, sealed content, receipts. Source: RFC 9180;
docs/decisions/0023.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Self

from parties.config import CertificateFiles, Config
from parties.crypto.hpke import (
    KEY_BYTES,
    OVERHEAD_BYTES,
    SealKey,
    SealTo,
    decrypt_once,
    encrypt_once,
    sealed_size,
)
from parties.foundation.errors import CertificateError, SealError
from parties.foundation.untrusted_text import certificate_from_der
from parties.foundation.version import ingest_headers
from parties.identity.signing import Issuer, pinned_signatory, public_key_of
from parties.identity.tls import load_certificate, signer
from parties.mpc.inputs import InputForm
from parties.mpc.submission.messages import MAX_VERSION, Submission, require_field
from protocols.mesh import key_hash
from protocols.upload import UploadParts

PARTS_HEADER, SIGNATURE_HEADER = "Syncret-Parts", "Syncret-Signature"
CLIENT_HEADER, CERTIFICATE_HEADER = "Syncret-Client", "Syncret-Certificate"
_UPLOAD, _SIGNED = b"syncret upload 1\n", b"syncret owner's signature 1\n"
_BOX, _COMMON = b"syncret box 1\n", b"syncret common part 1\n"
_DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_SIGNATURE, MAX_CERTIFICATE = 256, 4096


@dataclass(frozen=True, slots=True)
class UploadSizes:
    """Exact sizes of an upload's sealed parts in bytes, by the form and the participant's public capacity."""

    boxes: tuple[int, int, int]
    common: int
    holders: tuple[int, ...]

    @classmethod
    def of(cls, form: InputForm, capacity: int) -> Self:
        """Sizes of ``form`` at ``capacity``."""
        holders = form.holders

        def box(pid: int) -> int:
            key = KEY_BYTES if pid in holders else 0
            return form.private_size(pid, capacity) + key + OVERHEAD_BYTES

        common = sealed_size(form.common_size(capacity)) if holders else 0
        return cls((box(0), box(1), box(2)), common, holders)

    @property
    def whole(self) -> int:
        """Size of the whole upload."""
        return sum(self.boxes) + self.common

    def passed_on(self, pid: int) -> int:
        """Size of server ``pid``'s part."""
        return self.boxes[pid] + (self.common if pid in self.holders else 0)

    def received(self, pid: int, content: bytes) -> "ReceivedUpload":
        """Server ``pid``'s part from its bytes. Raises ValueError on another size."""
        if len(content) != self.passed_on(pid):
            raise ValueError(f"a part of {len(content)} bytes; expected {self.passed_on(pid)}")
        size = self.boxes[pid]
        return ReceivedUpload(content[:size], content[size:] if pid in self.holders else None)

    def split(self, content: bytes) -> "SealedUpload":
        """Parts of an upload's bytes. Raises ValueError on another size."""
        if len(content) != self.whole:
            raise ValueError(f"an upload of {len(content)} bytes; expected {self.whole}")
        ends = list(accumulate(self.boxes))
        first, second, third = (
            content[end - size : end] for end, size in zip(ends, self.boxes, strict=True)
        )
        return SealedUpload((first, second, third), content[ends[-1] :], self.holders)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SealedUpload:
    """A participant's upload: three boxes, and the encrypted common part (empty without one) with its holders."""

    boxes: tuple[bytes, bytes, bytes]
    common: bytes
    holders: tuple[int, ...]

    def __repr__(self) -> str:
        return f"SealedUpload({[len(box) for box in self.boxes]} and {len(self.common)} bytes)"

    @property
    def content(self) -> bytes:
        """Bytes on the wire."""
        return b"".join((*self.boxes, self.common))

    def for_server(self, pid: int) -> "ReceivedUpload":
        """Server ``pid``'s part."""
        return ReceivedUpload(self.boxes[pid], self.common if pid in self.holders else None)

    def describe(self, submission: Submission) -> "Upload":
        """Digests of the upload, for the participant's signature."""
        first, second, third = map(_sha256, self.boxes)
        return Upload(submission, (first, second, third), _sha256(self.common))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReceivedUpload:
    """One server's part of an upload: its ``box`` and, at a holder, the encrypted ``common`` part (else None)."""

    box: bytes
    common: bytes | None

    @property
    def content(self) -> bytes:
        """Bytes that one server forwards to another."""
        return self.box + (self.common or b"")


@dataclass(frozen=True, slots=True)
class Upload:
    """A participant's ``submission``, and the hex SHA-256 of each of its three boxes and its encrypted common part."""

    submission: Submission
    boxes: tuple[str, str, str]
    common: str
    _digest: str = field(init=False, repr=False, compare=False)
    """Cached, since the intake of one upload needs it a dozen times."""

    def __post_init__(self) -> None:
        parts = (self.submission.digest(), *self.boxes, self.common)
        digest = hashlib.sha256(_UPLOAD + b"".join(map(bytes.fromhex, parts))).hexdigest()
        object.__setattr__(self, "_digest", digest)

    def digest(self) -> str:
        """Hex SHA-256 of submission and parts, which servers list and receipts confirm."""
        return self._digest

    def message(self) -> bytes:
        """Bytes that the participant signs."""
        return _SIGNED + bytes.fromhex(self.digest())

    def describes(self, pid: int, received: "ReceivedUpload") -> bool:
        """True if ``received`` is the part that the participant made for server ``pid``."""
        if _sha256(received.box) != self.boxes[pid]:
            return False
        return received.common is None or _sha256(received.common) == self.common


@dataclass(frozen=True, slots=True)
class SignedUpload:
    """An ``upload`` with its participant's ``signature`` and ``certificate`` (DER), verified by every server."""

    upload: Upload
    signature: bytes
    certificate: bytes

    @property
    def submission(self) -> Submission:
        """The participant's submission."""
        return self.upload.submission

    def check(self, authority: Issuer) -> None:
        """Raises CertificateError unless the submission's own client has signed the upload."""
        owner = authority.signatory(self.certificate)
        if owner.name != self.submission.client:
            raise CertificateError(
                f"the certificate is of {owner.name!r}, the submission of {self.submission.client!r}"
            )
        owner.verify(self.signature, self.upload.message())

    def headers(self) -> dict[str, str]:
        """HTTP headers without the certificate, which the participant's own connection has shown."""
        return {
            **ingest_headers(),
            **self.submission.headers(),
            PARTS_HEADER: " ".join((*self.upload.boxes, self.upload.common)),
            SIGNATURE_HEADER: _encode(self.signature),
        }

    def headers_between_servers(self) -> dict[str, str]:
        """All HTTP headers."""
        shown = {
            CLIENT_HEADER: self.submission.client,
            CERTIFICATE_HEADER: _encode(self.certificate),
        }
        return {**self.headers(), **shown}

    @classmethod
    def of_owner(
        cls, run: str, client: str, certificate: bytes, headers: Mapping[str, str]
    ) -> Self:
        """Upload of ``client`` from its headers; its connection has shown the certificate. Raises FieldError."""
        upload = _upload_in(Submission.from_headers(run, client, headers), headers)
        return cls(upload, signature_in(headers), certificate)

    @classmethod
    def between_servers(cls, run: str, headers: Mapping[str, str]) -> Self:
        """Upload from the headers of a server that forwards it. Raises FieldError."""
        certificate = _decode(headers, CERTIFICATE_HEADER, MAX_CERTIFICATE)
        return cls.of_owner(run, headers.get(CLIENT_HEADER, ""), certificate, headers)

    def to_json(self) -> str:
        """JSON form for a store."""
        return json.dumps(
            {
                "submission": self.submission.canonical(),
                "parts": [*self.upload.boxes, self.upload.common],
                "signature": _encode(self.signature),
                "certificate": _encode(self.certificate),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of ``to_json``."""
        document = json.loads(text)
        first, second, third, common = document["parts"]
        submission = Submission.from_canonical(document["submission"])
        signature, certificate = (
            base64.b64decode(document[name]) for name in ("signature", "certificate")
        )
        return cls(Upload(submission, (first, second, third), common), signature, certificate)


def signer_key(text: str) -> str:
    """Hash of the key that has signed an upload (``SignedUpload.to_json``), by the certificate in it."""
    return key_hash(certificate_from_der(SignedUpload.from_json(text).certificate))


def signature_in(headers: Mapping[str, str]) -> bytes:
    """Participant's signature in ``headers``. Raises FieldError."""
    return _decode(headers, SIGNATURE_HEADER, MAX_SIGNATURE)


def seal_common(bodies: UploadParts, submission: Submission, key: bytes) -> bytes:
    """Encrypts the common part under ``key``, which must serve no other part; empty without a common part."""
    if not bodies.holders:
        return b""
    return encrypt_once(key, bodies.common, _common_context(submission))


def seal_boxes(
    bodies: UploadParts,
    submission: Submission,
    servers: Sequence[SealTo],
    *,
    key: bytes,
    common: bytes,
) -> tuple[bytes, bytes, bytes]:
    """Seals a box for each server: its private part and, for holders of the ``common`` part, its ``key``.

    Communication: ``OVERHEAD_BYTES`` a box beyond its content. Fresh randomness, so that two calls differ.
    """

    def box(pid: int) -> bytes:
        content = bodies.private[pid] + (key if pid in bodies.holders else b"")
        return servers[pid].seal(content, _box_info(submission, pid, _sha256(common)))

    return box(0), box(1), box(2)


def open_part(pid: int, key: SealKey, upload: Upload, received: "ReceivedUpload") -> bytes:
    """Server ``pid``'s body from its part of ``upload``.

    Raises SealError unless box and common part were made for this submission and this server.
    """
    submission = upload.submission
    try:
        content = key.open(received.box, _box_info(submission, pid, upload.common))
    except ValueError as error:
        raise SealError(str(error)) from error
    if received.common is None:
        return content
    private, common_key = content[:-KEY_BYTES], content[-KEY_BYTES:]
    try:
        common = decrypt_once(common_key, received.common, _common_context(submission))
    except SealError as error:
        raise SealError("the common part does not open with the key in the box") from error
    return private + common


def _upload_in(submission: Submission, headers: Mapping[str, str]) -> Upload:
    parts = headers.get(PARTS_HEADER, "").split(" ")
    right = len(parts) == 4 and all(_DIGEST.fullmatch(piece) for piece in parts)
    require_field(right, PARTS_HEADER, "four times 64 hex digits")
    first, second, third, common = parts
    return Upload(submission, (first, second, third), common)


def _box_info(submission: Submission, pid: int, common_digest: str) -> bytes:
    digests = bytes.fromhex(submission.digest()) + bytes.fromhex(common_digest)
    return _BOX + bytes([pid]) + digests


def _common_context(submission: Submission) -> bytes:
    return _COMMON + bytes.fromhex(submission.digest())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode(headers: Mapping[str, str], header: str, limit: int) -> bytes:
    try:
        data = base64.b64decode(headers[header], validate=True)
    except (KeyError, ValueError, binascii.Error):
        data = b""
    require_field(0 < len(data) <= limit, header, f"base64 of 1 to {limit} bytes")
    return data


_LABEL = b"syncret receipt 1\n"
_TOMBSTONE_LABEL = b"syncret settled 1\n"


@dataclass(frozen=True, slots=True)
class ServerReceipt:
    """Server ``party``'s ``signature``, by the pinned public ``key`` (SubjectPublicKeyInfo, DER)."""

    party: str
    key: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def to_dict(self) -> dict[str, object]:
        """JSON form."""
        encoded = (base64.b64encode(data).decode("ascii") for data in (self.key, self.signature))
        return {"party": self.party, **dict(zip(("key", "signature"), encoded, strict=True))}

    @classmethod
    def from_dict(cls, value: object) -> Self:
        """Inverse of ``to_dict``. Raises ValueError on anything else."""
        match value:
            case {"party": str() as party, "key": str() as key, "signature": str() as signature}:
                decoded = (base64.b64decode(text, validate=True) for text in (key, signature))
                return cls(party, *decoded)
        raise ValueError("not a receipt: expected party, key and signature")


def receipt_message(upload: Upload, party: str) -> bytes:
    """Bytes that server ``party`` signs when it has its part of ``upload``."""
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
class Tombstone:
    """Statement: nothing of ``client`` up to ``version`` was counted in run ``run``, or ever will be.

    A server that signs it has deleted its shares of these versions. ``config`` is the configuration's digest.
    """

    run: str
    config: str
    client: str
    version: int

    def message(self, party: str) -> bytes:
        """Bytes that server ``party`` signs."""
        said = {**asdict(self), "party": party}
        return _TOMBSTONE_LABEL + json.dumps(said, sort_keys=True, separators=(",", ":")).encode(
            "ascii"
        )


def check_tombstone(receipt: ServerReceipt, settled: Tombstone, config: Config) -> None:
    """Raises CertificateError unless one of the configuration's servers has signed ``settled``."""
    _check(receipt, settled.message(receipt.party), config)


def check_receipt(receipt: ServerReceipt, upload: Upload, config: Config) -> None:
    """Raises CertificateError unless one of the configuration's servers has signed the receipt of ``upload``."""
    _check(receipt, receipt_message(upload, receipt.party), config)


def _check(receipt: ServerReceipt, message: bytes, config: Config) -> None:
    pins = {party.name: party.pinned for party in config.require_parties()}
    if receipt.party not in pins:
        raise CertificateError(
            f"a receipt is of {receipt.party[:80]!r}, which is not a server of the run"
        )
    server = pinned_signatory(pins[receipt.party], receipt.key)
    server.verify(receipt.signature, message)


@dataclass(frozen=True, slots=True)
class ReceiptSigner:
    """Signer of a server's own receipts."""

    party: str
    key: bytes
    sign: Callable[[bytes], bytes] = field(repr=False)

    @classmethod
    def load(cls, party: str, files: CertificateFiles) -> Self:
        """Signer with the key of the server's certificate. Raises CertificateError."""
        key = public_key_of(load_certificate(files.cert, "certificate"))
        return cls(party, key, signer(files))

    def make(self, upload: Upload) -> ServerReceipt:
        """This server's receipt for ``upload``, whose part must be on its disk."""
        return ServerReceipt(self.party, self.key, self.sign(receipt_message(upload, self.party)))

    def settle(self, settled: Tombstone) -> ServerReceipt:
        """This server's signature on ``settled``, which must hold in its store."""
        return ServerReceipt(self.party, self.key, self.sign(settled.message(self.party)))


def void_answer(config: Config, client: str, signer: ReceiptSigner) -> dict[str, object]:
    """A server's answer for a study that is over and of whose ``client`` nothing was opened, as JSON.

    It has the form of the answer about a withdrawal. Its tombstone covers every version that ``client`` may have sent.
    """
    settled = Tombstone(config.run.id, config.digest(), client, MAX_VERSION)
    return {**tombstone_answer(settled, signer), "void": True}


def tombstone_answer(settled: Tombstone, signer: ReceiptSigner) -> dict[str, object]:
    """A server's answer about a withdrawal of a study that does not run, as JSON; ``settled`` must hold."""
    return {
        "run": settled.run,
        "party": signer.party,
        "client": settled.client,
        "stored": 0,
        "asked": 0,
        "settled": settled.version,
        "counted": None,
        "receipts": [signer.settle(settled).to_dict()],
    }


def receipts_in(answer: Mapping[str, object]) -> Sequence[ServerReceipt]:
    """Receipts in a server's answer, not yet verified. Raises ValueError on anything else."""
    found = answer.get("receipts")
    if not isinstance(found, list):
        raise ValueError("no receipts")
    return [ServerReceipt.from_dict(item) for item in found]
