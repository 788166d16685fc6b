"""Estimates are the figures of the model's joint distribution, with influences that are their derivatives."""

import itertools
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from mechanisms import estimates as estimates_module
from mechanisms.columns import fine_cells
from mechanisms.conditional_rows import Wanted, conditional_rows
from mechanisms.conditions import limits_of
from mechanisms.domain import Categorical, Domain, Integer, Moment, Real
from mechanisms.errors import ConditionError
from mechanisms.estimate import Estimate
from mechanisms.estimate_errors import (
    EARLIER,
    GUESS,
    JOINED,
    LEVEL,
    MEASURED,
    STEEP,
    Knowledge,
    MarginalError,
    deviation_of,
)
from mechanisms.estimates import estimates
from mechanisms.junction_tree import junction_tree
from mechanisms.model import Model
from mechanisms.private_bins import PrivateBins
from mechanisms.question import parse_question, parse_where
from mechanisms.scale_free import whole_bounds

DOMAIN = Domain(
    (
        Categorical("sex", ("F", "M")),
        Categorical("y", ("0", "1"), missing=True),
        Integer("age", 0, 99, 10, atoms=(99,)),
        Real("cost", 0.0, 10.0, 5, decimals=1, missing=True),
        Moment("day", "date", "2024-01-01", "2024-12-31", "day", 12),
    ),
    ("NA",),
)
ROWS = 10_000.0


def random_joint_model(seed: int = 1) -> Model:
    rng = np.random.default_rng(seed)
    cliques, parents = junction_tree(
        DOMAIN, [("sex", "age"), ("age", "cost"), ("y", "age"), ("day", "sex")]
    )
    joint = np.ones(DOMAIN.shape)
    for clique in cliques:
        potential = rng.random(DOMAIN.sizes(clique)) + 0.2
        shape = [
            n if name in clique else 1 for name, n in zip(DOMAIN.names, DOMAIN.shape, strict=True)
        ]
        joint = joint * potential.reshape(shape)
    joint /= joint.sum()
    return Model(
        DOMAIN,
        cliques,
        parents,
        tuple(
            joint.sum(axis=tuple(i for i, n in enumerate(DOMAIN.names) if n not in clique))
            for clique in cliques
        ),
    )


MODEL = random_joint_model()


def known(
    noise: float = 5.0, *, unmeasured: tuple[tuple[str, str], ...] = (), likely: float = 0.05
) -> Knowledge:
    """All single columns and pairs measured with the same noise, but for some pairs."""
    errors = {}
    for size in (1, 2):
        for columns in itertools.combinations(sorted(DOMAIN.names), size):
            measured = columns not in unmeasured
            errors[columns] = MarginalError(
                noise if measured else None, likely, DOMAIN.size(columns)
            )
    return Knowledge(ROWS, errors)


def answer(text: str, knowledge: Knowledge | None = None) -> Estimate:
    (found,) = estimates(MODEL, knowledge or known(), parse_question(text))
    return found


def drawn() -> pd.DataFrame:
    """Many rows of the model, whose figures the estimates have to be."""
    parts = conditional_rows(MODEL, Wanted(400_000), seed=1).parts
    table = pd.concat(parts, ignore_index=True).replace("NA", None)
    for name in ("age", "cost", "y"):
        table[name] = pd.to_numeric(table[name])
    return table


