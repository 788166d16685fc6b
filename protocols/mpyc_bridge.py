"""Protocols of this engine on the secure types of an MPyC program of three parties: the module ``syncret.mpyc``.

    secint = mpc.SecInt(32)
    async with mpc:
        bridge = await open_bridge(mpc)
        counts = mpc.input(secint.array(np.array([5, 0, 7])), senders=0)
        noisy = await bridge.measure(counts, sigma=2.0, max_rows=100)

Arguments and results are MPyC's: secure arrays, or lists of secure numbers, of SecInt, SecFxp and SecFld of a prime
order. Each method is a coroutine that all three parties call in the same order, like any line of an MPyC program.
Parties whose calls differ in method, shape, type or a public argument do not meet, and end with ``ReceiveTimeout``; the
same call on other numbers of the same shape cannot be told apart. MPyC's own values are waited for without a deadline.

Secret: arrays and shares. Public: shapes, bounds, and what a method opens. Numbers of SecFxp are integers in units of
2^-f here; counts have to be whole numbers. Bounds are the caller's word, as in MPyC: a value beyond one becomes
another, and is hidden less. Nothing is charged to a budget: what a program opens is its own affair. Security: one
semi-honest party of three, as in MPyC with threshold 1; see ``mpyc_transport`` for the connections, and README section
9 for the conversions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from protocols import measure as measuring
from protocols import select as selecting
from protocols.absolute import grouped_absolute_error
from protocols.base import known
from protocols.bitslice import from_bits
from protocols.boolean import to_boolean, words_to_ring
from protocols.box_muller import LARGEST_SAMPLE, SAMPLE_BITS, gaussian
from protocols.context import Context, StepCost
from protocols.discrete import Sampler, discrete_gaussian
from protocols.fixed import truncate
from protocols.link import SourceRows, join
from protocols.mpyc_transport import TIMEOUT_S, Mpc, MpycTransport, open_context
from protocols.noise_kinds import DISCRETE
from protocols.ring import BITS, R32, R64, Ring, RingArray
from protocols.select_spec import FRACTION_BITS, SCORE_BITS, SelectSpec
from protocols.shamir import SECURITY_BITS, from_ring, to_ring
from protocols.shares import Share, concatenate

SecureType: TypeAlias = Any
"""A type of MPyC's: what ``mpc.SecInt(32)`` returns."""
SecureNumbers: TypeAlias = Any
"""A secure array of MPyC's, or a list of its secure numbers."""
_LARGEST_BITS = 126


@dataclass(frozen=True, slots=True, eq=False)
class ErrorSelection:
    """Public integers of an exponential mechanism on errors sum |x - y|: a ``SelectSpec``; see there for the fields."""

    sizes: NDArray[np.int64]
    answers: NDArray[np.uint32]
    gains: tuple[int, ...]
    offsets: tuple[int, ...]
    max_rows: int

    @classmethod
    def of(
        cls, answers: Sequence[Sequence[float]], *, epsilon: float, max_rows: int
    ) -> "ErrorSelection":
        """Returns the choice of candidate q with probability proportional to exp(epsilon / 2 sum |x - y_q|).

        One row more or less changes one count of each candidate by 1, hence the score by 1.

        Args:
            answers: for each candidate its cells' expected counts y, not negative; rounded to units of 2^-6.
            epsilon: of the choice; gains are rounded down.
            max_rows: bound of the counts' sum in a candidate, and about that of its answers.

        Raises:
            ValueError: where there is no candidate, or one has no cell or a negative answer.
        """
        sizes = np.array([len(part) for part in answers], np.int64)
        flat = np.array([y for part in answers for y in part], np.float64)
        if not sizes.size or sizes.min() < 1 or not np.all((flat >= 0) & (flat < 1 << 25)):
            raise ValueError(
                "a selection takes candidates of one cell or more, with answers in [0, 2^25)"
            )
        gain = int(Fraction(epsilon) / 2 * (1 << (SCORE_BITS - FRACTION_BITS)))
        units = np.rint(flat * (1 << FRACTION_BITS)).astype(np.uint32)
        return cls(sizes, units, (gain,) * sizes.size, (0,) * sizes.size, max_rows)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SecureRows:
    """Rows of one source of a join: ``keys`` (n,), and ``columns`` of as many numbers each, all of MPyC's types.

    Keys and columns lie in [0, 2^bits), the keys' bits and each column's as given. ``per_key`` is the number of rows
    that a key may have in this source, more than 1 in one source at most; a key of more rows is joined nowhere.
    """

    keys: SecureNumbers
    key_bits: int
    columns: Sequence[SecureNumbers] = ()
    column_bits: Sequence[int] = ()
    per_key: int = 1


