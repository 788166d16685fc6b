"""Whole runs of Fed-TDA in one process: what comes out, what it costs, who is refused, who may leave."""

import asyncio
import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from mechanisms.accounting import rho_from_epsilon_delta
from mechanisms.column_values import number_of
from mechanisms.domain import Categorical, Domain, Implied, Integer, Moment, Real
from mechanisms.errors import (
    BudgetExceeded,
    DataError,
    DomainError,
    EstimationError,
    RequestRefused,
    RoundLost,
)
from mechanisms.events import ExponentialEvent
from mechanisms.fixed_point import pack_arrays
from mechanisms.sampling import public_generator
from mechanisms.silos import InProcess, Request
from mechanisms.table import encode
from mechanisms.tda.costs import sent_values
from mechanisms.tda.layout import Layout, Rows, rows_of
from mechanisms.tda.mixture import Prior, initial
from mechanisms.tda.model import TdaModel
from mechanisms.tda.server import TdaResult, run
from mechanisms.tda.settings import TdaSettings
from mechanisms.tda.silo import TdaSilo
from mechanisms.tda.steps import FREQUENCIES, MIXTURE, MOMENTS, Step, Steps
from tests.mechanisms.tables import random_stream

DOMAIN = Domain(
    (
        Integer("age", 0, 100),
        Real("dose", 0.01, 100.0, scale="log", decimals=2, atoms=(0.0,), missing=True),
        Categorical("ward", ("north", "south")),
        Moment("seen", "date", "2020-01-01", "2020-12-31", "day", bins=12),
        Integer("stage", 1, 4),
    ),
    implied=(Implied("floor", "ward", (("north", "1"), ("south", "2")), 3),),
)
EXACT = TdaSettings(privacy="none", components=5, iterations=15)
PRIVATE = TdaSettings.private(rho_from_epsilon_delta(5, 1e-5), components=5, iterations=4)


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    """South has the older ones; the dose follows the stage."""
    rng = np.random.default_rng(seed)
    south = rng.random(rows) < 0.4
    age = np.clip(np.rint(rng.normal(np.where(south, 70, 35), 6)), 0, 100).astype(int)
    stage = rng.integers(1, 5, rows)
    dose = [
        f"{value:.2f}"
        for value in np.clip(0.1 * 4.0**stage * rng.lognormal(0, 0.2, rows), 0.01, 100)
    ]
    kind = rng.random(rows)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 366, rows), unit="D")
    return pd.DataFrame(
        {
            "age": age.astype(str),
            "dose": np.where(kind < 0.2, "0", np.where(kind < 0.3, "?", dose)),
            "ward": np.where(south, "south", "north"),
            "seen": days.strftime("%Y-%m-%d"),
            "stage": stage.astype(str),
        },
        dtype=object,
    )


def silos_of(
    settings: TdaSettings, frame: pd.DataFrame, count: int = 4
) -> tuple[Layout, list[TdaSilo]]:
    layout = Layout.of(DOMAIN, settings)
    parts = np.array_split(np.arange(len(frame)), count)
    return layout, [
        TdaSilo(rows_of(layout, frame.iloc[part]), layout, settings, random_bytes=random_stream(i))
        for i, part in enumerate(parts)
    ]


def finished(
    settings: TdaSettings, frame: pd.DataFrame, **options: object
) -> tuple[TdaResult, list[TdaSilo]]:
    layout, silos = silos_of(settings, frame)
    network = InProcess(silos, random_bytes=random_stream(99), **options)  # type: ignore[arg-type]
    return asyncio.run(run(layout, settings, network)), silos


@pytest.mark.parametrize("settings", [EXACT, PRIVATE], ids=["exact", "private"])
@pytest.mark.parametrize("same", [{"age": "50", "dose": "2.00"}, {"dose": "0"}, {"dose": "?"}])
def test_run_takes_columns_of_one_value(settings: TdaSettings, same: dict[str, str]) -> None:
    """Nothing is divided by a variance or a width of zero: warnings are errors here."""
    real = table(200).assign(**same)
    result, _ = finished(settings, real)
    made = result.model.sample(200, public_generator(1))
    assert len(made) == 200
    if settings is EXACT and "age" in same:
        assert set(made["age"]) == {"50"}


