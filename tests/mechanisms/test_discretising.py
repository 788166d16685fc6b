"""Shapes of ordered columns: by value and not by spelling, whatever is in them."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.discretising import roundest, shape_of, widest_width
from mechanisms.domain import Domain, Integer, Moment, Real
from mechanisms.draft import draft_of
from mechanisms.moments import roundest_tick, tick_of
from mechanisms.sampling import public_generator
from mechanisms.table import decode, encode
from mechanisms.text_table import TextTable

Reals = NDArray[np.float64]


def every_second(starts: Sequence[int]) -> list[object]:
    """Every second block of seeds; the others are for the slow tests."""
    left_out = set(starts[1::2])
    return [pytest.param(s, marks=pytest.mark.slow if s in left_out else ()) for s in starts]


def there_and_back(texts: Sequence[str]) -> tuple[Domain, list[str]]:
    """A drafted domain of one column beside a plain one, and the column after encoding and decoding."""
    frame = pd.DataFrame({"x": list(texts), "ward": [str(i % 3) for i in range(len(texts))]})
    table = TextTable.of(frame)
    domain = draft_of(table, "table", "a table").domain
    codes = encode(domain, table)
    return domain, decode(domain, codes, public_generator(7))["x"].tolist()


def distance(one: Reals, other: Reals) -> float:
    """Of Kolmogorov and Smirnov."""
    places = np.union1d(one, other)
    shares = [np.searchsorted(np.sort(of), places, side="right") / len(of) for of in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def costs(generator: np.random.Generator, rows: int) -> Reals:
    """60 % zeros, the rest over four powers of ten."""
    amounts = np.exp(generator.normal(6, 1.2, rows))
    return np.where(generator.random(rows) < 0.6, 0.0, amounts)


@pytest.mark.parametrize("write", [repr, "{:.2f}".format, "{:.10e}".format, "{:.12g}".format])
def test_shape_does_not_hang_on_spelling(write: Callable[[float], str]) -> None:
    amounts = costs(np.random.default_rng(1), 3000)
    domain, back = there_and_back([write(float(x)) for x in amounts])
    column = domain.columns[0]
    assert isinstance(column, Real)
    assert column.atoms == (0.0,)
    drawn = np.array(back, float)
    assert (drawn == 0).mean() == (amounts == 0).mean()
    assert np.median(drawn[drawn > 0]) == pytest.approx(np.median(amounts[amounts > 0]), rel=0.1)
    assert drawn.mean() == pytest.approx(amounts.mean(), rel=0.1)
    assert distance(amounts, drawn) < 0.03


def test_dates_without_an_end_are_an_atom_and_take_no_bins() -> None:
    generator = np.random.default_rng(2)
    days = [date(2012, 1, 1) + timedelta(int(n)) for n in generator.integers(0, 3650, 2000)]
    texts = [str(day) for day in days]
    for i in range(0, 2000, 50):
        texts[i] = "9999-12-31"
    domain, back = there_and_back(texts)
    column = domain.columns[0]
    assert isinstance(column, Moment)
    assert column.atoms == ("9999-12-31",)
    years, found = (Counter(text[:4] for text in of) for of in (texts, back))
    assert found["9999"] == years["9999"]
    assert all(abs(years[year] - found[year]) <= 0.01 * 2000 for year in years | found)


@pytest.mark.parametrize("absurd", [[-99999999.0], [-99999999.0] * 4, [1e12, -3e9], [5e6] * 3])
def test_absurd_values_take_no_bins(absurd: list[float]) -> None:
    values = np.round(np.random.default_rng(3).normal(1260, 210, 4000), 1)
    values[: len(absurd)] = absurd
    domain, back = there_and_back([repr(float(x)) for x in values])
    drawn = np.array(back, float)
    assert np.median(drawn) == pytest.approx(np.median(values), rel=0.01)
    assert distance(values, drawn) < 0.03
    if len(absurd) > 2:
        assert [float(atom) for atom in domain.columns[0].atoms] == absurd[:1]  # type: ignore[union-attr]


def test_ratios_with_a_few_at_a_million_keep_their_median() -> None:
    generator = np.random.default_rng(4)
    values = np.exp(generator.normal(0, 0.5, 5000))
    values[:10] = generator.uniform(9e5, 1.1e6, 10)
    _, back = there_and_back([repr(float(x)) for x in values])
    drawn = np.array(back, float)
    assert np.median(drawn) == pytest.approx(np.median(values), rel=0.1)
    assert distance(values, drawn) < 0.03


def test_both_signs_with_heavy_tails_keep_their_quantiles() -> None:
    generator = np.random.default_rng(5)
    values = np.round(generator.standard_t(1.3, 4000) * 1000, 2)
    _, back = there_and_back([f"{x:.2f}" for x in values])
    drawn = np.array(back, float)
    assert distance(values, drawn) < 0.03
    for share in (0.1, 0.25, 0.75, 0.9):
        assert np.quantile(drawn, share) == pytest.approx(np.quantile(values, share), rel=0.15)


def test_marks_among_numbers_are_atoms() -> None:
    generator = np.random.default_rng(6)
    ages = generator.integers(18, 95, 3000)
    ages[:57], ages[57:100] = -99, 999
    domain, back = there_and_back([str(n) for n in ages])
    column = domain.columns[0]
    assert isinstance(column, Integer)
    assert {-99, 999} <= set(column.atoms)
    assert (column.low, column.high) >= (10, 94)
    assert back.count("-99") == 57
    assert back.count("999") == 43


def test_few_different_values_are_cells_of_themselves() -> None:
    generator = np.random.default_rng(7)
    doses = generator.choice([0, 12.5, 25, 50, 1000], 600)
    _, back = there_and_back([f"{x:g}" for x in doses])
    assert Counter(map(float, back)) == Counter(doses.tolist())


# How a random column's body is drawn.
BODIES: tuple[Callable[[np.random.Generator, int], Reals], ...] = (
    lambda g, n: g.normal(g.uniform(-1e3, 1e3), 10 ** g.uniform(-3, 5), n),
    lambda g, n: np.exp(g.normal(g.uniform(-4, 12), g.uniform(0.2, 2.5), n)),
    lambda g, n: g.uniform(0, 10 ** g.uniform(-2, 6), n),
    lambda g, n: g.standard_t(g.uniform(1, 3), n) * 10 ** g.uniform(0, 5),
    lambda g, n: g.poisson(10 ** g.uniform(-0.5, 4), n).astype(float),
    lambda g, n: g.geometric(g.uniform(0.001, 0.6), n).astype(float),
    lambda g, n: np.concatenate([g.normal(0, 1, n // 2), g.normal(50, 3, n - n // 2)]),
    lambda g, n: g.beta(0.3, 0.4, n) * 100,
)
SENTINELS = (-9.0, -99.0, -999.0, 999.0, 9999.0, 2.0**31 - 1, 0.0)


def ugly(seed: int) -> tuple[list[str], Reals]:
    """A random column with heaps, sentinels, absurd values and a spelling: its texts and what they are worth."""
    g = np.random.default_rng(seed)
    rows = int(10 ** g.uniform(2.3, 4))
    values = BODIES[seed % len(BODIES)](g, rows)
    if g.random() < 0.5:
        values = np.round(values, int(g.integers(0, 4)))
    if g.random() < 0.4:
        values[g.random(rows) < g.uniform(0.02, 0.7)] = g.choice([0.0, 1.0, values[0]])
    if g.random() < 0.4:
        values[g.random(rows) < g.uniform(0.01, 0.05)] = g.choice(SENTINELS)
    if g.random() < 0.3:
        values[: int(g.integers(1, 4))] = g.choice([-1, 1]) * 10 ** g.uniform(6, 9)
    write = (repr, "{:.2f}".format, "{:.6g}".format)[int(g.integers(0, 3))]
    texts = [write(float(x)) for x in values]
    return texts, np.array(texts, float)


@pytest.mark.parametrize("start", every_second(range(0, 200, 20)))
def test_random_columns_come_back_as_they_were(start: int) -> None:
    """Encoded and decoded without noise: near in distribution, and what stood out stands out."""
    for seed in range(start, start + 20):
        texts, values = ugly(seed)
        domain, back = there_and_back(texts)
        column, drawn = domain.columns[0], np.array(back, float)
        assert isinstance(column, Integer | Real), seed
        if isinstance(column, Real) and column.digits is not None:
            values = np.array([column.value_of(column.multiple(text) or 0) for text in texts])
        elif isinstance(column, Real) and column.decimals is not None:
            values = np.round(values, column.decimals)
        # Rows that are drawn again are as far from one another by chance alone.
        assert distance(values, drawn) < 0.03 + 1 / math.sqrt(len(values)), seed
        for atom in column.atoms:
            kept, there = (np.isclose(of, atom, rtol=1e-12, atol=0).sum() for of in (drawn, values))
            assert kept == there, (seed, atom)
        common, times = Counter(values.tolist()).most_common(1)[0]
        if times > 0.3 * len(values) and column.size > 8:
            assert (drawn == common).mean() == pytest.approx(times / len(values), abs=0.02), seed


def ugly_dates(seed: int) -> list[str]:
    """Random dates with marks of no end, a default birthday and typing errors."""
    g = np.random.default_rng(seed)
    rows = int(10 ** g.uniform(2.3, 3.7))
    first = date(int(g.integers(1920, 2020)), 1, 1)
    offsets = g.exponential(10 ** g.uniform(1.5, 4), rows)
    days = [str(first + timedelta(min(int(n), 25_000))) for n in offsets]
    share, mark = g.uniform(0.005, 0.3), str(g.choice(["9999-12-31", "2099-12-31", "1800-01-01"]))
    for i in np.flatnonzero(g.random(rows) < share):
        days[int(i)] = mark
    days[:3] = [mark] * 3
    if g.random() < 0.5:
        days[3:5] = ["0202-03-04", "8201-06-07"]
    return days


@pytest.mark.parametrize("start", every_second(range(1000, 1100, 20)))
def test_random_dates_come_back_as_they_were(start: int) -> None:
    for seed in range(start, start + 20):
        texts = ugly_dates(seed)
        domain, back = there_and_back(texts)
        column = domain.columns[0]
        assert isinstance(column, Moment), seed
        assert texts[0] in column.atoms, seed
        for atom in column.atoms:
            assert back.count(atom) == texts.count(atom), (seed, atom)
        values, drawn = (
            np.array([column.tick(text) for text in of], np.float64) for of in (texts, back)
        )
        assert distance(values, drawn) < 0.03 + 1 / math.sqrt(len(values)), seed


@pytest.mark.parametrize("start", every_second(range(400, 600, 50)))
def test_no_cell_of_several_values_holds_a_quarter_of_the_rows(start: int) -> None:
    """Nor does a median move by more than chance and a fiftieth of the rows."""
    for seed in range(start, start + 50):
        texts, _ = ugly(seed)
        frame = pd.DataFrame({"x": texts, "ward": [str(i % 3) for i in range(len(texts))]})
        table = TextTable.of(frame)
        domain = draft_of(table, "table", "a table").domain
        column, codes = domain.columns[0], encode(domain, table)
        assert isinstance(column, Integer | Real), seed
        ranges = column.cells.ranges
        counts = np.bincount(codes[:, 0], minlength=column.size).astype(float)
        several = [
            count for (first, last), count in zip(ranges, counts, strict=False) if last > first
        ]
        assert max(several, default=0) <= 0.25 * counts.sum(), seed
        drawn = np.sort(decode(domain, codes, public_generator(7))["x"].to_numpy(float))
        middle = float(drawn[len(drawn) // 2])
        ordered = np.sort([float(text) for text in texts])
        slack = 0.02 + 1 / math.sqrt(len(texts))
        least, most = np.quantile(ordered, [0.5 - slack, 0.5 + slack])
        rounding = 1e-6 * abs(middle)
        assert least - rounding <= middle <= most + rounding, seed


def test_one_absurd_value_takes_no_bins_of_few_rows() -> None:
    values = np.round(np.random.default_rng(9).normal(1260, 210, 60), 1)
    values[7] = 4e9
    _, back = there_and_back([repr(float(x)) for x in values])
    drawn = np.array(back, float)
    assert np.median(drawn) == pytest.approx(np.median(values), rel=0.1)
    assert distance(values, drawn) < 0.2
    assert drawn.max() > 1e4


def test_an_end_cell_of_few_rows_has_parts_three_times_as_wide_as_the_one_before() -> None:
    body = np.random.default_rng(10).normal(500, 100, 4000).astype(int)
    found = shape_of(Counter([*body.tolist(), 98_765_432]))
    assert found.edges[-2] < 1100
    outer = [number for number in found.within if number > found.edges[-2]]
    assert len(outer) > 8
    assert found.edges[-1] == 100_000_000
    low = shape_of(Counter([*(-body).tolist(), -98_765_432]))
    assert [-number for number in low.edges] == pytest.approx(list(found.edges[::-1]), abs=60)


def test_shapes_have_no_value_of_the_tails_themselves() -> None:
    generator = np.random.default_rng(11)
    values = np.round(generator.standard_t(1.3, 4000) * 100_000).astype(int)
    found = shape_of(Counter(values.tolist()))
    digits = [len(str(abs(number)).rstrip("0")) for number in (*found.edges, *found.within)]
    assert max(digits) <= 4
    assert len({*found.edges, *found.within} & {n for n in values.tolist() if abs(n) > 10**7}) == 0


def test_numbers_of_one_decimal_are_no_heaps_among_a_few_of_two() -> None:
    generator = np.random.default_rng(12)
    weights = np.round(generator.normal(70, 12, 12_000), 1)
    weights[:600] = np.round(weights[:600] + 0.04, 2)
    domain, back = there_and_back([f"{x:g}" for x in weights])
    assert domain.columns[0].atoms == ()  # type: ignore[union-attr]
    assert distance(weights, np.array(back, float)) < 0.03


def test_whole_numbers_stay_whole_beside_a_few_decimals() -> None:
    generator = np.random.default_rng(13)
    pressure = np.round(generator.normal(80, 10, 8000))
    pressure[:4] += 0.5
    domain, back = there_and_back([f"{x:.1f}" for x in pressure])
    assert isinstance(domain.columns[0], Real)
    assert domain.columns[0].decimals == 0
    assert np.mean(np.array(back, float)) == pytest.approx(pressure.mean(), abs=0.2)


@pytest.mark.parametrize("marks", [(-9,), (-8, -9), (998, 999), (97, 98, 99), (-99, 9999)])
@pytest.mark.parametrize("write", ["{:d}".format, "{:.2f}".format])
def test_marks_side_by_side_are_atoms_however_written(
    marks: tuple[int, ...], write: Callable[[int], str]
) -> None:
    generator = np.random.default_rng(14)
    hours = generator.poisson(22, 3000) + 1
    for i, mark in enumerate(marks):
        hours[20 * i : 20 * i + 20 - i] = mark
    texts = [write(int(n)) for n in hours]
    texts[-9:] = [f"{n / 4:g}" for n in range(40, 49)]
    domain, back = there_and_back(texts)
    column = domain.columns[0]
    assert isinstance(column, Integer | Real)
    assert set(marks) <= {*column.atoms}
    for mark in marks:
        assert [float(text) for text in back].count(mark) == int((hours == mark).sum())


def test_numbers_over_many_powers_of_ten_keep_the_rows_of_each() -> None:
    generator = np.random.default_rng(15)
    values = 10.0 ** generator.uniform(-13, 6, 2000)
    domain, back = there_and_back([repr(float(x)) for x in values])
    assert domain.columns[0].digits == 15  # type: ignore[union-attr]
    large = values > 1e-3
    drawn = np.array(back, float)
    for decade in range(-13, 6):
        shares = [
            ((of >= 10.0**decade) & (of < 10.0 ** (decade + 1))).mean() for of in (values, drawn)
        ]
        assert abs(shares[0] - shares[1]) < 0.02
    assert distance(values[large], drawn[drawn > 1e-3]) < 0.05


def test_a_column_with_45_percent_zeros_keeps_them() -> None:
    generator = np.random.default_rng(16)
    values = np.where(generator.random(2500) < 0.45, 0.0, generator.gamma(0.7, 900, 2500))
    _, back = there_and_back([repr(float(x)) for x in values])
    drawn = np.array(back, float)
    assert (drawn == 0).sum() == (values == 0).sum()
    assert distance(values, drawn) < 0.03


def test_beside_many_zeros_repeated_values_are_not_apart() -> None:
    generator = np.random.default_rng(17)
    losses = np.round(generator.normal(1870, 380, 900), -1).astype(int)
    found = shape_of(Counter([0] * 17_000 + losses.tolist()))
    assert found.atoms == (0,)


def test_shape_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no shape"):
        shape_of({})


@given(
    st.dictionaries(st.integers(-(10**12), 10**12), st.integers(1, 500), min_size=1, max_size=200)
)
def test_shape_holds_every_value_and_is_a_column(rows: dict[int, int]) -> None:
    found = shape_of(rows)
    column = Integer("x", found.low, found.high, found.bins, edges=found.edges, atoms=found.atoms)
    codes = [column.code_of(str(value)) for value in rows]
    assert None not in codes
    assert column.size <= 60


def test_shape_has_few_bins_for_few_rows() -> None:
    sizes = []
    for rows in (200, 2_000, 20_000, 200_000):
        values = np.random.default_rng(8).normal(0, 10_000, rows).astype(int)
        found = shape_of(Counter(values.tolist()))
        sizes.append(len(found.edges))
    assert sizes == sorted(sizes)
    assert sizes[0] <= 12 < sizes[2] < sizes[3] <= 40


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**9))
def test_roundest_is_a_round_number_in_between(low: int, width: int) -> None:
    found = roundest(low, low + width)
    assert low <= found <= low + width
    digits = str(abs(found)).strip("0")
    # No number of fewer digits lies in between.
    if len(digits) > 1:
        step = 10 ** (len(str(abs(found))) - len(str(abs(found)).rstrip("0")) + 0) * 10
        assert -(-low // step) * step > low + width


def test_roundest_tick_is_the_first_of_a_year_or_month() -> None:
    def day(text: str) -> int:
        return tick_of(pd.Timestamp(text).to_pydatetime(), "day")

    assert roundest_tick("day", day("2011-12-20"), day("2012-01-10")) == day("2012-01-01")
    assert roundest_tick("day", day("2012-01-20"), day("2012-02-10")) == day("2012-02-01")
    assert roundest_tick("day", day("2012-02-03"), day("2012-02-10")) == day("2012-02-03")


def test_widest_width_says_what_a_domain_loses() -> None:
    ranges = [(0, 0), (1, 99), (100, 999), (10**9, 10**9)]
    assert widest_width(ranges) == 899 / 999
    assert math.isclose(widest_width([(5, 5)]), 0.0)


def test_drafts_of_one_column_load(tmp_path: Path) -> None:
    """A draft takes its own values."""
    for seed in range(300, 310):
        domain, _ = there_and_back(ugly(seed)[0])
        assert domain.columns[0].size >= 1


@given(
    st.lists(st.integers(1, 5000), min_size=3, max_size=300),
    st.sampled_from([1, 7, 300]),
)
def test_bounds_of_positive_values_are_positive(values: list[int], shift: int) -> None:
    """A number of days from 1 on is never drawn as 0; with ``zero`` it may be, as a time from midnight on."""
    rows = dict(Counter(value + shift - 1 for value in values))
    found = shape_of(rows)
    assert 0 < min((found.low, *found.atoms)) <= min(rows)
    wide = dict.fromkeys(range(1, 401), 5)
    assert (shape_of(wide).low, shape_of(wide, zero=True).low) == (1, 0)


@pytest.mark.parametrize("mark", [-99, -999, -9999, 99, 999, 9999, 99999, 2**31 - 1, -(2**31)])
def test_value_that_stands_for_missing_ones_has_a_cell_where_another_has_none(mark: int) -> None:
    """A tenth of the range away from the others, or below zero where they are not."""
    far = abs(mark)
    inwards = np.random.default_rng(1).integers(0, (10 if mark < 0 else 0.9) * far, 5000).tolist()
    other = mark + (1 if mark < 0 else -1)
    assert mark in shape_of(Counter([*inwards, *[mark] * 5])).atoms
    assert other not in shape_of(Counter([*inwards, *[other] * 5])).atoms
