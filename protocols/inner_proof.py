"""A party proves to the two others an inner product of what each of them knows: nothing is revealed, little is sent.

In the role context of a proof, role 0 is the prover and knows the vectors u and v; role 2 (left) knows u, and role 1
(right) v; u and v are vectors of a field. Proved is <u, v> = l + r for an l that left and an r that right knows. Each
step cuts the vectors into blocks; the prover shares the matrix of inner products of blocks between left and right, but
for its corner, which the claim itself decides; a challenge, which left and right draw from a key that the prover does
not have, combines rows, columns and blocks. In the end one product of two masked elements is left.

Secret: everything but the challenges, which the prover and right get to know. Leaks: none. Soundness: a false claim
passes a step with probability at most 2 / p; README section 7 derives it. Source: Boneh, Boyle, Corrigan-Gibbs, Gilboa,
Ishai (CRYPTO 2019), section 5; Boyle et al. (CCS 2019) for three parties. The whole matrix of inner products in place
of a polynomial's values, and challenges of two independent vectors, are own.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.keystream import Keystream
from protocols.mersenne import Field, Integers, Vector
from protocols.ring import R64

PROVER, RIGHT, LEFT = 0, 1, 2
# The components whose keys two of them have: prover and left, prover and right, right and left.
WITH_LEFT, WITH_RIGHT, CHALLENGES = 0, 1, 2

_SEED_WORDS = 2
_DIGEST_BYTES = 32
_EXPANDED = b"syncret-challenge"


def blocks_of(field: Field) -> int:
    """Into how many blocks a step cuts: what is sent grows with the square, the number of steps with the logarithm."""
    return 32 if field.words <= 2 else 8


def last_size(field: Field) -> int:
    """From this length down one step is the last one, with an element to a block."""
    return 2 * blocks_of(field)


@dataclass(slots=True, eq=False)
class Conversation:
    """One proof's role context, and the challenges so far: what left and the prover compare in the end."""

    ctx: Context
    _seeds: list[bytes] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Conversation(role={self.ctx.pid})"

    async def tell(self, payload: NDArray[np.uint8] | None, size: int) -> NDArray[np.uint8] | None:
        """``size`` bytes of the prover to right; None at the others. One round."""
        ctx = self.ctx
        if ctx.pid == PROVER:
            if payload is None or payload.size != size:
                raise ValueError("a prover's message has its size")
            await ctx.round({RIGHT: payload}, {})
            return None
        received = await ctx.round({}, {PROVER: size} if ctx.pid == RIGHT else {})
        return received.get(PROVER)

    async def challenge(self) -> Keystream:
        """A stream that left and right draw, and right shows to the prover, whose message has come. One round."""
        ctx = self.ctx
        if ctx.pid == PROVER:
            seed = (await ctx.round({}, {RIGHT: 8 * _SEED_WORDS}))[RIGHT].tobytes()
        else:
            drawn = R64.to_wire(ctx.common(CHALLENGES, R64, (_SEED_WORDS,)))
            await ctx.round({PROVER: drawn} if ctx.pid == RIGHT else {}, {})
            seed = drawn.tobytes()
        self._seeds.append(seed)
        return Keystream(seed, _EXPANDED)

    def shared_mask(self, field: Field, count: int) -> Integers:
        """Left's parts of ``count`` elements, which the prover draws alike. At these two alone."""
        words = self.ctx.common(WITH_LEFT, R64, (count, field.words))
        return field.uniform(words)

    async def same_challenges(self) -> None:
        """Left hears from the prover which challenges right has shown it, and ends where they are others. One round."""
        digest = hashlib.sha256(b"".join(self._seeds)).digest()
        if self.ctx.pid == PROVER:
            await self.ctx.round({LEFT: np.frombuffer(digest, np.uint8)}, {})
            return
        expected = {PROVER: _DIGEST_BYTES} if self.ctx.pid == LEFT else {}
        received = await self.ctx.round({}, expected)
        if received and not hmac.compare_digest(received[PROVER].tobytes(), digest):
            raise CheckFailed(f"the challenges of a proof differ in step {self.ctx.cost.step!r}")


def uniform(stream: Keystream, field: Field, count: int) -> Integers:
    """The stream's next ``count`` elements of the field (count,)."""
    raw = stream.read(8 * field.words * count)
    return field.uniform(raw.view(np.uint64).reshape(count, field.words))


