"""Proof to the two other parties of an inner product of two vectors, of which each of them knows one.

In the role context of a proof, role 0 is the prover and knows the vectors u and v; role 2 (left) knows u, and role 1
(right) v; u and v are vectors of a field. Proved is <u, v> = l + r for an l that left and an r that right knows. Each
step cuts the vectors into blocks. The prover shares the matrix of inner products of blocks between left and right,
except its corner, which follows from the claim. A challenge, which left and right draw from a key that the prover does
not have, combines rows, columns and blocks. In the end one product of two masked elements is left.

Secret: everything but the challenges, which the prover and right get to know. Leaks: none. Soundness: a false claim
passes a step with probability at most 2 / p, or 2^-124 in fields of more bits; README section 7 derives it. Source:
Boneh, Boyle, Corrigan-Gibbs, Gilboa, Ishai (CRYPTO 2019), section 5; Boyle et al. (CCS 2019) for three parties. The
whole matrix of inner products in place of a polynomial's values, and challenges of two independent vectors, are own.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.keystream import Keystream
from protocols.mersenne import Field, Integers, Vector, ints_of
from protocols.ring import R64, Ring, RingArray

PROVER, RIGHT, LEFT = 0, 1, 2
# Components whose keys two of them have: prover and left, prover and right, right and left.
WITH_LEFT, WITH_RIGHT, CHALLENGES = 0, 1, 2

CHALLENGE_BITS = 125
"""Bits of a challenge in a field of more than so many."""
_CHALLENGE_WORDS = 2
_SEED_WORDS = 2
_DIGEST_BYTES = 32
_EXPANDED = b"syncret-challenge"


def blocks_of(field: Field) -> int:
    """Returns the number of blocks in a step: bytes grow with its square, the number of steps with the logarithm."""
    return 16 if field.words <= 2 else 8


def last_size(field: Field) -> int:
    """Returns the length from which down one step is the last one, with an element to a block."""
    return blocks_of(field) * 3 // 2


@dataclass(slots=True, eq=False)
class Conversation:
    """Role context of one proof, and the challenges so far, which left and the prover compare in the end."""

    ctx: Context
    _seeds: list[bytes] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Conversation(role={self.ctx.pid})"

    async def tell(self, payload: NDArray[np.uint8] | None, size: int) -> NDArray[np.uint8] | None:
        """Sends ``size`` bytes of the prover to right, which returns them; None at the others. One round."""
        ctx = self.ctx
        if ctx.pid == PROVER:
            if payload is None or payload.size != size:
                raise ValueError("a prover's message has its size")
            await ctx.round({RIGHT: payload}, {})
            return None
        received = await ctx.round({}, {PROVER: size} if ctx.pid == RIGHT else {})
        return received.get(PROVER)

    async def challenge(self) -> Keystream:
        """Returns a stream that left and right draw; right shows it to the prover, whose message is in. One round."""
        ctx = self.ctx
        if ctx.pid == PROVER:
            seed = (await ctx.round({}, {RIGHT: 8 * _SEED_WORDS}))[RIGHT].tobytes()
        else:
            drawn = R64.to_wire(ctx.common(CHALLENGES, R64, (_SEED_WORDS,)))
            await ctx.round({PROVER: drawn} if ctx.pid == RIGHT else {}, {})
            seed = drawn.tobytes()
        self._seeds.append(seed)
        return Keystream(seed, _EXPANDED)

    def with_left(self, ring: Ring, shape: tuple[int, ...]) -> RingArray:
        """Draws elements that the prover and left share and right does not know. At these two alone."""
        return self.ctx.common(WITH_LEFT, ring, shape)

    def shared_mask(self, field: Field, count: int) -> Integers:
        """Draws left's parts of ``count`` elements, the same at the prover. At these two alone."""
        return field.uniform(lambda n: self.with_left(R64, (n, field.words)), count)

    async def same_challenges(self) -> None:
        """Sends left the prover's digest of the challenges; left ends where it has seen others. One round."""
        digest = hashlib.sha256(b"".join(self._seeds)).digest()
        if self.ctx.pid == PROVER:
            await self.ctx.round({LEFT: np.frombuffer(digest, np.uint8)}, {})
            return
        expected = {PROVER: _DIGEST_BYTES} if self.ctx.pid == LEFT else {}
        received = await self.ctx.round({}, expected)
        if received and not hmac.compare_digest(received[PROVER].tobytes(), digest):
            prover, right = self.ctx.party(PROVER), self.ctx.party(RIGHT)
            raise CheckFailed(
                f"party {self.ctx.party(LEFT)} finds in step {self.ctx.cost.step!r} that party {prover} was not shown"
                f" the challenges of party {right}, or says so: one of these two deviates"
            )


