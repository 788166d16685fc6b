"""Private bins: the rule from noisy counts to cells, values drawn from them, and central AIM with them."""

import math
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.accounting import BudgetExceeded, Ledger, fixed_rounds_plan
from mechanisms.aim import run_aim
from mechanisms.columns import fine_cells
from mechanisms.discretising import cells_for
from mechanisms.domain import Categorical, Domain, Integer, Moment, Real
from mechanisms.errors import DomainError
from mechanisms.exact_noise import discrete_gaussian_noise
from mechanisms.moments import calendar_starts, tick_of
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend, measure_fine
from mechanisms.private_bins import (
    NEAR,
    PrivateBins,
    _shown,
    equal_cells,
    fine_weights,
    group,
    seen,
    support,
)
from mechanisms.resolving import coarse_codes, coarse_measurement, resolve, stand_in, unmeasured
from mechanisms.sampling import public_generator
from mechanisms.table import decode, encode
from mechanisms.workload import Workload
from tests.mechanisms.tables import random_stream

GAIN = Integer("gain", 0, 99_999, private=PrivateBins(coarse=16))
PRICE = Real("price", -1.0, 2.5, decimals=2, private=PrivateBins(64, 8), missing=True)
DOMAIN = Domain((GAIN, Categorical("sex", ("f", "m")), PRICE))


