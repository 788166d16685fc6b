"""Proofs of the products of counting rows: of one-hots' entries row by row, and of their sums over rows.

With a weight for each entry of a one-hot, the products of two one-hots in a row have weights that are products, too. So
all of them add up to one product of two sums: in a row, sum over i, j of w_i v_j x_i y_j is (sum of w_i x_i)(sum of v_j
y_j). So the claim for each row is an inner product as long as there are pairs of one-hots, and not as long as there are
entries; sums over rows are one more, of all rows. Weights are elements of a Galois ring (`galois`), in which Z_2^16 is
contained, so that nothing wraps anywhere and no quotients are sent.

All three parties prove their part at once. With x_c the combined entries of component c, which two parties know, party
i's claim about a row is x_i y_{i+1} + x_{i+1} y_i = l + r for an l that the party before it knows and an r that the one
after it knows. Each step makes one row of two, until one is left: its combined entries, masked by a row of random ones,
are shown by the party before to the one after, who multiplies.

Secret: everything but weights and factors, which are public coins, tossed when the values that they combine are fixed.
Leaks: none. Source: README section 7; own. Freivalds (1977) for weights of rows and columns; folding as in
`inner_proof`.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from protocols.context import Context
from protocols.doubled import CROSSED, squares
from protocols.errors import CheckFailed
from protocols.galois import (
    DEGREE,
    Elements,
    add_multiple,
    add_weighted,
    drawn,
    fold,
    halves,
    low_bits,
    multiplier,
    products,
    row_products,
    signed,
    times,
    weighted_sums,
)
from protocols.keystream import Keystream
from protocols.records import Record, Side
from protocols.ring import R16, R64, RingArray
from protocols.shares import Entries, Share, Table

_COIN_WORDS = 2
_DIGEST_BYTES = 32
_EXPANDED = b"syncret-tables"


@dataclass(frozen=True, slots=True, order=True)
class Operand:
    """Entries of a one-hot: ``size`` of them from ``first`` on, with the weights of a ``copy`` of it. Public."""

    node: int
    copy: int
    first: int
    size: int

    def meets(self, other: "Operand") -> bool:
        """Returns True if two operands of one one-hot have an entry in common."""
        return self.first < other.first + other.size and other.first < self.first + self.size


@dataclass(frozen=True, slots=True)
class Star:
    """Products of one operand with several others: their sum is that of the one with the others' sum. Public."""

    centre: Operand
    others: tuple[Operand, ...]


def stars(pairs: Iterable[tuple[Operand, Operand]]) -> tuple[Star, ...]:
    """Returns all pairs as few stars: the operand of the most remaining pairs first."""
    left, found = sorted(set(pairs)), list[Star]()
    while left:
        uses = Counter(operand for pair in left for operand in set(pair))
        centre = max(sorted(uses), key=lambda operand: uses[operand])
        mine = [pair for pair in left if centre in pair]
        others = (b if a == centre else a for a, b in mine)
        found.append(Star(centre, tuple(others)))
        left = [pair for pair in left if centre not in pair]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Products of two operands, at places ``start``... of a value's first axis. Public."""

    left: Operand
    right: Operand
    start: int


_Matrices = dict[tuple[_Placed, ...], Elements]


def is_tabled(record: Record) -> bool:
    """Returns True if a value is made of tables alone."""
    return bool(record.origins) and all(isinstance(origin, Table) for origin in record.origins)


def _tables(record: Record) -> list[Table]:
    return [origin for origin in record.origins if isinstance(origin, Table)]


