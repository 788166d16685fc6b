"""The Fed-TDA evaluation: tables, classifier, training of silos, similarity, costs, records and the command."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance

from bench.experiment.sweeps import settings_of
from bench.fetch import DatasetError
from bench.papers.gan import networks, training
from bench.papers.gan.training import Averaged, Federated
from bench.papers.tda.classifier import (
    Objective,
    _logits,
    _loss,
    initial,
    parameters,
    probabilities,
)
from bench.papers.tda.cli import tda
from bench.papers.tda.costs import mixed_mb, model_mb, sum_mb
from bench.papers.tda.federated import Training, _batches, mashed, train_federated
from bench.papers.tda.grid import SWEEPS
from bench.papers.tda.page import write_page
from bench.papers.tda.paper import SCORES, verdict
from bench.papers.tda.settings import Settings
from bench.papers.tda.similarity import distance, divergence, similarity
from bench.papers.tda.store import Entry, Result, open_store
from bench.papers.tda.synthesis import Synthetic, synthesise
from bench.papers.tda.tables import load
from tests.bench.pages import whole

RESULT = Result(0.7, 0.6, 8.0, 7.0, 8.0, 1.5, 209)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of the form of heart_failure: the first number and a code tell the label."""
    rng = np.random.default_rng(1)
    label = rng.integers(2, size=299)
    codes = rng.integers(2, size=(299, 5))
    codes[:, 0] = label
    numbers = np.round(rng.normal(size=(299, 7)) + 3 * label[:, None], 3)
    head = [f"n{i}" for i in range(7)]
    head += ["anaemia", "diabetes", "high_blood_pressure", "sex", "smoking", "DEATH_EVENT"]
    rows = np.column_stack([numbers.astype(str), codes.astype(str), label.astype(str)])
    folder = tmp_path / "data"
    folder.mkdir()
    text = "\n".join(",".join(row) for row in [head, *rows])
    (folder / "heart_failure.csv").write_text(text + "\n")
    monkeypatch.setenv("SYNCRET_DATA_DIR", str(folder))
    return folder


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that compiles in a moment."""
    monkeypatch.setattr("bench.papers.tda.classifier.HIDDEN", (16, 16))


def test_load_splits_and_codes_a_table_as_the_paper_has_it() -> None:
    table = load("clinical")
    assert (len(table.train), len(table.test), table.width, table.binary) == (209, 90, 17, True)
    inputs = table.inputs(table.train)
    assert inputs.shape == (209, 17)
    assert inputs.dtype == np.float32
    assert np.abs(inputs).max() <= 1
    # Each code is one-hot.
    assert (inputs[:, 7:].sum(axis=1) == 5).all()


def test_load_of_fewer_rows_holds_out_the_same() -> None:
    whole, few = load("clinical"), load("clinical", rows=50)
    assert len(few.train) == 50
    assert np.array_equal(whole.test.numbers, few.test.numbers)
    assert not (set(map(tuple, whole.test.numbers)) & set(map(tuple, whole.train.numbers)))


def test_load_says_what_is_wrong(data: Path) -> None:
    with pytest.raises(DatasetError, match="unknown dataset 'adult'; expected one of clinical"):
        load("adult")
    (data / "heart_failure.csv").write_text("age,DEATH_EVENT\n1,0\n2,1\n")
    with pytest.raises(DatasetError, match="has no column 'anaemia'"):
        load("clinical")


def test_parameters_are_the_numbers_of_a_model() -> None:
    model = initial(17, 3, 0)
    assert parameters(17, 3) == sum(leaf.size for leaf in jax.tree.leaves(model))


def test_normalisation_leaves_padding_out(narrow: None) -> None:
    weights = initial(5, 2, 0).weights
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 5)), jnp.float32)
    counts = jnp.asarray([1, 1, 1, 1, 1, 0, 0, 0], jnp.float32)
    key = jax.random.key(0)
    _, moments = _logits(weights, x, counts, key)
    _, other = _logits(weights, x.at[5:].set(9.0), counts, key)
    for one, two in zip(jax.tree.leaves(moments), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)
    hidden = x[:5] @ weights[0]["w"] + weights[0]["b"]
    np.testing.assert_allclose(moments[0][0], hidden.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(moments[1][0], hidden.var(axis=0), atol=1e-5)


@pytest.mark.slow
def test_fedmix_is_mixup_to_the_first_order(narrow: None) -> None:
    """The difference from mixup itself falls with lambda squared: by about 4 where lambda is halved."""
    rng = np.random.default_rng(0)
    weights = initial(5, 2, 0).weights
    x, other = (jnp.asarray(rng.normal(size=(64, 5)), jnp.float32) for _ in range(2))
    y, mixed = (jnp.asarray(np.eye(2)[rng.integers(2, size=64)], jnp.float32) for _ in range(2))
    counts, key = jnp.ones(64, jnp.float32), jax.random.key(3)

    def gap(lam: float) -> float:
        fedmix, _ = _loss(weights, (x, y, counts, other, mixed), key, Objective(mix=lam))
        both = (1 - lam) * x + lam * other, (1 - lam) * y + lam * mixed
        exact, _ = _loss(weights, (*both, counts, other, mixed), key, Objective())
        without, _ = _loss(weights, (x, y, counts, other, mixed), key, Objective())
        assert abs(float(fedmix - exact)) < abs(float(without - exact))
        return abs(float(fedmix - exact))

    assert gap(0.1) < gap(0.2) / 2


@pytest.mark.parametrize("rows", [1, 64, 65, 200])
def test_batches_have_every_row_once_an_epoch(rows: int) -> None:
    batches, steps = _batches(10, rows, 3, 2, 16, np.random.default_rng(0))
    counted, numbers = np.asarray(batches.counts), np.asarray(batches.rows)
    assert steps == 2 * -(-rows // 64)
    assert sorted(numbers[counted > 0]) == sorted(2 * list(range(10, 10 + rows)))
    sizes = counted[:steps].sum(axis=1)
    assert sizes.max() - sizes.min() <= 1
    assert not counted[steps:].any()


def test_mashed_rows_are_means() -> None:
    x = np.arange(12, dtype=np.float32).reshape(12, 1)
    means, targets = mashed(x, x, 5, np.random.default_rng(0))
    assert means.shape == (2, 1)
    np.testing.assert_array_equal(means, targets)
    assert means.sum() * 5 <= x.sum()


@pytest.mark.slow
def test_silos_learn_together_and_a_strong_tie_holds_them(narrow: None) -> None:
    table = load("clinical")
    first = table.train.labels == 0
    silos = [(table.inputs(rows), rows.labels) for rows in map(table.train.take, (first, ~first))]
    mixed = [(table.inputs(table.train), table.train.labels)]
    learnt = train_federated(mixed, 2, Training(rounds=10), seed=0)
    truth = table.test.labels
    assert (probabilities(learnt, table.inputs(table.test)).argmax(axis=1) == truth).mean() > 0.9
    start = initial(table.width, 2, 0)
    moved = [
        _distance(start, train_federated(silos, 2, Training(rounds=2, how=how), seed=0))
        for how in (Objective(), Objective(mu=100.0))
    ]
    assert moved[1] < moved[0] / 2
    with pytest.raises(ValueError, match="no silo has a row"):
        train_federated([(silos[0][0][:0], silos[0][1][:0])], 2, Training(), seed=0)


def _distance(one: object, two: object) -> float:
    pairs = zip(jax.tree.leaves(one.weights), jax.tree.leaves(two.weights), strict=True)  # type: ignore[attr-defined]
    return float(sum(((a - b) ** 2).sum() for a, b in pairs))


COUNTS = arrays.arrays(np.int64, 5, elements=st.integers(0, 50)).filter(lambda a: a.sum() > 0)
VALUES = arrays.arrays(
    np.float64, st.integers(1, 20), elements=st.floats(-5, 5, allow_subnormal=False)
)


@given(COUNTS, COUNTS)
@settings(deadline=None, max_examples=50)
def test_divergence_is_scipys_squared(left: np.ndarray, right: np.ndarray) -> None:
    expected = np.nan_to_num(jensenshannon(left, right, base=2)) ** 2
    assert divergence(left, right) == pytest.approx(expected, abs=1e-9)


@given(VALUES, VALUES)
@settings(deadline=None, max_examples=50)
def test_distance_is_scipys(left: np.ndarray, right: np.ndarray) -> None:
    assert distance(left, right) == pytest.approx(wasserstein_distance(left, right), abs=1e-9)


def test_similarity_of_a_table_with_itself_is_zero() -> None:
    table = load("clinical")
    assert similarity(table, table.train) == pytest.approx((0.0, 0.0, 0.0))
    shifted = similarity(table, table.train.take(table.train.labels == 1))
    assert min(shifted) > 0.05


@pytest.mark.parametrize(
    ("source", "epsilon"),
    [("tda-paper", None), ("tda", None), ("tda", 5.0), ("distaim", 5.0), ("flaim", 5.0)],
)
def test_synthetic_rows_are_the_tables_and_tell_its_label(
    source: str, epsilon: float | None
) -> None:
    """The first number and the first code go with the label in the table, so they do in the rows."""
    table = load("clinical")
    run = Settings(dataset="clinical", method=source, epsilon=epsilon, synthetic_rows=300)
    owned = [np.arange(i, len(table.train), 5) for i in range(5)]
    made = synthesise(run, table, owned, 0)
    rows = made.rows
    assert (rows.numbers.shape, rows.codes.shape, len(rows)) == ((300, 7), (300, 5), 300)
    assert rows.codes.min() >= 0
    assert set(np.unique(rows.labels)) == {0, 1}
    scaled = table.scaled(rows)
    assert scaled.min() >= 0
    assert scaled.max() <= 1
    if source != "tda-paper":
        # Categories by frequency need not keep a correlation's sign: two that are as frequent change places.
        assert np.corrcoef(rows.labels, rows.codes[:, 0])[0, 1] > 0.3
    assert made.sent_mb > 0
    again = synthesise(run, table, owned, 0)
    assert np.array_equal(again.rows.codes, rows.codes)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """GANs of three rounds and small networks."""
    monkeypatch.setattr("bench.papers.gan.networks.HIDDEN", (16, 16))
    monkeypatch.setattr("bench.papers.tda.gans.GAN_ROUNDS", 3)
    monkeypatch.setattr("bench.papers.tda.gans.AVERAGED", Averaged(rounds=3, epochs=1))
    monkeypatch.setattr("bench.papers.tda.gans.NOISED", Federated(epochs=3, participation=1.0))


OWNED = [np.arange(100), np.arange(100, 208), np.arange(208, 209), np.arange(0), np.arange(0)]
_WIDTH = 7 * 8 + 6 * 2
_JUDGE, _MAKER = (_WIDTH + 1) * 16 + 17 * 16 + 17, 129 * 16 + 17 * 16 + 17 * _WIDTH


def _gan(method: str, epsilon: float | None, values: int) -> Synthetic:
    table = load("clinical")
    run = Settings(dataset="clinical", method=method, epsilon=epsilon, delta=1e-6, synthetic_rows=9)
    made = synthesise(run, table, OWNED, 0)
    rows = made.rows
    assert (rows.numbers.shape, rows.codes.shape, len(rows)) == ((9, 7), (9, 5), 9)
    assert 0 <= rows.codes.min() <= rows.codes.max() <= 1
    assert 0 <= table.scaled(rows).min() <= table.scaled(rows).max() <= 1
    assert made.formula_mb == pytest.approx(5 * 3 * values * 4 / 1e6)
    assert made.sent_mb > made.formula_mb
    return made


@pytest.mark.slow
def test_fed_gan_noises_nothing_and_sends_both_networks(
    short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "noised", None)
    _gan("fed-gan", None, _JUDGE + _MAKER)


@pytest.mark.slow
def test_dp_fed_gan_has_each_silos_noise_for_all_its_rounds_and_sends_a_gradient(
    short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise is for the epsilon and delta of the run, a silo's own rate and the rounds that it joins."""
    charged: list[tuple[float, ...]] = []
    noised: list[float] = []
    real = training._of_client

    def least(*given: float, rho: float) -> float:
        # No conditional vectors, whose frequencies would be charged.
        assert rho == 0
        charged.append(given)
        return 7.0

    def of_client(*given: Any) -> Any:
        noised.append(float(given[8]))
        return real(*given)

    monkeypatch.setattr(training, "BATCH", 54)
    monkeypatch.setattr(training, "least_noise", least)
    monkeypatch.setattr(training, "_of_client", of_client)
    _gan("dp-fed-gan", 2.0, _JUDGE)
    assert charged == [(2.0, 0.54, 3, 1e-6), (2.0, 0.5, 3, 1e-6), (2.0, 1.0, 3, 1e-6)]
    # Three rounds of the three silos with rows: the multiplier times the clip.
    assert noised == [7.0 * 0.5] * 9


