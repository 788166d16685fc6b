"""A client's input: counts in Z_2^32 become three upload bodies, and a server's body becomes its two components.

Sans-I/O, both sides. Component c of x = x0 + x1 + x2 mod 2^32; server i holds components i (``own``) and i + 1
(``next``).

    form     to server 0        to server 1        to server 2             bytes a cell
    seeded   s0 | s1            s1 | x2            s0 | SHA-256(x2)        4
    plain    x0 | x1            x1 | x2            x2 | x0                 48, what the FLAIM paper counts

In ``seeded``, x0 = F(s0), x1 = F(s1), with F the AES-128-CTR keystream of the seed; server 1 forwards x2 to server 2
(``forward_payload``), which checks the digest (``open_forwarded``). In ``plain`` the elements are sent as 8 bytes of a
sharing mod 2^64; what a server keeps is that sharing mod 2^32. All integers are little-endian.

A malicious client can send different versions of one component to the two servers that hold it. Each server therefore
sends the digest of its ``next`` component to the next server, which compares it with its ``own``
(``component_digests``,
``check_component``); a client that fails is dropped by all three. These digests go only between the two servers that
hold the component: to the third, a digest of x2 would be a test for guesses of the counts.

Secret: counts, seeds, bodies, components. Public: form, number of cells, sizes. Source: README section 2.
Known limits: whether the counts are those of a real table is not checked; README section 3 says why the privacy of the
other clients does not depend on it.
"""

import enum
import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protocols.errors import CheckFailed
from protocols.keystream import KEY_BYTES, Keystream

SEEDED = "seeded"
PLAIN = "plain"
FORMS = (SEEDED, PLAIN)
DIGEST_BYTES = hashlib.sha256().digest_size
PLAIN_ELEMENT_BYTES = 8
# Keystream usages: the client's expansion of a seed in each form, one component to a seed.
_USAGE_SEEDED = b"client-upload-seeded"
_USAGE_PLAIN = b"client-upload-plain"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UploadSeeds:
    """The client's randomness for one submission: 16 bytes for component 0, 16 for component 1.

    Secret. Never to be used for two different count vectors: the difference of their uploads would be the difference of
    the counts. Sending the same submission again takes the same seeds. Raises ValueError on other sizes.
    """

    s0: bytes
    s1: bytes

    def __post_init__(self) -> None:
        if len(self.s0) != KEY_BYTES or len(self.s1) != KEY_BYTES:
            raise ValueError(f"two seeds of {KEY_BYTES} bytes are needed")

    def __repr__(self) -> str:
        return "UploadSeeds(...)"

    @classmethod
    def draw(cls) -> "UploadSeeds":
        """Fresh seeds from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES))


class Kind(enum.Enum):
    """What stands for a component: the seed it expands from, its elements, or their digest."""

    SEED = "seed"
    ELEMENTS = "elements"
    DIGEST = "digest"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """What a client sent for one component. Secret, unless it is a digest that only its two holders see."""

    kind: Kind
    data: bytes

    def __repr__(self) -> str:
        return f"Part({self.kind.value}, {len(self.data)} bytes)"


@dataclass(frozen=True, slots=True, eq=False)
class StoredUpload:
    """A body of the right size, taken apart: what server ``pid`` got for its ``own`` and its ``next`` component."""

    pid: int
    form: str
    cells: int
    own: Part
    next: Part


def seeded_upload(counts: NDArray[np.uint32], seeds: UploadSeeds | None = None) -> list[bytes]:
    """Share ``counts`` for the form ``seeded``: one body for each server.

    Shapes: uint32 (n,) -> 3 bodies.
    Leaks: nothing to one server: 0 gets two seeds, 1 a seed and x2 masked by the other, 2 a seed and a digest of x2.
    Rounds: none; the client sends once.
    Communication: the client sends 32, 16 + 4n and 48 bytes.
    Raises: ValueError on another dtype or shape.
    Source: README section 2.
    """
    _check_counts(counts)
    seeds = seeds or UploadSeeds.draw()
    size = counts.size * 4
    x0 = Keystream(seeds.s0, _USAGE_SEEDED).read(size).view("<u4")
    x1 = Keystream(seeds.s1, _USAGE_SEEDED).read(size).view("<u4")
    x2 = (counts - x0 - x1).astype("<u4", copy=False).tobytes()
    return [seeds.s0 + seeds.s1, seeds.s1 + x2, seeds.s0 + hashlib.sha256(x2).digest()]


def plain_upload(counts: NDArray[np.uint32], seeds: UploadSeeds | None = None) -> list[bytes]:
    """Share ``counts`` for the form ``plain``: both components to each server, 8 bytes an element.

    Shapes: uint32 (n,) -> 3 bodies.
    Leaks: nothing to one server: any two components are uniform.
    Rounds: none; the client sends once.
    Communication: the client sends 16n bytes to each server.
    Raises: ValueError on another dtype or shape.
    Source: README section 2; the FLAIM paper's throughput formula (cells x 8 bytes x 6).
    """
    _check_counts(counts)
    seeds = seeds or UploadSeeds.draw()
    size = counts.size * PLAIN_ELEMENT_BYTES
    x0 = Keystream(seeds.s0, _USAGE_PLAIN).read(size).view("<u8")
    x1 = Keystream(seeds.s1, _USAGE_PLAIN).read(size).view("<u8")
    x2 = counts.astype(np.uint64) - x0 - x1
    parts = [part.astype("<u8", copy=False).tobytes() for part in (x0, x1, x2)]
    return [parts[pid] + parts[(pid + 1) % 3] for pid in range(3)]


def upload(counts: NDArray[np.uint32], form: str, seeds: UploadSeeds | None = None) -> list[bytes]:
    """The three bodies in ``form``; as ``seeded_upload`` or ``plain_upload``. Raises ValueError on another form."""
    if form not in FORMS:
        raise ValueError(f"upload form is {form!r}; expected one of {', '.join(FORMS)}")
    return seeded_upload(counts, seeds) if form == SEEDED else plain_upload(counts, seeds)


def body_size(pid: int, form: str, cells: int) -> int:
    """The exact number of bytes of a body. Raises ValueError on another pid, form or number of cells."""
    if pid not in range(3) or form not in FORMS or cells < 0:
        raise ValueError(f"no body for pid {pid}, form {form!r}, {cells} cells")
    if form == PLAIN:
        return 2 * PLAIN_ELEMENT_BYTES * cells
    return (2 * KEY_BYTES, KEY_BYTES + 4 * cells, KEY_BYTES + DIGEST_BYTES)[pid]


def parse_upload(pid: int, form: str, body: bytes, cells: int) -> StoredUpload:
    """Take apart the ``body`` that server ``pid`` received.

    Shapes: bytes (body_size,) -> parts. Leaks: nothing. Rounds: none. Communication: none.
    Raises: CheckFailed on another size; ValueError on another pid or form.
    Source: README section 2.
    """
    expected = body_size(pid, form, cells)
    if len(body) != expected:
        raise CheckFailed(
            f"a {form} upload of {cells} cells to server {pid} has {expected} bytes, not {len(body)}"
        )
    if form == PLAIN:
        own, next_ = body[: expected // 2], body[expected // 2 :]
        return StoredUpload(pid, form, cells, Part(Kind.ELEMENTS, own), Part(Kind.ELEMENTS, next_))
    first, rest = Part(Kind.SEED, body[:KEY_BYTES]), body[KEY_BYTES:]
    if pid == 0:
        return StoredUpload(pid, form, cells, first, Part(Kind.SEED, rest))
    if pid == 1:
        return StoredUpload(pid, form, cells, first, Part(Kind.ELEMENTS, rest))
    # Server 2's own component is x2, of which the client sent the digest; its next one is x0.
    return StoredUpload(pid, form, cells, Part(Kind.DIGEST, rest), first)


def component_digests(stored: StoredUpload) -> tuple[bytes, bytes]:
    """SHA-256 of what stands for the own and for the next component: equal at both honest holders of it.

    Leaks: to the other holder nothing, who has the component; never to be told to the third server (module docstring).
    """
    return _digest(stored.own), _digest(stored.next)


def check_component(own_digest: bytes, received: bytes) -> None:
    """Compare the previous server's digest of its next component with ours of our own. Raises CheckFailed."""
    if not hmac.compare_digest(own_digest, received):
        raise CheckFailed("the client sent two servers different versions of one component")


