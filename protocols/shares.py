"""Replicated shares and additive terms, and the algebra on them that needs no message.

Secret: every component. Shares and terms print their type, ring and shape, compare by identity and refuse ``bool()``,
``len()`` and pickling. An ``Additive`` is one party's unmasked summand of a value; nothing here turns it into
bytes, and the only ways from it to a ``Share`` are ``base.reshare`` and ``fixed.truncate``, which mask before they send
(Araki et al., CCS 2016, section 2.2: sending the summand itself leaks, and no test of the result would notice).
"""

from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from protocols.ring import BITS, Ring, RingArray, is_blank


class _Secret:
    """Base class of shares and terms: they do not show, compare or serialise their content."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is secret and has no truth value")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is secret and cannot be pickled")


class HasVerifier(Protocol):
    """Interface of the context in which products are made."""

    @property
    def verifier(self) -> object | None:
        """Verifier to which products are reported, or None."""


class Share(_Secret):
    """Components ``own`` = x_pid and ``next`` = x_{pid+1} of a value shared as x0 + x1 + x2 in ``ring``.

    Shapes: both components have the value's shape. Arithmetic with another share, or with a public array or integer, is
    local; a public value is added to component 0. For the ring of bits, + and - are XOR.
    """

    __slots__ = ("next", "own", "pid", "ring")

    def __init__(self, ring: Ring, pid: int, own: RingArray, next_: RingArray) -> None:
        if own.shape != next_.shape or own.dtype != ring.dtype or next_.dtype != ring.dtype:
            raise TypeError(
                f"components of a share in {ring.name} need one shape and type {ring.dtype}"
            )
        self.ring = ring
        self.pid = pid
        self.own = own
        self.next = next_

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the shared value."""
        return self.own.shape

    @property
    def size(self) -> int:
        """Number of shared elements."""
        return self.own.size

    def __repr__(self) -> str:
        return f"Share({self.ring.name}, shape={self.shape})"

    def _with(self, own: RingArray, next_: RingArray) -> "Share":
        return Share(self.ring, self.pid, own, next_)

    def _check(self, other: "Share") -> None:
        if other.ring is not self.ring or other.pid != self.pid:
            raise TypeError(f"cannot combine shares of {self.ring.name} and {other.ring.name}")

    def _public(self, value: RingArray | int) -> RingArray:
        encoded = self.ring.encode(value)
        return np.broadcast_to(encoded, np.broadcast_shapes(encoded.shape, self.shape))

    def _combine(self, other: "Share | RingArray | int", operation: Any) -> "Share":
        if isinstance(other, Share):
            self._check(other)
            return self._with(
                self._of_parts(operation, self.own, other.own),
                self._of_parts(operation, self.next, other.next),
            )
        public = self._public(other)
        own = self._of_public(operation, self.own, public if self.pid == 0 else None, public.shape)
        taken = public if self.pid == 2 else None
        return self._with(own, self._of_public(operation, self.next, taken, public.shape))

    def _of_public(
        self, operation: Any, x: RingArray, public: RingArray | None, shape: tuple[int, ...]
    ) -> RingArray:
        # Components are never written to, so that an unchanged one need not be copied.
        if public is None and x.shape == shape and not is_blank(x):
            return x
        zeros = np.broadcast_to(self.ring.zeros(()), shape)
        result: RingArray = operation(x, zeros if public is None else public)
        return result

    def _of_parts(self, operation: Any, x: RingArray, y: RingArray) -> RingArray:
        # A component that is blank in both is blank in the result.
        if is_blank(x) and is_blank(y):
            return self.ring.blank(np.broadcast_shapes(x.shape, y.shape))
        result: RingArray = operation(x, y)
        return result

    def __add__(self, other: "Share | RingArray | int") -> "Share":
        return self._combine(other, self.ring.add)

    def __sub__(self, other: "Share | RingArray | int") -> "Share":
        return self._combine(other, self.ring.sub)

    def __xor__(self, other: "Share | RingArray | int") -> "Share":
        if self.ring is not BITS:
            raise TypeError("^ is for boolean shares")
        return self._combine(other, self.ring.add)

    def __invert__(self) -> "Share":
        return self ^ int(np.iinfo(np.uint64).max)

    def __neg__(self) -> "Share":
        zero = self.ring.zeros(())
        return self._with(self.ring.sub(zero, self.own), self.ring.sub(zero, self.next))

    def times(self, factor: RingArray | int) -> "Share":
        """Returns the share times a public integer or array (a public mask for bits)."""
        public = self.ring.encode(factor)
        return self._with(
            _scaled(self.ring, self.own, public), _scaled(self.ring, self.next, public)
        )

    def __getitem__(self, index: Any) -> "Share":
        return self._with(
            np.asarray(self.own[index], self.ring.dtype),
            np.asarray(self.next[index], self.ring.dtype),
        )

    def reshape(self, *shape: int) -> "Share":
        """Returns the same elements in another shape."""
        return self._with(self.own.reshape(shape), self.next.reshape(shape))

    def transposed(self) -> "Share":
        """Returns the share with its first two axes exchanged."""
        return self._with(self.own.swapaxes(0, 1), self.next.swapaxes(0, 1))

    def sum(self, axis: int = -1) -> "Share":
        """Sums along an axis (parity for bits)."""
        if self.ring.boolean:
            return self._with(
                np.bitwise_xor.reduce(self.own, axis), np.bitwise_xor.reduce(self.next, axis)
            )
        dtype = self.ring.dtype
        own = np.asarray(np.add.reduce(self.own, axis, dtype=dtype), dtype=dtype)
        next_ = np.asarray(np.add.reduce(self.next, axis, dtype=dtype), dtype=dtype)
        return self._with(self.ring.reduce(own), self.ring.reduce(next_))

    def within(self, pid: int) -> "Share":
        """Returns the same share seen from a rotated context, where this party plays role ``pid``. Local."""
        return Share(self.ring, pid, self.own, self.next)

    def narrowed(self, ring: Ring) -> "Share":
        """Returns the value modulo the size of a smaller ring, as a share there. Local."""
        if ring.boolean or self.ring.boolean or ring.bits > self.ring.bits:
            raise TypeError(f"{self.ring.name} cannot be narrowed to {ring.name}")
        return Share(ring, self.pid, _low_bits(ring, self.own), _low_bits(ring, self.next))

    def additive(self, ctx: HasVerifier) -> "Additive":
        """Returns the value as additive terms: every party takes the component it owns."""
        return Additive(self.ring, self.own, _origins(ctx, self, None))


