"""Counting rows in malicious mode: one-hots' products and their sums are proved, and one wrong element is found."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from protocols import base, costs, proof_sizes, rows, verify_tables
from protocols import row_plan as row_plan_module
from protocols.context import Context
from protocols.doubled import FACTORS, SCALES
from protocols.errors import CheckFailed
from protocols.galois import (
    DEGREE,
    KERNELS,
    NUMPY,
    Elements,
    add_multiple,
    fold,
    multiplier,
    row_products,
    times,
    weighted_sums,
)
from protocols.products import NumpyProducts
from protocols.proof_sizes import Told, count_checks, tables_of
from protocols.records import Record
from protocols.ring import BITS, R16, R32, Ring
from protocols.row_plan import CountPlan, plan_counting
from protocols.shares import Additive, Entries, Share, Table, joined, outer_product
from protocols.steps import COUNT_FACTORS, proofs_of
from protocols.verify import ProductVerifier
from protocols.verify_tables import Operand, RowTables, stars
from tests.protocols.deviating import deviate, flip
from tests.protocols.local import components, run_parties, share_of
from tests.protocols.test_compiled_products import unaligned
from tests.protocols.test_privacy import RUNS, find_leak

# Columns whose digits do not fill them, one of one category, and a query of a single column.
PLAN = plan_counting((3, 6, 1, 40, 11), ((0, 1), (1, 2, 3), (0, 3), (3, 4), (4,)))
PRODUCTS = NumpyProducts(1)
ROWS = 150


def bits_of_rows(plan: CountPlan) -> np.ndarray:
    words = np.random.default_rng(5).integers(0, 1 << 64, (plan.layout.bits, 3), np.uint64)
    words[0, 0] |= np.uint64(0xFFFF)
    return words


PARTS = components(BITS, bits_of_rows(PLAN))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a word, two of them proved at once, and tables from the fewest entries on."""
    monkeypatch.setattr(row_plan_module, "_MAX_BLOCK_ROWS", 64)
    monkeypatch.setattr(row_plan_module, "PROVED_AT_ONCE", 2)
    monkeypatch.setattr(row_plan_module, "_TABLE_ENTRIES", 2)


async def count(ctx: Context, *, verifier: bool = True) -> object:
    if verifier:
        ctx.verifier = ProductVerifier()
    rows_bsh = share_of(ctx, PARTS, BITS)
    counts = await rows.count_rows(ctx, rows_bsh, ROWS, PLAN, products=PRODUCTS)
    return await base.open_value(ctx, counts, "counts")


def test_counts_are_proved_and_what_they_are_without_a_verifier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In blocks of rows, some of which are proved before others are begun."""
    plain = run_parties(partial(count, verifier=False)).results[0]
    assert plain.sum() > 0
    seen: list[RowTables] = []
    init = RowTables.__init__

    def noting(self: RowTables, *arguments: object) -> None:
        init(self, *arguments)  # type: ignore[arg-type]
        seen.append(self)

    monkeypatch.setattr(RowTables, "__init__", noting)
    for value in run_parties(count).results:
        assert np.array_equal(value, plain)
    assert sorted(tables.rows for tables in seen) == [22, 22, 22, 128, 128, 128]
    assert all(tables.by_row and tables.doubled for tables in seen)
    assert repr(seen[0]) == f"RowTables({seen[0].rows} rows, {seen[0].terms} products a row)"


def test_counts_are_proved_in_whatever_roles() -> None:
    """Parties add up different multiples of their components' products, by role."""
    plain = run_parties(partial(count, verifier=False)).results[0]
    for rotate in (1, 2):
        assert np.array_equal(run_parties(count, rotate=rotate).results[0], plain)