def forward_payload(stored: StoredUpload) -> bytes:
    """What server 1 sends to server 2 for a seeded upload: the bytes of x2.

    Leaks: nothing; server 2 is the other holder of x2. Rounds: 1. Communication: 4n bytes, server 1 to 2.
    Raises: ValueError at another server or for another form.
    """
    if stored.pid != 1 or stored.form != SEEDED:
        raise ValueError("only server 1 forwards, and only seeded uploads")
    return stored.next.data


def open_forwarded(stored: StoredUpload, payload: bytes) -> StoredUpload:
    """Server 2's upload with the forwarded x2 in place of its digest.

    Leaks: nothing. Rounds: none. Communication: none (``forward_payload``).
    Raises: CheckFailed on another size or digest; ValueError where nothing is awaited.
    """
    if stored.own.kind is not Kind.DIGEST:
        raise ValueError("only server 2 awaits a forwarded component, and only once")
    if len(payload) != 4 * stored.cells:
        raise CheckFailed(
            f"a forwarded component of {stored.cells} cells has {4 * stored.cells} bytes, not {len(payload)}"
        )
    if not hmac.compare_digest(hashlib.sha256(payload).digest(), stored.own.data):
        raise CheckFailed("a forwarded component does not have the digest that its client sent")
    return replace(stored, own=Part(Kind.ELEMENTS, payload))


def components(stored: StoredUpload) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The server's two components, for adding to its running total.

    Shapes: -> uint32 (n,), uint32 (n,). Leaks: nothing. Rounds: none. Communication: none.
    Raises: ValueError at server 2 before ``open_forwarded``.
    """
    return _expand(stored, stored.own), _expand(stored, stored.next)


def upload_components(
    pid: int, form: str, body: bytes, cells: int, *, forwarded: bytes | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """``parse_upload``, ``open_forwarded`` (if ``forwarded`` is given) and ``components`` in one; raises as they do."""
    stored = parse_upload(pid, form, body, cells)
    return components(stored if forwarded is None else open_forwarded(stored, forwarded))


def _digest(part: Part) -> bytes:
    return part.data if part.kind is Kind.DIGEST else hashlib.sha256(part.data).digest()


def _expand(stored: StoredUpload, part: Part) -> NDArray[np.uint32]:
    if part.kind is Kind.DIGEST:
        raise ValueError("server 2 needs the forwarded component first")
    if part.kind is Kind.SEED:
        elements = Keystream(part.data, _USAGE_SEEDED).read(4 * stored.cells).view("<u4")
    else:
        # Reduction mod 2^32 is a homomorphism: a plain sharing mod 2^64 becomes one mod 2^32.
        elements = np.frombuffer(part.data, dtype="<u8" if stored.form == PLAIN else "<u4")
    return elements.astype(np.uint32)


def _check_counts(counts: NDArray[np.uint32]) -> None:
    if counts.dtype != np.uint32 or counts.ndim != 1:
        raise ValueError(f"counts are a uint32 vector, not {counts.dtype} of shape {counts.shape}")
