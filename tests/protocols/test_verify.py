"""A party that deviates is found out before anything is opened; who does not deviate is not, and nothing is shown."""

from collections.abc import Awaitable, Callable
from functools import partial

import numpy as np
import pytest

from protocols import base, boolean, costs, verify, verify_rings
from protocols.blocks import in_blocks
from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.inner_proof import CHALLENGE_BITS, LEFT, PROVER, Conversation, challenges, uniform
from protocols.keystream import Keystream
from protocols.mersenne import F61, F127, F255, F383, Field
from protocols.records import Record, Side, Structure
from protocols.ring import BITS, R16, R32, R64, R128, Ring
from protocols.shares import Additive, Reshaped, Scaled, Share, joined, product
from protocols.verify import BATCH_ELEMENTS, ProductVerifier
from protocols.verify_bits import Gates
from protocols.verify_rings import SCHEMES, RingProducts
from tests.protocols.deviating import deviate, flip, flip_last
from tests.protocols.local import components, reconstruct, run_parties, share_of
from tests.protocols.test_privacy import RUNS, find_leak

Program = Callable[[Context], Awaitable[Share]]


def verified(program: Program) -> Callable[[Context], Awaitable[object]]:
    """The program's value, opened in malicious mode."""

    async def run(ctx: Context) -> object:
        ctx.verifier = ProductVerifier()
        return await base.open_value(ctx, await program(ctx), "value")

    return run


def words(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, np.uint64)


X, Y = (components(BITS, words(12, seed).reshape(4, 3)) for seed in (1, 2))


async def carries(ctx: Context) -> Share:
    return await boolean.carry_out(ctx, share_of(ctx, X, BITS), share_of(ctx, Y, BITS))


async def majority(ctx: Context) -> Share:
    """Products and other terms, side by side in one message."""
    x_bsh, y_bsh = share_of(ctx, X, BITS), share_of(ctx, Y, BITS)
    both = joined(product(ctx, x_bsh, y_bsh), product(ctx, y_bsh[:1], x_bsh[1:2]))
    return await base.reshare(ctx, both + both_plain(ctx, x_bsh, y_bsh))


def both_plain(ctx: Context, x_bsh: Share, y_bsh: Share) -> Additive:
    return joined(x_bsh.additive(ctx), y_bsh[:1].additive(ctx))


COUNTS = {ring: components(ring, np.arange(-3, 9) * 1001) for ring in (R16, R32, R64, R128)}
STARTS = np.array([0, 1, 5])


async def squares(ctx: Context, ring: Ring) -> Share:
    x_sh = share_of(ctx, COUNTS[ring], ring)
    return await base.multiply(ctx, x_sh, x_sh)


async def sums(ctx: Context, ring: Ring) -> Share:
    """Sums by group and along axes, of products that were scaled, broadcast, reshaped and placed; and a plain term."""
    x_sh = share_of(ctx, COUNTS[ring], ring)
    grouped = product(ctx, x_sh, x_sh.times(3)).grouped(STARTS).padded(1, 5)
    table = product(ctx, x_sh[:5].reshape(5, 1), x_sh[:4].reshape(1, 4))
    outer = table._mapped(Reshaped((5, 2, 2))).sum().sum()._mapped(Scaled(-2))
    return await base.reshare(ctx, grouped + outer + x_sh[:5].additive(ctx))


