"""A client's input: counts or rows become the bodies of three servers, and a server's body becomes its two components.

Sans-I/O, both sides. Counts x in Z_2^32 are x0 + x1 + x2, packed rows, which are bytes, x0 XOR x1 XOR x2; server i
holds components i (``own``) and i + 1 (``next``).

    form     of       server 0   server 1   server 2    the client sends
    seeded   counts   s0 | s1    s1 | x2    s0 | x2     4 bytes a cell: x2 is sent once
    plain    counts   x0 | x1    x1 | x2    x2 | x0     48 bytes a cell, as the FLAIM paper counts
    rows     rows     s0 | s1    s1 | x2    s0 | x2     as many bytes as the packed rows have
    rows.N   the same, of a table of source N whose rows are to be joined with others'

In ``seeded`` and ``rows``, x0 = F(s0), x1 = F(s1), with F the AES-128-CTR keystream of the seed; x2 is the same for
both servers that hold it, so that a client gives it once (``UploadParts``: a private part for each server, one common
part and its holders). In ``plain`` the elements are sent as 8 bytes of a sharing mod 2^64, to each server on its own; a
server keeps that sharing mod 2^32. All integers are little-endian.

A malicious client can send different versions of one component to the two servers that hold it. Each server therefore
sends the digest of its ``next`` component to the next server, which compares it with its ``own``
(``component_digests``, ``check_component``); a client that fails is dropped by all three. These digests go only between
the two servers that hold the component: to the third, a digest of x2 would be a test for guesses of the counts.

The differences between forms are data (``UploadForm``): the components of a body, each as a seed or as elements, the
holders of the common part, and addition or XOR of components. Functions take the number of elements of a component:
cells of counts, bytes of packed rows.

Secret: shared values, seeds, parts, bodies, components. Public: form, number of elements, sizes. Source: README section
2. Known limits: nothing checks that the counts are those of a real table; README section 3 says why the privacy of the
other clients does not depend on it.
"""

import enum
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protocols.errors import CheckFailed
from protocols.keystream import KEY_BYTES, Keystream

SEEDED = "seeded"
PLAIN = "plain"
ROWS = "rows"


class PartKind(enum.Enum):
    """Representation of a component: the seed it expands from, or its elements."""

    SEED = "seed"
    ELEMENTS = "elements"


@dataclass(frozen=True, slots=True)
class UploadForm:
    """Layout of an upload: ``bodies`` by server, each a sequence of (component, its representation).

    ``common`` is the component whose elements the client gives once, for both its holders, who have it last in their
    bodies; None where every server gets all it needs on its own. ``element`` is the type of an element on the wire, and
    so the ring of the sharing, in which + is XOR if ``boolean`` is set; ``value`` is the type of the shared values.
    ``usage`` separates the keystreams of the client's seeds, one component to a seed.
    """

    name: str
    usage: bytes
    value: str
    element: str
    bodies: tuple[tuple[tuple[int, PartKind], ...], ...]
    common: int | None = None
    boolean: bool = False

    def part_size(self, kind: PartKind, count: int) -> int:
        """Returns the bytes of a component of ``count`` elements in this representation."""
        return KEY_BYTES if kind is PartKind.SEED else np.dtype(self.element).itemsize * count

    def third(
        self,
        x: NDArray[np.unsignedinteger],
        x0: NDArray[np.unsignedinteger],
        x1: NDArray[np.unsignedinteger],
    ) -> NDArray[np.unsignedinteger]:
        """Returns component 2 of ``x``, of its elements' type."""
        minus = np.bitwise_xor if self.boolean else np.subtract
        x2: NDArray[np.unsignedinteger] = minus(minus(x.astype(self.element), x0), x1)
        return x2.astype(self.element, copy=False)

    @property
    def holders(self) -> tuple[int, ...]:
        """Servers that hold the common part."""
        return tuple(pid for pid, body in enumerate(self.bodies) if self.common in dict(body))

    def private_part(self, pid: int) -> tuple[tuple[int, PartKind], ...]:
        """Returns the parts that server ``pid`` gets on its own."""
        return tuple(part for part in self.bodies[pid] if part[0] != self.common)