TABLE = drawn()


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("count where sex = F", lambda t: (t.sex == "F").mean() * ROWS),
        ("count where age >= 65", lambda t: (t.age >= 65).mean() * ROWS),
        (
            "share(y = 1) where age between 33 and 71",
            lambda t: (t.y[t.age.between(33, 71)] == 1).mean(),
        ),
        ("share(y is missing)", lambda t: t.y.isna().mean()),
        ("mean(y)", lambda t: t.y.mean()),
        ("mean(age) where sex = M", lambda t: t.age[t.sex == "M"].mean()),
        ("mean(cost) where age < 50", lambda t: t.cost[t.age < 50].mean()),
        ("median(age)", lambda t: t.age.median()),
        ("quantile(cost, .9) where sex = F", lambda t: t.cost[t.sex == "F"].quantile(0.9)),
        (
            "difference(mean(age), sex = F, sex = M)",
            lambda t: t.age[t.sex == "F"].mean() - t.age[t.sex == "M"].mean(),
        ),
        (
            "difference(count, sex = F, sex = M)",
            lambda t: ((t.sex == "F").mean() - (t.sex == "M").mean()) * ROWS,
        ),
        ("ratio(count, y = 1, y = 0)", lambda t: (t.y == 1).sum() / (t.y == 0).sum()),
        (
            "odds_ratio(sex = F, y = 1, y = 0)",
            lambda t: (
                ((t.sex == "F") & (t.y == 1)).sum()
                * ((t.sex == "M") & (t.y == 0)).sum()
                / ((t.sex == "M") & (t.y == 1)).sum()
                / ((t.sex == "F") & (t.y == 0)).sum()
            ),
        ),
        ("slope(cost, age)", lambda t: np.polyfit(*t[["age", "cost"]].dropna().to_numpy().T, 1)[0]),
        (
            "slope(cost, age, y)",
            lambda t: np.linalg.lstsq(
                np.c_[t.dropna().age, t.dropna().y, np.ones(len(t.dropna()))],
                t.dropna().cost.to_numpy(),
                rcond=None,
            )[0][0],
        ),
    ],
)
def test_estimates_are_the_figures_of_many_rows_of_the_model(text: str, truth) -> None:  # type: ignore[no-untyped-def]
    found, expected = answer(text), float(truth(TABLE))
    assert found.refusal is None
    low, value, high = (float(x) for x in (found.low, found.value, found.high))  # type: ignore[arg-type]
    assert low <= value <= high
    # Slopes take the mean of each cell, which is less steep by the spread within cells.
    assert value == pytest.approx(expected, rel=0.05 if "slope" in text else 0.02, abs=0.002)


def test_estimates_of_dates_are_dates() -> None:
    found = answer("mean(day)")
    assert isinstance(found.value, str)
    assert "2024-05-01" < found.value < "2024-08-31"
    assert found.low < found.value < found.high  # type: ignore[operator]
    assert answer("median(day)").value[:5] == "2024-"  # type: ignore[index]


def test_estimates_by_columns_have_an_answer_for_each_value() -> None:
    found = estimates(MODEL, known(), parse_question("mean(age) by sex, y"))
    assert [dict(one.group) for one in found] == [
        {"sex": sex, "y": y} for sex in ("F", "M") for y in ("0", "1")
    ]
    only = estimates(MODEL, known(), parse_question("count by sex where sex = M"))
    assert [one.group["sex"] for one in only] == ["M"]


@pytest.mark.parametrize(
    "text",
    [
        "share(y = 1) where age >= 50",
        "odds_ratio(y = 1, sex = F, sex = M)",
        "mean(y) where sex = F",
    ],
)
def test_measured_intervals_are_those_of_the_measurements_noise(text: str) -> None:
    """The figure of noisy counts has the interval's deviation: 3,000 draws, within 6 of 100 (5 standard errors)."""
    from mechanisms import estimates as module

    noise, rng = 5.0, np.random.default_rng(4)
    knowledge = known(noise)
    table = module._Table.of(MODEL, knowledge, parse_question(text))
    base = table._figure(table.measure, table._evidence(table.where))
    found = []
    for _ in range(3000):
        moved = table.shares + rng.normal(0, noise, table.shares.shape) / ROWS
        changed = module.replace(table, shares=moved / moved.sum())
        found.append(changed._figure(table.measure, changed._evidence(table.where)).value)
    expected = table._deviation(base.influence).value
    assert np.std(found) == pytest.approx(expected, rel=0.065)
    assert np.mean(found) == pytest.approx(base.value, abs=expected / 5)


@pytest.mark.parametrize(
    "text",
    [
        "mean(age)",
        "mean(cost) where sex = F",
        "difference(mean(age), sex = F, sex = M)",
        "share(y = 1) where age < 33",
    ],
)
def test_noise_and_the_doubt_of_cells_add_up_as_variances(text: str) -> None:
    def square(noise: float) -> float:
        found = answer(text, known(noise))
        return float(found.high - found.value) ** 2  # type: ignore[operator]

    doubt, some, twice = square(1e-9), square(10.0), square(20.0)
    assert doubt > some / 1e6
    assert twice - doubt == pytest.approx(4 * (some - doubt), rel=1e-6)