PROGRAMS: dict[str, Program] = {
    "carries": carries,
    "majority": majority,
    **{f"squares-{r.bits}": partial(squares, ring=r) for r in COUNTS},
    **{f"sums-{r.bits}": partial(sums, ring=r) for r in COUNTS},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_settle_lets_an_honest_value_be_opened(name: str) -> None:
    plain = reconstruct(run_parties(PROGRAMS[name]).results)
    for rotate in range(3):
        outcome = run_parties(verified(PROGRAMS[name]), rotate=rotate)
        assert all(np.array_equal(value, plain) for value in outcome.results)


@pytest.mark.parametrize("count", [1, 63, 2048, 2049, 70_000])
def test_settle_passes_at_any_number_of_gates(count: int) -> None:
    parts = components(BITS, words(count, 3))

    async def program(ctx: Context) -> Share:
        x_bsh = share_of(ctx, parts, BITS)
        return await base.multiply(ctx, x_bsh, x_bsh[::-1])

    opened = run_parties(verified(program)).results[0]
    x = parts[0] ^ parts[1] ^ parts[2]
    assert np.array_equal(opened, x & x[::-1])


def messages_of(program: Program, pid: int) -> int:
    """Number of messages that a party sends before those of the opening, which are two."""
    outcome = run_parties(verified(program))
    return sum(message.sender == pid for message in outcome.mesh.sent) - 2


@pytest.mark.parametrize("pid", [0, 1, 2])
@pytest.mark.parametrize("name", ["carries", "majority", "squares-16", "sums-32", "sums-64"])
def test_every_changed_message_ends_the_run_before_an_opening(name: str, pid: int) -> None:
    """Products, challenges, matrices, last words: the first bit and the last byte of each."""
    for number in range(messages_of(PROGRAMS[name], pid)):
        for change in (flip, flip_last):
            seen = deviate(verified(PROGRAMS[name]), pid, number, change)
            assert any(isinstance(error, CheckFailed) for error in seen.errors), (number, change)
            assert seen.opened == [0, 0], (number, change)


def test_a_changed_product_is_opened_where_nothing_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: without the check the same deviation changes the opened value, and nobody notices."""

    async def trusting(self: ProductVerifier, ctx: Context) -> None:
        return None

    honest = run_parties(verified(carries)).results[0]
    monkeypatch.setattr(verify.ProductVerifier, "settle", trusting)
    seen = deviate(verified(carries), 0, 0, flip)
    assert seen.errors == []
    assert not np.array_equal(seen.results[0], honest)


def test_a_single_wrong_gate_among_many_is_found() -> None:
    """One bit of 4.5 million: the proof has no error that grows with the number of gates."""
    parts = components(BITS, words(70_000, 3))

    async def program(ctx: Context) -> Share:
        x_bsh = share_of(ctx, parts, BITS)
        return await base.multiply(ctx, x_bsh, x_bsh[::-1])

    seen = deviate(verified(program), 1, 0, flip_last)
    assert any(isinstance(error, CheckFailed) for error in seen.errors)
    assert seen.opened == [0, 0]


def test_two_wrong_gates_do_not_make_up_for_one_another() -> None:
    def two(payload: np.ndarray) -> np.ndarray:
        payload[0] ^= 3
        return payload

    seen = deviate(verified(carries), 2, 0, two)
    assert any(isinstance(error, CheckFailed) for error in seen.errors)


@pytest.mark.parametrize("ring", COUNTS, ids=lambda ring: ring.name)
def test_two_wrong_products_do_not_make_up_for_one_another(ring: Ring) -> None:
    """One more here and one less there: only coefficients that nobody could foresee tell them from right ones."""

    def moved(payload: np.ndarray) -> np.ndarray:
        sent = ring.from_wire(payload, (12,))
        difference = ring.encode(np.array([1, -1] + [0] * 10))
        return ring.to_wire(ring.add(sent, difference)).copy()

    seen = deviate(verified(partial(squares, ring=ring)), 1, 0, moved)
    assert any(isinstance(error, CheckFailed) for error in seen.errors)
    assert seen.opened == [0, 0]


def test_a_carry_out_of_range_is_refused() -> None:
    """Carries are numbers of so many bits; with more of them a false sum could be made to hold modulo the prime."""
    program = PROGRAMS["squares-32"]
    said = [
        str(error)
        for number in range(messages_of(program, 1))
        for error in deviate(verified(program), 1, number, flip_last).errors
    ]
    assert any("a number out of range" in words for words in said)


def test_a_place_is_one_values_alone() -> None:
    """Of two values at one place only the second would be proved."""
    x_sh = Share(R32, 0, *(R32.zeros((1,)) for _ in range(2)))
    verifier = ProductVerifier()
    verifier.reshared(b"here", (), x_sh, x_sh)
    with pytest.raises(ValueError, match="one place"):
        verifier.reshared(b"here", (), x_sh, x_sh)


# What everybody knows to be zero is left out of proofs.


async def of_free_sharings(ctx: Context) -> Share:
    """x0 x1 of party 0 alone, in a message of its own; then a product that the two others have to prove, too."""
    parts = [np.arange(5, dtype=np.uint32) + c for c in range(3)]
    x0, x1, _ = (
        base.known(ctx, R32, c, parts[c] if c in (ctx.pid, ctx.next_pid) else None, (5,))
        for c in range(3)
    )
    both = await base.reshare_from(ctx, product(ctx, x0, x1), 0)
    return await base.multiply(ctx, both, x1)


async def several(ctx: Context) -> Share:
    """Values of two rings and of bits, one after the other, of which each is made of the one before."""
    x_sh, y_sh = share_of(ctx, COUNTS[R16], R16), share_of(ctx, COUNTS[R32], R32)
    for _ in range(3):
        x_sh, y_sh = await base.multiply(ctx, x_sh, x_sh), await base.multiply(ctx, y_sh, y_sh)
        x_sh = await of_ring(ctx, x_sh)
    await carries(ctx)
    return y_sh


async def of_ring(ctx: Context, x_sh: Share) -> Share:
    both = product(ctx, x_sh, x_sh.times(3)) + x_sh.additive(ctx)
    return await base.reshare(ctx, both)


def test_settle_proves_what_is_much_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value at a time here; and what is wrong in a later part is found, too."""
    monkeypatch.setattr(verify, "BATCH_ELEMENTS", 1)
    gathered: list[int] = []
    gather = Context.gather

    async def counting(self: Context, *steps: Callable[[Context], Awaitable[object]]) -> object:
        gathered.append(len(steps))
        return await gather(self, *steps)

    monkeypatch.setattr(Context, "gather", counting)
    opened = run_parties(verified(several)).results[0]
    x = np.arange(-3, 9) * 1001
    assert np.array_equal(opened, R32.encode(x**8))
    # Three provers, each of gates and two rings, of two rings, and of what is left of one; at three parties.
    assert sorted(gathered, reverse=True) == [9] * 3 + [6] * 6 + [3] * 9
    for number in range(12):
        seen = deviate(verified(several), 1, number, flip)
        assert any(isinstance(error, CheckFailed) for error in seen.errors), number
        assert seen.opened == [0, 0], number


def test_settle_asks_a_party_only_for_what_it_has_to_prove(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[tuple[int, int]]] = []
    init = verify.RingProducts.__init__

    def counting(self: RingProducts, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        seen.append([(self.elements, sum(t.size for t in self._all_terms()))])

    monkeypatch.setattr(verify.RingProducts, "__init__", counting)
    opened = run_parties(verified(of_free_sharings)).results[0]
    assert opened.tolist() == [x * (x + 1) ** 2 for x in range(5)]
    # Party 0 proves both values, the others the second one, without terms: x1 has component 1 alone, x0 x1 has 0 and 1.
    assert seen == 3 * [[(10, 10)], [(5, 0)], [(5, 0)]]


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_every_changed_message_of_products_of_free_sharings_ends_the_run(pid: int) -> None:
    for number in range(messages_of(of_free_sharings, pid)):
        seen = deviate(verified(of_free_sharings), pid, number, flip)
        assert any(isinstance(error, CheckFailed) for error in seen.errors), number
        assert seen.opened == [0, 0], number


def test_a_party_that_calls_something_zero_that_is_not_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of three parties that all leave out a component, all agree; of one, the other holder of it does not."""
    original = verify.flags
    turns = iter(range(1000))

    def lying(records: list[Record], side: Side) -> np.ndarray:
        found = original(records, side)
        return np.zeros_like(found) if next(turns) == 0 else found

    monkeypatch.setattr(verify, "flags", lying)
    with pytest.raises(CheckFailed, match="other products"):
        run_parties(verified(partial(squares, ring=R32)))


def test_nothing_is_opened_after_a_check_that_failed() -> None:
    async def stubborn(ctx: Context) -> object:
        try:
            return await verified(carries)(ctx)
        except CheckFailed:
            return await base.open_value(ctx, base.random(ctx, BITS, (1,)), "value")

    seen = deviate(stubborn, 0, 0, flip)
    assert seen.opened == [0, 0]
    assert any("after a check that failed" in str(error) for error in seen.errors)


def test_what_comes_in_while_a_check_runs_waits_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A product and a masked value made beside a check are in no word of it, and may not be forgotten with it."""
    begin, late, beside = ProductVerifier._begin, list[int](), dict[ProductVerifier, Context]()

    async def meanwhile(self: ProductVerifier, *arguments: object) -> object:
        said = await begin(self, *arguments)  # type: ignore[arg-type]
        if ctx := beside.pop(self, None):
            await squares(ctx, R32)
            await base.open_masked(ctx, base.random(ctx, R32, (1,)))
            late.append(ctx.pid)
        return said

    async def program(ctx: Context) -> object:
        ctx.verifier = verifier = ProductVerifier()
        beside[verifier] = ctx.child()
        opened = await base.open_value(ctx, await squares(ctx, R32), "value")
        assert repr(verifier) == "ProductVerifier(1 values, 1 shown)"
        await verifier.settle(ctx)
        assert repr(verifier) == "ProductVerifier(0 values, 0 shown)"
        return opened

    monkeypatch.setattr(ProductVerifier, "_begin", meanwhile)
    squared = R32.encode((np.arange(-3, 9) * 1001) ** 2)
    assert np.array_equal(run_parties(program).results[0], squared)
    assert sorted(late) == [0, 1, 2]


def test_settle_refuses_sums_of_products_of_bits() -> None:
    async def program(ctx: Context) -> Share:
        x_bsh = share_of(ctx, X, BITS)
        return await base.inner_product(ctx, x_bsh, x_bsh)

    with pytest.raises(ValueError, match="one product"):
        run_parties(verified(program))


def test_blocks_are_proved_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than four blocks' products wait for a proof; the last ones wait for the opening."""
    waiting: list[str] = []
    settle = ProductVerifier.settle

    async def watched(self: ProductVerifier, ctx: Context) -> None:
        waiting.append(repr(self))
        await settle(self, ctx)

    monkeypatch.setattr(ProductVerifier, "settle", watched)

    async def block(ctx: Context, size: int) -> Share:
        x_sh = base.known(ctx, R32, 0, np.arange(size, dtype=np.uint32), (size,))
        return await base.multiply(ctx, x_sh, x_sh)

    opened = run_parties(verified(lambda c: in_blocks(c, 45, 10, block))).results[0]
    assert opened.tolist() == [*[x * x for x in range(10)] * 4, *[x * x for x in range(5)]]
    assert waiting == [
        *["ProductVerifier(4 values, 0 shown)"] * 3,
        *["ProductVerifier(1 values, 0 shown)"] * 3,
    ]


# What is shown of masked values.


async def shown(ctx: Context) -> object:
    ctx.verifier = ProductVerifier()
    mask = base.random(ctx, BITS, (5,))
    first = await base.open_masked(ctx, mask ^ share_of(ctx, X, BITS).reshape(-1)[:5])
    await base.open_value(ctx, base.random(ctx, BITS, (1,)), "value")
    return first


def test_open_masked_shows_all_the_same() -> None:
    first, second, third = run_parties(shown).results
    assert np.array_equal(first, second)
    assert np.array_equal(first, third)


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_a_masked_value_that_was_shown_wrong_ends_the_run(pid: int) -> None:
    seen = deviate(shown, pid, 0, flip)
    assert any("showed" in str(error) for error in seen.errors)
    assert seen.opened == [0, 0]


def test_open_masked_is_for_a_context_with_a_verifier() -> None:
    async def program(ctx: Context) -> object:
        return await base.open_masked(ctx, base.random(ctx, BITS, (1,)))

    with pytest.raises(ValueError, match="compare"):
        run_parties(program)


# Privacy, and costs.


def proof_messages(party: int, variant: int) -> np.ndarray:
    """The words that a party receives of proofs: matrices, challenges and the last element, without their top bits.

    An element is below 2^61, so that a word's last three bits are zeros.
    """

    async def program(ctx: Context) -> None:
        x_bsh, y_bsh = (share_of(ctx, parts, BITS) for parts in (X, Y))
        ctx.verifier = ProductVerifier()
        await base.multiply(ctx, x_bsh, y_bsh)
        await ctx.verifier.settle(ctx)

    received = run_parties(program, variant=variant, known_to=party).received(party)
    # The first message is the product's; outlines are of 96, 64 and 32 bytes, and their digests are public.
    picked = [m for m in received[1:] if len(m) % 16 == 0 and len(m) not in (32, 64, 96)]
    picked += [m for m in received[1:] if len(m) % 8 == 0 and len(m) % 16]
    return np.frombuffer(b"".join(picked), np.uint64)


@pytest.mark.parametrize("runs", [RUNS, pytest.param(4 * RUNS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("party", [0, 1, 2])
def test_view_of_proofs_is_uniform(party: int, runs: int) -> None:
    rows = np.array([proof_messages(party, variant) for variant in range(runs)])
    bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
    assert find_leak(bits[:, np.arange(bits.shape[1]) % 64 < F61.exponent]) is None


def test_view_of_proofs_without_masks_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the prover's matrices as they are. The proof still holds."""
    monkeypatch.setattr(
        "protocols.inner_proof.Conversation.shared_mask",
        lambda self, field, count: np.zeros(count, object),
    )
    rows = np.array([proof_messages(1, variant) for variant in range(RUNS)])
    bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
    assert find_leak(bits[:, np.arange(bits.shape[1]) % 64 < F61.exponent])


@pytest.mark.parametrize("field", [F61, F127, F255, F383])
def test_challenges_are_short_in_large_fields_and_of_the_field_in_others(field: Field) -> None:
    def stream() -> Keystream:
        return Keystream(bytes(16), b"test")

    drawn, other = stream(), stream()
    found = challenges(drawn, field, 500)
    if field in (F61, F127):
        assert np.array_equal(found, uniform(other, field, 500))
    else:
        raw = other.read(500 * 16).tobytes()
        wanted = [int.from_bytes(raw[16 * i :][:16], "little") >> 3 for i in range(500)]
        assert found.tolist() == wanted
        assert CHALLENGE_BITS - 5 < max(found).bit_length() <= CHALLENGE_BITS
    assert np.array_equal(drawn.read(8), other.read(8))


@pytest.mark.parametrize("rejects", ["both", "the prover alone"])
def test_proofs_hold_where_words_of_a_mask_are_rejected(
    monkeypatch: pytest.MonkeyPatch, rejects: str
) -> None:
    """The prover and left draw a mask from one stream: the control is a prover that has other words rejected."""
    with_left, met = Conversation.with_left, list[int]()

    def crafted(self: Conversation, ring: Ring, shape: tuple[int, ...]) -> np.ndarray:
        drawn = with_left(self, ring, shape)
        if ring is R64 and drawn.shape == (shape[0], F61.words) and shape[0] > 2:
            met.append(self.ctx.pid)
            if rejects == "both" or self.ctx.pid == PROVER:
                drawn[[0, 2, -1]] |= F61.modulus
        return drawn

    monkeypatch.setattr(Conversation, "with_left", crafted)
    if rejects == "both":
        run_parties(verified(carries))
    else:
        with pytest.raises(CheckFailed):
            run_parties(verified(carries))
    assert {PROVER, LEFT} == set(met)


def quotients_shown(variant: int) -> np.ndarray:
    """Part of q that party 1 receives of the proof of party 0's products in Z_2^32, an element a product."""

    async def program(ctx: Context) -> None:
        ctx.verifier = ProductVerifier()
        await squares(ctx, R32)
        await ctx.verifier.settle(ctx)

    received = run_parties(program, variant=variant, known_to=1).received(1)
    # The first message is the product's, of the same size.
    (found,) = (message for message in received[1:] if len(message) == 4 * 12)
    return np.frombuffer(found, np.uint8)


def test_view_of_quotients_is_uniform() -> None:
    rows = np.array([quotients_shown(variant) for variant in range(60)])
    assert find_leak(np.unpackbits(rows, axis=1, bitorder="little")) is None


@pytest.mark.parametrize("count", [1, 100, 2048, 5000])
def test_settle_costs_what_its_formula_says(count: int) -> None:
    async def program(ctx: Context) -> int:
        ctx.verifier = ProductVerifier()
        x_bsh = base.random(ctx, BITS, (count,))
        await base.multiply(ctx, x_bsh, x_bsh)
        before = ctx.depth
        await ctx.verifier.settle(ctx)
        return ctx.depth - before

    outcome = run_parties(program)
    cost = costs.settle(costs.verify_gates(count))
    assert outcome.results == [cost.rounds] * 3
    assert outcome.sent_bytes == [sent + 8 * count for sent in cost.sent]


@pytest.mark.parametrize("ring", COUNTS, ids=lambda ring: ring.name)
@pytest.mark.parametrize("count", [1, 200, 3000])
def test_settle_of_ring_products_costs_what_its_formula_says(ring: Ring, count: int) -> None:
    async def program(ctx: Context) -> int:
        ctx.verifier = ProductVerifier()
        x_sh = base.random(ctx, ring, (count,))
        await base.multiply(ctx, x_sh, x_sh)
        before = ctx.depth
        await ctx.verifier.settle(ctx)
        return ctx.depth - before

    outcome = run_parties(program)
    cost = costs.settle(costs.verify_rings(ring, count, 2 * count), flags=4)
    assert outcome.results == [cost.rounds] * 3
    assert outcome.sent_bytes == [sent + ring.itemsize * count for sent in cost.sent]


def test_gates_show_nothing() -> None:
    assert repr(Gates([])) == "Gates(0 words)"
    assert repr(ProductVerifier()) == "ProductVerifier(0 values, 0 shown)"


@pytest.mark.parametrize("ring", [R32, R64])
def test_a_claim_that_could_reach_the_prime_is_refused(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are compared modulo the prime: at 2^K W above it a false one could be equal, and nobody would see it."""
    scheme = SCHEMES[ring]
    # The largest number of terms whose W, in its bits, keeps all sums below the prime.
    room = scheme.field.exponent - 1 - scheme.bits - scheme.carry_bits(0)
    assert 1 << room > 2 * BATCH_ELEMENTS, "a batch of proofs has to fit"
    for terms, fits in ((1 << room - 1, True), (1 << room, False)):
        with monkeypatch.context() as patch:
            patch.setattr(verify_rings, "padded_terms", lambda ring, count, terms=terms: terms)
            nobody = np.zeros(0, np.bool_)
            no_values = Structure.of([], nobody, nobody)
            if fits:
                RingProducts(ring, [], no_values)
            else:
                with pytest.raises(ValueError, match="too many for one proof"):
                    RingProducts(ring, [], no_values)
