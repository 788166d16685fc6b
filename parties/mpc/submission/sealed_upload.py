"""A sealed upload: what an owner sends to one server, for three of which each can read its own part alone.

Provides both sides. The owner's: ``seal``, from an input form's parts to a ``SealedUpload``: a box for each server
(`parties.crypto.hpke`), and the common part, encrypted once with AES-256-GCM (in segments, where it is large) under a
key that stands in the boxes of its holders. The servers': ``open_part``, from a box and the common part to the body
that the form knows. Between them ``Upload``, the digests of all that is sent, whose own digest the owner signs with its
certificate's key: a server that passes an upload on can neither make one up nor alter one (``SignedUpload``).

A box opens only for the submission, the server and the common part that it was made for. AES-GCM does not commit to
its key: two boxes with different keys may open one common part to different bodies. The comparison of components by
their holders finds it (`parties.mpc.participants.admission`), as it finds other lies of an owner.

Secret: parts, bodies, the common part's key. Public: sizes, digests, what is sent. Source: RFC 9180; README, Decisions.

Receipts: each server's own signature that it has its part of an upload, whoever passed it on.

Provides ``ServerReceipt``, what a server says and signs with the key that the configuration pins, ``ReceiptSigner``,
which makes a server's own, and ``check_receipt``. An upload is complete with three valid ones over the same digest: the
server that took it can neither lose nor alter a part of it unseen. ``check_tombstone`` is for what a server signs when
an upload was withdrawn or replaced (`parties.mpc.submission.withdrawal`). Public: everything here.
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
from parties.foundation.version import ingest_headers
from parties.identity.signing import Issuer, pinned_signatory, public_key_of
from parties.identity.tls import load_certificate, signer
from parties.mpc.inputs import InputForm
from parties.mpc.submission.messages import Submission, require_field
from protocols.upload import UploadParts

PARTS_HEADER, SIGNATURE_HEADER = "Syncret-Parts", "Syncret-Signature"
CLIENT_HEADER, CERTIFICATE_HEADER = "Syncret-Client", "Syncret-Certificate"
_UPLOAD, _SIGNED = b"syncret upload 1\n", b"syncret owner's signature 1\n"
_BOX, _COMMON = b"syncret box 1\n", b"syncret common part 1\n"
_DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_SIGNATURE, MAX_CERTIFICATE = 256, 4096


@dataclass(frozen=True, slots=True)
class UploadSizes:
    """The exact sizes of an upload's sealed parts, by the form and the owner's public capacity."""

    boxes: tuple[int, int, int]
    common: int
    holders: tuple[int, ...]

    @classmethod
    def of(cls, form: InputForm, capacity: int) -> Self:
        """Those of ``form``."""
        holders = form.holders

        def box(pid: int) -> int:
            key = KEY_BYTES if pid in holders else 0
            return form.private_size(pid, capacity) + key + OVERHEAD_BYTES

        common = sealed_size(form.common_size(capacity)) if holders else 0
        return cls((box(0), box(1), box(2)), common, holders)

    @property
    def whole(self) -> int:
        """What the owner sends."""
        return sum(self.boxes) + self.common

    def passed_on(self, pid: int) -> int:
        """What server ``pid`` gets of it."""
        return self.boxes[pid] + (self.common if pid in self.holders else 0)

    def received(self, pid: int, content: bytes) -> "ReceivedUpload":
        """What server ``pid`` got, from its bytes. Raises ValueError on another size."""
        if len(content) != self.passed_on(pid):
            raise ValueError(f"a part of {len(content)} bytes; expected {self.passed_on(pid)}")
        size = self.boxes[pid]
        return ReceivedUpload(content[:size], content[size:] if pid in self.holders else None)

    def split(self, content: bytes) -> "SealedUpload":
        """The parts of an upload's bytes. Raises ValueError on another size."""
        if len(content) != self.whole:
            raise ValueError(f"an upload of {len(content)} bytes; expected {self.whole}")
        ends = list(accumulate(self.boxes))
        first, second, third = (
            content[end - size : end] for end, size in zip(ends, self.boxes, strict=True)
        )
        return SealedUpload((first, second, third), content[ends[-1] :], self.holders)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SealedUpload:
    """What an owner sends: three boxes, and the encrypted common part (empty without one) with its holders."""

    boxes: tuple[bytes, bytes, bytes]
    common: bytes
    holders: tuple[int, ...]

    def __repr__(self) -> str:
        return f"SealedUpload({[len(box) for box in self.boxes]} and {len(self.common)} bytes)"

    @property
    def content(self) -> bytes:
        """The bytes that go over the wire."""
        return b"".join((*self.boxes, self.common))

    def for_server(self, pid: int) -> "ReceivedUpload":
        """What server ``pid`` gets of it."""
        return ReceivedUpload(self.boxes[pid], self.common if pid in self.holders else None)

    def describe(self, submission: Submission) -> "Upload":
        """What the owner signs of it."""
        first, second, third = map(_sha256, self.boxes)
        return Upload(submission, (first, second, third), _sha256(self.common))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReceivedUpload:
    """What one server gets of an upload: its ``box`` and, if it holds it, the encrypted ``common`` part (else None)."""

    box: bytes
    common: bytes | None

    @property
    def content(self) -> bytes:
        """The bytes that one server passes on to another."""
        return self.box + (self.common or b"")