def test_a_quantile_is_known_to_better_than_its_cell_where_noise_is_small() -> None:
    found = answer("quantile(age, 0.45)", known(1e-9))
    low, high = float(found.low), float(found.high)  # type: ignore[arg-type]
    # Cells have ten ages; a quarter of a cell's rows may lie elsewhere in it, by 1.96 / sqrt 3.
    assert 4 <= high - low <= 8
    assert low <= float(found.value) <= high  # type: ignore[arg-type]
    assert (low, high) == (round(low), round(high))


def test_what_was_not_measured_counts_twice_in_levels_and_more_in_contrasts() -> None:
    apart = known(1e-9, unmeasured=(("age", "sex"),), likely=0.02)
    for text, kind in (
        ("share(sex = F) where age = 99", LEVEL),
        ("odds_ratio(age = 99, sex = F, sex = M)", STEEP),
    ):
        found = answer(text, apart)
        assert found.basis == JOINED
        table = estimates_module._Table.of(MODEL, apart, parse_question(text))
        figure = table._figure(table.measure, table._evidence(table.where))
        # No cell is cut: the interval is that of the model's error alone.
        half = NormalDist().inv_cdf(0.975) * kind.joined * table._deviation(figure.influence).joined
        ratio = kind is STEEP
        high, value = float(found.high), float(found.value)  # type: ignore[arg-type]
        assert (math.log(high / value) if ratio else high - value) == pytest.approx(half, rel=1e-4)


def test_number_of_rows_is_known_by_the_sums_of_single_columns() -> None:
    """The sum of 4 counts with deviation 2 has deviation 4; two columns alike are as good as one, at least."""
    single, other = MarginalError(2.0, 0.1, 4), MarginalError(4.0, 0.1, 9)
    pair = MarginalError(1.0, 0.1, 36)
    alike = Knowledge(1000, {("a",): single, ("b",): single, ("a", "b"): pair})
    assert alike.rows_deviation == pytest.approx(4.0)
    both = Knowledge(1000, {("a",): single, ("b",): other})
    assert both.rows_deviation == pytest.approx(((1 / 16 + 1 / 144) / 2) ** -0.5)
    assert Knowledge(1000, {("a", "b"): pair}).rows_deviation == 0.0


def test_joined_deviation_is_the_root_mean_square_of_errors_whose_mean_is_known() -> None:
    """Likely errors are of 95 in 100, and of absolute values; a deviation is of normal errors' squares."""
    normal = np.array([NormalDist().inv_cdf((i + 0.5) / 10_000) for i in range(10_000)])
    shares, influence = np.full((4, 5), 1 / 20), np.zeros((4, 5))
    influence[0, 0] = 1.0
    knowledge = Knowledge(1000, {("a", "b"): MarginalError(None, 0.1, 20)})
    found = deviation_of(influence, shares, ("a", "b"), knowledge=knowledge, cliques=(("a", "b"),))
    mean = 0.1 / NormalDist().inv_cdf(0.975)
    relative = mean * math.sqrt((normal**2).mean()) / np.abs(normal).mean()
    assert (found.noise, found.basis) == (0.0, JOINED)
    assert found.joined == pytest.approx(relative * math.sqrt(0.05 * 0.95), rel=1e-3)


def test_a_pair_that_was_not_measured_counts_among_three_columns_as_by_itself() -> None:
    likely = {pair: MarginalError(None, 0.1, 4) for pair in (("a", "b"), ("a", "c"), ("b", "c"))}
    knowledge = Knowledge(1000, likely)
    of_pair = np.array([[1.0, -1.0], [-1.0, 1.0]])
    # Nearly of the pair alone: an influence of two columns has no third one.
    of_all = np.stack((1.001 * of_pair, 0.999 * of_pair), axis=2)
    alone, beside = (
        deviation_of(influence, shares, columns, knowledge=knowledge, cliques=())
        for influence, shares, columns in (
            (of_pair, np.full((2, 2), 1 / 4), ("a", "b")),
            (of_all, np.full((2, 2, 2), 1 / 8), ("a", "b", "c")),
        )
    )
    assert alone.joined > 0
    assert beside.joined == pytest.approx(alone.joined, rel=1e-4)