def table_codes(rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """Nine in ten gain nothing, one in fifty 99999, and so does nobody of one sex."""
    rng = np.random.default_rng(5)
    gains = np.where(rng.random(rows) < 0.9, 0, rng.integers(1, 20_000, rows))
    sexes = rng.integers(0, 2, rows)
    gains[(rng.random(rows) < 0.04) & (sexes == 1)] = 99_999
    prices = np.where(rng.random(rows) < 0.1, "", np.char.mod("%.2f", rng.uniform(0, 2, rows)))
    frame = {"gain": gains.astype(str), "sex": np.array(["f", "m"])[sexes], "price": prices}
    import pandas as pd

    return encode(DOMAIN, pd.DataFrame(frame, dtype=object))


@pytest.mark.parametrize(
    ("resolution", "values", "cells"), [(64, 63, 63), (64, 64, 64), (64, 65, 60), (2, 65, 1)]
)
def test_values_that_fit_have_a_fine_cell_each(resolution: int, values: int, cells: int) -> None:
    assert equal_cells(resolution, values) == cells


@given(st.lists(st.integers(-60, 3000), min_size=1, max_size=200), st.integers(4, 40))
def test_group_partitions_all_fine_cells_into_at_most_coarse(
    counts: list[int], coarse: int
) -> None:
    groups = group(counts, coarse, 10.0)
    assert groups[0] == 0
    assert len(groups) <= coarse
    assert list(groups) == sorted({*groups})
    assert groups[-1] < len(counts)
    weights = fine_weights(counts, groups, 10.0)
    assert (weights >= 0).all()
    assert (np.add.reduceat(weights, groups) > 0).all()


def test_group_gives_spikes_cells_and_cuts_the_rest_evenly() -> None:
    counts = [100] * 200
    counts[50], counts[51], counts[150] = 9000, 101, 5000
    groups = group(counts, 32, 5.0)
    assert {50, 51, 150, 151} <= set(groups)
    masses = np.add.reduceat(counts, groups)
    rest = np.delete(masses, [groups.index(50), groups.index(150)])
    # So many rows have 20 cells beside the spikes.
    assert len(groups) == 5 + cells_for(sum(counts)) == 24
    assert rest.max() <= 4 * rest.min()


def test_group_of_noise_alone_stays_one_cell() -> None:
    noise = discrete_gaussian_noise(random_stream(3), 20.0, 1024)
    noise -= noise.sum() // 1024
    assert group(noise.tolist(), 32, 20.0) == (0,)
    assert (fine_weights(noise.tolist(), (0,), 20.0) == 1).all()


def test_fine_weights_are_the_counts_of_cells_that_are_seen() -> None:
    counts = [40, -30, 500, 300, -20, 10]
    weights = fine_weights(counts, (0, 3), 5.0)
    assert weights.tolist() == [40, 0, 500, 300, 0, 0]


def noisy_ages(seed: int) -> list[int]:
    """5,000 ages in 24 of 1,024 cells, and noise of deviation 20 in all."""
    noise = discrete_gaussian_noise(random_stream(seed), 20.0, 1024)
    noise[600:624] += np.bincount(np.random.default_rng(seed).integers(0, 24, 5000), minlength=24)
    return noise.tolist()


def test_no_row_is_drawn_far_from_all_values() -> None:
    outside, projected = [], []
    for seed in range(60):
        counts = noisy_ages(seed)
        groups = group(counts, 32, 20.0)
        weights = fine_weights(counts, groups, 20.0)
        assert support(counts, 20.0)[600:624].all()
        outside.append(1 - weights[600:624].sum() / weights.sum())
        # The control: nonnegative counts that are nearest to all noisy ones have rows where there are none.
        nearest = np.maximum(np.array(counts), 0)
        projected.append(1 - nearest[600:624].sum() / nearest.sum())
    # 3,000 cells and windows of a run exceed 5 deviations with 1 in 3 million each: 60 runs have one with 1 in 20, and
    # three with 1 in 40,000.
    assert np.count_nonzero(outside) < 3
    assert np.mean(projected) > 0.3


@settings(deadline=None)
@given(st.lists(st.integers(-300, 300), min_size=1, max_size=70), st.floats(0.5, 60))
def test_support_has_every_cell_that_stands_out_and_leaves_no_window_that_does(
    counts: list[int], deviation: float
) -> None:
    known, variance = support(counts, deviation), math.ceil(deviation * deviation)
    if not any(count * count > 25 * variance for count in counts if count > 0) and known.all():
        return
    assert all(known[i] for i, n in enumerate(counts) if n > 0 and n * n > 25 * variance)
    whole = np.array(counts)[~known]
    assert not seen(int(whole.sum()), len(whole), variance, times=5)


def test_cells_of_few_rows_each_are_seen_together() -> None:
    counts = [0] * 1024
    counts[100:400] = [12] * 300
    noisy = np.array(counts) + discrete_gaussian_noise(random_stream(5), 20.0, 1024)
    known = support(noisy.tolist(), 20.0)
    assert known[110:390].mean() > 0.9
    assert not known[500:].any()


def distance(counts: NDArray[np.int64], weights: NDArray[np.int64]) -> float:
    """Kolmogorov's distance of two columns with so many rows in each cell."""
    shares = [np.cumsum(each) / each.sum() for each in (counts, weights)]
    return float(np.abs(shares[0] - shares[1]).max())


def test_tails_of_few_rows_in_many_cells_are_drawn() -> None:
    """4,000 rows that fall off over 300 cells, on either side, under noise of deviation 20; mean of 20 runs.

    Without the neighbours of what is seen the distance is 0.2: the control.
    """
    tail = (4000 / 80 * np.exp(-np.arange(300) / 80)).round().astype(np.int64)
    found, control = [], []
    for seed in range(20):
        counts = np.zeros(1024, np.int64)
        counts[400:700] = tail if seed % 2 else tail[::-1]
        noisy = counts + discrete_gaussian_noise(random_stream(seed), 20.0, 1024)
        known = _shown(noisy, 400)
        weights = fine_weights(noisy.tolist(), (0,), 20.0)
        found.append(distance(counts, weights))
        control.append(distance(counts, np.where(known, np.maximum(noisy, 0), 0)))
    assert np.mean(found) < 0.15
    assert np.mean(found) < 0.7 * np.mean(control)


def test_rows_that_noise_hides_come_out_near_one_another() -> None:
    """1,000 rows in 200 of 1,024 cells under noise of deviation 20: no window of 5 deviations; 20 runs.

    Drawn from all cells a fifth of the rows would be in their place, as where there are none.
    """
    inside, alone = [], []
    for seed in range(20):
        noise = discrete_gaussian_noise(random_stream(seed), 20.0, 1024)
        counts = noise.copy()
        counts[300:500] += 5
        weights = fine_weights(counts.tolist(), (0,), 20.0)
        inside.append(weights[250:550].sum() / weights.sum())
        noise -= noise.sum() // 1024
        alone.append((fine_weights(noise.tolist(), (0,), 20.0) == 1).all())
    assert np.mean(inside) > 0.6
    assert np.mean(alone) > 0.5


BORN = Moment("born", "date", "0001-01-01", "9999-12-31", "day", private=PrivateBins())


def test_dates_have_fine_cells_by_the_calendar() -> None:
    cells = fine_cells(BORN)
    assert len(cells.ranges) <= 1024
    ranges = set(cells.ranges)
    for mark in ("1900-01-01", "1970-01-01", "9999-12-31", "0001-01-01"):
        tick = BORN.tick(mark)
        assert (tick, tick) in ranges
    near = [
        last - first + 1
        for first, last in ranges
        if BORN.tick("1901-01-01") < first < BORN.tick("2099-01-01")
    ]
    assert max(near) < 92
    one_year = Moment("at", "date", "2024-01-01", "2024-12-31", "day", private=PrivateBins())
    assert fine_cells(one_year).ranges == tuple((t, t) for t in range(*_ends(one_year)))


def _ends(column: Moment) -> tuple[int, int]:
    return column.tick(column.low), column.tick(column.high) + 1


@pytest.mark.parametrize(
    "unit", ["year", "quarter", "month", "week", "day", "hour", "second", "microsecond"]
)
@pytest.mark.parametrize("resolution", [4, 40, 1024])
def test_fine_cells_of_dates_cover_their_bounds(unit: str, resolution: int) -> None:
    low, high = (tick_of(datetime(*day), unit) for day in ((1, 1, 1), (9999, 12, 31)))
    for first, last in (
        (low, high),
        (high - 3, high),
        (low, low),
        (tick_of(datetime(1950, 1, 1), unit), high),
    ):
        starts = calendar_starts(unit, first, last, resolution)
        assert starts[0] == first
        assert starts == sorted(set(starts))
        assert starts[-1] <= last
        assert len(starts) <= resolution


def test_measured_dates_read_back_and_come_where_they_were_counted() -> None:
    cells = fine_cells(BORN)
    counts = np.zeros(len(cells.ranges))
    busy = [
        i
        for i, (first, _) in enumerate(cells.ranges)
        if BORN.tick("1990-01-01") < first < BORN.tick("2000-01-01")
    ]
    counts[busy] = 100
    counts[-1] = 400
    domain = resolve(Domain((BORN,)), {0: counts}, 5.0)
    assert Domain.from_dict(domain.to_dict()) == domain
    codes = np.repeat(np.arange(domain.shape[0], dtype=np.int32), 300)[:, None]
    drawn = decode(domain, codes, public_generator(1))
    assert (encode(domain, drawn) == codes).all()
    assert set(drawn["born"].str[:3]) <= {"198", "199", "200", "999"}
    assert "9999-12-31" in set(drawn["born"])
    moved = coarse_codes(Domain((BORN,)), domain, np.array([[len(cells.ranges) - 1]], np.int32))
    assert moved[0, 0] == domain.shape[0] - 1


def test_fine_cells_have_bounds_and_zero_by_themselves() -> None:
    ranges = fine_cells(GAIN).ranges
    assert len(ranges) <= 1024
    assert ranges[0] == (0, 0)
    assert ranges[-1] == (99_999, 99_999)
    assert (0, 0) in fine_cells(PRICE).ranges
    assert len(fine_cells(Integer("age", 17, 90, private=PrivateBins())).ranges) == 74


def test_domain_with_a_histogram_reads_back_and_has_codes_of_what_it_draws() -> None:
    fine = np.zeros(GAIN.size)
    fine[0], fine[5], fine[-1] = 5000, 300, 900
    prices = np.full(PRICE.size, 40.0)
    domain = resolve(DOMAIN, {0: fine, 2: prices}, 10.0)
    assert Domain.from_dict(domain.to_dict()) == domain
    assert unmeasured(domain) == ()
    assert domain.shape[0] <= 16
    codes = np.stack([np.arange(2000) % size for size in domain.shape], axis=1, dtype=np.int32)
    drawn = decode(domain, codes, public_generator(1))
    assert (encode(domain, drawn) == codes).all()
    top = drawn["gain"][codes[:, 0] == domain.shape[0] - 1]
    assert set(top) == {"99999"}


def test_coarse_codes_are_those_of_the_measured_domain() -> None:
    codes = table_codes(3000)
    histograms = {
        i: np.bincount(codes[:, i], minlength=DOMAIN.shape[i]).astype(float)
        for i in unmeasured(DOMAIN)
    }
    domain = resolve(DOMAIN, histograms, 1.0)
    frame = decode(DOMAIN, codes, public_generator(2))
    moved = coarse_codes(DOMAIN, domain, codes)
    assert (moved == encode(domain, frame)).all()
    measurement = coarse_measurement(domain, 2, histograms[2], sigma=3.0, clients=1)
    assert (measurement.noisy == np.bincount(moved[:, 2], minlength=domain.shape[2])).all()
    assert measurement.total.variance == pytest.approx(9.0 * DOMAIN.shape[2])


def test_stand_in_is_never_smaller_than_what_is_measured() -> None:
    assert stand_in(DOMAIN).shape == (16, 2, 9)
    fine = np.arange(DOMAIN.shape[0], dtype=float) * 100
    resolved = resolve(DOMAIN, {0: fine}, 1.0)
    assert resolved.shape[0] == 16


DATES: dict[str, object] = {"bins": "private", "kind": "date"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"bins": "private", "atoms": [0]}, "beside atoms"),
        ({"bins": "private", "coarse": 3}, "coarse = 3"),
        ({"bins": "private", "resolution": 2000}, "resolution = 2000"),
        ({"bins": 8, "coarse": 4}, "without bins"),
        ({"bins": "private", "histogram": [1, 2], "deviation": 1.0}, "2 counts"),
        ({"bins": "private", "kind": "real", "low": 0.0, "high": 1.0}, "needs decimals"),
        (DATES | {"edges": ["2020-01-01", "2021-01-01"]}, "edges"),
        (DATES | {"low": "2020-01-01", "high": "2021-01-01", "atoms": ["2020-02-02"]}, "atoms"),
    ],
)
def test_column_refuses_what_private_bins_cannot_be(table: dict[str, object], message: str) -> None:
    bounds = {} if "kind" in table and table["kind"] == "date" else {"low": 0, "high": 9}
    column = {"name": "x", "kind": "integer"} | bounds | table
    with pytest.raises(DomainError, match=message):
        Domain.from_dict({"column": [column]})