_SEED, _ELEMENTS = PartKind.SEED, PartKind.ELEMENTS
_X2_ONCE = (((0, _SEED), (1, _SEED)), ((1, _SEED), (2, _ELEMENTS)), ((0, _SEED), (2, _ELEMENTS)))
_SEEDED = UploadForm(SEEDED, b"client-upload-seeded", "<u4", "<u4", _X2_ONCE, common=2)
_PLAIN = UploadForm(
    PLAIN,
    b"client-upload-plain",
    "<u4",
    "<u8",
    tuple(((c, _ELEMENTS), ((c + 1) % 3, _ELEMENTS)) for c in range(3)),
)
_ROWS = UploadForm(ROWS, b"client-upload-rows", "|u1", "|u1", _X2_ONCE, common=2, boolean=True)
SOURCE_ROWS = tuple(f"{ROWS}.{number}" for number in range(5))
"""Rows of the sources of a join, by the source's number."""
_OF_SOURCES = tuple(replace(_ROWS, name=name) for name in SOURCE_ROWS)
_BY_NAME: Mapping[str, UploadForm] = {
    form.name: form for form in (_SEEDED, _PLAIN, _ROWS, *_OF_SOURCES)
}
FORMS = (SEEDED, PLAIN)
"""Forms of counts, by their names in configurations."""
WHOLE = (*FORMS, ROWS)
"""Forms of an owner of all columns."""
NAMES = tuple(_BY_NAME)
"""All forms, by their names in submissions."""


def upload_form(name: str) -> UploadForm:
    """Returns the form of that name. Raises ValueError where there is none."""
    if name not in _BY_NAME:
        raise ValueError(f"upload form is {name!r}; expected one of {', '.join(NAMES)}")
    return _BY_NAME[name]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UploadSeeds:
    """A client's randomness for one submission: 16 bytes for component 0, 16 for component 1.

    Secret. Never to be used for two different inputs: the difference of their uploads would be that of the inputs.
    Sending the same submission again takes the same seeds. Raises ValueError on other sizes.
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
        """Draws fresh seeds from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UploadParts:
    """A client's upload: a ``private`` part for each server, and a ``common`` one that ``holders`` get besides.

    Secret. A holder's body is its private part and then the common one, any other's is its private part.
    """

    private: tuple[bytes, bytes, bytes]
    common: bytes
    holders: tuple[int, ...]

    def __repr__(self) -> str:
        return f"UploadParts({[len(part) for part in self.private]} and {len(self.common)} bytes)"

    @property
    def bodies(self) -> tuple[bytes, bytes, bytes]:
        """Bodies of servers 0, 1, 2: the private part, and for holders the common one."""
        first, second, third = (
            part + self.common if pid in self.holders else part
            for pid, part in enumerate(self.private)
        )
        return first, second, third


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """A client's bytes for one component. Secret."""

    kind: PartKind
    data: bytes

    def __repr__(self) -> str:
        return f"Part({self.kind.value}, {len(self.data)} bytes)"


@dataclass(frozen=True, slots=True, eq=False)
class StoredUpload:
    """A body of the right size, split into the ``own`` and the ``next`` component of server ``pid``."""

    pid: int
    form: UploadForm
    count: int
    own: Part
    next: Part


def upload(
    values: NDArray[np.unsignedinteger], form: str, seeds: UploadSeeds | None = None
) -> UploadParts:
    """Shares ``values`` in the form of that name: uint32 counts, or bytes of packed rows.

    Shapes: uint32 or uint8 (n,), as the form has it -> 3 private parts and a common one.
    Leaks: nothing to one server. seeded, rows: 0 gets two seeds, 1 and 2 a seed each and x2, masked by the other;
        plain: any two components are uniform.
    Rounds: none; the client sends once.
    Communication: seeded, rows: the client sends 32, 16, 16 bytes, and 4n or n for two servers; plain: 16n bytes to
        each server.
    Raises: ValueError on another form, dtype or shape.
    Source: README section 2; for plain the FLAIM paper's throughput formula (cells x 8 bytes x 6).
    """
    layout = upload_form(form)
    if values.dtype != np.dtype(layout.value) or values.ndim != 1:
        wanted = np.dtype(layout.value).name
        raise ValueError(
            f"{form} takes a {wanted} vector, not {values.dtype} of shape {values.shape}"
        )
    seeds = seeds or UploadSeeds.draw()
    x0 = _expand_seed(layout, seeds.s0, values.size)
    x1 = _expand_seed(layout, seeds.s1, values.size)
    x2 = layout.third(values, x0, x1)
    sent = {c for body in layout.bodies for c, kind in body if kind is PartKind.ELEMENTS}
    elements = {c: (x0, x1, x2)[c].tobytes() for c in sent}

    def part_of(pid: int) -> bytes:
        return b"".join(
            (seeds.s0, seeds.s1)[c] if kind is PartKind.SEED else elements[c]
            for c, kind in layout.private_part(pid)
        )

    common = b"" if layout.common is None else elements[layout.common]
    return UploadParts((part_of(0), part_of(1), part_of(2)), common, layout.holders)


