"""Cost formulas of every protocol: rounds, and payload bytes sent by each role.

All values here are public. Each function has the name of the protocol it describes. A test compares all formulas with
the counters of real runs, and an auditor can compare them with a transcript. ``+`` is one after the other, ``|`` side
by side.

In a context with a verifier some protocols have other forms: within ``with_verifier`` the formulas are of those forms,
without the proofs, which are a step of their own (``settle``).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import reduce

from protocols import bounded, count_bits
from protocols.absolute import block_cells
from protocols.bit_sums import QUAD
from protocols.bitslice import words_for
from protocols.blocks import PROVED_AT_ONCE
from protocols.boolean import levels
from protocols.box_muller import (
    BLOCK_PAIRS,
    COEFFICIENT_BITS,
    OCTANT_DEGREE,
    RADIUS_DEGREE,
    RUN_BITS,
    SAMPLE_BITS,
)
from protocols.derived import FEW_CELLS, LEAF, leaf_planes
from protocols.discrete import BLOCK_SAMPLES, Sampler
from protocols.galois import DEGREE
from protocols.gumbel import COIN_BITS, FINE_BITS, INDEX_BITS, TAIL_BITS, WORD_BITS
from protocols.inner_proof import blocks_of, last_size
from protocols.laplace import BLOCK_SAMPLES as LAPLACE_BLOCK
from protocols.laplace import LaplaceSampler
from protocols.mersenne import F61, Field
from protocols.ring import R16, R32, Ring
from protocols.row_layout import Recoding
from protocols.row_plan import LIFT_CELLS, SEGMENT_ROWS, CountPlan
from protocols.select_spec import ALL_PAIRS, FRACTION_BITS, GROUP
from protocols.verify_bits import blocks_for, folded_terms
from protocols.verify_rings import SCHEMES, padded_terms

_DIGEST = 32
_SCALED_BITS = SAMPLE_BITS + 6
"""Bits by which Box-Muller noise is cut: it is multiplied by sigma at 12 fractional bits, and counts have 6."""
# The form matters to the innermost formulas alone; all others would have to hand it down to them.
_VERIFIED = ContextVar("verified", default=False)


@contextmanager
def with_verifier(verified: bool = True) -> Iterator[None]:
    """Makes formulas within those of contexts with a verifier, or without one."""
    before = _VERIFIED.set(verified)
    try:
        yield
    finally:
        _VERIFIED.reset(before)


def is_verified() -> bool:
    """Returns True where formulas are those of contexts with a verifier."""
    return _VERIFIED.get()


@dataclass(frozen=True, slots=True)
class Cost:
    """Rounds, and bytes sent by roles 0, 1 and 2.

    ``gates``: words of 64 ANDs among the sent bytes, as they wait for their proof where there is a verifier.
    """

    rounds: int = 0
    sent: tuple[int, int, int] = (0, 0, 0)
    gates: int = field(default=0, compare=False)

    def _sum(self, other: "Cost") -> tuple[int, int, int]:
        (a, b, c), (x, y, z) = self.sent, other.sent
        return a + x, b + y, c + z

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.rounds + other.rounds, self._sum(other), gates=self.gates + other.gates)

    def __or__(self, other: "Cost") -> "Cost":
        return replace(self + other, rounds=max(self.rounds, other.rounds))

    def rotated(self, shift: int) -> "Cost":
        """Returns the cost by party when role r is played by party r + shift."""
        by_party = [self.sent[(party - shift) % 3] for party in range(3)]
        return replace(self, sent=(by_party[0], by_party[1], by_party[2]))


def _everyone(size: int) -> Cost:
    return Cost(1, (size, size, size))


def ands(size: int) -> Cost:
    """Cost of so many bytes of ANDs, reshared by all."""
    return Cost(1, (size, size, size), gates=size // 8)


def _dealt(dealer: int, size: int) -> Cost:
    return Cost(1, (size * (dealer == 0), size * (dealer == 1), size * (dealer == 2)))


def _planes(bits: int, cells: int) -> int:
    return bits * words_for(cells) * 8


def addends(cells: int, bits: int) -> Cost:
    """``derived.addends``."""
    if _VERIFIED.get():
        return carry_save(cells, bits - 1)
    return _dealt(0, _planes(bits, cells))


def _generate(cells: int, bits: int) -> Cost:
    """``derived.Addends.generate`` of so many planes."""
    return ands(_planes(bits - 1 if _VERIFIED.get() else bits, cells))


def _first_level(cells: int, bits: int) -> Cost:
    return addends(cells, bits) + _generate(cells, bits - 1)


def carry_out(cells: int, bits: int) -> Cost:
    """``boolean.carry_out`` of ``bits`` planes."""
    cost = Cost()
    while bits > 1:
        cost += ands(_planes(2 * (bits // 2) - 1, cells))
        bits -= bits // 2
    return cost


def add_carries(cells: int, bits: int) -> Cost:
    """``boolean.add_carries`` of ``bits`` planes."""
    cost = Cost()
    for level in range(levels(bits)):
        nodes = [i for i in range(bits) if i >> level & 1]
        again = [i for i in nodes if i >= 2 << level]
        cost += ands(_planes(len(nodes) + len(again), cells))
    return cost


def msb(cells: int, bits: int, leaf: int = LEAF) -> Cost:
    """``boolean.msb``, or ``top_of_sum`` by groups of so many planes."""
    if not _VERIFIED.get():
        groups, lowest = divmod(bits - 1, leaf)
        leaves = groups + (lowest > 0)
        inputs = _dealt(0, _planes((1 << lowest) + ((1 << leaf) - 1) * groups, cells))
        return inputs + ands(_planes(2 * leaves - 1, cells)) + carry_out(cells, leaves)
    return _first_level(cells, bits) + carry_out(cells, bits - 1)


def to_boolean(cells: int, bits: int) -> Cost:
    """``boolean.to_boolean``."""
    return _first_level(cells, bits) + add_carries(cells, bits - 1)


def and_all(cells: int, planes: int) -> Cost:
    """``boolean.and_all`` and ``or_all``."""
    cost = Cost()
    while planes > 1:
        cost += ands(_planes(planes // 2, cells))
        planes -= planes // 2
    return cost


def prefix_or(cells: int, planes: int) -> Cost:
    """``boolean.prefix_or``."""
    per_level = (sum(i >> level & 1 for i in range(planes)) for level in range(levels(planes)))
    return reduce(Cost.__add__, (ands(_planes(nodes, cells)) for nodes in per_level), Cost())


def bits_to_ring(elements: int, itemsize: int) -> Cost:
    """``boolean.bits_to_ring``."""
    return _dealt(0, elements * itemsize) + _everyone(elements * itemsize)


def weighted_bits(cells: int, bits: int, itemsize: int) -> Cost:
    """``derived.weighted_bits``."""
    return _dealt(0, bits * cells * itemsize) + _everyone(cells * itemsize)


def words_to_ring(cells: int, bits: int, itemsize: int) -> Cost:
    """``boolean.words_to_ring``."""
    if _VERIFIED.get():
        return weighted_bits(cells, bits, itemsize)
    planes = _planes(bits, cells)
    masks = _dealt(1, planes) | _dealt(1, cells * itemsize)
    last = bits_to_ring(cells, itemsize) | _dealt(1, 2 * planes)
    return masks + _everyone(planes) + add_carries(cells, bits) + last


def lift_magnitude(cells: int, bits: int, itemsize: int) -> Cost:
    """``boolean.lift_magnitude`` of ``bits`` bits."""
    size = cells * itemsize
    if not _VERIFIED.get():
        signs = msb(cells, bits, leaf_planes(cells, bits - 1))
        return signs + _dealt(0, 3 * size) + _everyone(size)
    return msb(cells, bits) + bits_to_ring(3 * cells, itemsize) + _everyone(size)


def truncation_pairs(elements: int, bits: int, shift: int) -> Cost:
    """``fixed.truncation_pairs`` in a ring of ``bits`` bits."""
    carries = carry_out(elements, shift) | carry_out(elements, bits - 1)
    size = elements * bits // 8
    return _first_level(elements, bits) + carries + _dealt(0, 5 * size) + _everyone(2 * size)


def truncate(elements: int, itemsize: int, shift: int) -> Cost:
    """``fixed.truncate`` and ``fixed.multiply_fixed``."""
    size = elements * itemsize
    if not _VERIFIED.get():
        return Cost(1, (size, size, 4 * size)) + _everyone(size)
    if shift == 0:
        return _everyone(size)
    made = truncation_pairs(elements, 8 * itemsize, shift)
    return (_everyone(size) | made) + _everyone(size)


def powers(elements: int, degree: int, itemsize: int, shift: int) -> Cost:
    """``fixed.powers``."""
    cost, have = Cost(), 1
    while have < degree:
        more = min(have, degree - have)
        cost += truncate(more * elements, itemsize, shift)
        have += more
    return cost


def grouped_absolute_error(
    sizes: Sequence[int], bits: int, fraction_bits: int = FRACTION_BITS
) -> Cost:
    """``absolute.grouped_absolute_error``."""
    cells, groups, blocks = sum(sizes), len(sizes), Cost()
    if _VERIFIED.get():
        made = bits_of_counts(sum(map(count_bits.whole_words, sizes)), bits - fraction_bits)
        return made + grouped_error_of_bits(sizes, bits, fraction_bits)
    block = block_cells(cells)
    for number, start in enumerate(range(0, cells, block)):
        size = min(block, cells - start)
        terms = msb(size, bits - fraction_bits) + _dealt(0, 2 * size * 4)
        blocks |= terms.rotated(number % 3)
    return blocks + _everyone(groups * 4)


def bits_of_counts(cells: int, bits: int) -> Cost:
    """``count_bits.count_bits``."""
    cost = Cost()
    for number, start in enumerate(range(0, max(1, cells), count_bits.BLOCK_CELLS)):
        size = min(count_bits.BLOCK_CELLS, cells - start)
        planes = _rippled(size, bits) if _VERIFIED.get() else to_boolean(size, bits)
        cost |= (planes + ands(_planes((bits - 1) // 2, size))).rotated(number % 3)
    return cost


def _rippled(cells: int, bits: int) -> Cost:
    return sum((ands(_planes(1, cells)) for _ in range(bits - 2)), addends(cells, bits))


def below(cells: int, bits: int) -> Cost:
    """``count_bits.below``."""
    return carry_out(cells, bits // 2)


def grouped_error_of_bits(sizes: Sequence[int], bits: int, fraction_bits: int) -> Cost:
    """``absolute.grouped_error_of_bits``."""
    cells, blocks = sum(map(count_bits.whole_words, sizes)), Cost()
    if _VERIFIED.get():
        return below(cells, bits - fraction_bits) + _by_trees(sizes, bits, fraction_bits)
    block = block_cells(cells)
    for number, start in enumerate(range(0, cells, block)):
        size = min(block, cells - start)
        terms = below(size, bits - fraction_bits) + _dealt(0, 2 * size * 4)
        blocks |= terms.rotated(number % 3)
    return blocks + _everyone(len(sizes) * 4)


def _by_trees(sizes: Sequence[int], bits: int, fraction_bits: int) -> Cost:
    """The signed sums of ``absolute.grouped_error_of_bits`` with a verifier."""
    words = [words_for(size) for size in sizes]
    quads = [-(-count // QUAD) for count in words]
    weighed = weighted(words) + to_pairs(quads, bits - 1)
    sums = total(len(sizes), 4, bits) + words_to_ring(len(sizes), bits, 4)
    return (to_pairs(words, bits - fraction_bits) | weighed) + sums


def to_pairs(columns: Sequence[int], bits: int) -> Cost:
    """``bit_sums.to_pairs`` of so many columns in each group."""
    cost, left = Cost(), list(columns)
    while threes := sum(count // 3 for count in left):
        cost += ands(8 * threes * (bits - 1))
        left = [count - count // 3 for count in left]
    return cost


def total(groups: int, columns: int, bits: int) -> Cost:
    """``bit_sums.total`` of so many columns in each group."""
    words = words_for(groups)
    tree = to_pairs([64 * columns] * words, bits)
    return tree + ands(8 * words * (bits - 1)) + add_carries(groups, bits - 1)


def weighted(columns: Sequence[int]) -> Cost:
    """``bit_sums.weighted`` of so many columns in each group."""
    quads = 8 * sum(-(-count // QUAD) for count in columns)
    return ands(6 * quads) + ands(5 * quads)


def in_range(cells: int) -> Cost:
    """``bounded.in_range``."""
    blocks = Cost()
    for number, start in enumerate(range(0, max(1, cells), bounded.BLOCK_CELLS)):
        size = words_for(min(bounded.BLOCK_CELLS, cells - start)) * 64
        blocks |= (msb(2 * size, 32) + and_all(size, 2)).rotated(number % 3)
    return blocks


def check_totals(owners: int, sums: int) -> Cost:
    """``bounded.check_totals`` of so many sums each."""
    within = in_range(owners)
    if sums == 1:
        return within
    cells = (sums - 1) * owners
    equal = addends(cells, 32) + and_all(cells, 32) + and_all(owners, sums - 1)
    return (within | equal) + ands(_planes(1, owners))


def check_cells(owners: int, cells: int) -> Cost:
    """``bounded.check_cells`` of so many cells each."""
    words = words_for(cells)
    return in_range(owners * words * 64) + and_all(64 * owners, words) + and_all(owners, 64)


def check_owners(owners: int, sums: int, cells: int) -> Cost:
    """``check_totals``, ``check_cells`` in parts unless there are 0 ``cells`` each, their AND, ``open_verdicts``."""
    cost = check_totals(owners, sums)
    if cells:
        parts = (check_cells(len(part), cells) for part in bounded.at_once(owners, cells))
        cost += sum(parts, Cost()) + ands(8 * owners)
    return cost + open_value(owners, 8)


def open_value(elements: int, itemsize: int) -> Cost:
    """``base.open_value``."""
    return _everyone(elements * itemsize + _DIGEST)


def fold_claim(blocks: int, words: int, claims: int = 1) -> Cost:
    """``inner_proof.fold_claim`` with elements of so many words: the prover's bytes, and right's."""
    matrices = claims * (blocks * blocks - 1)
    return Cost(1, (8 * words * matrices, 0, 0)) + Cost(1, (0, 16, 0))


def inner_proof(counts: Sequence[int], field: Field, claims: int = 1) -> Cost:
    """``inner_proof.prove_inner_products``."""
    cost, blocks = Cost(), blocks_of(field)
    while sum(counts) > last_size(field):
        cost += fold_claim(blocks, field.words, claims)
        counts, claims = [sum(-(-count // blocks) for count in counts)], 1
    last = fold_claim(sum(counts) + 1, field.words, claims) + Cost(1, (_DIGEST, 0, 0))
    return cost + last + Cost(1, (0, 0, 16 * field.words))


def verify_gates(words: int) -> Cost:
    """``verify_bits.prove_gates`` for so many words of 64 ANDs."""
    steps = fold_claim(blocks_for(words), 1) + fold_claim(blocks_of(F61), 1)
    return steps + inner_proof([folded_terms(words)], F61)


def verify_rings(ring: Ring, elements: int, terms: int) -> Cost:
    """``verify_rings.prove_ring_products`` of so many values, made of so many terms: one for each factor of a product.

    Not counted are terms that are zero by the protocol, and values of which a party sent its keystream alone.
    """
    scheme, terms = SCHEMES[ring], padded_terms(ring, terms)
    bits = scheme.carry_bits(terms)
    quotients = Cost(1, (elements * scheme.quotients.itemsize, 0, 0)) + Cost(1, (0, 16, 0))
    carries = Cost(1, (8 * scheme.sums * -(-bits // 64), 0, 0))
    counts = [terms, scheme.sums * bits]
    return quotients + carries + inner_proof(counts, scheme.field, scheme.sums)


def verify_tables(rows: int, terms: int) -> Cost:
    """``verify_tables.prove_tables`` of so many rows and products of combined entries in each."""
    element, coin = 2 * DEGREE, 16
    cost, left = _everyone(coin) + _everyone(rows * element) + _everyone(coin), 1 + rows
    while left > 1:
        cost += _everyone(left // 2 * element) + _everyone(coin)
        left -= left // 2
    return cost + _everyone(2 * _DIGEST) + _everyone((2 * terms + 1) * element)


def settle(*proofs: Cost, flags: int = 0) -> Cost:
    """``verify.ProductVerifier.settle``, with the bytes of a prover and its two verifiers for each kind of product.

    ``flags`` are ``records.flags`` of all values in rings: two a value, and two for each of its origins.
    """
    begin, end = _everyone(3 * _DIGEST + 4 * -(-flags // 8)), _everyone(2)
    both = (proof.rotated(prover) for proof in proofs for prover in range(3))
    return begin + reduce(Cost.__or__, both, Cost()) + end


def select(
    sizes: Sequence[int],
    error_bits: int,
    score_bits: int,
    *,
    kept: bool = False,
    samples: int | None = None,
) -> Cost:
    """``select.select``, with the bits of ``select.bounds``: scores and noise, then the choice.

    ``samples`` is the number of noise samples it makes, where that is not one for each candidate.
    """
    made = len(sizes) if samples is None else samples
    scores = select_scores(sizes, error_bits, made, kept=kept)
    return scores + select_choose(len(sizes), score_bits)


def dearest_counts(most: int) -> list[int]:
    """Returns the candidate counts, at most ``most``, of which one costs a selection the most; the largest first.

    Up to ``ALL_PAIRS`` candidates are compared in a form that sends more, and up to ``FEW_CELLS`` lifted in one.
    """
    return [most, *(count for count in (FEW_CELLS, ALL_PAIRS) if count < most)]


def select_scores(
    sizes: Sequence[int], error_bits: int, samples: int, *, kept: bool = False
) -> Cost:
    """Cost of ``select.select``'s scores, from bits that were kept or not, beside so many samples of noise."""
    errors = (
        grouped_error_of_bits(sizes, error_bits, FRACTION_BITS)
        if kept
        else grouped_absolute_error(sizes, error_bits)
    )
    return errors + lift_magnitude(len(sizes), error_bits, 8) | gumbel(samples)