def uniform(stream: Keystream, field: Field, count: int) -> Integers:
    """Returns the stream's next ``count`` elements of the field (count,)."""

    def read(n: int) -> Vector:
        return stream.read(8 * field.words * n).view(np.uint64).reshape(n, field.words)

    return field.uniform(read, count)


def challenges(stream: Keystream, field: Field, count: int) -> Integers:
    """Returns the stream's next ``count`` challenges (count,): of the field, or of 125 bits where it is a larger one.

    Eight of those, each times a number of 128 bits, add up to four words.
    """
    if field.words <= _CHALLENGE_WORDS:
        return uniform(stream, field, count)
    words = stream.read(8 * _CHALLENGE_WORDS * count).view(np.uint64)
    found = ints_of(words.reshape(count, _CHALLENGE_WORDS))
    return np.asarray(found >> 64 * _CHALLENGE_WORDS - CHALLENGE_BITS)


async def fold_claim(
    talk: Conversation,
    field: Field,
    gram: Integers | None,
    blocks: int,
    *,
    summed: int,
    claims: Sequence[int],
    drawn: Callable[[Keystream, Field, int], Integers] = challenges,
) -> tuple[Integers, Integers, int]:
    """Runs one step: claims about the sum of ``summed`` blocks' own products become one claim about combined blocks.

    Shapes: g claims about g left vectors and one right one: gram (g blocks, blocks) at the prover, None at the others;
        ``claims`` are left's and right's parts, of any value at the prover. ``drawn`` makes the factors from the
        challenge. Returns the factors of left's and of right's blocks, (g blocks,) and (blocks,), and the part of the
        new claim.
    Leaks: none; right receives the matrix masked with left's keystream.
    Rounds: 2.
    Communication: g (blocks^2 - 1) elements by the prover, a seed by right.
    Raises: ChannelError, ProtocolViolation.
    Source: README section 7, An inner product, steps 1 and 2.
    """
    each = blocks * blocks - 1
    count = len(claims) * each
    payload, part = None, np.zeros(0, object)
    if talk.ctx.pid != RIGHT:
        part = talk.shared_mask(field, count)
    if gram is not None:
        sent = gram.reshape(len(claims), -1)[:, 1:].reshape(-1)
        payload = field.to_wire((sent - part) % field.modulus)
    received = await talk.tell(payload, 8 * field.words * count)
    stream = await talk.challenge()
    alpha = drawn(stream, field, len(claims) * blocks)
    beta = drawn(stream, field, blocks)
    if talk.ctx.pid == PROVER:
        return alpha, beta, 0
    if received is not None:
        part = field.from_wire(received)
    corners = np.zeros((len(claims), 1), object)
    tables = np.hstack((corners, part.reshape(-1, each))).reshape(-1, blocks, blocks)
    # G_00 = claim - the rest of the summed diagonal, in parts of left and right. Were G_00 sent, the sum of the
    # diagonal would have to be checked.
    for table, claim in zip(tables, claims, strict=True):
        table[0, 0] = claim - sum(int(table[i, i]) for i in range(1, summed))
    # This party's part of the new claim <u', v'> = alpha^T G beta.
    return alpha, beta, int(alpha @ tables.reshape(-1, blocks) @ beta) % field.modulus