def test_column_of_one_value_by_its_bounds_is_discrete() -> None:
    domain = Domain((Integer("site", 5, 5), Integer("age", 0, 100)))
    for components in (1, 10):
        layout = Layout.of(domain, dataclasses.replace(EXACT, components=components))
        assert layout.continuous == (1,)
        frame = pd.DataFrame({"site": ["5", "5"], "age": ["1", "2"]}, dtype=object)
        assert rows_of(layout, frame).codes.tolist() == [[0], [0]]


def test_column_of_atoms_alone_is_discrete() -> None:
    days, doses = tuple(range(20)), (0.0, 0.5, 1.0)
    domain = Domain(
        (
            Integer("stay", 0, 19, bins=1, atoms=days),
            Real("dose", 0.0, 1.0, bins=1, decimals=1, atoms=doses),
            Integer("age", 0, 100),
        )
    )
    layout = Layout.of(domain, EXACT)
    assert (layout.discrete, layout.continuous) == ((0,), (1, 2))
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "stay": rng.choice(days, 300).astype(str),
            "dose": rng.choice(doses, 300).astype(str),
            "age": rng.integers(0, 101, 300).astype(str),
        },
        dtype=object,
    )
    silos = [
        TdaSilo(rows_of(layout, frame.iloc[part]), layout, PRIVATE, random_bytes=random_stream(i))
        for i, part in enumerate(np.array_split(np.arange(300), 3))
    ]
    network = InProcess(silos, random_bytes=random_stream(9))
    made = asyncio.run(run(layout, PRIVATE, network)).model.sample(200, public_generator(1))
    assert set(made["stay"]) <= set(map(str, days))


def test_run_makes_a_table_that_is_like_the_silos() -> None:
    real = table(4000)
    result, silos = finished(EXACT, real)
    made = result.model.sample(4000, public_generator(1))
    assert list(made.columns) == ["age", "dose", "ward", "floor", "seen", "stage"]
    # Everything written is of the domain, the implied column too.
    encode(DOMAIN, made)
    for column, value in (("ward", "south"), ("dose", "0.00"), ("dose", ""), ("stage", "3")):
        truth = (real[column].replace({"0": "0.00", "?": ""}) == value).mean()
        assert abs((made[column] == value).mean() - truth) < 0.03
    older = made.ward == "south"
    ages = made.age.astype(int)
    assert abs(ages.mean() - real.age.astype(int).mean()) < 2
    assert ages[older].mean() - ages[~older].mean() > 25
    assert abs(result.model.rows - 4000) < 1e-6
    assert result.rho == 0
    assert result.model.privacy == "none"
    for silo in silos:
        assert silo.ledger is None
        assert silo.model is not None
        assert silo.model.to_json() == result.model.to_json()


@pytest.mark.parametrize("noise", ["server", "distributed"])
def test_private_run_costs_its_budget_and_says_something(noise: str) -> None:
    settings = TdaSettings.private(PRIVATE.rho, components=5, iterations=4, noise=noise)
    result, silos = finished(settings, table(4000))
    for silo in silos:
        assert silo.ledger is not None
        assert silo.ledger.spent == result.rho <= settings.rho
        assert len(silo.ledger.entries) == 4 + 2
    assert result.rho > settings.rho * (1 - 1e-5)
    made = result.model.sample(2000, public_generator(1))
    ages = made.age.astype(int)
    older = made.ward == "south"
    assert ages[older].mean() - ages[~older].mean() > 20
    assert abs(result.model.rows - 4000) < 1500