async def test_central_aim_keeps_spikes_and_spends_the_same_budget() -> None:
    codes, plan = table_codes(20_000), fixed_rounds_plan(0.5, 4, 3)
    ledger, stream = Ledger(plan.rho), random_stream(9)
    histograms = measure_fine(DOMAIN, plan, codes=codes, ledger=ledger, random_bytes=stream)
    domain = resolve(DOMAIN, histograms, plan.sigma)
    workload = Workload(domain, (("gain", "sex"), ("gain", "price")))
    history = [
        coarse_measurement(domain, i, noisy, sigma=plan.sigma, clients=1)
        for i, noisy in histograms.items()
    ]
    backend = PlaintextBackend.pooled(
        workload,
        plan,
        codes=coarse_codes(DOMAIN, domain, codes),
        ledger=ledger,
        random_bytes=stream,
        measured=len(history),
    )
    estimator = PgmEstimator(workload, plan, iterations=50, final_iterations=200)
    result = await run_aim(workload, plan, backend, estimator, max_rows=50_000, history=history)
    assert ledger.spent <= plan.rho
    assert ledger.spent == pytest.approx(plan.rho, rel=1e-6)
    assert result.total == pytest.approx(20_000, abs=500)
    assert estimator.model is not None
    drawn = decode(domain, estimator.model.sample(20_000, public_generator(1)), public_generator(2))
    zeros, tops = (drawn["gain"] == "0").mean(), (drawn["gain"] == "99999").mean()
    assert zeros == pytest.approx((codes[:, 0] == 0).mean(), abs=0.01)
    assert tops == pytest.approx((codes[:, 0] == DOMAIN.shape[0] - 1).mean(), abs=0.01)