async def fold_claim(
    talk: Conversation, field: Field, gram: Integers | None, blocks: int, *, summed: int, claim: int
) -> tuple[Integers, Integers, int]:
    """One step: the claim that ``summed`` blocks' own products add up to it becomes one about combined blocks.

    Shapes: gram (blocks, blocks) at the prover, None at the others; ``claim`` is left's and right's part, and
        whatever else at the prover. Returns the factors of left's and of right's blocks, and the part of the new claim.
    Leaks: none; right receives the matrix masked with left's keystream.
    Rounds: 2.
    Communication: blocks^2 - 1 elements by the prover, a seed by right.
    Raises: ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    count = blocks * blocks - 1
    payload, part = None, np.zeros(0, object)
    if talk.ctx.pid != RIGHT:
        part = talk.shared_mask(field, count)
    if gram is not None:
        payload = field.to_wire((gram.reshape(-1)[1:] - part) % field.modulus)
    received = await talk.tell(payload, 8 * field.words * count)
    stream = await talk.challenge()
    alpha, beta = uniform(stream, field, blocks), uniform(stream, field, blocks)
    if talk.ctx.pid == PROVER:
        return alpha, beta, claim
    if received is not None:
        part = field.from_wire(received)
    table = np.concatenate((np.zeros(1, object), part)).reshape(blocks, blocks)
    # The corner is what the claim leaves for it; were it sent, its sum with the others had to be checked.
    table[0, 0] = claim - sum(int(table[i, i]) for i in range(1, summed))
    return alpha, beta, int(alpha @ table @ beta) % field.modulus


async def prove_inner_product(
    talk: Conversation,
    field: Field,
    left: Vector | None,
    right: Vector | None,
    claim: int,
    *,
    count: int,
) -> None:
    """<left, right> = the sum of left's and right's ``claim``, modulo the field's prime.

    Shapes: (count, limbs); ``left`` is None at right and ``right`` at left.
    Leaks: none. The element that left shows right in the end is masked by one that only the prover and left know.
    Rounds: 2 for each factor of ``blocks_of`` in count, and 4.
    Communication: ``costs.inner_proof``: some 8 KB a step by the prover, a few bytes by the others.
    Raises: CheckFailed where it does not hold; ChannelError, ProtocolViolation.
    Source: README section 7.
    """
    blocks = blocks_of(field)
    while count > last_size(field):
        padded = -(-count // blocks) * blocks
        left, right = (_padded(vector, padded) for vector in (left, right))
        gram = None if left is None or right is None else field.gram(left, right, blocks)
        alpha, beta, claim = await fold_claim(talk, field, gram, blocks, summed=blocks, claim=claim)
        del gram
        left = None if left is None else field.fold(alpha, left)
        right = None if right is None else field.fold(beta, right)
        count = padded // blocks
    await _last_step(talk, field, left, right, claim, count)


async def _last_step(
    talk: Conversation,
    field: Field,
    left: Vector | None,
    right: Vector | None,
    claim: int,
    count: int,
) -> None:
    """An element more on either side, random and not part of the claim, hides what left shows to right."""
    left = _with_mask(talk, field, left, WITH_LEFT)
    right = _with_mask(talk, field, right, WITH_RIGHT)
    gram = None if left is None or right is None else field.gram(left, right, count + 1)
    alpha, beta, claim = await fold_claim(talk, field, gram, count + 1, summed=count, claim=claim)
    await talk.same_challenges()
    await _compare(
        talk,
        field,
        None if left is None else field.to_ints(field.fold(alpha, left)),
        None if right is None else field.to_ints(field.fold(beta, right)),
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
        if (other * right[0] - rest - claim) % field.modulus:
            raise CheckFailed(
                f"the proof of what was multiplied before step {ctx.cost.step!r} does not hold"
            )


def _padded(vector: Vector | None, count: int) -> Vector | None:
    if vector is None or vector.shape[0] == count:
        return vector
    return np.pad(vector, ((0, count - vector.shape[0]), (0, 0)))


def _with_mask(
    talk: Conversation, field: Field, vector: Vector | None, component: int
) -> Vector | None:
    if vector is None:
        return None
    words = talk.ctx.common(component, R64, (1, field.words))
    mask = field.from_ints(field.uniform(words))
    wide = np.zeros((vector.shape[0] + 1, field.limbs), np.uint16)
    wide[:-1, : vector.shape[1]] = vector
    wide[-1] = mask
    return wide