class RowTables:
    """Products of rows' tables to prove: values with their products, as the party here holds them.

    ``rows`` is their number, ``by_row`` and ``doubled`` the stars of products row by row and of those summed.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = [(r, _tables(r)) for r in records]
        self.rows = max(t.row + t.left.shape[-1] for _, tables in self._records for t in tables)
        self._operands: dict[int, dict[Operand, Share]] = {}
        self._taken: dict[tuple[object, ...], list[tuple[Operand, Operand]]] = {}
        self._placed = [self._place(tables) for _, tables in self._records]
        self.by_row, self.doubled = (
            stars(
                (p.left, p.right)
                for (_, tables), placed in zip(self._records, self._placed, strict=True)
                if tables[0].doubled == doubled
                for p in placed
            )
            for doubled in (False, True)
        )

    def __repr__(self) -> str:
        return f"RowTables({self.rows} rows, {self.terms} products a row)"

    def _place(self, tables: Sequence[Table]) -> tuple[_Placed, ...]:
        """Returns a value's tables in their places. Blocks of rows of one table are summed, hence at one place."""
        seen, found = Counter[tuple[int, tuple[Entries, Entries]]](), dict[int, _Placed]()
        for table in tables:
            # Two tables of the same one-hots would let errors of one hide those of the other.
            copy = seen[table.row, table.entries]
            seen[table.row, table.entries] += 1
            right_sh = table.right
            if right_sh is None:
                raise ValueError("a table of products has two operands")
            left, right = (
                Operand(entries.node, copy, entries.first, x_sh.shape[0])
                for entries, x_sh in zip(table.entries, (table.left, right_sh), strict=True)
            )
            here = self._operands.setdefault(table.row, {})
            here[left], here[right] = table.left, right_sh
            self._take(table, left, right)
            found[table.start] = _Placed(left, right, table.start)
        return tuple(found[start] for start in sorted(found))

    def _take(self, table: Table, left: Operand, right: Operand) -> None:
        """Raises ValueError where two products of a row have one weight: one's error could make up for the other's."""
        first, second = sorted((left, right))
        taken = self._taken.setdefault(
            (table.doubled, table.row, first.node, second.node, first.copy), []
        )
        square = first.node == second.node and max(first.size, second.size) > 1
        if square or any(first.meets(a) and second.meets(b) for a, b in taken):
            raise ValueError("two products of a row have one weight, and no proof can tell them")
        taken.append((first, second))

    @property
    def terms(self) -> int:
        """Number of products of combined entries in a row: half as many as there are combined entries."""
        return len(self.by_row) + len(self.doubled)

    def weights(self, stream: Keystream) -> dict[Operand, Elements]:
        """Draws the stream's next weights of every operand's entries: (DEGREE, size) each."""
        operands = {operand for here in self._operands.values() for operand in here}
        sizes = Counter[tuple[int, int]]()
        for operand in operands:
            key = operand.node, operand.copy
            sizes[key] = max(sizes[key], operand.first + operand.size)
        whole = {key: drawn(stream, sizes[key]) for key in sorted(sizes)}
        return {
            o: np.ascontiguousarray(whole[o.node, o.copy][:, o.first : o.first + o.size])
            for o in operands
        }

    def combined(self, side: Side, weights: Mapping[Operand, Elements], mask: Elements) -> Elements:
        """Returns a component's combined entries: (2 terms, DEGREE, 1 + rows), the stars' centres, then others' sums.

        The first row is ``mask`` (DEGREE, 2 terms).
        """
        places: dict[Operand, list[int]] = {}
        for number, star in enumerate((*self.by_row, *self.doubled)):
            places.setdefault(star.centre, []).append(number)
            for other in star.others:
                places.setdefault(other, []).append(self.terms + number)
        found = np.zeros((2 * self.terms, DEGREE, 1 + self.rows), np.uint16)
        found[..., 0] = mask.T
        for first, operands in self._operands.items():
            for operand, x_sh in operands.items():
                # X = sum of w_p x_p over the operand's entries, for each row.
                x, here = side.of(x_sh), places[operand]
                sums = found[..., 1 + first : 1 + first + x.shape[1]]
                if len(here) == 1:
                    add_weighted(sums[here[0]], weights[operand], x)
                    continue
                made = weighted_sums(weights[operand], x)
                for place in here:
                    sums[place] += made
        return found

    def matrices(self, weights: Mapping[Operand, Elements]) -> _Matrices:
        """Returns the weights of the products of values that are not summed; those of blocks of rows are the same."""
        values = {
            placed
            for (_, tables), placed in zip(self._records, self._placed, strict=True)
            if not tables[0].doubled
        }
        return {placed: _of_products(weights, placed) for placed in values}

    def sent(
        self,
        weights: Mapping[Operand, Elements],
        matrices: _Matrices,
        parts: Sequence[RingArray],
    ) -> tuple[Elements, Elements]:
        """Sums a summand of every value, with the weights of its products: by row (DEGREE, rows), and over rows.

        The second, (DEGREE,), is of the values that are summed over rows.
        """
        by_row, total = np.zeros((DEGREE, self.rows), np.uint16), np.zeros(DEGREE, np.uint16)
        for (_, tables), placed, part in zip(self._records, self._placed, parts, strict=True):
            if tables[0].doubled:
                total += _of_sums(weights, placed, part)
            else:
                first = tables[0].row
                add_weighted(by_row[:, first : first + part.shape[1]], matrices[placed], part)
        return by_row, total

    def masks(self, side: Side) -> list[RingArray]:
        """Returns r of every value."""
        return [side.of(record.masks_sh) for record, _ in self._records]

    def without_masks(self, side: Side) -> list[RingArray]:
        """Returns z - r of every value."""
        return [side.of(r.z_sh) - side.of(r.masks_sh) for r, _ in self._records]