def test_count_checks_are_the_proofs_of_tables_that_counting_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As an auditor sees them, who has sizes alone: of blocks of rows one after the other, then of lifted counts."""
    monkeypatch.setattr(rows, "LIFT_CELLS", 128)
    monkeypatch.setattr(proof_sizes, "LIFT_CELLS", 128)
    sent = [m for m in run_parties(count).mesh.sent if m.step == proofs_of(COUNT_FACTORS.name)]
    wanted = count_checks(PLAN, ROWS)
    assert [tables.rows for tables in wanted] == [128, 22, 0]
    for pid in range(3):
        checks: list[list[list[int]]] = []
        for peer in (pid - 1, pid + 1):
            sizes = [len(m.payload) for m in sent if (m.sender, m.receiver) == (pid, peer % 3)]
            ends = [number for number, size in enumerate(sizes, start=1) if size == 1]
            checks.append([sizes[a:b] for a, b in zip([0, *ends], ends, strict=False)])
        assert [tables_of(Told(*told)) for told in zip(*checks, strict=True)] == wanted


# One element that is wrong, in what one party sends and keeps.


def is_table(term: Additive) -> bool:
    return any(isinstance(origin, Table) for origin in term.origins or ())


def is_sums(term: Additive) -> bool:
    return any(isinstance(o, Table) and o.doubled for o in term.origins or ())


def is_by_row(term: Additive) -> bool:
    return is_table(term) and not is_sums(term)


def is_lift(term: Additive) -> bool:
    return term.ring is R32


def is_bit(term: Additive) -> bool:
    return term.ring is R16 and not is_table(term)


@pytest.mark.parametrize("changed", [1, 0x8000])
@pytest.mark.parametrize("which", [is_by_row, is_sums, is_lift, is_bit])
def test_one_wrong_element_is_found_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch, which: Callable[[Additive], bool], changed: int
) -> None:
    """A unit, and the top bit, in the first, the last and some elements between, of any of the three parties."""
    masked = Additive.masked
    for place in (0.0, 0.3, 0.999):
        turns = iter(range(10_000))
        party = int(10 * place) % 3

        def adding(
            self: Additive,
            mask: np.ndarray,
            place: float = place,
            turns: Iterator[int] = turns,
            party: int = party,
        ) -> np.ndarray:
            own = masked(self, mask)
            if which(self) and next(turns) == party:
                at = int(place * own.size)
                own.reshape(-1)[at : at + 1] += own.dtype.type(changed)
            return own

        monkeypatch.setattr(Additive, "masked", adding)
        with pytest.raises(CheckFailed):
            run_parties(count)


def test_one_wrong_element_is_not_found_without_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: it is tables' proof that finds it."""

    async def nothing(ctx: Context, tables: RowTables) -> None:
        return None

    masked, turns = Additive.masked, iter(range(10_000))

    def adding(self: Additive, mask: np.ndarray) -> np.ndarray:
        own = masked(self, mask)
        if is_by_row(self) and next(turns) == 0:
            own[-1, -1:] += np.uint16(1)
        return own

    monkeypatch.setattr(Additive, "masked", adding)
    monkeypatch.setattr("protocols.verify.prove_tables", nothing)
    run_parties(count)


def messages(pid: int) -> list[int]:
    """The numbers of some of a party's messages, the proofs' among them."""
    sent = [m for m in run_parties(count).mesh.sent if m.sender == pid]
    sums = [n for n, m in enumerate(sent) if len(m.payload) == 2 * PLAN.row_cells]
    assert sums
    last = len(sent) - 2
    return sorted({*sums, *range(pid, last, 41), last - 1})


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_a_changed_message_of_counting_ends_the_run_before_an_opening(pid: int) -> None:
    for number in messages(pid):
        seen = deviate(count, pid, number, flip)
        assert any(isinstance(error, CheckFailed) for error in seen.errors), number
        assert seen.opened == [0, 0], number


# A table by itself.

A, B, N = 3, 4, 11


