"""Active security with abort: products are recorded, and proved before anything is opened.

``ProductVerifier`` is the ``Verifier`` of a context in malicious mode. It keeps the origins of every value. Its
``settle`` has each party prove to the two others that all it sent was right: ANDs (``verify_bits``), products in rings
(``verify_rings``), products of one-hots (``verify_tables``); and it has the masked values compared that were shown on
the way. An opening settles first, so that no opened value rests on something unproved. A party that deviates in one of
its messages is found out but with probability 2^-40 (README section 7).

Secret: all records. Leaks: none. Known limit: one verifier serves steps that come one after the other.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from protocols.context import Context, Payload
from protocols.errors import CheckFailed
from protocols.records import Record, Side, Structure, flags
from protocols.ring import BITS, R16, Ring
from protocols.shares import Origins, Share
from protocols.steps import proofs_of
from protocols.verify_bits import Gates, prove_gates
from protocols.verify_rings import RingProducts, prove_ring_products
from protocols.verify_tables import RowTables, is_tabled, prove_tables

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_DIGEST_BYTES = 32
BATCH_ELEMENTS = 1 << 23
"""Number of a ring's elements proved at a time: a proof needs some 40 bytes for each, in each of three roles."""
_FINE = b"\1"


class ProductVerifier:
    """Products that one party has to prove, and to see proved, before the next opening. See the module."""

    __slots__ = ("_failed", "_records", "_shown")

    def __init__(self) -> None:
        self._records: dict[Ring, dict[bytes, Record]] = {}
        self._shown: dict[bytes, tuple[Payload, Payload]] = {}
        self._failed = False

    def __repr__(self) -> str:
        values = sum(len(records) for records in self._records.values())
        return f"ProductVerifier({values} values, {len(self._shown)} shown)"

    def reshared(self, place: bytes, origins: Origins, masks_sh: Share, z_sh: Share) -> None:
        """Records a reshared value; see ``context.Verifier``."""
        records = self._records.setdefault(z_sh.ring, {})
        if place in records:
            raise ValueError("two values were sent from one place")
        records[place] = Record(origins, masks_sh, z_sh)

    def shown(self, place: bytes, held: Payload, received: Payload) -> None:
        """Records a shown value; see ``context.Verifier``."""
        self._shown[place] = held, received

    async def settle(self, ctx: Context) -> None:
        """Has everything proved that was recorded since the last time.

        Leaks: none.
        Rounds: some 12, 2 more for each factor of 32 in the number of terms to prove.
        Communication: ``costs.settle``.
        Raises: CheckFailed where something is wrong, or was before; ChannelError, ProtocolViolation.
        Source: README section 7.
        """
        if self._failed:
            raise CheckFailed(
                f"step {ctx.cost.step!r} would open something after a check that failed"
            )
        if not self._records and not self._shown:
            return
        # Until all three have said that they found everything right, no other value may be opened.
        self._failed = True
        with ctx.step(proofs_of(ctx.cost.step), round=ctx.cost.round) as inner:
            # Records made from here on wait for the next check: they are in no party's word of this one.
            taken, shown, self._records, self._shown = self._records, self._shown, {}, {}
            outline = _outline(taken, shown)
            records = {ring: _in_order(found) for ring, found in _in_order_of_rings(taken)}
            tabled, others = _split(records.pop(R16, []))
            if others:
                records[R16] = others
            structures = await self._begin(inner, outline, records, shown)
            del taken, shown
            # Of bits, all three provers' gates are the same.
            gates = Gates(records.pop(BITS)) if BITS in records else None
            _one_thread_a_product()
            for number in range(_batches(records)):
                await inner.gather(
                    *(
                        _by(prover, proof)
                        for prover in range(3)
                        for proof in _proofs(gates, records, structures, prover, number)
                    )
                )
                gates = None
            del records
            if tabled:
                tables = RowTables(tabled)
                del tabled
                await prove_tables(inner, tables)
            await self._end(inner)
        ctx.cost.apart += inner.cost.rounds
        self._failed = False

    async def _begin(
        self,
        ctx: Context,
        outline: bytes,
        records: dict[Ring, list[Record]],
        shown: dict[bytes, tuple[Payload, Payload]],
    ) -> dict[Ring, list[NDArray[np.bool_]]]:
        """Compares the parties' words: all have received the same products to check, and the same shown values.

        No challenge is shown before: right awaits left's word here, so that left's received messages are fixed by then.
        Returns the flags that the holders of each component have sent (``records.flags``), by ring, the same at all.
        """
        mine = _Word.of(outline, records)
        same = mine.encoded()
        held, received = (_digest_of_shown(shown, which) for which in (0, 1))
        before = np.concatenate((same, np.frombuffer(held, np.uint8)))
        answers = await ctx.round(
            {ctx.prev_pid: before, ctx.next_pid: same},
            {ctx.next_pid: before.size, ctx.prev_pid: same.size},
        )
        if not hmac.compare_digest(answers[ctx.next_pid][same.size :].tobytes(), received):
            raise CheckFailed(
                f"what party {ctx.prev_pid} showed of a masked value before step {ctx.cost.step!r}"
                f" is not what party {ctx.next_pid} has"
            )
        after, prior = (
            mine.decoded(answers[peer][: same.size]) for peer in (ctx.next_pid, ctx.prev_pid)
        )
        # Of three components each is known to two parties: own to the party before, next to the one after, third to
        # both.
        pairs = ((mine.own, prior.next), (mine.next, after.own), (after.next, prior.own))
        words = {ctx.next_pid: after, ctx.prev_pid: prior}
        other = [ctx.party(peer) for peer in words if words[peer].outline != mine.outline]
        if other or not all(np.array_equal(x, y) for x, y in pairs):
            who = " and ".join(f"party {party}" for party in other) or "one of the two others"
            raise CheckFailed(
                f"party {ctx.party(ctx.pid)} finds in step {ctx.cost.step!r} that by the word of {who}"
                " there are other products to check"
            )
        by_component = {ctx.pid: mine.own, ctx.next_pid: mine.next, ctx.prev_pid: after.next}
        return _by_ring(records, [by_component[component] for component in range(3)])

    async def _end(self, ctx: Context) -> None:
        """Tells the others that everything was right; a party that found an error sends nothing, and none opens."""
        peers = ctx.next_pid, ctx.prev_pid
        said = np.frombuffer(_FINE, np.uint8)
        answers = await ctx.round(dict.fromkeys(peers, said), dict.fromkeys(peers, said.size))
        for peer in peers:
            if answers[peer].tobytes() != _FINE:
                raise CheckFailed(f"party {ctx.party(peer)} did not find right what was multiplied")