def _of_products(weights: Mapping[Operand, Elements], placed: Sequence[_Placed]) -> Elements:
    """Returns the weights of a value's products: (DEGREE, products)."""
    tables = []
    for p in placed:
        left, right = weights[p.left], weights[p.right]
        table = low_bits(multiplier(left.T) @ signed(right))
        tables.append(table.transpose(1, 0, 2).reshape(DEGREE, -1))
    return np.concatenate(tables, axis=1)


def _of_sums(
    weights: Mapping[Operand, Elements], placed: Sequence[_Placed], part: RingArray
) -> Elements:
    """Returns the weighted sum of tables one after the other: (DEGREE,)."""
    total = np.zeros(DEGREE, np.uint16)
    for p in placed:
        a, b = p.left.size, p.right.size
        table = part[p.start : p.start + a * b].reshape(a, b)
        # Sum of w_p v_q T_pq, first over p.
        rows = weighted_sums(weights[p.left], table)
        total += products(signed(rows), signed(weights[p.right]))
    return total


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Claims:
    """This party's parts of claims (DEGREE, rows): ``left`` of the next party's, ``right`` of the one before's."""

    left: Elements
    right: Elements


class _Talk:
    """Messages of a proof of all three parties."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._seeds: list[bytes] = []

    async def coin(self) -> Keystream:
        """Returns a stream that no party knew before. One round.

        A prover lacks one component of it, and is shown that by the party after it, which by then has received the
        prover's message.
        """
        ctx = self._ctx
        own, next_ = (ctx.common(c, R64, (_COIN_WORDS,)) for c in (ctx.pid, ctx.next_pid))
        wire = R64.to_wire(next_)
        answers = await ctx.round({ctx.prev_pid: wire}, {ctx.next_pid: wire.size})
        third = R64.from_wire(answers[ctx.next_pid], next_.shape)
        self._seeds.append(R64.to_wire(own ^ next_ ^ third).tobytes())
        return Keystream(self._seeds[-1], _EXPANDED)

    async def share(self, mine: Elements) -> tuple[Elements, Elements]:
        """Shares this party's own elements between the others; returns its parts of theirs, (left's, right's).

        Shapes: (DEGREE, rows); messages have a row after the other. One round.
        """
        ctx, shape = self._ctx, mine.shape[::-1]
        masks = [ctx.common(c, R16, shape) for c in (ctx.pid, ctx.next_pid)]
        wire = R16.to_wire(mine.T - masks[0])
        answers = await ctx.round({ctx.next_pid: wire}, {ctx.prev_pid: wire.size})
        return masks[1].T, R16.from_wire(answers[ctx.prev_pid], shape).T

    async def same_coins(self) -> None:
        """Compares the coins of all three. Raises CheckFailed. One round."""
        ctx, peers = self._ctx, (self._ctx.next_pid, self._ctx.prev_pid)
        digest = np.frombuffer(hashlib.sha256(b"".join(self._seeds)).digest(), np.uint8)
        answers = await ctx.round(dict.fromkeys(peers, digest), dict.fromkeys(peers, digest.size))
        others = [
            p for p in peers if not hmac.compare_digest(answers[p].tobytes(), digest.tobytes())
        ]
        if others:
            who = " and ".join(f"party {ctx.party(peer)}" for peer in others)
            raise CheckFailed(
                f"party {ctx.party(ctx.pid)} finds in step {ctx.cost.step!r} that {who} has not seen the same coins"
            )


async def prove_tables(ctx: Context, tables: RowTables) -> None:
    """Runs the proofs of all three parties, of their parts of all products of one-hots, to one another.

    Leaks: none. Everything sent is masked by a keystream, or a coin.
    Rounds: 5, and 2 for each time that 1 + rows can be halved.
    Communication: ``costs.verify_tables``: 94 bytes a row and step, and for each combined entry.
    Raises: CheckFailed where a product is wrong; ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    talk = _Talk(ctx)
    weights = tables.weights(await talk.coin())
    shape = DEGREE, 2 * tables.terms
    own, next_ = (
        tables.combined(side, weights, ctx.common(component, R16, shape))
        for side, component in ((Side.OWN, ctx.pid), (Side.NEXT, ctx.next_pid))
    )
    claims = await _claims(ctx, talk, tables, weights, own, next_)
    del weights
    while own.shape[-1] > 1:
        (a, b), (next_a, next_b) = halves(own), halves(next_)
        count = b.shape[-1]
        # B_ab of README section 7, Tables, step 3: a with b and b with a, of this party's own claim.
        mixed = crossed(a[..., :count], next_b) + crossed(b, next_a[..., :count])
        del a, b, next_a, next_b
        of_left, of_right = await talk.share(mixed)
        factor = drawn(await talk.coin(), 1)[:, 0]
        claims = _Claims(
            _folded(factor, claims.left, of_left), _folded(factor, claims.right, of_right)
        )
        own, next_ = fold(factor, own), fold(factor, next_)
    await talk.same_coins()
    await _compare(ctx, own, next_, claims)