@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """A sum along an axis."""

    axis: int

    def __call__(self, ring: Ring, term: RingArray) -> RingArray:
        """Applies the map to terms."""
        ufunc = np.bitwise_xor if ring.boolean else np.add
        reduced = np.asarray(ufunc.reduce(term, self.axis, dtype=ring.dtype), dtype=ring.dtype)
        return ring.reduce(reduced)


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Sums of the segments that begin at ``starts`` of the last axis."""

    starts: NDArray[np.intp]

    def __call__(self, ring: Ring, term: RingArray) -> RingArray:
        """Applies the map to terms."""
        if is_blank(term):
            return ring.blank((*term.shape[:-1], self.starts.size))
        return ring.reduce(np.add.reduceat(term, self.starts, axis=-1, dtype=ring.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Terms (n, ...) at the positions start... of a first axis of length ``size``, zeros elsewhere."""

    start: int
    size: int

    def __call__(self, ring: Ring, term: RingArray) -> RingArray:
        """Applies the map to terms."""
        placed = ring.zeros((self.size, *term.shape[1:]))
        placed[self.start : self.start + term.shape[0]] = term
        return placed


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Terms times a public integer."""

    factor: int

    def __call__(self, ring: Ring, term: RingArray) -> RingArray:
        """Applies the map to terms."""
        return ring.mul(term, ring.encode(self.factor))


@dataclass(frozen=True, slots=True, eq=False)
class Reshaped:
    """The same terms in another ``shape``."""

    shape: tuple[int, ...]

    def __call__(self, ring: Ring, term: RingArray) -> RingArray:
        """Applies the map to terms."""
        return term.reshape(self.shape)


LinearMap: TypeAlias = Summed | Grouped | Placed | Scaled | Reshaped


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Origin of additive terms: ``left`` times ``right``, or ``left`` alone, then the maps in their order.

    It refers to the shares that were multiplied, and copies nothing. Secret, as they are.
    """

    left: Share
    right: Share | None
    maps: tuple[LinearMap, ...] = ()

    def then(self, step: LinearMap) -> "Origin":
        """Returns the same origin with one more map."""
        return Origin(self.left, self.right, (*self.maps, step))


@dataclass(frozen=True, slots=True)
class Entries:
    """The multiplied entries of a one-hot: those of one-hot ``node`` from number ``first`` on. Public."""

    node: int
    first: int