def _outline(
    taken: dict[Ring, dict[bytes, Record]], shown: dict[bytes, tuple[Payload, Payload]]
) -> bytes:
    """Returns a digest of the outline of the check: places, rings and sizes."""
    digest = hashlib.sha256()
    for ring, found in _in_order_of_rings(taken):
        for place in sorted(found):
            digest.update(f"{ring.name} {found[place].z_sh.size} ".encode() + place)
    for place in sorted(shown):
        digest.update(f"shown {shown[place][0].size} ".encode() + place)
    return digest.digest()


def _digest_of_shown(shown: dict[bytes, tuple[Payload, Payload]], which: int) -> bytes:
    digest = hashlib.sha256()
    for place in sorted(shown):
        digest.update(shown[place][which].data)
    return digest.digest()


@dataclass(frozen=True, slots=True, eq=False)
class _Word:
    """A party's message before a check: a digest of the outline, and the flags of its two components."""

    outline: bytes
    own: NDArray[np.bool_]
    next: NDArray[np.bool_]

    @classmethod
    def of(cls, outline: bytes, records: dict[Ring, list[Record]]) -> "_Word":
        """Returns this party's word."""
        own, next_ = (
            np.concatenate([np.zeros(0, np.bool_), *(flags(r, side) for r in _ringed(records))])
            for side in Side
        )
        return cls(outline, own, next_)

    def encoded(self) -> NDArray[np.uint8]:
        """Returns the word's bytes, as many at all three."""
        parts = np.packbits(self.own), np.packbits(self.next)
        return np.concatenate((np.frombuffer(self.outline, np.uint8), *parts))

    def decoded(self, raw: NDArray[np.uint8]) -> "_Word":
        """Reads another party's word, of as many flags. Raises CheckFailed where padding bits are set."""
        size = -(-self.own.size // 8)
        parts = (raw[_DIGEST_BYTES + i * size :][:size] for i in range(2))
        own, next_ = (np.unpackbits(part, count=self.own.size).astype(np.bool_) for part in parts)
        word = _Word(raw[:_DIGEST_BYTES].tobytes(), own, next_)
        if not np.array_equal(word.encoded(), raw):
            raise CheckFailed("a party's word before a check has bits that mean nothing")
        return word


def _in_order_of_rings(
    records: dict[Ring, dict[bytes, Record]],
) -> list[tuple[Ring, dict[bytes, Record]]]:
    return sorted(records.items(), key=lambda item: item[0].name)


def _in_order(records: dict[bytes, Record]) -> list[Record]:
    return [records[place] for place in sorted(records)]


def _split(records: list[Record]) -> tuple[list[Record], list[Record]]:
    """Returns the values made of tables, and the others."""
    tabled = [record for record in records if is_tabled(record)]
    return tabled, [record for record in records if not is_tabled(record)]


def _ringed(records: dict[Ring, list[Record]]) -> list[list[Record]]:
    """Returns the records whose structure matters: of bits, everything is proved."""
    return [found for ring, found in records.items() if ring is not BITS]


def _by_ring(
    records: dict[Ring, list[Record]], components: Sequence[NDArray[np.bool_]]
) -> dict[Ring, list[NDArray[np.bool_]]]:
    """Returns each ring's part of the components' flags."""
    parts, at = {}, 0
    for ring, found in records.items():
        if ring is not BITS:
            count = sum(2 + 2 * len(record.origins) for record in found)
            parts[ring] = [component[at : at + count] for component in components]
            at += count
    return parts


def _proofs(
    gates: Gates | None,
    records: dict[Ring, list[Record]],
    structures: dict[Ring, list[NDArray[np.bool_]]],
    prover: int,
    batch: int,
) -> Iterator[Callable[[Context], Awaitable[None]]]:
    """Yields one party's proofs of a batch, one of each kind of product."""
    if gates is not None:
        yield partial(prove_gates, gates=gates)
    for ring, found in records.items():
        parts = _cut(found)
        if batch >= len(parts):
            continue
        part = parts[batch]
        at = sum(_flags_of(record) for record in found[: part.start])
        here = slice(at, at + sum(_flags_of(record) for record in found[part.start : part.stop]))
        left, right = (structures[ring][(prover + i) % 3][here] for i in range(2))
        some = found[part.start : part.stop]
        products = RingProducts(ring, some, Structure.of(some, left, right))
        if products.elements:
            yield partial(prove_ring_products, products=products)


def _batches(records: dict[Ring, list[Record]]) -> int:
    """Returns the number of batches of proofs, one after the other: at least one, for the gates."""
    return max([1, *(len(_cut(found)) for found in records.values())])


def _cut(records: list[Record]) -> list[range]:
    """Splits the records of a ring into parts of at most ``BATCH_ELEMENTS`` of values and factors, or of one record."""
    parts, start, size = list[range](), 0, 0
    for number, record in enumerate(records):
        factors = [f for o in record.origins for f in (o.left, o.right) if f is not None]
        more = record.z_sh.size + sum(factor.size for factor in factors)
        if number > start and size + more > BATCH_ELEMENTS:
            parts.append(range(start, number))
            start, size = number, 0
        size += more
    return [*parts, range(start, len(records))]


def _flags_of(record: Record) -> int:
    """Returns the number of ``records.flags`` of a record."""
    return 2 + 2 * len(record.origins)


def load_kernels() -> None:
    """Loads the kernels of proofs, and compiles them where they were not compiled before: then it takes seconds.

    Raises ConfigurationError where this process may not run compiled code.
    """
    import protocols.kernels  # noqa: F401


def _one_thread_a_product() -> None:
    """Limits matrix products to one thread from now on, in this process.

    Proofs have many small ones; where three servers share a host, several threads each wait for one another and take
    seven times as long. A limit for the time of a proof alone would be undone in the wrong order where two overlap.
    """
    _libraries().limit(limits=1, user_api="blas")


@cache
def _libraries() -> "ThreadpoolController":
    """Returns this process's libraries of matrix products: looking for them takes milliseconds."""
    # Servers have it, and a data owner's installation does not.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _by(
    prover: int, proof: Callable[[Context], Awaitable[None]]
) -> Callable[[Context], Awaitable[None]]:
    """Returns ``proof`` in a context where ``prover`` has role 0."""

    async def run(ctx: Context) -> None:
        role = ctx.child(rotate=prover)
        await proof(role)
        ctx.depth = role.depth

    return run