def gumbel(samples: int) -> Cost:
    """``gumbel.gumbel``; nothing for no samples."""
    if not samples:
        return Cost()
    bits = INDEX_BITS + TAIL_BITS
    coin = ands(_planes(COIN_BITS, samples)) + carry_out(samples, COIN_BITS)
    tails = carry_out(TAIL_BITS * 64 * words_for(samples), COIN_BITS)
    tails += ands(_planes(2 * TAIL_BITS, samples))
    bucket = look_up(samples, WORD_BITS, INDEX_BITS)
    chosen = bucket + (coin | tails) + ands(_planes(bits, samples))
    return chosen + weighted_bits(samples, bits + 2 * FINE_BITS, 8)


def select_choose(count: int, score_bits: int) -> Cost:
    """``select.select`` among ``count`` candidates, after their scores."""
    if _VERIFIED.get() or count > ALL_PAIRS:
        return largest(count, score_bits) + open_value(count, 8)
    pairs = count * (count - 1) // 2
    marked = msb(pairs, score_bits) + _everyone(8 * count) if pairs else Cost()
    return marked + open_value(count, 8)


def largest(values: int, bits: int) -> Cost:
    """``select._largest``."""
    if values == 1:
        return Cost()
    if values <= ALL_PAIRS:
        return msb(values * (values - 1) // 2, bits) + and_all(values, values - 1)
    groups = [min(GROUP, values - start) for start in range(0, values, GROUP)]
    pairs = sum(size * (size - 1) // 2 for size in groups)
    level = msb(pairs, bits) + and_all(values, GROUP - 1)
    level += bits_to_ring(values, 8) + _everyone(len(groups) * 8)
    return level + largest(len(groups), bits) + ands(_planes(1, values))


def box_muller(pairs: int) -> Cost:
    """``box_muller.box_muller``."""
    padded = words_for(pairs) * 64
    uniform = words_to_ring(2 * padded, SAMPLE_BITS, 8)
    uniform += powers(2 * pairs, OCTANT_DEGREE, 8, SAMPLE_BITS)
    one_hot = prefix_or(pairs, RUN_BITS) + ands(_planes(RUN_BITS, pairs))
    radius = one_hot + words_to_ring((RADIUS_DEGREE + 1) * padded, COEFFICIENT_BITS, 8)
    cut = truncate(pairs, 8, SAMPLE_BITS) | truncate(2 * pairs, 8, SAMPLE_BITS)
    last = cut | bits_to_ring(3 * pairs, 8)
    return (
        (uniform | radius)
        + last
        + _everyone(pairs * 8)
        + truncate(2 * pairs, 8, SAMPLE_BITS)
        + _everyone(2 * pairs * 8)
    )


def gaussian(samples: int) -> Cost:
    """``box_muller.gaussian``."""
    pairs, cost = -(-samples // 2), Cost()
    for number, start in enumerate(range(0, pairs, BLOCK_PAIRS)):
        cost |= box_muller(min(BLOCK_PAIRS, pairs - start)).rotated(number % 3)
    return cost


def box_muller_noise(cells: int) -> Cost:
    """``measure.box_muller_noise``."""
    return gaussian(cells) + truncate(cells, 8, _SCALED_BITS)


def measure_box_muller(cells: int) -> Cost:
    """``measure.measure`` with ``box_muller_noise``."""
    return box_muller_noise(cells) + open_value(cells, 4)


def look_up(cells: int, word_bits: int, index_bits: int) -> Cost:
    """``lookup.look_up`` of words of ``word_bits`` bits at an index of ``index_bits`` bits."""
    entry_bits = 1 << levels(index_bits) - 1
    products = word_bits << index_bits - entry_bits if _VERIFIED.get() else word_bits
    return one_hot(cells, index_bits, 2) + ands(_planes(products, cells))


def one_hot(cells: int, bits: int, most: int = 1) -> Cost:
    """``lookup.one_hot`` of an index of ``bits`` bits; of at most ``most`` parts of it."""
    cost, parts = Cost(), [1] * bits
    while len(parts) > most:
        pairs = [(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        cost += ands(_planes(sum(((1 << s) - 1) * ((1 << t) - 1) for s, t in pairs), cells))
        parts = [s + t for s, t in pairs] + parts[2 * len(pairs) :]
    return cost


def discrete_gaussian(samples: int, sampler: Sampler) -> Cost:
    """``discrete.discrete_gaussian``."""
    parts, table, cost = (2 if sampler.factor else 1), sampler.table, Cost()
    for number, start in enumerate(range(0, samples, BLOCK_SAMPLES)):
        size = parts * words_for(min(BLOCK_SAMPLES, samples - start)) * 64
        coin = ands(_planes(table.coin_bits, size)) + carry_out(size, table.coin_bits)
        chosen = one_hot(size, table.index_bits) + coin + ands(_planes(table.index_bits, size))
        in_ring = words_to_ring(size, table.index_bits, 4) | bits_to_ring(size, 4)
        cost |= (chosen + in_ring).rotated(number % 3)
    return cost


def discrete_laplace(samples: int, sampler: LaplaceSampler) -> Cost:
    """``laplace.discrete_laplace``."""
    cost = Cost()
    for number, start in enumerate(range(0, samples, LAPLACE_BLOCK)):
        size = min(LAPLACE_BLOCK, samples - start)
        coins = carry_out(2 * sampler.bits * 64 * words_for(size), sampler.coin_bits)
        cost |= (coins + weighted_bits(size, 2 * sampler.bits, 4)).rotated(number % 3)
    return cost


def measure_discrete(cells: int, sampler: Sampler) -> Cost:
    """``measure.measure`` with ``discrete_noise``."""
    return discrete_gaussian(cells, sampler) + open_value(cells, 4)


def distributed_noise(cells: int) -> Cost:
    """``measure.distributed_noise``."""
    return _everyone(cells * 4)


def measure_distributed(cells: int) -> Cost:
    """``measure.measure`` with ``distributed_noise``."""
    return distributed_noise(cells) + open_value(cells, 4)


def bits_into_ring(elements: int, itemsize: int) -> Cost:
    """``free.bits_into_ring``."""
    return _dealt(0, elements * itemsize) + _everyone(elements * itemsize)


def random_bits(count: int, itemsize: int) -> Cost:
    """``random_bits.random_bits``."""
    return bits_into_ring(count, itemsize)


def carry_save(cells: int, bits: int) -> Cost:
    """``free.carry_save``."""
    return ands(_planes(bits, cells))


def lift_half(values: int) -> Cost:
    """``conversions.lift_half``."""
    planes = carry_save(values, 16) + ands(_planes(15, values))
    return planes + carry_out(values, 15) + _dealt(0, 12 * values) + _everyone(4 * values)


def lift_counts(values: int) -> Cost:
    """``conversions.lift_half`` of so many, in blocks; with a verifier some after others."""
    starts, cost = range(0, values, LIFT_CELLS), Cost()
    at_once = PROVED_AT_ONCE if _VERIFIED.get() else len(starts)
    for first in range(0, len(starts), at_once):
        some = Cost()
        for start in starts[first : first + at_once]:
            block = lift_half(min(LIFT_CELLS, values - start))
            some |= block.rotated(start // LIFT_CELLS % 3)
        cost += some
    return cost


def valid_bits(plan: CountPlan, rows: int) -> Cost:
    """``rows.valid_bits`` of so many rows."""
    cost, partial = Cost(), plan.partial_columns
    if partial:
        width = max(plan.layout.widths[column] for column in partial)
        cost += carry_out(64 * words_for(rows) * len(partial), width)
        cost += and_all(rows, 1 + len(partial))
    return cost + ands(_planes(len(plan.leaves), rows)) if plan.leaves else cost


def recode(recoding: Recoding | None, rows: int) -> Cost:
    """``recoding.recode`` of so many rows, one segment after the other; nothing without a recoding."""
    if recoding is None:
        return Cost()
    partial = 1 + sum(recoding.is_partial(column) for column in recoding.columns)
    cost = Cost()
    for start in range(0, max(1, rows), SEGMENT_ROWS):
        count = min(SEGMENT_ROWS, rows - start)
        for column in recoding.columns:
            cost += one_hot(count, recoding.fine.widths[column])
        cost += and_all(count, partial)
    return cost


def doubled_counts(plan: CountPlan, rows: int) -> Cost:
    """Cost of the factors of so many rows, and sums of their products in Z_2^16; with a verifier in blocks.

    With a verifier some blocks come after others: those of one proof together.
    """
    blocks, cost = list(plan.blocks(range(rows))), Cost()
    for some in plan.proved_at_once(blocks) if _VERIFIED.get() else [blocks]:
        count = sum(map(len, some))
        cost += bits_into_ring((1 + len(plan.leaves)) * count, 2)
        for level in range(1, plan.levels + 1):
            if entries := plan.level_entries(level):
                cost += _everyone(2 * entries * count)
        cost += _everyone(2 * plan.row_cells)
    return cost


def count_rows(plan: CountPlan, rows: int) -> Cost:
    """``rows.count_rows``, one segment after the other."""
    segments = (
        valid_bits(plan, len(s)) + doubled_counts(plan, len(s)) + lift_counts(plan.cells)
        for s in plan.segments(rows)
    )
    return sum(segments, Cost())


def count_proofs(plan: CountPlan, rows: int) -> Cost:
    """Estimates the cost of proofs of ``rows.count_rows``, a party's average: all that grows with rows and cells."""
    bits = 1 + len(plan.leaves)
    levels = range(1, plan.levels + 1)
    alone = sum(plan.level_entries(level) for level in levels if not plan.tabled(level))
    tables = len(plan.counts) + sum(len(plan.level(n)) for n in levels if plan.tabled(n))
    cost = Cost()
    for segment in plan.segments(rows):
        for some in plan.proved_at_once(list(plan.blocks(segment))):
            count = sum(map(len, some))
            # Party 0 has one product more for each bit.
            elements = (4 * bits // 3 + alone) * count
            cost += settle(verify_gates(1), verify_rings(R16, elements, 2 * elements))
            cost += verify_tables(count, tables)
        for start in range(0, plan.cells, PROVED_AT_ONCE * LIFT_CELLS):
            cells = min(PROVED_AT_ONCE * LIFT_CELLS, plan.cells - start)
            gates = sum(lift_half(64 * 1000).sent) // 3 - 8 * 64 * 1000
            words = gates * cells // (8 * 64 * 1000)
            cost += settle(verify_gates(words), verify_rings(R32, 2 * cells, 3 * cells))
    return cost
