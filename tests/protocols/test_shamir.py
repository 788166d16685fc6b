"""Shamir's sharings to replicated shares and back: values, costs, and what two parties see on the way.

Statistic of the views: that of ``test_privacy``, on the bits of the masked number, which is uniform modulo 2^M, or
modulo a Mersenne prime. Controls take the masks away and have to be rejected.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import shamir
from protocols.context import Context
from protocols.errors import ProtocolViolation
from protocols.ring import BITS, R32, R64, R128, Ring, RingArray
from protocols.shamir import Masks
from tests.protocols.local import components, reconstruct, run_parties, share_of
from tests.protocols.test_origins import Notes
from tests.protocols.test_privacy import RUNS, find_leak

SMALL, MERSENNE, MPYC = 101, (1 << 61) - 1, 9223372036854775837
"""A prime with no room for masks, one with nearly uniform bits, and MPyC's of 64 bits, that of SecInt(32)."""
LARGE = (1 << 127) - 1
WIDE = (1 << 89) - 1
"""A prime that is wider than a machine word, and exact, as that of SecInt(64) is."""
PRIMES = (SMALL, MERSENNE, MPYC, LARGE)


def points(values: list[int], prime: int, slope: int = 12345678901234567) -> list[RingArray]:
    """Points of three parties of lines through the values."""
    x = np.array(values, dtype=object)
    lines = np.array([(slope * (i + 1) ** 3) % prime for i in range(len(values))], dtype=object)
    return [(x + (pid + 1) * lines) % prime for pid in range(3)]