@dataclass(frozen=True, slots=True, eq=False)
class Table(Origin):
    """All products of entries of two one-hots, row by row: of ``left`` (a, rows) and ``right`` (b, rows).

    ``entries`` names the two operands; ``row`` is the number of the first row. The products are at places ``start``...
    of the value's first axis, which has ``size``, those of left's first entry first; ``doubled`` ones are summed over
    the rows, twice (`protocols.doubled`).
    """

    entries: tuple[Entries, Entries] = (Entries(0, 0), Entries(0, 0))
    row: int = 0
    start: int = 0
    size: int = 0
    doubled: bool = False

    def then(self, step: LinearMap) -> "Table":
        """Returns the same table at other places. Raises TypeError for maps after which it is no table any more."""
        if not isinstance(step, Placed):
            raise TypeError(f"a table of products is placed and nothing else, not {step!r}")
        return replace(self, start=self.start + step.start, size=step.size)


Origins: TypeAlias = tuple[Origin, ...]


class Additive(_Secret):
    """One party's summand of a value: the three parties' terms add up to it. Not masked, so it must not be sent.

    The value is the sum of the ``origins``. They are kept only where a context has a verifier, and None elsewhere: else
    the operands of a million products would stay in memory until the one element that they end in is sent.
    """

    __slots__ = ("_term", "origins", "ring")

    def __init__(self, ring: Ring, term: RingArray, origins: Origins | None) -> None:
        self.ring = ring
        self._term = term
        self.origins = origins

    @classmethod
    def zeros(cls, ring: Ring, shape: tuple[int, ...]) -> "Additive":
        """Returns terms of zeros, with no origins."""
        return cls(ring, ring.zeros(shape), ())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self._term.shape

    def __repr__(self) -> str:
        return f"Additive({self.ring.name}, shape={self.shape})"

    def __add__(self, other: "Additive") -> "Additive":
        if other.ring is not self.ring or other.shape != self.shape:
            raise TypeError(f"cannot combine {self!r} and {other!r}")
        origins = (
            None if self.origins is None or other.origins is None else self.origins + other.origins
        )
        return Additive(self.ring, self.ring.add(self._term, other._term), origins)

    def known_origins(self) -> Origins:
        """Returns the value's origins. Raises ValueError where they were not kept."""
        if self.origins is None:
            raise ValueError(f"nobody knows what {self!r} is made of, and a verifier has to")
        return self.origins

    def sum(self, axis: int = -1) -> "Additive":
        """Sums along an axis: an inner product of any length stays one element."""
        return self._mapped(Summed(axis))

    def grouped(self, starts: NDArray[np.intp]) -> "Additive":
        """Sums the segments that begin at ``starts`` (strictly increasing, the first 0) of the last axis."""
        return self._mapped(Grouped(starts))

    def padded(self, start: int, size: int) -> "Additive":
        """Returns the terms (n,) at positions start... of a longer vector of zeros. Local."""
        return self._mapped(Placed(start, size))

    def of_table(self, entries: tuple[Entries, Entries], row: int) -> "Additive":
        """Returns the same terms, of an outer product of one-hots, known as a ``Table``."""
        if self.origins is None:
            return self
        (origin,) = self.origins
        left, right = origin.left, origin.right
        if right is None:
            raise ValueError("a table of products has two operands")
        rows = left.shape[-1]
        table = Table(left.reshape(-1, rows), right.reshape(-1, rows), (), entries, row)
        return Additive(self.ring, self._term, (table,))

    def masked(self, mask: RingArray) -> RingArray:
        """Returns the term plus ``mask``, which it overwrites: for ``base.reshare`` and ``fixed.truncate`` alone."""
        return mask if is_blank(self._term) else self.ring.add(self._term, mask, out=mask)

    def _mapped(self, step: LinearMap) -> "Additive":
        return Additive(self.ring, step(self.ring, self._term), _then(self.origins, step))


def _then(origins: Origins | None, step: LinearMap) -> Origins | None:
    return None if origins is None else tuple(origin.then(step) for origin in origins)


def _origins(ctx: HasVerifier, left: Share, right: Share | None) -> Origins | None:
    return None if ctx.verifier is None else (Origin(left, right),)


def _low_bits(ring: Ring, x: RingArray) -> RingArray:
    """Returns elements of a larger ring modulo 2^bits."""
    low = np.bitwise_and(x, (1 << ring.bits) - 1) if x.dtype == object else x
    return np.asarray(low, dtype=ring.dtype)