def test_formula_of_fed_tda_is_table_5s() -> None:
    run = Settings(dataset="clinical", method="tda-paper")
    table = load("clinical")
    owned = [np.arange(i, len(table.train), 5) for i in range(5)]
    made = synthesise(run, table, owned, 0)
    # An exact run ends once it has converged; the printed 0.4355 MiB are of 100 iterations.
    assert made.formula_mb is not None
    assert made.formula_mb <= 0.4355 * 2**20 / 1e6 + 1e-4
    # Sessions of few numbers have keys and shares besides.
    assert made.sent_mb > made.formula_mb


def test_sweeps_are_settings_by_name_and_the_page_says_what_is_missing(tmp_path: Path) -> None:
    every = settings_of(SWEEPS, ["all"])
    assert set(every) >= set(settings_of(SWEEPS, ["main"])) | set(settings_of(SWEEPS, ["figures"]))
    with pytest.raises(DatasetError, match="unknown sweep 'best'; expected one of main"):
        settings_of(SWEEPS, ["best"])
    store = open_store(tmp_path / "tda.jsonl")
    write_page(store, tmp_path)
    assert "| clinical | 0.05 | fedavg | 0.605 | - | not run | - |" in whole(tmp_path / "tda.md")
    assert not (tmp_path / "tda.png").exists()
    for repeat, run in product(range(2), every):
        score = Result(0.6 + repeat / 50, 0.6, 8.0, 7.0, 8.0, 1.5, 209, 0.01, 0.1, 0.02)
        store.add([Entry(run, repeat, score)])
    write_page(store, tmp_path)
    page = whole(tmp_path / "tda.md")
    assert "not run" not in page
    assert "| clinical | 0.05 | fedavg | 0.605 | 0.610 ± 0.014 | agree | 0.610 ± 0.014 |" in page
    assert (
        "| clinical | 0.05 | dp-fed-gan+fedavg, epsilon = 1 (DP-FedAvg-GAN) | 0.713 | 0.610" in page
    )
    assert "| clinical | 0.05 | fed-gan+fedavg, not private (Fed-TGAN) | 0.897 | 0.610" in page
    assert "| clinical | fed-gan | 662 | 7 | 8 | 100 |" in page
    assert (tmp_path / "tda.png").exists()