def test_exact_run_of_few_silos_is_that_of_all_rows_in_one() -> None:
    settings = TdaSettings.paper(components=5, iterations=10)
    frame = table(900)
    layout, silos = silos_of(settings, frame)
    _, alone = silos_of(settings, frame, count=1)
    many = asyncio.run(run(layout, settings, InProcess(silos))).model
    one = asyncio.run(run(layout, settings, InProcess(alone))).model
    np.testing.assert_allclose(many.mixture.mean, one.mixture.mean, atol=1e-6)
    for ours, theirs in zip(many.shares, one.shares, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    # Scores are drawn at random within their categories.
    np.testing.assert_allclose(many.covariance, one.covariance, atol=0.15)


def test_run_goes_on_without_silos_that_leave() -> None:
    frame = table(2000)
    result, _ = finished(EXACT, frame, drops={1: [0], 15: [2]})
    assert [len(s) for s in result.survivors].count(3) == 2
    lost, silos = finished(PRIVATE, frame, drops={1: [0, 1, 2]}, min_survivors=3)
    assert (lost.iterations, lost.lost) == (3, 1)
    with pytest.raises(RoundLost, match="moments"):
        finished(PRIVATE, frame, drops={5: [0, 1, 2]}, min_survivors=3)
    assert all(silo.ledger is not None and silo.ledger.spent <= PRIVATE.rho for silo in silos)


def test_rows_have_places_and_special_values_of_their_columns() -> None:
    layout = Layout.of(DOMAIN, EXACT)
    assert [DOMAIN.names[i] for i in layout.continuous] == ["age", "dose"]
    assert (layout.width, layout.sizes) == (7, (5, 7, 2, 12, 4))
    frame = table(6)
    frame["age"] = ["0", "25", "50", "75", "100", "100.0"]
    frame["dose"] = ["0.01", "100", "1", "0", "?", "0.104"]
    rows = rows_of(layout, frame)
    np.testing.assert_allclose(rows.x[:, 0], [0, 0.25, 0.5, 0.75, 1, 1])
    np.testing.assert_allclose(rows.x[:3, 1], [0, 1, 0.5])
    assert np.isnan(rows.x[3:5, 1]).all()
    assert math.isclose(rows.x[5, 1], math.log(10) / math.log(10_000))
    assert rows.special[:, 1].tolist() == [-1, -1, -1, 0, 1, -1]
    assert "0" not in repr(rows).replace("Rows(6)", "")
    frame.loc[2, "age"] = "101"
    with pytest.raises(DataError, match=r"line 2.*'age'.*0 to 100"):
        rows_of(layout, frame)
    assert number_of(DOMAIN.columns[0], "7.0") == 7


def test_layout_takes_numbers_for_categories_where_the_settings_say_so() -> None:
    settings = TdaSettings.paper(discrete=("age",))
    assert [DOMAIN.names[i] for i in Layout.of(DOMAIN, settings).continuous] == ["dose"]
    with pytest.raises(DomainError, match="height"):
        Layout.of(DOMAIN, TdaSettings.paper(discrete=("height",)))


def test_run_without_continuous_columns_has_two_sums() -> None:
    domain = Domain((Categorical("a", ("x", "y")), Categorical("b", ("x", "y"))))
    frame = pd.DataFrame({"a": ["x", "y"] * 300, "b": ["x", "y"] * 300})
    layout = Layout.of(domain, PRIVATE)
    silos = [TdaSilo(rows_of(layout, frame), layout, PRIVATE) for _ in range(3)]
    result = asyncio.run(run(layout, PRIVATE, InProcess(silos)))
    assert len(result.survivors) == 2
    made = result.model.sample(500, public_generator(1))
    assert (made.a == made.b).mean() > 0.9


def one_row_sums(
    rows: Rows, layout: Layout, settings: TdaSettings, seed: int
) -> list[tuple[Step, NDArray[np.int64]]]:
    """Answers of a silo with these rows to requests of a hostile server: mixtures and shares of its own making."""
    rng = np.random.default_rng(seed)
    steps = Steps.of(layout, settings)
    silo = TdaSilo(rows, layout, settings, random_bytes=random_stream(seed))
    shape = (len(layout.continuous), layout.components)
    # Between the extremes, and now and then one of them.
    least = Prior.of(layout.components).scatter
    counts = rng.choice([0.0, 2.0**48], shape) if seed % 3 == 1 else rng.gamma(0.1, 1e3, shape)
    scatter = least + (0.0 if seed % 3 else rng.gamma(0.1, 1e-3, shape))
    arrays = [counts, rng.random(shape), np.broadcast_to(scatter, shape)]
    shares = [rng.dirichlet(np.full(size, 0.1)) for size in layout.sizes]
    asked = [
        (steps.mixture, pack_arrays(np.ones(1), *arrays)),
        (steps.frequencies, pack_arrays(*arrays)),
        (steps.moments, pack_arrays(*arrays, *shares)),
    ]
    return [(step, silo.answer(step.request(payload))) for step, payload in asked]


@pytest.mark.parametrize("correlations", ["latent", "scores"])
@pytest.mark.parametrize("noise", ["server", "distributed"])
@pytest.mark.parametrize("seed", range(10))
def test_one_row_moves_every_sum_by_no_more_than_its_sensitivity(
    seed: int, noise: str, correlations: str
) -> None:
    settings = TdaSettings.private(
        PRIVATE.rho * 10**seed, components=5, iterations=4, noise=noise, correlations=correlations
    )
    layout = Layout.of(DOMAIN, settings)
    for step, answer in one_row_sums(rows_of(layout, table(1, seed)), layout, settings, seed):
        assert step.event is not None
        assert not isinstance(step.event, ExponentialEvent)
        # Exactly: in whole numbers, with a sensitivity that is a double.
        assert sum(int(number) ** 2 for number in answer) <= Fraction(step.event.sensitivity) ** 2
        assert step.low <= answer.min()
        assert answer.max() <= step.high


def test_norms_of_the_settings_are_those_of_the_sums() -> None:
    """Twice the contribution of a row has twice the noise, in real numbers."""
    layout = Layout.of(DOMAIN, PRIVATE)

    def norms(**changes: float) -> tuple[float, float]:
        steps = Steps.of(layout, dataclasses.replace(PRIVATE, **changes))  # type: ignore[arg-type]
        return steps.mixture.norm, steps.moments.norm

    mixture, moments = norms()
    assert norms(row_norm=2.0) == (pytest.approx(2 * mixture), moments)
    width = layout.width
    assert norms(moment_norm=4.0) == (
        mixture,
        pytest.approx(moments * math.sqrt((1 + 4 * width) / (1 + width))),
    )


def test_silo_refuses_what_its_settings_do_not_have() -> None:
    layout, (silo, *_) = silos_of(PRIVATE, table(40))
    steps = Steps.of(layout, PRIVATE)
    start = initial(Prior.of(5), 2, 5)
    arrays = (start.counts, start.mean, start.scatter)

    def refused(request: Request, match: str) -> None:
        with pytest.raises(RequestRefused, match=match):
            silo.answer(request)

    first = steps.mixture.request(pack_arrays(np.ones(1), *arrays))
    refused(Request(MIXTURE, first.payload, first.length, first.low, first.high, None), "noise")
    refused(Steps.of(layout, EXACT).mixture.request(first.payload), "low|noise")
    refused(steps.mixture.request(pack_arrays(np.full(1, 5.0), *arrays)), "iteration 5")
    refused(steps.mixture.request(pack_arrays(np.full(1, 1.5), *arrays)), "iteration")
    refused(steps.mixture.request(pack_arrays(np.ones(1), -arrays[0], *arrays[1:])), "mixture")
    refused(steps.mixture.request(b"1234"), "payload")
    refused(steps.moments.request(b""), "payload")
    assert silo.ledger is not None
    assert not silo.ledger.entries
    silo.answer(first)
    refused(first, "iteration 1 after 1")
    silo.answer(steps.frequencies.request(pack_arrays(*arrays)))
    refused(steps.mixture.request(pack_arrays(np.full(1, 2.0), *arrays)), "comes now")
    refused(steps.frequencies.request(pack_arrays(*arrays)), "comes now")
    refused(
        steps.moments.request(pack_arrays(*arrays, *(np.ones(n) for n in layout.sizes))), "shares"
    )
    shares = pack_arrays(*arrays, *(np.full(n, 1 / n) for n in layout.sizes))
    silo.answer(steps.moments.request(shares))
    refused(steps.moments.request(shares), "comes now")
    assert [entry.round for entry in silo.ledger.entries] == [1, 1, 1]
    with pytest.raises(RequestRefused, match="model"):
        silo.finish(b"{}")


def test_silo_charges_before_it_looks_at_a_row() -> None:
    layout, (silo, *_) = silos_of(PRIVATE, table(40))
    assert silo.ledger is not None
    silo.ledger.budget = PRIVATE.rho / 1e6
    start = initial(Prior.of(5), 2, 5)
    payload = pack_arrays(np.ones(1), start.counts, start.mean, start.scatter)
    silo._rows = None  # type: ignore[assignment]
    with pytest.raises(BudgetExceeded):
        silo.answer(Steps.of(layout, PRIVATE).mixture.request(payload))


def test_silo_refuses_a_table_of_too_many_rows() -> None:
    settings = TdaSettings.paper(components=5, max_silo_rows=10)
    layout = Layout.of(DOMAIN, settings)
    with pytest.raises(DataError, match="max_silo_rows = 10"):
        TdaSilo(rows_of(layout, table(11)), layout, settings)


def test_sent_values_are_those_of_a_run() -> None:
    layout, silos = silos_of(PRIVATE, table(100))
    steps = Steps.of(layout, PRIVATE)
    sizes = {MIXTURE: steps.mixture.length, FREQUENCIES: steps.frequencies.length}
    sizes[MOMENTS] = steps.moments.length
    assert sizes == {MIXTURE: 3 * 5 * 2, FREQUENCIES: 30, MOMENTS: 36}
    assert sent_values(layout, steps, iterations=4) == 4 * 30 + 30 + 36
    asyncio.run(run(layout, PRIVATE, InProcess(silos)))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"privacy": "none"}, "rho"),
        ({"rho": 0.0}, "rho"),
        ({"rho": math.inf}, "rho"),
        ({"components": 0}, "components"),
        ({"mixture_share": 0.9, "frequency_share": 0.1}, "share"),
        ({"order": "size"}, "order"),
        ({"min_silos": 2}, "min_silos"),
        ({"corrupt": 3}, "corrupt"),
        ({"row_norm": 0.0}, "row_norm"),
    ],
)
def test_settings_refuse_what_does_not_go_together(changes: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        TdaSettings(**{"privacy": "zcdp", "rho": 1.0, **changes})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="colour"):
        TdaSettings.private(1.0, colour="red")