class Bridge:
    """This engine's protocols in a running MPyC program; made by ``open_bridge``.

    ``mpc`` is the program's runtime; ``context`` is for a program that calls other protocols of this package on shares.
    """

    def __init__(self, mpc: Mpc, ctx: Context, transport: MpycTransport) -> None:
        self.context = ctx
        self.mpc = mpc
        self._transport = transport

    def __repr__(self) -> str:
        return f"Bridge(pid={self.context.pid})"

    @property
    def rounds(self) -> int:
        """Rounds of all calls so far that were awaited one after the other."""
        return self.context.depth

    @property
    def sent_bytes(self) -> int:
        """Payload bytes that this party has sent so far."""
        return self._transport.total.sent_bytes

    # Conversions.

    async def to_share(
        self,
        x: SecureNumbers,
        *,
        bits: int | None = None,
        ring: Ring = R32,
        security_bits: int = SECURITY_BITS,
    ) -> Share:
        """Converts secure numbers to replicated shares of a ring.

        Shapes: x any; returns its shape. Every value lies in [-2^(bits-1), 2^(bits-1)), of SecFxp in units of 2^-f.
            ``bits`` is the type's own length by default, of SecFld one less than the order's.
        Leaks: none, or within 2^-security_bits a value where the field has room for a mask over the integers.
        Rounds: 1 where it has: of SecInt(32) for bits <= 21 at 40; else 10 for that type (``shamir.to_ring``).
        Communication: ``shamir.to_ring``.
        Raises: TypeError for other types; ValueError for a bound without room; ChannelError, ProtocolViolation.
        Source: README section 9.
        """
        with self._call("to_share", *_said(x), bits, ring.name, security_bits) as ctx:
            points = await self._points(x)
            return await points.to_share(ctx, bits, ring, security_bits=security_bits)

    async def to_secure(
        self,
        x_sh: Share,
        sectype: SecureType,
        *,
        bits: int,
        fraction_bits: int = 0,
        security_bits: int = SECURITY_BITS,
    ) -> SecureNumbers:
        """Converts replicated shares of a ring to a secure array of ``sectype``: the inverse of ``to_share``.

        Shapes: any; every value lies in [-2^(bits-1), 2^(bits-1)) and counts units of 2^-fraction_bits.
        Leaks, Rounds, Communication: ``shamir.from_ring``.
        Raises: TypeError for other types; ValueError for a bound without room, or a fraction that the type has no bits
            for; ChannelError, ProtocolViolation.
        Source: README section 9.
        """
        public = (x_sh.ring.name, x_sh.shape, _name(sectype), bits, fraction_bits, security_bits)
        with self._call("to_secure", *public) as ctx:
            return await self._secure(
                ctx,
                x_sh,
                sectype,
                bits=bits,
                fraction_bits=fraction_bits,
                security_bits=security_bits,
            )

    # Protocols.

    async def select(self, counts: SecureNumbers, spec: SelectSpec) -> int:
        """Chooses a candidate by the exponential mechanism on counts (cells,), and opens its index alone.

        Leaks: the index, whose distribution is that of ``select.select``.
        Rounds: ``to_share``, then 24 for up to 256 candidates.
        Communication: ``to_share``; 7 bytes a cell, 0.5 KB a candidate, 10 bytes a pair (``costs.select``).
        Raises: ValueError for shapes, types and bounds that do not fit; ChannelError, ProtocolViolation, CheckFailed.
        Source: README section 3.
        """
        public = (spec.sizes, spec.answers, spec.gains, spec.offsets, spec.max_rows)
        with self._call("select", *_said(counts), *public) as ctx:
            x_sh = await self._counts(ctx, counts, spec.max_rows)
            return await selecting.select(ctx, x_sh.reshape(x_sh.size), spec)

    async def measure(
        self, counts: SecureNumbers, *, sigma: float, max_rows: int, noise: str = DISCRETE
    ) -> NDArray[np.float64]:
        """Opens counts plus noise of deviation ``sigma`` that no party knows; the result is public.

        Shapes: counts any, of at most ``max_rows`` each; returns their shape.
        Leaks: the noisy counts. ``noise`` is "discrete-gaussian", "box-muller" or "distributed" (``measure.noise_of``).
        Rounds: ``to_share``, then 20 with discrete noise.
        Communication: ``to_share``; 76 bytes a cell at sigma = 20.89.
        Raises: ValueError for a sigma or bound out of range; ChannelError, ProtocolViolation, CheckFailed.
        Source: README sections 4 and 5.
        """
        with self._call("measure", *_said(counts), sigma, max_rows, noise) as ctx:
            x_sh = await self._counts(ctx, counts, max_rows)
            kind = measuring.noise_of(noise)
            flat = x_sh.reshape(x_sh.size)
            return (await measuring.measure(ctx, flat, sigma, max_rows, kind)).reshape(x_sh.shape)

    async def absolute_error(
        self,
        counts: SecureNumbers,
        answers: NDArray[np.uint32],
        sizes: NDArray[np.int64],
        *,
        max_rows: int,
    ) -> SecureNumbers:
        """Computes sum |x - y| over the cells of each group, as a secure array of the counts' type.

        Shapes: counts (n,), of at most ``max_rows`` in a group; answers (n,), whole numbers; sizes (G,), adding up to
            n; returns (G,).
        Leaks: none, or the conversions' distances.
        Rounds: ``to_share``, ``absolute.grouped_absolute_error``, ``to_secure``.
        Communication: those of the same.
        Raises: ValueError for shapes, types and bounds that do not fit; ChannelError, ProtocolViolation.
        Source: README section 3.
        """
        answers, sizes = _whole_answers(answers, sizes)
        starts = np.cumsum(sizes) - sizes
        count_bits = _count_bits(max_rows)
        most = int(max_rows) + int(np.add.reduceat(answers, starts, dtype=np.int64).max())
        bits = most.bit_length() + 1
        if bits > R32.bits - 1:
            raise ValueError(f"errors of {bits} bits have no room in {R32.name}; lower max_rows")
        with self._call("absolute_error", *_said(counts), answers, sizes, max_rows) as ctx:
            points = await self._points(counts, whole=True)
            x_sh = await points.to_share(ctx, count_bits, R32)
            error_sh = await grouped_absolute_error(
                ctx, x_sh, answers, sizes, fraction_bits=0, bits=max(bits, 2)
            )
            return await self._secure(ctx, error_sh, points.sectype, bits=bits)

    async def discrete_gaussian(
        self, sectype: SecureType, count: int, *, sigma: float
    ) -> SecureNumbers:
        """Draws discrete Gaussian samples (count,) that no party knows, as a secure array of ``sectype``.

        Leaks: none, or the conversion's distance. Samples are exact within 2^-64 (``discrete.Sampler``).
        Rounds: 19 at sigma = 20.89, then ``to_secure``.
        Communication: 72 bytes a sample and mean party there, then ``to_secure``.
        Raises: ValueError for a sigma out of range; TypeError for other types; ChannelError, ProtocolViolation.
        Source: README section 5.
        """
        sampler = Sampler.of(sigma)
        _require_count(count)
        with self._call("discrete_gaussian", _name(sectype), count, sigma) as ctx:
            z_sh = await discrete_gaussian(ctx, count, sampler)
            return await self._secure(ctx, z_sh, sectype, bits=sampler.largest.bit_length() + 1)

    async def box_muller(self, secfxp: SecureType, count: int) -> SecureNumbers:
        """Draws standard Gaussian samples (count,) that no party knows, as a secure array of a SecFxp type.

        Leaks: none, or the conversion's distance. Samples have 26 fractional bits, and the type's where it has fewer.
        Rounds: 22, 2 to cut them, then ``to_secure``.
        Communication: 403 bytes a sample and mean party, then 24 and ``to_secure``.
        Raises: TypeError for another type; ChannelError, ProtocolViolation.
        Source: README section 4. Cut bits are rounded without bias (``fixed.truncate``).
        """
        fraction = _fraction_of(secfxp)
        if not fraction:
            raise TypeError(f"{_name(secfxp)} has no fraction; expected a type of mpc.SecFxp")
        _require_count(count)
        with self._call("box_muller", _name(secfxp), count) as ctx:
            z_sh, kept = await gaussian(ctx, count), min(fraction, SAMPLE_BITS)
            if kept < SAMPLE_BITS:
                z_sh = await truncate(ctx, z_sh.additive(ctx), SAMPLE_BITS - kept)
            bits = int(LARGEST_SAMPLE + 1).bit_length() + kept + 1
            return await self._secure(ctx, z_sh, secfxp, bits=bits, fraction_bits=kept)

    async def join(
        self, sources: Sequence[SecureRows]
    ) -> tuple[SecureNumbers, list[list[SecureNumbers]]]:
        """Joins 1 to 5 sources by their keys, an inner join, in secret: no party learns who matches, or how many.

        Shapes: returns ``present`` (c,), 0 or 1, and for each source its columns (c,); c are the rows of the source
            with several rows of a key, else of the smallest one, in their order. Without a match the other sources'
            numbers are 0, and that row's own stay.
        Leaks: none, or the conversions' distances. Types are those of the sources' own numbers.
        Rounds: ``to_share``, 2 + levels(b - 1) for b bits, ``link.join``, ``words_to_ring`` and ``to_secure``.
        Communication: those of the same.
        Raises: ValueError for sources that cannot be joined; ChannelError, ProtocolViolation.
        Source: README section 8.
        """
        key_bits = {source.key_bits for source in sources}
        widths = [bits for source in sources for bits in (source.key_bits, *source.column_bits)]
        if len(key_bits) != 1 or not all(1 <= bits <= 62 for bits in widths):
            raise ValueError("sources are joined by keys of as many bits each, numbers of 1 to 62")
        if any(len(source.columns) != len(source.column_bits) for source in sources):
            raise ValueError("a source has a number of bits for each of its columns")
        public = [
            (*map(_said, (source.keys, *source.columns)), source.key_bits, source.column_bits)
            for source in sources
        ]
        per_key = [source.per_key for source in sources]
        with self._call("join", public, per_key) as ctx:
            read = [
                [await self._points(x, whole=True) for x in (source.keys, *source.columns)]
                for source in sources
            ]
            rows = [
                await _rows(ctx, numbers, source)
                for numbers, source in zip(read, sources, strict=True)
            ]
            joined_bsh, count = await join(ctx, rows, key_bits=key_bits.pop())
            present = await self._column(ctx, joined_bsh[:1], count, sectype=read[0][0].sectype)
            found, start = [], 1
            for numbers, source in zip(read, sources, strict=True):
                columns = []
                for column, bits in zip(numbers[1:], source.column_bits, strict=True):
                    planes = joined_bsh[start : start + bits]
                    columns.append(await self._column(ctx, planes, count, sectype=column.sectype))
                    start += bits
                found.append(columns)
            return present, found

    @contextmanager
    def _call(self, method: str, *public: object) -> Iterator[Context]:
        """Yields a context of the next call, before anything is awaited, so that calls are in one order everywhere.

        Method and public arguments are in its path: a party that calls something else waits for messages that never
        come, instead of being shown points of another value.
        """
        child = self.context.child(call=repr((method, *map(_plain, public))).encode())
        child.cost = StepCost(f"mpyc.{method}", None)
        yield child
        self.context.depth = max(self.context.depth, child.depth)

    async def _points(self, x: SecureNumbers, *, whole: bool = False) -> "_Points":
        """Waits for this party's points of x; ``whole`` divides those of SecFxp by 2^f."""
        if isinstance(x, list) and (len(set(map(type, x))) != 1 or isinstance(x[0], list)):
            raise TypeError(
                "expected secure numbers of one type in a list, one or more; other shapes are secure arrays"
            )
        array = self.mpc.np_fromlist(x) if isinstance(x, list) else x
        sectype = getattr(type(array), "sectype", type(array))
        prime, fraction = _prime_of(sectype), _fraction_of(sectype)
        held = (await self.mpc.gather(array)).value
        points = np.asarray(held, dtype=object)
        bits = _default_bits(sectype, prime)
        if whole and fraction:
            if not array.integral:
                raise ValueError("counts have to be whole numbers; MPyC does not know it of these")
            # NumPy turns a result without dimensions into an integer; asarray turns it back.
            points = np.asarray(points * pow(1 << fraction, -1, prime) % prime, dtype=object)
            bits -= fraction
        return _Points(points, prime, bits, sectype)

    async def _counts(self, ctx: Context, x: SecureNumbers, max_rows: int) -> Share:
        points = await self._points(x, whole=True)
        return await points.to_share(ctx, _count_bits(max_rows), R32)

    async def _secure(
        self,
        ctx: Context,
        x_sh: Share,
        sectype: SecureType,
        *,
        bits: int,
        fraction_bits: int = 0,
        security_bits: int = SECURITY_BITS,
    ) -> SecureNumbers:
        prime, fraction = _prime_of(sectype), _fraction_of(sectype)
        if fraction_bits > fraction:
            raise ValueError(
                f"{_name(sectype)} has {fraction} fractional bits, not {fraction_bits}"
            )
        if bits + fraction - fraction_bits > min(_default_bits(sectype, prime), _LARGEST_BITS):
            raise ValueError(f"{_name(sectype)} has no room for values of {bits} bits")
        points = await from_ring(ctx, x_sh, prime=prime, bits=bits, security_bits=security_bits)
        scaled = points * (1 << (fraction - fraction_bits)) % prime
        held = sectype.field.array(scaled, check=False)
        if fraction:
            return sectype.array(held, integral=fraction_bits == 0)
        return sectype.array(held)

    async def _column(
        self, ctx: Context, planes_bsh: Share, count: int, *, sectype: SecureType
    ) -> SecureNumbers:
        """Converts numbers in planes to a secure array."""
        x_sh = await words_to_ring(ctx, planes_bsh, count, R64)
        return await self._secure(ctx, x_sh, sectype, bits=planes_bsh.shape[0] + 1)