def test_costs_are_the_papers_formula_and_whole_sessions() -> None:
    sent, formula = model_mb(17, 2, clients=5, rounds=100)
    assert formula == pytest.approx(5 * 100 * parameters(17, 2) * 4 / 1e6)
    # The ring of five values of 32 bits has 35 bits; what a session has beside, keys and shares, is a hundredth more.
    assert 35 / 32 < sent / formula < 1.02 * 35 / 32
    # The paper's Table 5 has 0.0039 for Fedmix's rows on Clinical.
    assert mixed_mb(17, 2, rows=209, size=5) == pytest.approx(0.0039, rel=0.25)
    assert sum_mb(10, 0, 1, 1) == 0


def test_settings_say_what_is_wrong_and_what_has_no_bearing() -> None:
    for changes, said in (
        ({"method": "gan"}, "unknown method 'gan'; expected one of central"),
        ({"dataset": "adult"}, "unknown dataset 'adult'"),
        ({"beta": 0.0}, "beta is 0.0; expected a positive number"),
        ({"rounds": 0}, "rounds is 0; expected at least 1"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"method": "flaim"}, "flaim without an epsilon; flaim is private"),
        ({"method": "dp-fed-gan+fedavg"}, "dp-fed-gan is private: expected a positive number"),
    ):
        with pytest.raises((DatasetError, ValueError), match=said):
            Settings(**({"dataset": "clinical", "method": "fedavg"} | changes))  # type: ignore[arg-type]
    central, fedavg = (Settings(dataset="body", method=m, beta=0.1) for m in ("central", "fedavg"))
    assert central.relevant().beta is None
    assert fedavg.relevant().beta == 0.1
    assert Settings(dataset="body", method="iid", epsilon=1.0).relevant().epsilon is None
    assert Settings(dataset="body", method="fed-gan", epsilon=1.0).relevant().epsilon is None