def test_a_wider_interval_stands_on_a_joined_basis_or_a_guess() -> None:
    measured = answer("mean(age) where sex = F")
    joined = answer("mean(age) where sex = F", known(unmeasured=(("age", "sex"),), likely=0.2))
    assert (measured.basis, joined.basis) == (MEASURED, JOINED)
    assert measured.high < joined.high  # type: ignore[operator]
    shares = tuple(np.full(size, 1 / size) for size in DOMAIN.shape)
    apart = Model(DOMAIN, tuple((name,) for name in DOMAIN.names), (-1,) * 5, shares)
    question = parse_question("mean(age) where sex = F")
    (guess,) = estimates(apart, known(unmeasured=(("age", "sex"),)), question)
    assert guess.basis == GUESS


def test_estimates_refuse_what_the_model_does_not_know() -> None:
    nothing = known(unmeasured=(("age", "sex"),), likely=2.0)
    found = answer("mean(age) where sex = F", nothing)
    assert found.value is None
    assert "knows nothing of how age and sex depend on one another" in str(found)
    assert found.to_dict().keys() == {"group", "refusal"}
    three = answer("mean(age) where sex = F and y = 1", known(likely=0.6))
    assert "too little of how sex, y, age depend on one another" in str(three)
    # Single columns are known all the same.
    assert answer("mean(age)", nothing).basis == MEASURED
    few = answer("mean(y) where age = 65", known(noise=200.0))
    assert "too few to say more of them" in str(few)


