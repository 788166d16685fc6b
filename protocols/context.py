"""Context of a protocol: a party's place in the mesh, its keystreams, its message labels and its counters.

A context is addressed by a path that all parties derive in the same way. The path labels its messages and separates its
keystreams, so that protocols may run side by side without meeting. Secret: keystreams. Public: paths, labels, sizes.

Only ``base``, ``fixed.truncate`` and proofs send secret-derived bytes, through ``round``; ``exchange`` and
``broadcast`` are for public bytes (a test enforces it). Rounds are counted as the longest chain of awaited messages.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocols.errors import ProtocolViolation
from protocols.keystream import KEY_BYTES, Keystream
from protocols.ring import Ring, RingArray
from protocols.shares import Origins, Share

T = TypeVar("T")
U = TypeVar("U")
Payload = NDArray[np.uint8]

_NOISE = b"syncret-noise-1\0"
MAGIC = b"syncret-mesh-2\n"
"""Prefix of the paths of a mesh's contexts."""
MAX_PUBLIC_BYTES = 1 << 28
"""Limit for public bytes of no computed size, such as lists of names."""

_CHUNK = 1 << 14
"""Number of elements drawn at once where each is used up at once: they stay in the processor's cache."""


def root_path(session: str) -> bytes:
    """Returns the path of a session's root context."""
    return f"{MAGIC!r}/{session}".encode()


@dataclass(slots=True)
class StepCost:
    """Cost of one step for this party: rounds, payload bytes, messages and seconds."""

    step: str
    round: int | None
    rounds: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    messages: int = 0
    seconds: float = 0.0
    apart: int = 0
    """Rounds of proofs on its way, which are a step of their own and not among ``rounds``."""


@dataclass(slots=True)
class Opening:
    """An opened value: its step and round, its name and its number of elements."""

    step: str
    round: int | None
    what: str
    count: int


def _unwatched(step: StepCost) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(slots=True)
class Costs:
    """Costs and openings of a party, in the order in which they happened.

    ``watch`` is entered for as long as a step lasts, by a tracer of runs; it gets the step's costs and nothing else.
    """

    steps: list[StepCost] = field(default_factory=list)
    openings: list[Opening] = field(default_factory=list)
    watch: Callable[[StepCost], AbstractContextManager[object]] = field(
        default=_unwatched, repr=False, compare=False
    )


class Transport(Protocol):
    """Interface of a party's runtime, as a context uses it."""

    pid: int
    costs: Costs

    def component_key(self, component: int) -> bytes:
        """Returns the 16-byte key shared by the two holders of a component."""

    def private_key(self) -> bytes:
        """Returns this party's own 16-byte key, which no other party knows."""

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        """Hands a message to the channel; does not wait."""

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        """Waits for the message with this label, within a deadline; refuses one announced larger than ``limit``."""

    def opened(self, opening: Opening, value: bytes) -> None:
        """Records an opened value in the transcript."""


class Verifier(Protocol):
    """Interface of a verifier: a context with one reports every value that is a product, with its origins.

    ``place`` is the same at all three parties, in any order of their calls, and used once. A verifier serves steps that
    come one after the other; concurrent steps have one each, and settle at their ends.
    """

    def reshared(self, place: bytes, origins: Origins, masks_sh: Share, z_sh: Share) -> None:
        """Records that ``z_sh`` is the sum of ``origins``, sent under the difference of ``masks_sh``'s components."""

    def shown(self, place: bytes, held: Payload, received: Payload) -> None:
        """Records that a masked value was shown.

        The party before was sent the component that this party has as ``held``; the party after has the component that
        this party has ``received``.
        """

    async def settle(self, ctx: "Context") -> None:
        """Checks all records since the last check; returns only if all three parties found them right.

        Raises CheckFailed where they are not.
        """


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NoiseKeys:
    """Keys from which a party draws an opening's noise: the two components' keys, each of two parties, and its own.

    Noise keys live as long as a study, over restarts, while the keys of masks are new with each mesh. So the noise of
    an opening is a function of these keys and of a path that names the opening, and is the same after a restart.
    Secret.
    """

    own: bytes
    next: bytes
    private: bytes

    def __post_init__(self) -> None:
        if {len(self.own), len(self.next), len(self.private)} != {KEY_BYTES}:
            raise ValueError(f"a noise key has {KEY_BYTES} bytes")

    def __repr__(self) -> str:
        return "NoiseKeys(...)"