def test_store_keeps_runs_and_passes_over_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "tda.jsonl"
    store, run = open_store(path), Settings(dataset="clinical", method="iid", beta=0.1)
    assert store.find(run, 0) is None
    store.add([Entry(run, 0, RESULT)])
    path.write_bytes(path.read_bytes() + b'{"settings": {"da')
    again = open_store(path)
    other = Settings(dataset="clinical", method="iid", beta=0.5)
    assert again.find(other, 0) == Entry(other, 0, RESULT)
    again.add([Entry(run, 1, RESULT)])
    assert [entry.repeat for entry in open_store(path).all_of(run)] == [0, 1]
    path.write_text('{"results": []}\n')
    with pytest.raises(DatasetError, match="line 1: is not a result of `syncret bench tda`"):
        open_store(path)


def test_verdict_is_of_a_measure_where_more_is_better() -> None:
    printed = SCORES["clinical", 0.05, "fedavg"]
    assert verdict(printed, [printed + 0.2, printed + 0.21]) == "better"
    assert verdict(printed, [printed - 0.2, printed - 0.21]) == "worse"
    assert verdict(printed, [printed - 0.2]) == "one run, worse"
    assert verdict(printed, [printed - 0.01]) == "agree"
    assert verdict(printed, []) == "not run"


def test_command_prints_what_its_help_says_and_runs_nothing_twice(
    tmp_path: Path, narrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "runs" / "tda.jsonl")
    given = ["--method", "fedavg", "--method", "central", "--rounds", "1", "--results", path]
    done = CliRunner().invoke(tda, [*given, "--json"])
    assert done.exit_code == 0, done.stderr
    assert "2 of 2: clinical central repeat 0" in done.stderr
    first, second = json.loads(done.stdout)["results"]
    assert {
        "method",
        "beta",
        "epsilon",
        "auc",
        "jsd",
        "wasserstein",
        "sent_mb",
        "formula_mb",
    } <= set(first)
    assert (first["method"], first["beta"], first["epsilon"]) == ("fedavg", 0.05, None)
    assert 0 <= first["auc"] <= 1
    assert "accuracy" not in first
    assert second["sent_mb"] == 0
    monkeypatch.setenv("COLUMNS", "160")
    again = CliRunner().invoke(tda, given)
    assert again.exit_code == 0
    assert "fedavg" in again.stdout
    assert again.stderr == ""
    wrong = CliRunner().invoke(tda, ["--epsilon", "much"])
    assert "'much' is neither a number nor 'none'" in wrong.stderr