def product(ctx: HasVerifier, x_sh: Share, y_sh: Share) -> Additive:
    """Returns additive terms of x * y: z_i = x_i y_i + x_i y_{i+1} + x_{i+1} y_i. Local."""
    ring = x_sh.ring
    if y_sh.ring is not ring or y_sh.pid != x_sh.pid:
        raise TypeError(f"cannot multiply shares of {ring.name} and {y_sh.ring.name}")
    # z_i = x_i (y_i + y_{i+1}) + x_{i+1} y_i.
    left = _times(ring, x_sh.own, _plus(ring, y_sh.own, y_sh.next))
    right = _times(ring, x_sh.next, y_sh.own)
    return Additive(ring, _both(ring, left, right), _origins(ctx, x_sh, y_sh))


def inner(ctx: HasVerifier, x_sh: Share, y_sh: Share) -> Additive:
    """Returns ``product(ctx, x_sh, y_sh).sum(axis=0)``, of at least one row, without all products in memory. Local."""
    ring = x_sh.ring
    if ctx.verifier is not None or y_sh.ring is not ring or y_sh.pid != x_sh.pid:
        return product(ctx, x_sh, y_sh).sum(axis=0)
    left = _inner(ring, x_sh.own, _plus(ring, y_sh.own, y_sh.next))
    right = _inner(ring, x_sh.next, y_sh.own)
    return Additive(ring, _both(ring, left, right), None)


def _inner(ring: Ring, x: RingArray, y: RingArray) -> RingArray:
    """Returns the sum of x y (rows, ...) over the rows, blank where one of them is."""
    if is_blank(x) or is_blank(y):
        return ring.blank(np.broadcast_shapes(x.shape, y.shape)[1:])
    total, each = ring.mul(x[0], y[0]), None
    for left, right in zip(x[1:], y[1:], strict=True):
        each = ring.mul(left, right, out=each)
        total = ring.add(total, each, out=total)
    return total


def _both(ring: Ring, left: RingArray, right: RingArray) -> RingArray:
    """Returns left + right, which it may overwrite."""
    if is_blank(right):
        return left
    return right if is_blank(left) else ring.add(left, right, out=right)


def _times(ring: Ring, x: RingArray, y: RingArray) -> RingArray:
    """Returns x y, blank where one of them is."""
    if is_blank(x) or is_blank(y):
        return ring.blank(np.broadcast_shapes(x.shape, y.shape))
    return ring.mul(x, y)


def _plus(ring: Ring, x: RingArray, y: RingArray) -> RingArray:
    """Returns x + y of arrays of one shape, for reading alone: the other one where one is blank."""
    if is_blank(x):
        return y
    return x if is_blank(y) else ring.add(x, y)


def _scaled(ring: Ring, x: RingArray, public: RingArray) -> RingArray:
    if is_blank(x):
        return ring.blank(np.broadcast_shapes(x.shape, public.shape))
    return ring.mul(x, public)


def outer_product(ctx: HasVerifier, x_sh: Share, y_sh: Share) -> Additive:
    """Returns additive terms of x_i y_j for all i and j: (a, ...) and (b, ...) give (a b, ...), j faster. Local."""
    rows = x_sh.reshape(x_sh.shape[0], 1, *x_sh.shape[1:])
    shape = (x_sh.shape[0] * y_sh.shape[0], *x_sh.shape[1:])
    grid = product(ctx, rows, y_sh.reshape(1, *y_sh.shape))
    return grid._mapped(Reshaped(shape))


def joined(*terms: Additive) -> Additive:
    """Joins additive terms along their first axis, to be reshared in one message. Local."""
    ring = terms[0].ring
    if any(term.ring is not ring for term in terms):
        raise TypeError(f"cannot join terms of {ring.name} and others")
    whole = np.concatenate([term._term for term in terms])
    start, origins = 0, list[Origin]()
    for term in terms:
        placed = _then(term.origins, Placed(start, whole.shape[0]))
        if placed is None:
            return Additive(ring, whole, None)
        origins += placed
        start += term.shape[0]
    return Additive(ring, whole, tuple(origins))


def concatenate(*shares: Share) -> Share:
    """Joins shares along their first axis."""
    first = shares[0]
    for share in shares[1:]:
        first._check(share)
    own = np.concatenate([share.own for share in shares])
    next_ = np.concatenate([share.next for share in shares])
    return Share(first.ring, first.pid, own, next_)


def stack(*shares: Share) -> Share:
    """Stacks shares of one shape along a new first axis."""
    return concatenate(*(share.reshape(1, *share.shape) for share in shares))