@dataclass(frozen=True, slots=True)
class Upload:
    """An owner's ``submission``, and the hex SHA-256 of each of the three boxes and of the encrypted common part."""

    submission: Submission
    boxes: tuple[str, str, str]
    common: str
    _digest: str = field(init=False, repr=False, compare=False)
    """It is asked for a dozen times while an upload is taken in."""

    def __post_init__(self) -> None:
        parts = (self.submission.digest(), *self.boxes, self.common)
        digest = hashlib.sha256(_UPLOAD + b"".join(map(bytes.fromhex, parts))).hexdigest()
        object.__setattr__(self, "_digest", digest)

    def digest(self) -> str:
        """Hex SHA-256 of it all: what servers list and receipts confirm."""
        return self._digest

    def message(self) -> bytes:
        """What the owner signs."""
        return _SIGNED + bytes.fromhex(self.digest())

    def describes(self, pid: int, received: "ReceivedUpload") -> bool:
        """Whether this is what the owner made for server ``pid``."""
        if _sha256(received.box) != self.boxes[pid]:
            return False
        return received.common is None or _sha256(received.common) == self.common


@dataclass(frozen=True, slots=True)
class SignedUpload:
    """An ``upload`` with its owner's ``signature`` and ``certificate`` (DER): what every server checks for itself."""

    upload: Upload
    signature: bytes
    certificate: bytes

    @property
    def submission(self) -> Submission:
        """The owner's submission."""
        return self.upload.submission

    def check(self, authority: Issuer) -> None:
        """Raises CertificateError unless the submission's own client has signed this."""
        owner = authority.signatory(self.certificate)
        if owner.name != self.submission.client:
            raise CertificateError(
                f"the certificate is of {owner.name!r}, the submission of {self.submission.client!r}"
            )
        owner.verify(self.signature, self.upload.message())

    def headers(self) -> dict[str, str]:
        """The HTTP headers but for the certificate, which the owner's own connection has shown."""
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
        """What the owner ``client`` describes, whose connection has shown the certificate. Raises FieldError."""
        upload = _upload_in(Submission.from_headers(run, client, headers), headers)
        return cls(upload, signature_in(headers), certificate)

    @classmethod
    def between_servers(cls, run: str, headers: Mapping[str, str]) -> Self:
        """What a server passes on. Raises FieldError."""
        certificate = _decode(headers, CERTIFICATE_HEADER, MAX_CERTIFICATE)
        return cls.of_owner(run, headers.get(CLIENT_HEADER, ""), certificate, headers)

    def to_json(self) -> str:
        """For a store."""
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
        """The inverse of ``to_json``."""
        document = json.loads(text)
        first, second, third, common = document["parts"]
        submission = Submission.from_canonical(document["submission"])
        signature, certificate = (
            base64.b64decode(document[name]) for name in ("signature", "certificate")
        )
        return cls(Upload(submission, (first, second, third), common), signature, certificate)


def signature_in(headers: Mapping[str, str]) -> bytes:
    """The owner's signature. Raises FieldError."""
    return _decode(headers, SIGNATURE_HEADER, MAX_SIGNATURE)


def seal_common(bodies: UploadParts, submission: Submission, key: bytes) -> bytes:
    """The common part under ``key``, which may serve no other one; empty without one."""
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
    """A box for each server: its private part and, for holders of the ``common`` part, that one's ``key``.

    Communication: ``OVERHEAD_BYTES`` a box more than what it holds. Fresh randomness, so that two calls differ.
    """

    def box(pid: int) -> bytes:
        content = bodies.private[pid] + (key if pid in bodies.holders else b"")
        return servers[pid].seal(content, _box_info(submission, pid, _sha256(common)))

    return box(0), box(1), box(2)


def open_part(pid: int, key: SealKey, upload: Upload, received: "ReceivedUpload") -> bytes:
    """Server ``pid``'s body from what it received of ``upload``.

    Raises SealError unless all of it was made for this submission and this server.
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
class Tombstone:
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
        return _TOMBSTONE_LABEL + json.dumps(said, sort_keys=True, separators=(",", ":")).encode(
            "ascii"
        )


def check_tombstone(receipt: ServerReceipt, settled: Tombstone, config: Config) -> None:
    """Raises CertificateError unless one of the configuration's servers has signed this."""
    _check(receipt, settled.message(receipt.party), config)


def check_receipt(receipt: ServerReceipt, upload: Upload, config: Config) -> None:
    """Raises CertificateError unless one of the configuration's servers has signed this of ``upload``."""
    _check(receipt, receipt_message(upload, receipt.party), config)


def _check(receipt: ServerReceipt, message: bytes, config: Config) -> None:
    pins = {party.name: party.pinned for party in config.require_parties()}
    if receipt.party not in pins:
        raise CertificateError(
            f"a receipt is of {receipt.party[:80]!r}, who is no server of the run"
        )
    server = pinned_signatory(pins[receipt.party], receipt.key)
    server.verify(receipt.signature, message)


@dataclass(frozen=True, slots=True)
class ReceiptSigner:
    """What makes a server's own receipts."""

    party: str
    key: bytes
    sign: Callable[[bytes], bytes] = field(repr=False)

    @classmethod
    def load(cls, party: str, files: CertificateFiles) -> Self:
        """With the key of its certificate. Raises CertificateError."""
        key = public_key_of(load_certificate(files.cert, "certificate"))
        return cls(party, key, signer(files))

    def make(self, upload: Upload) -> ServerReceipt:
        """This server's receipt for ``upload``, which has to be on its disk."""
        return ServerReceipt(self.party, self.key, self.sign(receipt_message(upload, self.party)))

    def settle(self, settled: Tombstone) -> ServerReceipt:
        """This server's word that ``settled`` holds, which has to be so in its store."""
        return ServerReceipt(self.party, self.key, self.sign(settled.message(self.party)))


def receipts_in(answer: Mapping[str, object]) -> Sequence[ServerReceipt]:
    """The receipts in a server's answer, unchecked. Raises ValueError on anything else."""
    found = answer.get("receipts")
    if not isinstance(found, list):
        raise ValueError("no receipts")
    return [ServerReceipt.from_dict(item) for item in found]