async def open_bridge(mpc: Mpc, *, timeout_s: float = TIMEOUT_S) -> Bridge:
    """Returns a bridge in a running MPyC program of three parties; all of them open it at the same place.

    Args:
        mpc: MPyC's runtime, after ``await mpc.start()`` or within ``async with mpc``.
        timeout_s: deadline of a receive, in seconds.

    Raises:
        ConfigurationError: for other than three parties, another threshold than 1, or a runtime that is not started.
        ChannelError: for a peer that is gone or silent.
        ProtocolViolation: for a peer that does not follow the coin flip of the pairs' keys.
    """
    ctx, transport = await open_context(mpc, timeout_s=timeout_s)
    return Bridge(mpc, ctx, transport)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Points:
    """This party's points of an array, with what is public of its type. Secret: the points."""

    held: RingArray
    prime: int
    bits: int
    sectype: SecureType

    async def to_share(
        self,
        ctx: Context,
        bits: int | None,
        ring: Ring,
        *,
        security_bits: int = SECURITY_BITS,
    ) -> Share:
        return await to_ring(
            ctx,
            self.held,
            prime=self.prime,
            bits=self.bits if bits is None else bits,
            ring=ring,
            security_bits=security_bits,
        )


async def _rows(ctx: Context, numbers: Sequence[_Points], source: SecureRows) -> SourceRows:
    """Returns rows of a join in planes: presence, which is 1 for all, the key, the columns."""
    count = numbers[0].held.size
    if any(column.held.shape != (count,) for column in numbers):
        raise ValueError(f"a source of {count} rows has columns of as many numbers")
    ones = from_bits(np.ones((1, count), np.uint8))
    planes = [known(ctx, BITS, 0, None if ctx.pid == 1 else ones, ones.shape)]
    for column, bits in zip(numbers, (source.key_bits, *source.column_bits), strict=True):
        x_sh = await column.to_share(ctx, bits + 1, R32 if bits <= 32 else R64)
        planes.append(await to_boolean(ctx, x_sh, bits))
    return SourceRows(concatenate(*planes), count, source.per_key)