async def _claims(
    ctx: Context,
    talk: _Talk,
    tables: RowTables,
    weights: Mapping[Operand, Elements],
    own: Elements,
    next_: Elements,
) -> _Claims:
    """Returns a claim for each row, that of the mask first: by row, plus a random factor times the sum over rows.

    ``own`` and ``next_`` take the factor on, in place. Only the prover knows each row's summand of the sum over rows,
    and shares it; the first row's part is the rest of the sum.
    """
    k = len(tables.by_row)
    summed = slice(k, tables.terms), slice(tables.terms + k, None)
    # To share: the mask row's claim, and each row's summand of the sums over rows, but for the first row's.
    of_rows = _crossed_in(own[..., 2:], next_[..., 2:], summed)
    mine = np.concatenate(
        (crossed(own[..., :1], next_[..., :1]), _multiple(CROSSED, of_rows)), axis=1
    )
    of_left, of_right = await talk.share(mine)
    theta = drawn(await talk.coin(), 1)[:, 0]
    # Left of the next party's claim: the sent values, less their masks and less the products that left knows.
    matrices = tables.matrices(weights)
    rows, total = tables.sent(weights, matrices, tables.without_masks(Side.NEXT))
    by_row = slice(0, k), slice(tables.terms, tables.terms + k)
    rows -= _squares(next_[..., 1:], by_row)
    total -= _multiple(squares(ctx.next_pid)[0], _sum(_squares(next_[..., 1:], summed)))
    left = _with_sums(theta, rows, total, of_left)
    # Right of the claim of the party before.
    rows, total = tables.sent(weights, matrices, tables.masks(Side.OWN))
    total -= _multiple(squares(ctx.prev_pid)[1], _sum(_squares(own[..., 1:], summed)))
    right = _with_sums(theta, rows, total, of_right)
    # The factor theta, and 2 of the doubled products, go into the stars' centres of the products summed over rows.
    for x in (own, next_):
        for number in range(k, tables.terms):
            centre = x[number : number + 1, :, 1:]
            scaled = np.zeros_like(centre)
            add_multiple(scaled, theta, centre)
            centre[...] = _multiple(CROSSED, scaled)
    return _Claims(left, right)