def chosen_cells(private: PrivateBins, column: Integer) -> Model:
    """Model of a column whose cells noisy counts of 20,000 rows have chosen, from 0 on by tens, more in later ones."""
    fine = fine_cells(column).ranges
    counts = np.array([max(0, 100 * (1 + first // 10)) * (0 <= first < 100) for first, _ in fine])
    chosen = replace(column, private=private.having(counts.astype(np.float64), 5.0))
    sums = np.add.reduceat(counts, chosen.private.groups(fine_cells(chosen)))  # type: ignore[union-attr]
    shares = np.append(sums, np.zeros(chosen.size - len(sums)))
    return Model(Domain((chosen,), ("NA",)), (("age",),), (-1,), (shares / shares.sum(),))


def of_one_column(model: Model, text: str) -> Estimate:
    column = model.domain.columns[0]
    knowledge = Knowledge(20_000, {("age",): MarginalError(5.0, 0.01, column.size)})
    (found,) = estimates(model, knowledge, parse_question(text))
    return found


def test_no_bound_is_told_where_a_chosen_cell_has_no_end() -> None:
    private = PrivateBins(coarse=8, free=True)
    model = chosen_cells(private, Integer("age", *whole_bounds(""), missing=True, private=private))
    column = model.domain.columns[0]
    assert isinstance(column, Integer)
    starts = [first for first, _ in column.cells.ranges]
    for text, said in (
        ("mean(age)", "no bound holds for a mean"),
        ("slope(age, age)", "no bound holds for a mean"),
        ("quantile(age, 0.999)", "it may lie in a cell of age that has no end"),
        (f"share(age > {starts[-1] + 1})", "the condition cuts a cell of age that has no end"),
        (
            f"mean(age) where age < {starts[1] - 1}",
            "the condition cuts a cell of age that has no end",
        ),
    ):
        assert said in str(of_one_column(model, text)), text
    # A condition that ends where a cell does is as good as the cells' counts.
    found = of_one_column(model, f"share(age >= {starts[-1]})")
    assert found.high - found.value < 0.001 * math.sqrt(column.size)  # type: ignore[operator]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("rest", [0.0, 2e-212, 1e-30])
def test_no_slope_is_told_for_a_column_that_hardly_varies(rest: float) -> None:
    """A fit to few rows may leave the cells beside one next to nothing."""
    columns = (Integer("x", 0, 9, bins=2), Integer("y", 0, 9, bins=2))
    shares = np.array([[rest / 2, rest / 2], [0.25, 0.75]])
    model = Model(Domain(columns, ()), (("x", "y"),), (-1,), (shares,))
    knowledge = Knowledge(30, {("x", "y"): MarginalError(None, 0.1, 4)})
    (found,) = estimates(model, knowledge, parse_question("slope(y, x)"))
    assert "does not vary under the condition" in str(found)
    (mean,) = estimates(model, knowledge, parse_question("mean(y)"))
    assert mean.value is not None


@pytest.mark.parametrize("free", [True, False])
def test_quantiles_of_chosen_cells_have_intervals_that_end_where_a_cell_does(free: bool) -> None:
    private = PrivateBins(coarse=8, free=free)
    bounds = whole_bounds("") if free else (0, 99)
    model = chosen_cells(private, Integer("age", *bounds, missing=True, private=private))
    column = model.domain.columns[0]
    assert isinstance(column, Integer)
    found = of_one_column(model, "median(age)")
    assert found.low in {first for first, _ in column.cells.ranges}
    assert found.high in {last for _, last in column.cells.ranges}
    assert found.low < found.value < found.high  # type: ignore[operator]


def test_conditions_that_cut_a_chosen_cell_know_nothing_of_its_share() -> None:
    private = PrivateBins(coarse=8)
    model = chosen_cells(private, Integer("age", 0, 99, missing=True, private=private))
    column = model.domain.columns[0]
    assert isinstance(column, Integer)
    first, last = column.cells.ranges[4]
    limit = limits_of(model.domain, parse_where(f"age <= {(first + last) // 2}"))["age"]
    share = float(limit.shares[4])
    assert 0 < share < 1
    assert limit.doubts.tolist() == [0] * 4 + [max(share, 1 - share)] + [0] * (column.size - 5)
    # A mean may be off by a sixth of the whole cells, not of the fine ones in them.
    found = of_one_column(model, "mean(age)")
    assert found.high - found.value > 0.5  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mean(sex)", r"categories that are no numbers; .* share\(sex = F\)"),
        ("median(y)", "categories, which have no quantiles"),
        ("mean(wages)", "no column 'wages'; the columns are sex"),
        ("count by wages", "no column 'wages'"),
        ("share(sex = X)", "'X' is no value of column 'sex'"),
    ],
)
def test_questions_that_do_not_fit_say_what_would(text: str, said: str) -> None:
    with pytest.raises(ConditionError, match=said):
        answer(text)


def test_questions_on_too_many_columns_are_refused_before_they_are_computed() -> None:
    domain = Domain(tuple(Categorical(f"c{i}", tuple(map(str, range(40)))) for i in range(6)))
    shares = tuple(np.full(40, 1 / 40) for _ in range(6))
    model = Model(domain, tuple((n,) for n in domain.names), (-1,) * 6, shares)
    text = "count where " + " and ".join(f"c{i} != 0" for i in range(6))
    with pytest.raises(ConditionError, match="ask about fewer columns at once"):
        estimates(model, known(), parse_question(text))


def test_deviation_of_the_number_of_rows_is_that_of_single_columns() -> None:
    errors = {("a",): MarginalError(2.0, 0.1, 4), ("b",): MarginalError(2.0, 0.1, 4)}
    assert Knowledge(100, errors).rows_deviation == pytest.approx(4.0)
    assert Knowledge(100, {}).rows_deviation == 0
    with pytest.raises(ValueError, match="without rows"):
        Knowledge(0, {})


def test_columns_of_an_earlier_model_have_a_basis_of_their_own() -> None:
    """Neither measured now nor a guess; one column more that the model only joins, and it is joined."""
    errors = {
        ("a",): MarginalError(5.0, 0.02, 3),
        ("b",): MarginalError(5.0, 0.02, 3),
        ("c",): MarginalError(5.0, 0.02, 3),
        ("a", "b"): MarginalError(9.0, 0.05, 9),
        ("a", "c"): MarginalError(None, 0.2, 9),
        ("b", "c"): MarginalError(None, 0.2, 9),
    }
    rng = np.random.default_rng(1)

    def basis(columns: tuple[str, ...], earlier: set[tuple[str, str]]) -> str:
        known = Knowledge(1000.0, errors, frozenset(earlier))
        shape = (3,) * len(columns)
        shares = rng.dirichlet(np.ones(3 ** len(columns))).reshape(shape)
        cliques = (("a", "b", "c"),)
        return deviation_of(
            rng.normal(size=shape), shares, columns, knowledge=known, cliques=cliques
        ).basis

    assert basis(("a", "b"), {("b", "c")}) == MEASURED
    assert basis(("b", "c"), {("b", "c")}) == EARLIER
    assert basis(("c", "b"), {("b", "c")}) == EARLIER
    assert basis(("a", "b", "c"), {("b", "c"), ("a", "c")}) == EARLIER
    assert basis(("a", "b", "c"), {("b", "c")}) == JOINED
    assert basis(("b", "c"), set()) == JOINED


def test_a_condition_between_parts_of_a_cell_is_as_doubtful_as_a_quantile() -> None:
    """Parts have about equal shares, since their ends are rounded: between two cells there is no such doubt."""
    column = Integer("n", 0, 99, edges=(0, 40, 99), within=(10, 20, 30))
    domain = Domain((column, Integer("plain", 0, 99, edges=(0, 40, 99))))

    def doubts(where: str) -> list[float]:
        (limit,) = limits_of(domain, parse_where(where)).values()
        return [float(doubt) for doubt in limit.doubts]

    assert doubts("n < 40") == [0.0, 0.0]
    assert doubts("n < 20") == pytest.approx([1 / 16, 0.0])
    assert doubts("n >= 10") == pytest.approx([1 / 16, 0.0])
    # In the middle of a part its own doubt is added.
    assert doubts("n < 15") == pytest.approx([1 / 16 + 1 / 16, 0.0])
    # A cell without parts has that of its density alone.
    assert doubts("plain < 20") == pytest.approx([1 / 4, 0.0])


def test_shares_of_a_table_whose_parts_are_uneven_are_within_their_intervals() -> None:
    """With next to no noise, what is off is the place of a part's end: 0.3 of a part, as drafts round it."""
    column = Integer("n", 0, 999, edges=(0, 500, 999), within=(100, 200, 300, 400))
    domain = Domain((column,))
    shares = np.array([0.6, 0.4])
    model = Model(domain, (("n",),), (-1,), (shares,))
    known = Knowledge(1e6, {("n",): MarginalError(1.0, 1e-5, 2)})
    held = []
    rng = np.random.default_rng(2)
    for _ in range(200):
        # Real shares of the five parts: equal ones, with ends that were moved by up to 0.3 of a part.
        moved = np.arange(1, 5) / 5 + rng.uniform(-0.3, 0.3, 4) / 5
        for end, real in zip((100, 200, 300, 400), moved, strict=True):
            (one,) = estimates(model, known, parse_question(f"share(n < {end})"))
            assert isinstance(one.low, float)
            assert isinstance(one.high, float)
            held.append(one.low <= 0.6 * real <= one.high)
    assert 0.93 <= np.mean(held) <= 1.0


@pytest.mark.parametrize("low", [-1e8, 1e-11])
def test_numbers_of_many_decades_have_the_figures_of_drawn_rows(low: float) -> None:
    """Numbers within cells are places there, of which many are in small decades."""
    edges = (low, 2.4e-10, 6.5e-09, 3.5e-08, 7e-06, 0.5, 1e9)
    wide = Real("wide", low, 1e9, 6, decimals=13, digits=3, edges=edges)
    counts = np.array([3000.0, 2000.0, 2500.0, 1500.0, 900.0, 100.0])
    model = Model(Domain((wide,), ()), (("wide",),), (-1,), (counts,))
    (rows,) = conditional_rows(model, Wanted(100_000), seed=3).parts
    values = pd.to_numeric(rows["wide"])
    noise = MarginalError(3.0, 0.01, wide.size)
    knowledge = Knowledge(ROWS, {("wide",): noise})

    def asked(text: str) -> Estimate:
        (found,) = estimates(model, knowledge, parse_question(text))
        return found

    deviation = float(values.std()) / math.sqrt(len(values))
    assert asked("mean(wide)").value == pytest.approx(values.mean(), abs=4 * deviation)
    for level in (0.1, 0.25, 0.5, 0.75, 0.95):
        found = asked(f"quantile(wide, {level})").value
        assert found is not None
        assert (values <= found).mean() == pytest.approx(level, abs=0.01)
    for bound in ("1e-9", "5e-8", "0.3", "12345"):
        share = asked(f"share(wide >= {bound})").value
        assert share == pytest.approx(float((values >= float(bound)).mean()), abs=0.01)