@dataclass(frozen=True, slots=True)
class NoiseSource:
    """Source of the noise of one opening: ``keys``, and the ``opening``'s name.

    The name is a digest of all that decides the opened value but its noise. Where all three parties run a protocol
    again with the same source, it draws the same noise, under fresh masks. Noise of one name must never be added to two
    different values: the difference would show.
    """

    keys: NoiseKeys
    opening: bytes


def noise_key(key: bytes) -> bytes:
    """Derives a noise key from a mesh's ``key``; neither the key nor its masks can be told from it. Secret."""
    return hashlib.blake2b(b"noise", key=key, digest_size=KEY_BYTES, person=_NOISE).digest()


class Context:
    """Place for protocols to run in; see the module's description.

    ``pid``, ``next_pid`` and ``prev_pid`` are roles: in a rotated context (``child``) party p plays role p - shift, so
    that a protocol's work for one role can be spread over the parties. A ``verifier``, which the contexts below share,
    gets the factors of every product; without one, no product remembers them.
    """

    __slots__ = (
        "_children",
        "_labels",
        "_noise",
        "_noise_path",
        "_noise_streams",
        "_path",
        "_private",
        "_shift",
        "_streams",
        "_transport",
        "cost",
        "depth",
        "pid",
        "verifier",
    )

    def __init__(
        self,
        transport: Transport,
        path: bytes,
        *,
        shift: int = 0,
        cost: StepCost | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._shift = shift
        self._labels = 0
        self._children = 0
        self._streams: dict[int, Keystream] = {}
        self._noise: NoiseKeys | None = None
        self._noise_path = b""
        self._noise_streams: dict[int, Keystream] = {}
        self._private: Keystream | None = None
        self.pid = (transport.pid - shift) % 3
        self.depth = 0
        self.verifier = verifier
        self.cost = cost if cost is not None else StepCost("setup", None)

    def __repr__(self) -> str:
        return f"Context(pid={self.pid}, step={self.cost.step!r})"

    @property
    def next_pid(self) -> int:
        """Role of the party after this one."""
        return (self.pid + 1) % 3

    @property
    def prev_pid(self) -> int:
        """Role of the party before this one."""
        return (self.pid - 1) % 3

    def _derive(self, name: bytes) -> bytes:
        return _derived(self._path, name)

    def child(self, *, rotate: int = 0, call: bytes = b"") -> "Context":
        """Returns the next context below this one, with its own labels and keystreams.

        ``call`` says what it is for, where parties might not agree: they meet only where all of them say the same.
        """
        self._children += 1
        said = b":" + call if call else b""
        path = self._derive(b"child:%d" % self._children + said)
        shift = (self._shift + rotate) % 3
        child = Context(self._transport, path, shift=shift, cost=self.cost, verifier=self.verifier)
        child.depth = self.depth
        if self._noise is not None:
            child._noise = self._noise
            child._noise_path = _derived(self._noise_path, b"child:%d" % self._children)
        return child

    @contextmanager
    def noise_of(self, source: NoiseSource | None) -> Iterator["Context"]:
        """Yields a child context whose ``noise`` and ``private`` are functions of ``source``; without one, this."""
        if source is None:
            yield self
            return
        child = self.child()
        child._noise, child._noise_path = source.keys, source.opening
        yield child
        self.depth = max(self.depth, child.depth)

    @contextmanager
    def step(self, name: str, *, round: int | None = None) -> Iterator["Context"]:
        """Yields a named step: a child context whose rounds, bytes and time are recorded when it ends."""
        child = self.child()
        child.cost = StepCost(name, round)
        depth, started = self.depth, time.perf_counter()
        self._transport.costs.steps.append(child.cost)
        try:
            with self._transport.costs.watch(child.cost):
                yield child
        finally:
            child.cost.rounds = child.depth - depth - child.cost.apart
            child.cost.seconds = time.perf_counter() - started
            # Another step may have run beside this one.
            self.depth = max(self.depth, child.depth)

    async def gather(self, *steps: Callable[["Context"], Awaitable[T]]) -> list[T]:
        """Runs independent protocols side by side, each in a child context: their rounds overlap."""
        children = [self.child() for _ in steps]
        tasks = [
            asyncio.ensure_future(step(child)) for step, child in zip(steps, children, strict=True)
        ]
        try:
            results = await asyncio.gather(*tasks)
        except BaseException:
            # No half of a protocol is left waiting for messages that will not come.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        self.depth = max([self.depth, *(child.depth for child in children)])
        return results

    async def both(
        self,
        first: Callable[["Context"], Awaitable[T]],
        second: Callable[["Context"], Awaitable[U]],
    ) -> tuple[T, U]:
        """Runs two independent protocols of different results side by side."""
        results: list[object] = await self.gather(first, second)
        return results[0], results[1]  # type: ignore[return-value]

    def party(self, role: int) -> int:
        """Returns the party that plays a role here, for messages to people."""
        return self._real(role)

    def place(self) -> bytes:
        """Returns a name of the last round here that no other round of the run has; the same at all parties."""
        return self._derive(b"place:%d" % self._labels)

    # Keystreams.

    def common(self, component: int, ring: Ring, shape: tuple[int, ...]) -> RingArray:
        """Draws uniform elements, the same at both holders of ``component``. Free."""
        return _elements(self._stream(component), ring, shape)

    def subtract_common(self, component: int, ring: Ring, x: RingArray) -> None:
        """Subtracts from x, in its place and in one pass, what ``common`` would give of its shape.

        Raises ValueError where x is not contiguous: a copy of it would be masked, and x be sent as it is.
        """
        if not (x.flags.c_contiguous and x.flags.writeable):
            raise ValueError(
                "what is masked in its place has to lie in one piece that is written to"
            )
        stream, flat = self._stream(component), x.reshape(-1)
        if ring.boolean:
            stream.add_to(flat.view(np.uint8))
            return
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            less = ring.sub(part, _elements(stream, ring, part.shape), out=part)
            if ring.wide:
                part[...] = less

    def _stream(self, component: int) -> Keystream:
        if component not in (self.pid, self.next_pid):
            raise ValueError(f"party {self.pid} does not hold component {component}")
        stream = self._streams.get(component)
        if stream is None:
            key = self._transport.component_key((component + self._shift) % 3)
            stream = self._streams[component] = Keystream(key, self._path)
        return stream

    def noise(self, component: int, ring: Ring, shape: tuple[int, ...]) -> RingArray:
        """Draws as ``common``, for the noise of an opened value: within ``noise_of``, from its keys. Free."""
        if self._noise is None:
            return self.common(component, ring, shape)
        if component not in (self.pid, self.next_pid):
            raise ValueError(f"party {self.pid} does not hold component {component}")
        stream = self._noise_streams.get(component)
        if stream is None:
            key = self._noise.own if component == self.pid else self._noise.next
            stream = self._noise_streams[component] = Keystream(key, self._noise_path)
        return _elements(stream, ring, shape)

    def private(self, ring: Ring, shape: tuple[int, ...]) -> RingArray:
        """Draws uniform elements that only this party knows: within ``noise_of``, from its keys."""
        if self._private is None:
            key, path = self._transport.private_key(), self._path
            if self._noise is not None:
                key, path = self._noise.private, self._noise_path
            self._private = Keystream(key, path)
        return _elements(self._private, ring, shape)

    def fresh_noise_keys(self) -> NoiseKeys:
        """Derives noise keys of this mesh's own: each component's two holders derive the same one."""
        components = ((c + self._shift) % 3 for c in (self.pid, self.next_pid))
        own, next_ = (noise_key(self._transport.component_key(c)) for c in components)
        return NoiseKeys(own, next_, noise_key(self._transport.private_key()))

    # Messages.

    async def round(
        self,
        sends: Mapping[int, Payload],
        expects: Mapping[int, int],
    ) -> dict[int, Payload]:
        """Runs one round: sends a payload to each of some roles, waits for payloads of known sizes from others.

        Raises ProtocolViolation for a payload of another size, ChannelError for a peer that is lost or late.
        """
        label = self._next_label()
        for role, payload in sends.items():
            self._transport.post(self._real(role), label, payload, self.cost)
        received: dict[int, Payload] = {}
        for role, size in expects.items():
            payload = await self._transport.fetch(self._real(role), label, self.cost, size)
            if payload.size != size:
                raise ProtocolViolation(
                    f"party {self._real(role)} sent {payload.size} bytes"
                    f" in step {self.cost.step!r} where {size} were due",
                    self._real(role),
                )
            received[role] = payload
        self.depth += 1
        return received

    async def exchange(self, payload: bytes, *, max_bytes: int = MAX_PUBLIC_BYTES) -> list[bytes]:
        """Returns everyone's public bytes, by role: each party sends its own to both others. One round."""
        label = self._next_label()
        for role in (self.next_pid, self.prev_pid):
            self._post_public(role, label, payload)
        everyone = [payload] * 3
        for role in (self.next_pid, self.prev_pid):
            everyone[role] = await self._fetch_public(role, label, max_bytes)
        self.depth += 1
        return everyone

    async def broadcast(
        self,
        root: int,
        payload: bytes | None,
        *,
        max_bytes: int = MAX_PUBLIC_BYTES,
    ) -> bytes:
        """Returns ``root``'s public bytes at every party; the others pass None. One round."""
        label = self._next_label()
        self.depth += 1
        if self.pid != root:
            return await self._fetch_public(root, label, max_bytes)
        if payload is None:
            raise ValueError("the root of a broadcast has to say something")
        for role in (self.next_pid, self.prev_pid):
            self._post_public(role, label, payload)
        return payload

    async def transfer(
        self,
        sender: int,
        receiver: int,
        payload: bytes | None,
        *,
        max_bytes: int = MAX_PUBLIC_BYTES,
    ) -> bytes | None:
        """Sends ``sender``'s bytes, which ``receiver`` may know; None at the others. All parties call it. One round."""
        label = self._next_label()
        self.depth += 1
        if self.pid == sender:
            if payload is None:
                raise ValueError("the sender of a transfer has to say something")
            self._post_public(receiver, label, payload)
        return await self._fetch_public(sender, label, max_bytes) if self.pid == receiver else None

    def _post_public(self, role: int, label: int, payload: bytes) -> None:
        self._transport.post(self._real(role), label, np.frombuffer(payload, np.uint8), self.cost)

    async def _fetch_public(self, role: int, label: int, max_bytes: int) -> bytes:
        payload = await self._transport.fetch(self._real(role), label, self.cost, max_bytes)
        if payload.size > max_bytes:
            raise ProtocolViolation(
                f"party {self._real(role)} sent {payload.size} bytes"
                f" in step {self.cost.step!r}, at most {max_bytes} are allowed",
                self._real(role),
            )
        return payload.tobytes()

    def record_opening(self, what: str, value: RingArray, ring: Ring) -> None:
        """Records an opened value in the costs and the transcript."""
        opening = Opening(self.cost.step, self.cost.round, what, value.size)
        self._transport.opened(opening, ring.to_wire(value).tobytes())

    def _real(self, role: int) -> int:
        return (role + self._shift) % 3

    def _next_label(self) -> int:
        self._labels += 1
        digest = hashlib.blake2b(self._path + b"#%d" % self._labels, digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)


def _derived(path: bytes, name: bytes) -> bytes:
    return hashlib.blake2b(path + b"/" + name, digest_size=32).digest()


def _elements(stream: Keystream, ring: Ring, shape: tuple[int, ...]) -> RingArray:
    count = math.prod(shape)
    return ring.from_wire(stream.read(count * ring.itemsize), shape)