async def table_of(ctx: Context, seed: int = 1, *, rows: int = N) -> tuple[Share, Share]:
    """A table of random numbers, which are no one-hots, and twice its sums over rows."""
    generator = np.random.default_rng(seed)
    x_sh, y_sh = (
        share_of(ctx, components(R16, generator.integers(0, 1 << 16, (size, rows)), size), R16)
        for size in (A, B)
    )
    entries = Entries(1, 0), Entries(2, 0)
    term = joined(outer_product(ctx, x_sh, y_sh).of_table(entries, 0))
    z_sh = await base.reshare(ctx, term)
    own, next_ = (np.uint16(factor % (1 << 16)) for factor in FACTORS[ctx.pid])
    mixed = [(s.own * own + s.next * next_).view(np.int16).astype(np.int64) for s in (x_sh, y_sh)]
    sums = (mixed[0] @ mixed[1].T).astype(np.uint16).reshape(-1) * np.uint16(
        SCALES[ctx.pid] % (1 << 16)
    )
    origin = Table(x_sh, y_sh, (), entries, size=A * B, doubled=True)
    known = None if ctx.verifier is None else (origin,)
    return z_sh, await base.reshare(ctx, Additive(R16, sums, known))


@pytest.mark.parametrize("rows", [1, 2, N])
def test_prove_tables_costs_what_its_formula_says(rows: int) -> None:
    async def program(ctx: Context) -> int:
        ctx.verifier = ProductVerifier()
        await table_of(ctx, rows=rows)
        before = ctx.depth
        await ctx.verifier.settle(ctx)
        return ctx.depth - before

    outcome = run_parties(program)
    cost = costs.settle() + costs.verify_tables(rows, 2)
    assert outcome.results == [cost.rounds] * 3
    sent = 2 * A * B * (rows + 1)
    assert outcome.sent_bytes == [proof + sent for proof in cost.sent]


def test_count_proofs_is_about_what_the_proofs_of_counting_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_plan_module, "PROVED_AT_ONCE", 10)

    parties = run_parties(count).parties
    steps = (step for party in parties for step in party.costs.steps)
    sent = sum(step.sent_bytes for step in steps if step.step.endswith(".verify")) / 3
    with costs.with_verifier():
        expected = sum(costs.count_proofs(PLAN, ROWS).sent) / 3
    assert sent == pytest.approx(expected, rel=0.1)


def view_of_proof(party: int, variant: int) -> np.ndarray:
    """Messages of a proof that a party receives, without public ones and the bytes of multiplied values."""

    async def program(ctx: Context) -> None:
        ctx.verifier = ProductVerifier()
        await table_of(ctx)
        await ctx.verifier.settle(ctx)

    received = run_parties(program, variant=variant, known_to=party).received(party)
    # Two products, the word at the beginning; then coins, which are known at the end, and the digest of them.
    picked = [m for m in received[2:] if len(m) % (2 * DEGREE) == 0]
    assert len(picked) == 6
    return np.frombuffer(b"".join(picked), np.uint8)