async def prove_inner_products(
    talk: Conversation,
    field: Field,
    left: Sequence[Vector] | None,
    right: Sequence[Vector] | None,
    claims: Sequence[int],
    *,
    counts: Sequence[int],
    first_grams: Sequence[Integers] = (),
) -> None:
    """Proves <left_j, right> = left's + right's ``claims[j]`` for each of g left vectors, modulo the prime.

    Shapes: vectors come in parts, of fewer words where they need no more: (g counts[i], words) of left, one vector's
        after the other's, and (counts[i], words) of right. ``left`` is None at right and ``right`` at left. A prover
        may have the first parts' inner products of blocks.
    Leaks: none. The element that left shows right in the end is masked by one that only the prover and left know.
    Rounds: 2 for each factor of ``blocks_of`` in the counts' sum, and 4.
    Communication: ``costs.inner_proof``: some 8 KB a step by the prover, a few bytes by the others.
    Raises: CheckFailed where the equation does not hold; ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    g, blocks = len(claims), blocks_of(field)
    while sum(counts) > last_size(field):
        left, right = _padded(left, g, counts, blocks), _padded(right, 1, counts, blocks)
        gram = None
        if left is not None and right is not None:
            rest = list(zip(left, right, strict=True))[len(first_grams) :]
            gram = reduce(np.add, [*first_grams, *(field.gram(u, v, blocks) for u, v in rest)])
        alpha, beta, claim = await fold_claim(
            talk, field, gram, blocks, summed=blocks, claims=claims
        )
        del gram
        # u' = sum of alpha_a u_a and v' = sum of beta_b v_b.
        left = None if left is None else [np.concatenate([field.fold(alpha, u) for u in left])]
        right = None if right is None else [np.concatenate([field.fold(beta, v) for v in right])]
        first_grams = ()
        g, claims, counts = 1, [claim], [sum(-(-count // blocks) for count in counts)]
    await _last_step(talk, field, left, right, claims, counts)


async def _last_step(
    talk: Conversation,
    field: Field,
    left: Sequence[Vector] | None,
    right: Sequence[Vector] | None,
    claims: Sequence[int],
    counts: Sequence[int],
) -> None:
    """Runs the last step; one more element on either side, random and no part of the claim, hides left's element."""
    count, g = sum(counts), len(claims)
    u = _with_mask(talk, field, left, g, WITH_LEFT)
    v = _with_mask(talk, field, right, 1, WITH_RIGHT)
    gram = None if u is None or v is None else field.gram(u, v, count + 1)
    alpha, beta, claim = await fold_claim(talk, field, gram, count + 1, summed=count, claims=claims)
    await talk.same_challenges()
    await _compare(
        talk,
        field,
        None if u is None else field.to_ints(field.fold(alpha, u)),
        None if v is None else field.to_ints(field.fold(beta, v)),
        claim,
    )


async def _compare(
    talk: Conversation, field: Field, left: Integers | None, right: Integers | None, claim: int
) -> None:
    ctx, size = talk.ctx, 16 * field.words
    if ctx.pid == LEFT and left is not None:
        shown = np.array([left[0], claim % field.modulus], object)
        await ctx.round({RIGHT: field.to_wire(shown)}, {})
        return
    received = await ctx.round({}, {LEFT: size} if ctx.pid == RIGHT else {})
    if ctx.pid == RIGHT and right is not None:
        other, rest = field.from_wire(received[LEFT])
        # u' v' = left's part + right's part of the claim, for one element each.
        if (other * right[0] - rest - claim) % field.modulus:
            raise CheckFailed(
                f"party {ctx.party(RIGHT)} finds in step {ctx.cost.step!r} that the proof of what party"
                f" {ctx.party(PROVER)} multiplied does not hold: it or party {ctx.party(LEFT)} deviates"
            )


def _padded(
    parts: Sequence[Vector] | None, g: int, counts: Sequence[int], blocks: int
) -> list[Vector] | None:
    """Returns each of g vectors' parts with zeros up to a multiple of ``blocks``."""
    if parts is None:
        return None
    padded = []
    for part, count in zip(parts, counts, strict=True):
        more = -count % blocks
        cut = part.reshape(g, count, part.shape[1])
        padded.append(np.pad(cut, ((0, 0), (0, more), (0, 0))) if more else cut)
    return [part.reshape(-1, part.shape[2]) for part in padded]


def _with_mask(
    talk: Conversation, field: Field, parts: Sequence[Vector] | None, g: int, component: int
) -> Vector | None:
    """Returns the parts of each of g vectors side by side, and one more element, random for the first vector."""
    if parts is None:
        return None
    mask = field.uniform(lambda n: talk.ctx.common(component, R64, (n, field.words)), 1)
    count = sum(part.shape[0] for part in parts) // g
    wide = np.zeros((g, count + 1, field.words), np.uint64)
    start = 0
    for part in parts:
        cut = part.reshape(g, -1, part.shape[1])
        wide[:, start : start + cut.shape[1], : cut.shape[2]] = cut
        start += cut.shape[1]
    wide[0, -1] = field.from_ints(mask)[0]
    return wide.reshape(-1, field.words)
