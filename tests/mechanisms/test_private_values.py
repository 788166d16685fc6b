"""Private values: public grids of fine cells, categories that stand out of the noise, and tables that come back."""

import itertools
import math
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.accounting import Ledger, fixed_rounds_plan
from mechanisms.column_values import as_measured, column_values
from mechanisms.columns import Categorical, Moment, Ordered, fine_cells, written_range
from mechanisms.descent import Target
from mechanisms.discretising import SENTINELS
from mechanisms.domain import Domain, Integer
from mechanisms.errors import DomainError
from mechanisms.exact_noise import discrete_gaussian_noise
from mechanisms.moments import DATE_MARKS, UNITS, tick_of
from mechanisms.origins import column_in_words, counted
from mechanisms.plaintext import measure_fine
from mechanisms.private_bins import MARKED, PrivateBins, support
from mechanisms.private_categories import ABSENT, MOST_CANDIDATES, PrivateCategories, threshold
from mechanisms.resolving import (
    coarse_codes,
    coarse_measurement,
    resolve,
    stand_in,
    unmeasured,
    usual_stand_in,
)
from mechanisms.sampling import public_generator
from mechanisms.scale_free import (
    COUNTER_BITS,
    LARGEST_WHOLE,
    MARKS,
    STEPS,
    largest_real,
    number_starts,
)
from mechanisms.schema import table_schema
from mechanisms.table import decode, encode
from tests.mechanisms.tables import random_stream

PRIVATE: dict[str, object] = {"values": "private"}


def column(kind: str, **keys: object) -> dict[str, object]:
    return {"name": "x", "kind": kind} | PRIVATE | keys


def domain_of(*columns: dict[str, object]) -> Domain:
    return Domain.from_dict({"column": list(columns)})


@pytest.mark.parametrize("places", range(16))
def test_number_starts_cover_all_numbers_with_zero_and_marks_by_themselves(places: int) -> None:
    unit = 10**places
    largest = LARGEST_WHOLE if places == 0 else int(largest_real(places)) * unit
    starts = number_starts(places, -largest, largest)
    assert len(starts) <= 1024
    assert starts[0] == -largest
    assert starts == sorted(set(starts))
    assert starts[-1] <= largest
    single = {0, *(mark * unit for mark in MARKS), unit, -unit, 1000 * unit}
    single = {number for number in single if abs(number) < largest}
    if places == 0:
        single |= {*range(251), *range(1900, 2101), *range(-50, 0)}
        single |= {number for bits in COUNTER_BITS for number in (2**bits - 1, 2**bits)}
    assert single <= {a for a, b in itertools.pairwise(starts) if b == a + 1}
    # Beyond the marks a cell is no wider than 29 % of its numbers; above zero, up to a million, 7 %.
    apart = {s + d for s in single for d in (0, 1)}
    for first, after in itertools.pairwise(starts):
        if first > 1000 * unit and not {first, after} & apart:
            assert after - first <= (0.072 if first < 10**6 * unit else 0.145) * first + 1
        if after < -1000 * unit and not {first, after} & apart:
            assert after - first <= 0.29 * -after + 1


def test_steps_are_those_of_r40_alike_in_proportion() -> None:
    assert len(STEPS) == 40
    exact = 100 * 10 ** (np.arange(40) / 40)
    assert np.abs(np.array(STEPS) / exact - 1).max() < 0.013


@pytest.mark.parametrize("unit", UNITS)
def test_dates_without_bounds_have_cells_by_the_calendar(unit: str) -> None:
    kind = "date" if UNITS.index(unit) >= UNITS.index("day") else "datetime"
    form = {"week": "YYYY-Www"}.get(unit, "")
    if unit in ("microsecond", "millisecond"):
        form = "YYYY-MM-DDTHH:MM:SS.ffffff"
    (at,) = domain_of(column(kind, unit=unit, **({"format": form} if form else {}))).columns
    assert not isinstance(at, Categorical)
    cells = fine_cells(at).ranges
    assert len(cells) <= 1024
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(cells))
    assert cells[-1][0] == cells[-1][1]