def test_measure_fine_charges_every_column_before_it_is_released() -> None:
    plan, codes = fixed_rounds_plan(0.5, 4, 3), table_codes(50)
    with pytest.raises(BudgetExceeded):
        measure_fine(DOMAIN, plan, codes=codes, ledger=Ledger(0.001), random_bytes=random_stream(1))
    ledger = Ledger(plan.rho)
    found = measure_fine(DOMAIN, plan, codes=codes, ledger=ledger, random_bytes=random_stream(1))
    assert len(ledger.entries) == len(found) == 2
    assert not math.isclose(found[0].sum(), 50)


def test_noise_beside_a_mark_does_not_take_its_cell_and_rows_do() -> None:
    counts = [0] * 100
    counts[20:40], counts[70], counts[71] = [300] * 20, 110, 60
    marks = frozenset({70})
    assert {70, 71} <= {*group(counts, 32, 20.0, marks=marks)}
    assert 70 not in group(counts, 32, 20.0)
    counts[71] = 200
    assert 70 not in group(counts, 32, 20.0, marks=marks)


def test_a_spike_is_no_evidence_of_rows_beside_it() -> None:
    counts = [0] * 100
    # The two together stand out more than the first alone, 146^2 / 2 for 101^2.
    counts[50], counts[51] = 101, 46
    known = support(counts, 20.0)
    assert known[50]
    assert not known[51]
    # Rows there are seen without the spike.
    counts[51] = 61
    assert support(counts, 20.0)[51]


def runs_beyond_the_last_year() -> int:
    """Returns the number of 300 columns of 10,000 rows in 24 of 200 cells that noise shows in others."""
    found = 0
    for seed in range(300):
        counts = np.random.default_rng(seed).normal(0, 20, 200).round().astype(np.int64)
        counts[100:124] += 10_000 // 24
        known = support(counts.tolist(), 20.0)
        assert known[100:124].all()
        found += known.sum() > 24
    return found


def test_no_year_after_the_last_is_drawn_beside_full_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four deviations on either side, of any run of cells: one column in 400; three deviations: one in 20."""
    assert runs_beyond_the_last_year() <= 4
    # The control: neighbours of full cells count as those of few rows.
    monkeypatch.setattr("mechanisms.private_bins.BEYOND", NEAR)
    assert runs_beyond_the_last_year() >= 8