def value_of(found: list[RingArray], prime: int) -> list[int]:
    """Signed values of points, after checking that they are on one line."""
    first, second, third = found
    assert not np.any((first - 2 * second + third) % prime)
    x = (2 * first - second) % prime
    return [int(v) - prime if v > prime // 2 else int(v) for v in x.reshape(-1)]


def to_ring(values: list[int], prime: int, **options: object) -> Callable[[Context], object]:
    parts = points(values, prime)
    return lambda c: shamir.to_ring(c, parts[c.pid], prime=prime, **options)


@st.composite
def bounded(draw: st.DrawFn, primes: tuple[int, ...] = PRIMES) -> tuple[int, int, list[int]]:
    prime = draw(st.sampled_from(primes))
    bits = draw(st.integers(1, min(prime.bit_length() - 1, 32)))
    half = 1 << (bits - 1)
    edges = st.sampled_from([-half, half - 1, 0])
    return prime, bits, draw(st.lists(st.integers(-half, half - 1) | edges, max_size=9))


@settings(max_examples=30)
@given(bounded((SMALL, MERSENNE, MPYC)), st.sampled_from([R32, R64, R128]), st.integers(20, 200))
def test_to_ring_has_the_signed_values(
    case: tuple[int, int, list[int]], ring: Ring, security_bits: int
) -> None:
    prime, bits, values = case
    program = to_ring(values, prime, bits=bits, ring=ring, security_bits=security_bits)
    assert ring.decode(reconstruct(run_parties(program).results)).tolist() == values


@settings(max_examples=20)
@given(bounded((LARGE,)))
def test_to_ring_of_a_large_prime_takes_one_round(case: tuple[int, int, list[int]]) -> None:
    prime, bits, values = case
    outcome = run_parties(to_ring(values, prime, bits=bits, ring=R64))
    assert R64.decode(reconstruct(outcome.results)).tolist() == values
    assert outcome.rounds == 1


@pytest.mark.parametrize("ring", [R32, R64, R128])
@pytest.mark.parametrize(("prime", "bits"), [(WIDE, 64), (WIDE, 88), (LARGE, 70)])
def test_to_ring_takes_primes_and_bounds_wider_than_a_word(
    prime: int, bits: int, ring: Ring
) -> None:
    half = 1 << (bits - 1)
    values = [-half, half - 1, 0, -1, 5]
    outcome = run_parties(to_ring(values, prime, bits=bits, ring=ring))
    found = reconstruct(outcome.results).tolist()
    assert found == [value % (1 << ring.bits) for value in values]
    assert (outcome.rounds == 1) == (prime == LARGE)


@settings(max_examples=30)
@given(bounded(), st.sampled_from([R64, R128, R32]))
def test_from_ring_has_points_of_the_signed_values(
    case: tuple[int, int, list[int]], ring: Ring
) -> None:
    prime, bits, values = case
    bits = min(bits, ring.bits - 1)
    values = [v % (1 << (bits - 1)) for v in values]
    parts = components(ring, np.array(values, dtype=object))
    outcome = run_parties(
        lambda c: shamir.from_ring(c, share_of(c, parts, ring), prime=prime, bits=bits)
    )
    assert value_of(outcome.results, prime) == values


def test_there_and_back_keeps_shape_and_value() -> None:
    values = [5, -7, 0, 9, -2, 1]

    async def program(c: Context) -> RingArray:
        mine = points(values, MPYC)[c.pid].reshape(2, 3)
        x_sh = await shamir.to_ring(c, mine, prime=MPYC, bits=8)
        assert x_sh.shape == (2, 3)
        return await shamir.from_ring(c, x_sh, prime=LARGE, bits=8)

    found = run_parties(program).results
    assert found[0].shape == (2, 3)
    assert value_of(found, LARGE) == values


@pytest.mark.parametrize("size", [1, 70])
@pytest.mark.parametrize("ring", [R32, R64, R128])
@pytest.mark.parametrize(("prime", "bits"), [(SMALL, 6), (MERSENNE, 40), (MPYC, 21), (MPYC, 32)])
def test_to_ring_costs_what_the_formula_says(prime: int, bits: int, ring: Ring, size: int) -> None:
    outcome = run_parties(to_ring([0] * size, prime, bits=bits, ring=ring))
    cost = shamir.to_ring_cost(size, prime, bits=bits, ring=ring)
    assert (outcome.rounds, tuple(outcome.sent_bytes)) == (cost.rounds, cost.sent)


@pytest.mark.parametrize("size", [1, 70])
@pytest.mark.parametrize(("ring", "bits"), [(R32, 12), (R32, 31), (R64, 22), (R64, 30), (R128, 80)])
def test_from_ring_costs_what_the_formula_says(ring: Ring, bits: int, size: int) -> None:
    parts = components(ring, np.zeros(size, np.int64))
    outcome = run_parties(
        lambda c: shamir.from_ring(c, share_of(c, parts, ring), prime=LARGE, bits=bits)
    )
    cost = shamir.from_ring_cost(size, ring, bits=bits)
    assert (outcome.rounds, tuple(outcome.sent_bytes)) == (cost.rounds, cost.sent)


def test_counts_of_a_secint_take_one_round_and_16_bytes_a_value() -> None:
    cost = shamir.to_ring_cost(1000, MPYC, bits=21)
    assert (cost.rounds, sum(cost.sent)) == (1, 16_000)
    assert not shamir.is_one_round(MPYC, 22)


# The views.

Program = Callable[[Context], object]


def bits_of(numbers: list[RingArray], bits: int) -> np.ndarray:
    """The lowest bits of runs of numbers, (runs, numbers times bits)."""
    rows = [[(int(v) >> bit) & 1 for v in row for bit in range(bits)] for row in numbers]
    return np.array(rows, np.uint8)


def masked_numbers(
    program: Program, party: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> list[RingArray]:
    """Numbers that the function of this name shows to a party, in runs in which the keys that it lacks differ."""
    original, seen = getattr(shamir, name), []

    async def watched(ctx: Context, *values: object, **named: object) -> RingArray | None:
        shown = await original(ctx, *values, **named)
        if ctx.pid == party:
            seen.append(shown)
        return shown

    with monkeypatch.context() as patched:
        patched.setattr(shamir, name, watched)
        for variant in range(RUNS):
            run_parties(program, variant=variant, known_to=party)
    return seen


VALUES = [5, -7, 0, 1000, -1024, 1023]
X64 = components(R64, np.array(VALUES, dtype=object))
# Program, function that shows a number, bits of it that are uniform.
SHOWN: dict[str, tuple[Program, str, int]] = {
    "one round": (to_ring(VALUES, MPYC, bits=12), "_show_masked", shamir.mask_bits(MPYC, 12)),
    "exact": (to_ring(VALUES, MERSENNE, bits=30), "_show_masked", 61),
    "back": (
        lambda c: shamir.from_ring(c, share_of(c, X64, R64), prime=MPYC, bits=12),
        "reveal_component",
        62,
    ),
}


@pytest.mark.parametrize("party", [0, 2])
@pytest.mark.parametrize("name", SHOWN)
def test_shown_number_is_uniform(name: str, party: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program, function, bits = SHOWN[name]
    seen = masked_numbers(program, party, function, monkeypatch)
    assert find_leak(bits_of(seen, bits)) is None


@pytest.mark.parametrize("name", SHOWN)
def test_the_other_party_is_sent_nothing_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, function, _ = SHOWN[name]
    assert set(masked_numbers(program, 1, function, monkeypatch)) == {None}
    if name != "exact":
        assert run_parties(program).received(1) == []


@pytest.mark.parametrize("name", SHOWN)
def test_shown_number_without_its_mask_is_rejected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number is then the value itself, in every run; the results stay right, and nothing else gives it away."""

    def none(ctx: Context, bound: int, size: int) -> Masks:
        return Masks(shamir._objects([0] * size), shamir._objects([0] * size))

    program, function, bits = SHOWN[name]
    monkeypatch.setattr(shamir, "_short_masks", none)
    monkeypatch.setattr(shamir, "_residues", none)
    results = run_parties(program).results
    if name == "back":
        assert value_of(results, MPYC) == VALUES
    else:
        assert R32.decode(reconstruct(results)).tolist() == VALUES
    for party in (0, 2):
        seen = masked_numbers(program, party, function, monkeypatch)
        assert find_leak(bits_of(seen, bits)) is not None


def test_message_on_the_wire_is_the_point_of_the_shown_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One message from party 0 to 2 and one back: the point that the other one lacks, and nothing else."""
    program, function, _ = SHOWN["one round"]
    outcome = run_parties(program)
    messages = {(m.sender, m.receiver): m.payload for m in outcome.mesh.sent}
    assert {pair: len(payload) for pair, payload in messages.items()} == {
        (0, 2): 8 * len(VALUES),
        (2, 0): 8 * len(VALUES),
    }
    (number,) = masked_numbers(program, 0, function, monkeypatch)[:1]
    sent = [shamir._from_wire(np.frombuffer(messages[way], np.uint8), 8) for way in messages]
    at_1, at_3 = (sent[0], sent[1]) if next(iter(messages)) == (0, 2) else (sent[1], sent[0])
    assert np.array_equal((3 * at_1 - at_3) % MPYC, 2 * number % MPYC)


def test_residues_are_the_same_at_both_holders_and_below_the_prime() -> None:
    async def program(c: Context) -> Masks:
        return shamir._residues(c, SMALL, 4000)

    masks = run_parties(program).results
    for pid in range(3):
        assert np.array_equal(masks[pid].next, masks[(pid + 1) % 3].own)
        assert set(masks[pid].own) == set(range(SMALL))


# Misuse.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prime": SMALL, "bits": 7}, "do not fit a prime"),
        ({"prime": MPYC, "bits": 0}, "do not fit a prime"),
        ({"prime": 3, "bits": 1}, "do not fit a prime"),
        ({"prime": LARGE, "bits": 100}, "too large to count its wraps"),
        ({"prime": MPYC, "bits": 8, "security_bits": 15}, "expected 16 or more"),
        ({"prime": MPYC, "bits": 8, "ring": BITS}, "not in bits"),
    ],
)
def test_to_ring_refuses_what_has_no_room(options: dict[str, Any], words: str) -> None:
    prime = options.pop("prime")
    with pytest.raises(ValueError, match=words):
        run_parties(to_ring([0], prime, **options))


@pytest.mark.parametrize(
    ("ring", "bits", "words"), [(R32, 32, "no room in"), (R128, 87, "leave no mask")]
)
def test_from_ring_refuses_what_has_no_room(ring: Ring, bits: int, words: str) -> None:
    parts = components(ring, np.zeros(1, np.int64))
    with pytest.raises(ValueError, match=words):
        run_parties(lambda c: shamir.from_ring(c, share_of(c, parts, ring), prime=LARGE, bits=bits))


def test_conversions_refuse_a_verifier() -> None:
    async def checked(c: Context) -> object:
        c.verifier = Notes()
        return await to_ring([1], MPYC, bits=4)(c)

    with pytest.raises(ValueError, match="cannot be checked"):
        run_parties(checked)


def test_a_point_outside_of_the_field_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shamir, "_to_wire", lambda points, size: np.full(points.size * size, 255, np.uint8)
    )
    with pytest.raises(ProtocolViolation, match="none of the field"):
        run_parties(to_ring([1], MPYC, bits=4))