def private_size(pid: int, form: str, count: int) -> int:
    """Returns the exact number of bytes of a private part. Raises ValueError on another pid, form or ``count``."""
    layout = upload_form(form)
    if pid not in range(3) or count < 0:
        raise ValueError(f"no upload for pid {pid}, form {form!r}, {count} elements")
    return sum(layout.part_size(kind, count) for _, kind in layout.private_part(pid))


def common_size(form: str, count: int) -> int:
    """Returns the exact number of bytes of the common part, 0 without one. Raises ValueError on another form."""
    layout = upload_form(form)
    return 0 if layout.common is None else layout.part_size(PartKind.ELEMENTS, count)


def body_size(pid: int, form: str, count: int) -> int:
    """Returns the exact number of bytes of a body. Raises ValueError on another pid, form or number of elements."""
    shared = common_size(form, count) if pid in upload_form(form).holders else 0
    return private_size(pid, form, count) + shared


def parse_upload(pid: int, form: str, body: bytes, count: int) -> StoredUpload:
    """Splits the ``body`` that server ``pid`` received.

    Shapes: bytes (body_size,) -> parts. Leaks: nothing. Rounds: none. Communication: none.
    Raises: CheckFailed on another size; ValueError on another pid or form.
    Source: README section 2.
    """
    expected, layout = body_size(pid, form, count), upload_form(form)
    if len(body) != expected:
        raise CheckFailed(
            f"a {form} upload of {count} elements to server {pid} has {expected} bytes, not {len(body)}"
        )
    parts, start = {}, 0
    for component, kind in layout.bodies[pid]:
        end = start + layout.part_size(kind, count)
        parts[component], start = Part(kind, body[start:end]), end
    return StoredUpload(pid, layout, count, parts[pid], parts[(pid + 1) % 3])


def component_digests(stored: StoredUpload) -> tuple[bytes, bytes]:
    """Returns SHA-256 of the own and of the next component's bytes: equal at both honest holders of the component.

    Leaks: to the other holder nothing, who has the component; never to be sent to the third server (module docstring).
    """
    return _digest(stored.own), _digest(stored.next)


def check_component(own_digest: bytes, received: bytes) -> None:
    """Compares the previous server's digest of its next component with that of our own. Raises CheckFailed."""
    if not hmac.compare_digest(own_digest, received):
        raise CheckFailed("the client sent two servers different versions of one component")


def components(
    stored: StoredUpload,
) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]:
    """Returns the server's two components.

    Shapes: -> (n,), (n,) of the form's type of values. Leaks: nothing. Rounds: none. Communication: none. Raises:
        nothing.
    """
    return _expand(stored, stored.own), _expand(stored, stored.next)


def upload_components(
    pid: int, form: str, body: bytes, count: int
) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]:
    """Runs ``parse_upload`` and ``components`` in one; raises as they do."""
    return components(parse_upload(pid, form, body, count))


def _digest(part: Part) -> bytes:
    return hashlib.sha256(part.data).digest()


def _expand_seed(form: UploadForm, seed: bytes, count: int) -> NDArray[np.unsignedinteger]:
    size = form.part_size(PartKind.ELEMENTS, count)
    return Keystream(seed, form.usage).read(size).view(form.element)


def _expand(stored: StoredUpload, part: Part) -> NDArray[np.unsignedinteger]:
    if part.kind is PartKind.SEED:
        elements = _expand_seed(stored.form, part.data, stored.count)
    else:
        elements = np.frombuffer(part.data, dtype=stored.form.element)
    # Reduction mod 2^32 is a homomorphism: a plain sharing mod 2^64 becomes one mod 2^32.
    return elements.astype(stored.form.value)