def test_steps_refuse_a_budget_whose_noise_cannot_be_sampled() -> None:
    settings = TdaSettings.private(1e-13)
    with pytest.raises(ValueError, match="larger budget"):
        Steps.of(Layout.of(DOMAIN, settings), settings)


MODEL = finished(EXACT, table(200))[0].model.to_json()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("covariance", [[1.0]]),
        ("shares", []),
        ("privacy", "some"),
        ("order", 3),
        ("mixture", [[0], [0], [0]]),
        ("continuous", [0, 9]),
        ("prior", {}),
        ("domain", {}),
    ],
)
def test_model_refuses_what_is_damaged(part: str, value: object) -> None:
    whole = json.loads(MODEL)
    TdaModel.from_json(MODEL)
    with pytest.raises(EstimationError, match="not a model"):
        TdaModel.from_json(json.dumps(whole | {part: value}))
    with pytest.raises(EstimationError, match="not a model"):
        TdaModel.from_json("[" * 100_000)


def test_model_refuses_parts_of_other_columns() -> None:
    model = TdaModel.from_json(MODEL)
    components = model.layout.components
    for part, value in (
        ("mixture", initial(Prior.of(components), 1, components)),
        ("shares", model.shares[1:]),
        ("covariance", model.covariance[1:, 1:]),
    ):
        with pytest.raises(ValueError, match=f"a {part}|{part} for other columns"):
            dataclasses.replace(model, **{part: value})  # type: ignore[arg-type]
