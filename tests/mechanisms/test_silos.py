"""Rounds of exact sums in one process, the noise of a sum, and numbers in fixed point."""

import asyncio
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, rho
from mechanisms.errors import BudgetExceeded, RequestRefused, RoundLost
from mechanisms.events import DiscreteGaussianEvent
from mechanisms.fixed_point import decode, encode, encode_rows, pack_arrays, units, unpack_arrays
from mechanisms.silos import InProcess, Noise, Request, Sum, sum_noise
from tests.mechanisms.tables import random_stream

COUNT = "count"


class Fixed:
    """A silo that answers the same vector to one request."""

    def __init__(self, values: list[int]) -> None:
        self.values = np.array(values, np.int64)
        self.result = b""

    def answer(self, request: Request) -> NDArray[np.int64]:
        request.check(Request(COUNT, b"", 3, 0, 100, request.noise, request.event))
        return self.values

    def finish(self, payload: bytes) -> None:
        self.result = payload


def request(noise: Noise | None = None, *, low: int = 0) -> Request:
    return Request(COUNT, b"", 3, low, 100, noise)


def silos() -> list[Fixed]:
    return [Fixed([i, 10 * i, 100]) for i in range(1, 6)]


def take(of: InProcess, asked: Request) -> Sum:
    return asyncio.run(of.sum(asked))


def test_in_process_adds_up_whoever_is_there() -> None:
    members = silos()
    process = InProcess(members, drops={1: (0, 4)}, min_survivors=3)
    first, second = take(process, request()), take(process, request())
    assert (first.values.tolist(), first.survivors) == ([15, 150, 500], (0, 1, 2, 3, 4))
    assert (second.values.tolist(), second.survivors) == ([9, 90, 300], (1, 2, 3))
    asyncio.run(process.finish(b"over"))
    assert {silo.result for silo in members} == {b"over"}


def test_in_process_charges_a_sum_before_it_is_taken() -> None:
    noise, event = sum_noise("server", 4.0, sensitivity=1.0, cells=1, honest=1)
    ledger, members = Ledger(1.5 * rho(event)), silos()
    process, asked = InProcess(members, ledger=ledger), Request(COUNT, b"", 3, 0, 100, noise, event)
    take(process, asked)
    with pytest.raises(BudgetExceeded):
        take(process, asked)
    assert [(entry.round, entry.step, entry.event) for entry in ledger.entries] == [
        (0, COUNT, event)
    ]


def test_in_process_loses_a_sum_of_too_few() -> None:
    with pytest.raises(RoundLost, match="2 silos are left; expected 3"):
        take(InProcess(silos(), drops={0: (0, 1, 2)}, min_survivors=3), request())


def test_silo_refuses_a_request_that_its_settings_do_not_have() -> None:
    with pytest.raises(RequestRefused, match="low is -1; expected 0"):
        take(InProcess(silos()), request(low=-1))


@pytest.mark.parametrize("values", [[1, 2], [1, 2, 101], [-1, 2, 3]])
def test_answer_out_of_its_bounds_never_reaches_a_sum(values: list[int]) -> None:
    with pytest.raises(ValueError, match="an answer"):
        take(InProcess([Fixed(values)]), request())


def test_request_refuses_bounds_that_are_none() -> None:
    with pytest.raises(ValueError, match="low < high"):
        Request(COUNT, b"", 3, 5, 5)
    with pytest.raises(ValueError, match="a step's name"):
        Request("", b"", 3, 0, 5)


@pytest.mark.parametrize(("maker", "parts"), [("server", 1), ("distributed", 5)])
def test_noise_of_a_sum_has_the_deviation_that_it_says(maker: str, parts: int) -> None:
    """The variance of 60,000 samples against what was asked for.

    False alarms: 1e-6, at 4.9 deviations, which is 2.8 % of the variance.
    """
    sigma, length = 20.0, 60_000
    noise, event = sum_noise(maker, sigma, sensitivity=1.0, cells=1, honest=5)  # type: ignore[arg-type]

    class Zeros(Fixed):
        def answer(self, request: Request) -> NDArray[np.int64]:
            return np.zeros(request.length, np.int64)

    process = InProcess([Zeros([]) for _ in range(5)], random_bytes=random_stream(7))
    values = take(process, Request(COUNT, b"", length, 0, 1, noise)).values
    expected = noise.deviation(5) ** 2
    spread = 4.9 * math.sqrt(2 / length)
    assert abs(np.mean(values.astype(float) ** 2) / expected - 1) < spread
    # The control: noise that one silo of five has left out.
    assert maker == "server" or abs(4 / 5 - 1) > spread
    assert sigma <= noise.deviation(5) < 1.001 * sigma
    assert noise.variance == Fraction(400, parts)
    assert math.isclose(rho(event), rho(DiscreteGaussianEvent(sigma)), rel_tol=1e-9)


def test_noise_of_parts_that_are_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="a finer grid"):
        sum_noise("distributed", 2.0, sensitivity=1.0, cells=1, honest=5)


@given(arrays(np.float64, (7,), elements=st.floats(-1e6, 1e6)), st.integers(0, 30))
def test_encode_is_within_half_a_unit_and_its_bound(
    values: NDArray[np.float64], scale_bits: int
) -> None:
    whole = encode(values, scale_bits=scale_bits, bound=100.5)
    assert np.abs(whole).max() <= units(100.5, scale_bits)
    near = np.clip(values, -100.5, 100.5)
    # Half a unit; a whole one where the bound is between two units.
    assert (
        np.abs(decode(whole, scale_bits=scale_bits) - near) <= 0.5 * 2.0**-scale_bits + 1e-9
    ).all()


def test_encode_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="not a number"):
        encode(np.array([math.nan]), scale_bits=3, bound=1.0)
    with pytest.raises(ValueError, match="not finite"):
        encode_rows(np.array([[math.inf]]), scale_bits=3, norm=1.0)


@given(
    arrays(np.float64, (5, 4), elements=st.floats(-1e300, 1e300)),
    st.integers(0, 20),
    st.floats(1.0, 500.0),
)
def test_encoded_row_never_exceeds_its_norm(
    rows: NDArray[np.float64], scale_bits: int, norm: float
) -> None:
    whole = encode_rows(rows, scale_bits=scale_bits, norm=norm)
    largest = (Fraction(norm) * 2**scale_bits) ** 2
    assert all(sum(int(v) ** 2 for v in row) <= largest for row in whole)


def test_encoded_row_within_its_norm_is_rounded_to_the_nearest() -> None:
    """And the control: nearest alone would take this row beyond a norm of one unit."""
    rows = np.array([[0.3, -0.6], [0.6, 0.8]])
    assert encode_rows(rows, scale_bits=4, norm=1.0).tolist() == [[5, -10], [9, 12]]
    assert np.linalg.norm(np.rint(rows[1] * 16)) > 16


@given(arrays(np.float64, (2, 3), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_arrays_come_back_from_bytes(array: NDArray[np.float64]) -> None:
    first, second = unpack_arrays(pack_arrays(array, array[0]), (2, 3), (3,))
    assert np.array_equal(first, array)
    assert np.array_equal(second, array[0])


def test_unpack_arrays_refuses_other_sizes_and_infinities() -> None:
    with pytest.raises(RequestRefused, match="a payload of 15 bytes; expected 16"):
        unpack_arrays(bytes(15), (2,))
    with pytest.raises(RequestRefused, match="not finite"):
        unpack_arrays(pack_arrays(np.array([math.nan])), (1,))
