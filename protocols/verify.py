"""Active security with abort: what was multiplied is recorded, and proved before anything is opened.

``ProductVerifier`` is the ``Verifier`` of a context in malicious mode. It keeps what every value was made of, and
``settle`` has each party prove to the two others that all it sent was right: ANDs (``verify_bits``), products in rings
(``verify_rings``); and has the masked values compared that were shown on the way. An opening settles first, so that
nothing is opened that rests on something unproved. A party that deviates in one of its messages is found out but with
probability 2^-40 (README section 7).

Secret: what is recorded. Leaks: none. Known limit: one verifier serves steps that come one after the other.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import numpy as np

from protocols.context import Context, Payload
from protocols.errors import CheckFailed
from protocols.records import Record
from protocols.ring import BITS, Ring
from protocols.shares import Origins, Share
from protocols.verify_bits import Gates, prove_gates
from protocols.verify_rings import RingProducts, prove_ring_products

_DIGEST_BYTES = 32
_FINE = np.ones(1, np.uint8)


class ProductVerifier:
    """What one party has to prove, and to see proved, before the next opening. See the module's description."""

    __slots__ = ("_failed", "_records", "_shown")

    def __init__(self) -> None:
        self._records: dict[Ring, dict[bytes, Record]] = {}
        self._shown: dict[bytes, tuple[Payload, Payload]] = {}
        self._failed = False

    def __repr__(self) -> str:
        values = sum(len(records) for records in self._records.values())
        return f"ProductVerifier({values} values, {len(self._shown)} shown)"

    def reshared(self, place: bytes, origins: Origins, masks_sh: Share, z_sh: Share) -> None:
        """See ``context.Verifier``."""
        records = self._records.setdefault(z_sh.ring, {})
        if place in records:
            raise ValueError("two values were sent from one place")
        records[place] = Record(origins, masks_sh, z_sh)

    def shown(self, place: bytes, held: Payload, received: Payload) -> None:
        """See ``context.Verifier``."""
        self._shown[place] = held, received

    async def settle(self, ctx: Context) -> None:
        """Have everything proved that was recorded since the last time.

        Leaks: none.
        Rounds: some 12, 2 more for each factor of 32 in what there is to prove.
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
        # Until all three have said that they found everything right, nothing else may be opened.
        self._failed = True
        inner = ctx.child()
        await self._begin(inner)
        proofs = self._proofs()
        self._records, self._shown = {}, {}
        await inner.gather(*proofs)
        del proofs
        await self._end(inner)
        ctx.depth = max(ctx.depth, inner.depth)
        self._failed = False

    async def _begin(self, ctx: Context) -> None:
        """All have received what is to be checked, it is the same, and what was shown is what its holders have.

        No challenge is told before: right awaits left's word here, so that what left was sent is fixed by then.
        """
        same = np.frombuffer(self._outline(), np.uint8)
        held, received = (self._digest_of_shown(which) for which in (0, 1))
        before = np.concatenate((same, np.frombuffer(held, np.uint8)))
        answers = await ctx.round(
            {ctx.prev_pid: before, ctx.next_pid: same},
            {ctx.next_pid: 2 * _DIGEST_BYTES, ctx.prev_pid: _DIGEST_BYTES},
        )
        for peer in (ctx.next_pid, ctx.prev_pid):
            if answers[peer][:_DIGEST_BYTES].tobytes() != same.tobytes():
                raise CheckFailed(
                    f"parties {ctx.pid} and {peer} have other products to check before step {ctx.cost.step!r}"
                )
        if not hmac.compare_digest(answers[ctx.next_pid][_DIGEST_BYTES:].tobytes(), received):
            raise CheckFailed(
                f"what party {ctx.prev_pid} showed of a masked value before step {ctx.cost.step!r}"
                f" is not what party {ctx.next_pid} has"
            )

    async def _end(self, ctx: Context) -> None:
        """All three have found everything right. Who has not says nothing, and the others open nothing."""
        peers = ctx.next_pid, ctx.prev_pid
        answers = await ctx.round(dict.fromkeys(peers, _FINE), dict.fromkeys(peers, _FINE.size))
        for peer in peers:
            if answers[peer].tobytes() != _FINE.tobytes():
                raise CheckFailed(f"party {peer} did not find right what was multiplied")

    def _outline(self) -> bytes:
        """A digest of what there is to check: places, rings and sizes."""
        digest = hashlib.sha256()
        for ring in sorted(self._records, key=lambda ring: ring.name):
            for place in sorted(self._records[ring]):
                size = self._records[ring][place].z_sh.size
                digest.update(f"{ring.name} {size} ".encode() + place)
        for place in sorted(self._shown):
            digest.update(f"shown {self._shown[place][0].size} ".encode() + place)
        return digest.digest()

    def _digest_of_shown(self, which: int) -> bytes:
        digest = hashlib.sha256()
        for place in sorted(self._shown):
            digest.update(self._shown[place][which].data)
        return digest.digest()

    def _proofs(self) -> Sequence[Callable[[Context], Awaitable[None]]]:
        """Each party's proofs of each kind, all side by side."""
        proofs = []
        for ring in sorted(self._records, key=lambda ring: ring.name):
            records = [self._records[ring][place] for place in sorted(self._records[ring])]
            proof = (
                partial(prove_gates, gates=Gates(records))
                if ring is BITS
                else partial(prove_ring_products, products=RingProducts(ring, records))
            )
            proofs += [_by(prover, proof) for prover in range(3)]
        return proofs


def _by(
    prover: int, proof: Callable[[Context], Awaitable[None]]
) -> Callable[[Context], Awaitable[None]]:
    """``proof`` in a context where ``prover`` has role 0."""

    async def run(ctx: Context) -> None:
        role = ctx.child(rotate=prover)
        await proof(role)
        ctx.depth = role.depth

    return run