def _count_bits(max_rows: int) -> int:
    """Returns the bits of signed counts up to ``max_rows``. Raises ValueError for a bound below 0."""
    if max_rows < 0:
        raise ValueError(f"max_rows = {max_rows}; expected the largest count, 0 or more")
    return int(max_rows).bit_length() + 1


def _require_count(count: int) -> None:
    if count < 0:
        raise ValueError(f"{count} samples; expected 0 or more")


def _whole_answers(
    answers: NDArray[np.uint32], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Returns answers and the sizes of their groups as arrays. Raises ValueError where they do not fit."""
    y, groups = np.asarray(answers), np.asarray(sizes)
    if {y.dtype.kind, groups.dtype.kind} - {"i", "u"} or y.ndim != 1 or groups.ndim != 1:
        raise ValueError("answers and sizes are expected to be whole numbers, (n,) and (G,)")
    if groups.min(initial=1) < 1 or not groups.size or int(groups.sum()) != y.size:
        raise ValueError(
            f"groups of {int(groups.sum())} cells for {y.size} answers; each has one or more, all as many"
        )
    if y.min() < 0 or y.max() >= 1 << 31:
        raise ValueError("answers are expected to lie in [0, 2^31)")
    return y.astype(np.uint32), groups.astype(np.int64)


def _prime_of(sectype: SecureType) -> int:
    """Returns the prime of a type. Raises TypeError for another type than those of prime fields."""
    field = getattr(sectype, "field", None)
    modulus = getattr(field, "modulus", None)
    if not isinstance(modulus, int) or getattr(sectype, "subfield", None) is not None:
        raise TypeError(
            f"{_name(sectype)} has no prime field of more than 3 elements; expected SecInt, SecFxp, SecFld"
        )
    return modulus


def _said(x: SecureNumbers) -> tuple[str, tuple[int, ...]]:
    """Returns what is public of secure numbers: their type and shape."""
    first = x[0] if isinstance(x, list) and x else x
    shape = (len(x),) if isinstance(x, list) else getattr(x, "shape", ())
    return _name(getattr(type(first), "sectype", type(first))), shape


def _plain(public: object) -> object:
    """Returns a public argument in plain types, which print the same at all parties."""
    return public.tolist() if isinstance(public, np.ndarray | np.generic) else public


def _fraction_of(sectype: SecureType) -> int:
    return int(getattr(sectype, "frac_length", 0) or 0)


def _default_bits(sectype: SecureType, prime: int) -> int:
    """Returns the bits of a type's signed numbers that its field can hold."""
    return min(int(sectype.bit_length), prime.bit_length() - 1)


def _name(sectype: SecureType) -> str:
    return str(getattr(sectype, "__name__", sectype))