def _with_sums(theta: Elements, rows: Elements, total: Elements, shared: Elements) -> Elements:
    """Returns a part of all claims: the mask's, and of each row its own plus theta times its summand of the total."""
    first = total - _sum(shared[:, 1:])
    sums = np.concatenate((first[:, None], shared[:, 1:]), axis=1)
    return np.concatenate((shared[:, :1], rows + times(theta, sums)), axis=1)


def crossed(x: Elements, y: Elements) -> Elements:
    """Returns x_i y_{i+1} + x_{i+1} y_i of combined entries x of component i and y of i + 1, summed up in each row."""
    half = len(x) // 2
    return _crossed_in(x, y, (slice(0, half), slice(half, None)))


def _crossed_in(x: Elements, y: Elements, places: tuple[slice, slice]) -> Elements:
    """Returns ``crossed`` of the stars at these places, centres and others."""
    first, second = places
    return row_products(x[first], y[second]) + row_products(x[second], y[first])


def _squares(x: Elements, places: tuple[slice, slice]) -> Elements:
    """Returns centres times others of one component, summed up in each row: (DEGREE, rows)."""
    return row_products(x[places[0]], x[places[1]])


def _sum(x: Elements) -> Elements:
    """Returns the sum over rows: (DEGREE,)."""
    found: Elements = x.sum(axis=1, dtype=np.uint16)
    return found


def _multiple(factor: int, x: Elements) -> Elements:
    return x * np.uint16(factor % (1 << R16.bits))


def _folded(factor: Elements, claims: Elements, mixed: Elements) -> Elements:
    """Returns a part of the claims about a + lambda b: a's + lambda^2 b's + lambda times the mixed ones."""
    first, second = halves(claims)
    found = first.copy()
    # claim_a + lambda (B_ab + lambda claim_b).
    found[:, : second.shape[1]] += times(factor, mixed + times(factor, second))
    return found


async def _compare(ctx: Context, own: Elements, next_: Elements, claims: _Claims) -> None:
    """Sends right the last row of the component between left and right, masked, with left's part of the claim."""
    shown = np.concatenate((next_[..., 0].T.reshape(-1), claims.left.reshape(-1)))
    wire = R16.to_wire(shown)
    answers = await ctx.round({ctx.prev_pid: wire}, {ctx.next_pid: wire.size})
    received = R16.from_wire(answers[ctx.next_pid], shown.shape)
    third = received[: next_.size].reshape(DEGREE, -1).T[..., None]
    if np.any(crossed(third, own)[:, 0] - received[next_.size :] - claims.right[:, 0]):
        raise CheckFailed(
            f"party {ctx.party(ctx.pid)} finds in step {ctx.cost.step!r} that the proof of what party"
            f" {ctx.party(ctx.prev_pid)} multiplied does not hold: it or party {ctx.party(ctx.next_pid)} deviates"
        )