@settings(deadline=None)
@given(st.integers(-LARGEST_WHOLE, LARGEST_WHOLE), st.integers(1, 14))
def test_any_number_has_a_code_and_comes_back_in_its_cell(number: int, digits: int) -> None:
    (whole,) = domain_of(column("integer")).columns
    small = number % 10**digits
    for value in (number, small, -small):
        code = whole.code_of(str(value))
        assert code is not None
        assert not isinstance(whole, Categorical)
        first, last = fine_cells(whole).ranges[code]
        assert first <= value <= last


COUNTS = domain_of(column("integer"))


@pytest.mark.parametrize("end", [255, 1023])
def test_counters_end_is_a_cell_of_its_own_if_many_rows_have_it(end: int) -> None:
    rng, rows = np.random.default_rng(end), 4000
    values = np.where(rng.random(rows) < 0.5, end, rng.integers(0, end, rows))
    table = pd.DataFrame({"x": values.astype(str)}, dtype=object)
    codes = encode(COUNTS, table)
    domain = resolve(COUNTS, noisy(codes, COUNTS, 20.0), 20.0)
    drawn = decode(domain, coarse_codes(COUNTS, domain, codes), public_generator(1))["x"]
    assert (drawn == str(end)).mean() == pytest.approx((values == end).mean(), abs=0.001)


def test_columns_of_earlier_runs_keep_their_cells() -> None:
    bounds = -LARGEST_WHOLE, LARGEST_WHOLE
    before = number_starts(0, *bounds, counters=False)
    counts = [500 if start == 250 else 0 for start in before]
    known = column("integer", histogram=counts, deviation=9.0)
    (whole,) = domain_of(known).columns
    assert not isinstance(whole, Categorical)
    assert [first for first, _ in fine_cells(whole).ranges] == before
    assert domain_of(whole.to_dict()).columns == (whole,)
    with pytest.raises(DomainError, match=f"{len(before) - 1} counts; it has {len(before) + 18}"):
        domain_of(column("integer", histogram=counts[1:], deviation=9.0))


def test_grid_and_configuration_know_nothing_of_a_table() -> None:
    (whole,), (again,) = domain_of(column("integer")).columns, domain_of(column("integer")).columns
    assert whole.to_dict() == {
        "name": "x", "kind": "integer", "values": "private", "coarse": 32, "missing": False
    }  # fmt: skip
    assert whole == again
    domain = domain_of(column("real", decimals=2), column("date") | {"name": "y"})
    assert Domain.from_dict(domain.to_dict()) == domain
    assert counted(domain) == {"private": 2}
    assert column_in_words(domain, "x").startswith("private: noisy counts of the run")