@pytest.mark.parametrize("runs", [RUNS, pytest.param(4 * RUNS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("party", [0, 1, 2])
def test_view_of_tables_proofs_is_uniform(party: int, runs: int) -> None:
    views = np.array([view_of_proof(party, variant) for variant in range(runs)])
    # The last element is left's part of the claim, which the others decide.
    bits = np.unpackbits(views[:, : -2 * DEGREE], axis=1, bitorder="little")
    assert find_leak(bits) is None


@pytest.mark.parametrize("masked", ["claims", "rows"])
def test_view_of_tables_proofs_without_masks_is_rejected(
    monkeypatch: pytest.MonkeyPatch, masked: str
) -> None:
    """The control: without the keystream on what is shared, or the row of random entries. The proof still holds."""
    common = Context.common

    def without(self: Context, component: int, ring: Ring, shape: tuple[int, ...]) -> np.ndarray:
        drawn = common(self, component, ring, shape)
        is_claim = self.cost.step.endswith("verify") and shape[-1:] == (DEGREE,)
        is_row = self.cost.step.endswith("verify") and shape[:1] == (DEGREE,)
        return 0 * drawn if (is_claim if masked == "claims" else is_row) else drawn

    monkeypatch.setattr(Context, "common", without)
    views = np.array([view_of_proof(1, variant) for variant in range(RUNS)])
    assert find_leak(np.unpackbits(views[:, : -2 * DEGREE], axis=1, bitorder="little"))


def test_a_party_that_shows_another_coin_is_found_before_anything_is_shown() -> None:
    """Of coins, which are 16 bytes: what is folded with them would show something of what they are folded with."""

    async def program(ctx: Context) -> object:
        ctx.verifier = ProductVerifier()
        z_sh, _ = await table_of(ctx)
        return await base.open_value(ctx, z_sh, "products")

    sent = [m for m in run_parties(program).mesh.sent if m.sender == 1]
    coins = [number for number, message in enumerate(sent) if len(message.payload) == 16]
    assert len(coins) == 6
    for number in coins:
        seen = deviate(program, 1, number, flip)
        assert any("coins" in str(error) for error in seen.errors)
        assert seen.opened == [0, 0]


def test_tables_of_the_same_one_hots_have_weights_of_their_own() -> None:
    """Two queries of the same factors: an error of one may not be hidden by the opposite one of the other."""
    x_sh = Share(R16, 0, R16.zeros((2, 5)), R16.zeros((2, 5)))
    entries = Entries(1, 0), Entries(2, 0)
    tables = tuple(
        Table(x_sh, x_sh, (), entries, start=start, size=8, doubled=True) for start in (0, 4)
    )
    value = Share(R16, 0, R16.zeros((8,)), R16.zeros((8,)))
    found = RowTables([Record(tables, value, value)])
    assert len(found.doubled) == 2
    assert {star.centre.copy for star in found.doubled} == {0, 1}


@pytest.mark.parametrize(
    ("node", "first", "size"), [(2, 0, B), (2, 1, 2), (1, 0, A)], ids=["same", "part", "square"]
)
def test_two_products_of_one_weight_are_refused(node: int, first: int, size: int) -> None:
    """In values of their own, too, and where parts of one-hots overlap: errors of 1 and -1 would add up to none."""
    x_sh, y_sh, more_sh = (
        Share(R16, 0, *(R16.zeros((n, N)) for _ in range(2))) for n in (A, B, size)
    )
    tables = (
        Table(x_sh, y_sh, (), (Entries(1, 0), Entries(2, 0)), size=A * B),
        Table(x_sh, more_sh, (), (Entries(1, 0), Entries(node, first)), size=A * size),
    )
    records = []
    for table in tables:
        value = Share(R16, 0, *(R16.zeros((table.size, N)) for _ in range(2)))
        records.append(Record((table,), value, value))
    RowTables(records[:1])
    with pytest.raises(ValueError, match="one weight"):
        RowTables(records)


def test_errors_of_products_of_one_weight_would_make_up_for_one_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: some entries' products sent twice, and what a party adds to the one it takes from the other."""
    parts = [components(R16, np.arange(size * N).reshape(size, N), size) for size in (A, B)]
    places, masked = {A * B: (1, 1), 2 * A: (0, -1)}, Additive.masked

    def adding(self: Additive, mask: np.ndarray) -> np.ndarray:
        own = masked(self, mask)
        if self.known_origins()[0].left.pid == 0:
            row, number = places[len(own)]
            own[row, :1] += np.uint16(number % (1 << 16))
        return own

    async def twice(ctx: Context) -> None:
        ctx.verifier = ProductVerifier()
        x_sh, y_sh = (share_of(ctx, part, R16) for part in parts)
        for first, some in ((0, y_sh), (1, y_sh[1:3])):
            term = outer_product(ctx, x_sh, some).of_table((Entries(1, 0), Entries(2, first)), 0)
            await base.reshare(ctx, joined(term))
        await ctx.verifier.settle(ctx)

    with pytest.raises(ValueError, match="one weight"):
        run_parties(twice)
    monkeypatch.setattr(RowTables, "_take", lambda *_: None)
    run_parties(twice)
    monkeypatch.setattr(Additive, "masked", adding)
    run_parties(twice)
    places[2 * A] = 0, 1
    with pytest.raises(CheckFailed):
        run_parties(twice)


def test_stars_have_every_pair_once() -> None:
    generator = np.random.default_rng(3)
    operands = [Operand(int(n), 0, 0, 2) for n in range(12)]
    pairs = {(operands[a], operands[b]) for a, b in generator.integers(0, 12, (30, 2)) if a <= b}
    found = [(star.centre, other) for star in stars(pairs) for other in star.others]
    assert len(found) == len(pairs)
    assert {tuple(sorted(pair)) for pair in found} == {tuple(sorted(pair)) for pair in pairs}
    assert len(stars(pairs)) < len(pairs)


# The Galois ring.


def plain_product(x: Elements, y: Elements) -> list[int]:
    """The control, in Python integers, from the definition."""
    found = [0] * (2 * DEGREE)
    for i, a in enumerate(x.tolist()):
        for j, b in enumerate(y.tolist()):
            found[i + j] += a * b
    for power in range(2 * DEGREE - 1, DEGREE - 1, -1):
        found[power - DEGREE] -= found[power]
        found[power - DEGREE + 5] -= found[power]
    return [value % (1 << 16) for value in found[:DEGREE]]


def elements(*shape: int, seed: int = 9) -> Elements:
    return np.random.default_rng(seed).integers(0, 1 << 16, shape).astype(np.uint16)


KERNEL = pytest.mark.parametrize("kernel", KERNELS)


@KERNEL
def test_products_of_elements_are_those_of_polynomials(kernel: str) -> None:
    x, y = elements(2, DEGREE, 5), elements(2, DEGREE, 7)[..., 2:]
    expected = [
        [
            (a + b) % (1 << 16)
            for a, b in zip(*(plain_product(x[k, :, r], y[k, :, r]) for k in range(2)), strict=True)
        ]
        for r in range(5)
    ]
    assert row_products(x, y, kernel=kernel).T.tolist() == expected
    assert times(x[0, :, 0], y[0])[:, 1].tolist() == plain_product(x[0, :, 0], y[0, :, 1])
    matrix = multiplier(x[0].T)
    assert matrix.shape == (5, DEGREE, DEGREE)
    assert np.array_equal(matrix[3], multiplier(x[0, :, 3]))


@KERNEL
def test_fold_adds_the_second_half_times_a_factor(kernel: str) -> None:
    x, factor = elements(3, DEGREE, 5), (elements(DEGREE) & np.uint16(1))
    found = fold(factor, x, kernel=kernel)
    assert found.shape == (3, DEGREE, 3)
    assert np.array_equal(found[..., 2], x[..., 2])
    for term in range(3):
        product = times(factor, x[term, :, 3:])
        assert product[:, 1].tolist() == plain_product(factor, x[term, :, 4])
        assert np.array_equal(found[term, :, :2], x[term, :, :2] + product)


@KERNEL
@pytest.mark.parametrize("largest", [1, 2, (1 << 16) - 1])
def test_weighted_sums_are_those_of_integers(kernel: str, largest: int) -> None:
    """Of weights that single precision would do for, too, and of so many numbers that it would not."""
    for numbers, count in ((0, 3), (1, 1), (7, 33), (16, 32), (17, 65), (600, 40)):
        weights, x = elements(DEGREE, numbers), elements(numbers, count, seed=3)
        # Weights of 0 and 1, of 1 and 2, and any.
        weights = weights % np.uint16(2) + np.uint16(largest - 1) if largest < 3 else weights
        expected = weights.astype(np.int64) @ x.astype(np.int64) % (1 << 16)
        assert np.array_equal(weighted_sums(weights, x, kernel=kernel), expected)


# Around a chunk of 32 rows, and around the 64 and 1,024 of matrices.
ROW_COUNTS = (0, 1, 2, 31, 32, 33, 63, 64, 65, 1024, 1027)


@pytest.mark.parametrize("kernel", KERNELS[:-1])
@pytest.mark.parametrize("kind", ["random", "largest"])
def test_compiled_loops_are_those_of_numpy(kernel: str, kind: str) -> None:
    """To the bit, for arrays with gaps between their rows, which are left as they are."""
    for terms, number in itertools.product((0, 1, 3), ROW_COUNTS):
        wide = elements(terms, DEGREE + 2, 2, number + 5, seed=terms)
        if kind == "largest":
            wide[...] = 0x8000
        x, y = (wide[:, 1:-1, half, 3 : number + 3] for half in range(2))
        assert np.array_equal(row_products(x, y, kernel=kernel), row_products(x, y, kernel=NUMPY))
        factor = elements(DEGREE, seed=number) & np.uint16(1)
        around, before = elements(terms, DEGREE, number + 2), elements(terms, DEGREE, number + 2)
        expected = before[..., 1 : number + 1].copy()
        add_multiple(around[..., 1 : number + 1], factor, x, kernel=kernel)
        add_multiple(expected, factor, x, kernel=NUMPY)
        before[..., 1 : number + 1] = expected
        assert np.array_equal(around, before)
        weights, numbers = elements(DEGREE, terms), wide[:, 0, 0, 2 : number + 2]
        for some in (numbers, R16.blank(numbers.shape), numbers[:, ::-1], unaligned(numbers)):
            assert np.array_equal(
                weighted_sums(weights, some, kernel=kernel),
                weighted_sums(weights, some, kernel=NUMPY),
            )


@pytest.mark.parametrize("kernel", KERNELS[:-1])
def test_compiled_loops_refuse_what_they_are_not_for(kernel: str) -> None:
    x, sums = elements(2, DEGREE, 4), elements(DEGREE, 4)
    for wrong in (x[:, 1:], x[:1], x[..., 1:], x[..., ::2]):
        with pytest.raises(ValueError, match=r"expected|gaps"):
            row_products(x, wrong, kernel=kernel)
    with pytest.raises(ValueError, match="other than 0 and 1"):
        add_multiple(x, np.full(DEGREE, 2, np.uint16), x.copy(), kernel=kernel)
    with pytest.raises(ValueError, match="expected"):
        add_multiple(x, np.zeros(DEGREE - 1, np.uint16), x.copy(), kernel=kernel)
    with pytest.raises(ValueError, match="expected"):
        weighted_sums(elements(DEGREE, 3), elements(4, 2), kernel=kernel)
    from protocols import _galois as compiled

    with pytest.raises(TypeError, match="axes"):
        compiled.multiply(x, x, sums.astype(np.int16), kernel)
    with pytest.raises(TypeError, match="axes"):
        compiled.multiply(sums, sums, sums, kernel)
    with pytest.raises(ValueError, match="VARIANTS"):
        compiled.multiply(x, x, sums, "another")
    sums.flags.writeable = False
    with pytest.raises((BufferError, ValueError), match=r"not writ|read-only"):
        compiled.multiply(x, x, sums, kernel)


def test_the_modulus_is_irreducible_modulo_2() -> None:
    """Its degree is a prime: no root in the field of two elements, and x to the power of 2^47 is x."""
    modulus, power = (1 << 47) | (1 << 5) | 1, 2
    for _ in range(DEGREE):
        square = 0
        for bit in range(DEGREE):
            if power >> bit & 1:
                square ^= power << bit
        for bit in range(2 * DEGREE, DEGREE - 1, -1):
            if square >> bit & 1:
                square ^= modulus << (bit - DEGREE)
        power = square
    assert power == 2
    assert modulus & 1
    assert modulus.bit_count() % 2


def test_blocks_are_proved_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than two blocks of 64 rows wait for a proof."""
    waiting: list[int] = []
    prove = verify_tables.prove_tables

    async def noting(ctx: Context, tables: RowTables) -> None:
        waiting.append(tables.rows)
        await asyncio.sleep(0)
        await prove(ctx, tables)

    monkeypatch.setattr("protocols.verify.prove_tables", noting)
    run_parties(count)
    assert waiting == [128, 128, 128, 22, 22, 22]