def ugly(rows: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    cost = np.where(rng.random(rows) < 0.6, 0.0, np.exp(rng.normal(6.5, 1.0, rows)))
    income = np.exp(rng.normal(10.3, 0.8, rows)).astype(int).astype(str)
    income[rng.random(rows) < 0.02] = "-99"
    days = pd.to_datetime("2019-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), "D")
    end = np.where(rng.random(rows) < 0.02, "9999-12-31", days.strftime("%Y-%m-%d").to_numpy())
    ratio = np.where(rng.random(rows) < 0.5, 1.0, rng.uniform(0.8, 1.2, rows))
    return pd.DataFrame(
        {
            "cost": [f"{c:.2f}" for c in cost],
            "income": income,
            "end": end,
            "ratio": [f"{r:.3f}" for r in ratio],
        },
        dtype=object,
    )


UGLY = Domain.from_dict(
    {
        "column": [
            column("real", decimals=2) | {"name": "cost"},
            column("integer") | {"name": "income"},
            column("date") | {"name": "end"},
            column("real", decimals=3) | {"name": "ratio"},
        ]
    }
)


def noisy(codes: np.ndarray[tuple[int, int], np.dtype[np.int32]], domain: Domain, sigma: float):  # type: ignore[no-untyped-def]
    """The noisy counts of all columns of a domain."""
    stream = random_stream(7)
    return {
        i: np.bincount(codes[:, i], minlength=domain.shape[i])
        + discrete_gaussian_noise(stream, sigma, domain.shape[i]).astype(float)
        for i in unmeasured(domain)
    }


def test_heaps_bounds_and_medians_come_back_from_noisy_counts() -> None:
    """Epsilon 1 and 10,000 rows of seven columns leave a deviation of some 29."""
    table, sigma = ugly(10_000), 29.0
    codes = encode(UGLY, table)
    domain = resolve(UGLY, noisy(codes, UGLY, sigma), sigma)
    assert Domain.from_dict(domain.to_dict()) == domain
    moved = coarse_codes(UGLY, domain, codes)
    assert max(domain.shape) <= 33
    drawn = decode(domain, moved, public_generator(3))
    assert (encode(domain, drawn) == moved).all()
    real, made = (pd.to_numeric(of["cost"]) for of in (table, drawn))
    assert (made == 0).mean() == pytest.approx((real == 0).mean(), abs=0.002)
    real, made = (pd.to_numeric(of["income"]) for of in (table, drawn))
    assert made.median() == pytest.approx(real.median(), rel=0.1)
    assert (made == -99).mean() == pytest.approx((real == -99).mean(), abs=0.002)
    assert (drawn["end"] == "9999-12-31").mean() == pytest.approx(0.02, abs=0.004)
    assert set(drawn["end"].str[:4]) == {"2019", "2020", "9999"}
    assert pd.to_numeric(drawn["ratio"]).median() == pytest.approx(1.0, abs=0.01)
    # Bounds are those of the cells that showed rows.
    low, high = written_range(domain.columns[1])  # type: ignore[arg-type]
    assert low > -200
    assert high < 10**6
    fields = {f["name"]: f for f in table_schema(domain)["fields"]}  # type: ignore[attr-defined]
    assert fields["income"]["constraints"]["maximum"] == high


def test_neighbouring_tables_differ_by_one_count_of_each_column() -> None:
    """The sensitivity that round 0 charges for: a row more is one more in one cell of each column."""
    table = ugly(300)
    codes, fewer = encode(UGLY, table), encode(UGLY, table.iloc[:-1])
    for i, size in enumerate(UGLY.shape):
        counts = [np.bincount(of[:, i], minlength=size) for of in (codes, fewer)]
        moved = counts[0] - counts[1]
        assert sorted(moved[moved != 0]) == [1]
    # The cells do not follow the table: an absurd row changes no other row's code.
    odd = pd.concat([table, table.iloc[:1].assign(income="-999999999999")], ignore_index=True)
    assert (encode(UGLY, odd)[:-1] == codes).all()


LIST = tuple(f"{letter}{n:02d}" for letter in "ABCDEFGHIJKLMNOPQRST" for n in range(100))
CODED = Domain(
    (Categorical("code", LIST, missing=True, other="other", private=PrivateCategories(LIST)),)
)
FEW = LIST[:20]
SMALL = Domain(
    (UGLY.columns[1], Categorical("code", FEW, other="other", private=PrivateCategories(FEW)))
)


def mean_loss(runs: int, *, share: float = 1.0) -> tuple[float, float, float]:
    """Mean privacy loss of round 0 with a row that is there or not, its standard error, and what was charged.

    The row is one of its own: an absurd number, and a code that nobody has. ``share``: of the
    deviation charged for, what noise is taken to have.
    """
    rest = pd.DataFrame({"income": ["100"] * 20, "code": "A07"}, dtype=object)
    canary = pd.DataFrame({"income": ["-7777777777"], "code": "A19"})
    tables = [encode(SMALL, pd.concat([rest, canary], ignore_index=True)), encode(SMALL, rest)]
    counts = [
        [np.bincount(of[:, i], minlength=size) for i, size in enumerate(SMALL.shape)]
        for of in tables
    ]
    stream, losses = random_stream(11), []
    for number in range(runs):
        one = number % 2
        plan = fixed_rounds_plan(3.0, 2, 2, noise="discrete-gaussian", initial_share=0.4)
        ledger = Ledger(plan.rho)
        found = measure_fine(SMALL, plan, codes=tables[one], ledger=ledger, random_bytes=stream)
        ours, theirs = (
            sum(float(np.square(found[i] - counts[of][i]).sum()) for i in range(2))
            for of in (one, 1 - one)
        )
        losses.append((theirs - ours) / (2 * (share * plan.initial_sigma) ** 2))
    return float(np.mean(losses)), float(np.std(losses)) / math.sqrt(runs), ledger.spent


def test_a_canary_in_round_0_loses_what_is_charged_on_average() -> None:
    """The loss of a Gaussian has its zCDP as mean and half its variance: 5 standard errors, 3e-7 of false alarms."""
    mean, error, charged = mean_loss(120)
    assert mean == pytest.approx(charged, abs=5 * error)
    # The deviation of so many losses is known to 6.5 %.
    assert error * math.sqrt(120) == pytest.approx(math.sqrt(2 * charged), rel=5 * 0.065)
    # The control: noise of half the deviation is told; so many runs tell it by 8 standard errors on average.
    mean, error, charged = mean_loss(210, share=0.5)
    assert mean > charged + 5 * error


@pytest.mark.slow
def test_a_canary_in_round_0_loses_what_is_charged_on_average_in_many_runs() -> None:
    mean, error, charged = mean_loss(5_000)
    assert mean == pytest.approx(charged, abs=5 * error)
    assert error * math.sqrt(5_000) == pytest.approx(math.sqrt(2 * charged), rel=5 * 0.01)


def test_each_count_has_the_variance_of_its_own_fine_cells() -> None:
    codes = encode(UGLY, ugly(5000))
    histograms = noisy(codes, UGLY, 10.0)
    domain = resolve(UGLY, histograms, 10.0)
    found = coarse_measurement(domain, 0, histograms[0], sigma=10.0, clients=1)
    assert isinstance(found.merged, np.ndarray)
    assert found.merged.sum() == UGLY.shape[0]
    zero = domain.columns[0].code_of("0.00")
    assert zero is not None
    assert found.merged[zero] == 1
    assert found.total.variance == pytest.approx(100.0 * UGLY.shape[0])


def test_target_with_a_weight_for_each_entry_has_the_weighted_loss() -> None:
    mean, mu = np.array([0.2, 0.3, 0.5]), np.array([0.25, 0.25, 0.5])
    weight = np.array([10.0, 1.0, 0.1])
    assert Target(mean, weight).loss(weight * (mu - mean)) == pytest.approx(
        float(np.sum(weight * (mu - mean) ** 2)) / 2
    )
    assert Target(mean, 4.0).loss(4.0 * (mu - mean)) == pytest.approx(
        4.0 * float(np.sum((mu - mean) ** 2)) / 2
    )


def test_candidates_that_stand_out_are_kept_and_the_rest_is_merged() -> None:
    rng, rows, sigma = np.random.default_rng(2), 10_000, 29.0
    often = np.array(["A07", "C33", "T99"])
    values = np.concatenate(
        [often[rng.integers(0, 3, rows // 2)], np.array(LIST)[rng.integers(0, 2000, rows // 4)]]
    )
    values = np.concatenate([values, ["unlisted"] * (rows - len(values) - 100), [""] * 100])
    table = pd.DataFrame({"code": values}, dtype=object)
    codes = encode(CODED, table)
    histograms = noisy(codes, CODED, sigma)
    domain = resolve(CODED, histograms, sigma)
    assert Domain.from_dict(domain.to_dict()) == domain
    (code,) = domain.columns
    assert isinstance(code, Categorical)
    assert code.values == ("A07", "C33", "T99", "other")
    drawn = decode(domain, coarse_codes(CODED, domain, codes), public_generator(1))["code"]
    for value in often:
        assert (drawn == value).sum() == (table["code"] == value).sum()
    assert (drawn == "").sum() == 100
    assert (drawn == "other").sum() == rows - 100 - drawn.isin(often).sum()
    found = coarse_measurement(domain, 0, histograms[0], sigma=sigma, clients=1)
    assert isinstance(found.merged, np.ndarray)
    assert found.merged.tolist() == [1, 1, 1, 2001 - 3, 1]
    # Real values that were not kept count as the word for others.
    (of,) = as_measured(domain, column_values(CODED, table))
    assert set(of.texts) <= {*often, "other"}
    assert of.rows == rows


def passing(candidates: int, deviation: float, times: int) -> float:
    """Share of runs in which noise alone passes the threshold in any of the candidates."""
    noise = discrete_gaussian_noise(random_stream(11), deviation, candidates * times)
    return float((noise.reshape(times, -1) >= threshold(candidates, deviation)).any(1).mean())


def test_absent_candidates_pass_with_a_probability_of_one_in_a_thousand_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2,000 runs of 50: more than 9 with such a candidate have a chance below 1 in 20,000 at ``ABSENT``."""
    assert passing(50, 12.0, 2000) <= 9 / 2000
    # The bound on the tail of a Gaussian, with some slack: no less than what is claimed, no more than a row beyond.
    for count in (1, 50, 2000, MOST_CANDIDATES):
        tail = count * math.erfc((threshold(count, 1000.0) - 1) / 1000.0 / math.sqrt(2)) / 2
        assert tail <= float(ABSENT)
    # The control: at twice the deviation most runs keep what is not there.
    monkeypatch.setattr("tests.mechanisms.test_private_values.threshold", lambda _, dev: 2 * dev)
    assert passing(50, 12.0, 2000) > 0.5


def test_more_categories_than_cells_leave_the_largest() -> None:
    counts = [1000 + i for i in range(40)]
    private = PrivateCategories(LIST[:40], 10, (*counts, 0), 5.0)
    assert private.categories == LIST[31:40]
    assert private.places(1).tolist() == [9] * 31 + [*range(9)] + [9, 10]


def test_nothing_kept_leaves_one_cell_and_the_largest_stand_in_is_no_smaller() -> None:
    domain = resolve(CODED, {0: np.zeros(CODED.shape[0])}, 9.0)
    (code,) = domain.columns
    assert isinstance(code, Categorical)
    assert (code.categories, code.values, code.size) == ((), ("other",), 2)
    assert Domain.from_dict(domain.to_dict()) == domain
    assert decode(domain, np.array([[0], [1]], np.int32), public_generator(1))["code"].tolist() == [
        "other",
        "",
    ]
    assert stand_in(CODED).shape == (33,)
    most = resolve(CODED, {0: np.full(CODED.shape[0], 1000.0)}, 9.0)
    assert most.shape == (33,)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (column("integer", low=0, high=9), r"beside low.*bins = \"private\" beside low and high"),
        (column("integer", bins="private"), "beside bins"),
        (column("integer", scale="log"), "beside scale"),
        (column("integer", atoms=[0]), "beside atoms"),
        (column("date", edges=["2020-01-01", "2021-01-01"]), "beside edges"),
        (column("real"), "needs decimals.*decimals = 2"),
        (column("real", decimals=16), "decimals = 16; 0 to 15 are possible"),
        ({"name": "x", "kind": "integer", "values": "any"}, r"values = 'any'; expected values = \"private\""),
        (column("integer", histogram=[1, 2], deviation=1.0), "2 counts"),
        (column("integer", coarse=2), "coarse = 2"),
        (column("categorical"), r"no candidates; expected candidates = "),
        (column("categorical", candidates=["a"], categories=["a"]), "beside categories"),
        (column("categorical", candidates=["a"], prefix=1), "beside prefix"),
        (column("categorical", candidates=[]), "0 values; expected 1 to 4096"),
        (column("categorical", candidates=["a", "a"]), "'a' is listed more than once"),
        (column("categorical", candidates=["a", "other"]), "other = 'other' is a candidate"),
        (column("categorical", candidates=["a"], coarse=1), "coarse = 1"),
        (column("categorical", candidates=["a"], histogram=[1]), "1 counts; it has 1 candidates"),
        (column("categorical", candidates=["a"], histogram=[1, 2]), "deviation = 0.0"),
        ({"name": "x", "kind": "categorical", "candidates": ["a"], "categories": ["a"]}, "candidates stands without"),
        (column("integer", **{"from": "private"}), "which need no from"),
    ],
)  # fmt: skip
def test_column_refuses_what_private_values_cannot_be(table: dict[str, object], said: str) -> None:
    with pytest.raises(DomainError, match=f"column 'x'.*{said}"):
        domain_of(table)


def test_a_column_that_follows_from_private_categories_is_refused() -> None:
    implied = {"name": "y", "implied_by": "x", "values": {"a": "1"}}
    with pytest.raises(DomainError, match="implied_by = 'x', whose values a run chooses"):
        domain_of(column("categorical", candidates=["a"]), implied)


def test_candidates_and_marks_of_private_values_have_a_provenance_of_their_own() -> None:
    codes = column("categorical", candidates=["a", "b"]) | {"from": "public: ICD-10"}
    numbers = column("integer", marks=["refused"]) | {"name": "y", "from": {"marks": "table"}}
    domain = domain_of(codes, numbers)
    assert counted(domain) == {"public": 2, "private": 2, "table": 1}
    assert Domain.from_dict(domain.to_dict()) == domain
    assert "private" in column_in_words(domain, "x")
    assert "public: ICD-10" in column_in_words(domain, "x")


def test_last_digits_stand_beside_private_values() -> None:
    domain = domain_of(column("real", decimals=2, endings={"99": 1.0}))
    prices = np.exp(np.random.default_rng(1).normal(4, 1, 5000)).astype(int)
    codes = encode(domain, pd.DataFrame({"x": [f"{n}.99" for n in prices]}, dtype=object))
    chosen = resolve(domain, noisy(codes, domain, 20.0), 20.0)
    drawn = decode(chosen, coarse_codes(domain, chosen, codes), public_generator(1))["x"]
    assert set(drawn.str[-3:]) == {".99"}
    assert drawn.astype(float).median() == pytest.approx(np.median(prices), rel=0.1)


@pytest.mark.parametrize("deviation", [10.0, 40.0])
@pytest.mark.parametrize("rows", [300, 3000, 30_000])
def test_usual_cells_are_about_those_that_a_table_leaves(rows: int, deviation: float) -> None:
    """Ages, incomes of which half are zero, a skewed code: their cells together, within a factor of two."""
    draw = np.random.default_rng([rows, int(deviation)])
    income = np.where(draw.random(rows) < 0.5, 0, draw.lognormal(8, 1, rows).round(2))
    code = np.array(LIST)[np.minimum(draw.zipf(1.5, rows) - 1, len(LIST) - 1)]
    age = draw.normal(50, 15, rows).round().astype(int)
    table = pd.DataFrame({"age": age, "income": income, "code": code}).astype(str)
    domain = domain_of(
        column("integer", name="age"),
        column("real", name="income", decimals=2),
        column("categorical", name="code", candidates=list(LIST)),
    )
    codes = encode(domain, table)
    histograms = {
        i: np.bincount(codes[:, i], minlength=size) + draw.normal(0, deviation, size)
        for i, size in enumerate(domain.shape)
    }
    found = sum(resolve(domain, histograms, deviation).shape)
    usual = usual_stand_in(domain, rows=rows, deviation=deviation)
    assert 0.5 <= sum(usual.shape) / found <= 2
    most = stand_in(domain)
    assert all(a <= b for a, b in zip(usual.shape, most.shape, strict=True))
    # All rows that there may be leave as many as there may be.
    assert usual_stand_in(domain, rows=1e9, deviation=deviation).shape[2] == most.shape[2]


def grid_of(kind: str, **keys: object) -> Ordered:
    (only,) = domain_of(column(kind, **keys)).columns
    assert not isinstance(only, Categorical)
    return only


GRIDS = [
    grid_of("integer"),
    *(grid_of("real", decimals=decimals) for decimals in (0, 1, 2, 6, 9)),
    grid_of("real", decimals=9, digits=6),
    grid_of("date"),
    grid_of("date", unit="month", format="YYYY-MM"),
    grid_of("datetime"),
]


@pytest.mark.parametrize("grid", GRIDS)
def test_every_listed_mark_is_a_marked_cell_of_every_grid(grid: Ordered) -> None:
    cells = fine_cells(grid)
    if isinstance(grid, Moment):
        numbers: list[int | None] = [tick_of(datetime(*day), grid.unit) for day in DATE_MARKS]
    else:
        numbers = [
            mark if isinstance(grid, Integer) else grid.multiple(str(mark)) for mark in SENTINELS
        ]
    low, high = cells.ranges[0][0], cells.ranges[-1][1]
    within = [number for number in numbers if number is not None and low <= number <= high]
    assert len(within) >= 4
    for number in within:
        code = cells.code_of(number)
        assert code in cells.marks
        assert code is not None
        assert cells.ranges[code] == (number, number)
    # The list is short: noise in few cells seldom stands out.
    assert len(cells.marks) <= 30


def test_marks_of_few_rows_come_out_and_nothing_beside_them() -> None:
    """Marks of five deviations of noise: five in six are found, by the rule of other cells a half; 36 runs.

    P(a normal of mean 5 exceeds 4) is 0.84, and 5 exceeds 5 in a half: below 25 and above 24 of 36 have 1 in 50 each.
    """
    rng, found, control = np.random.default_rng(2), 0, 0
    for run in range(36):
        cells = fine_cells((GRIDS[0], GRIDS[3], GRIDS[7])[run % 3])
        size, mark = len(cells.ranges), sorted(cells.marks)[run // 3 % len(cells.marks)]
        counts = rng.normal(0, 20, size)
        body = size // 2 if abs(size // 2 - mark) > 80 else size // 2 + 150
        counts[body : body + 40] += 200
        counts[mark] += 100
        chosen = PrivateBins(free=True).having(counts, 20.0)
        known = support(chosen.histogram, 20.0, marks=cells.marks)
        found += bool(known[mark])
        control += bool(support(chosen.histogram, 20.0)[mark])
        assert known[body : body + 40].all()
        assert not known[max(mark - 1, 0) : mark].any()
        assert not known[mark + 1 : mark + 2].any()
        assert not known[mark] or mark in chosen.groups(cells)
    assert found >= 25 > control


def test_noise_alone_is_seldom_a_mark() -> None:
    """10,000 columns of thirty marks: 1 in 1,000 have one, more than 25 with a chance of 1 in 40,000."""
    noise = discrete_gaussian_noise(random_stream(5), 20.0, 300_000).reshape(-1, 30)
    marked = (noise * noise > MARKED * MARKED * 400) & (noise > 0)
    assert 1 <= marked.any(1).sum() <= 25
