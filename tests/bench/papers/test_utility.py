"""The utility benchmark: settings and their digests, metrics, methods, the store, sweeps and the command."""

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from bench import metrics
from bench.datasets import Dataset
from bench.experiment.sweeps import settings_of
from bench.fetch import DatasetError
from bench.methods import splits
from bench.methods.authors_fit import AuthorsEstimator, judged
from bench.methods.flaim import flaim_settings
from bench.methods.fresh import FreshFirst
from bench.methods.mpc import _trial
from bench.methods.problem import Outcome, Problem, problem
from bench.methods.run import _schedule, arrival_counts
from bench.methods.settings import METHODS, Settings
from bench.methods.splits import owners_of
from bench.metrics import auc_on_held_out, closure_error
from bench.overhead.client import Subject
from bench.overhead.formula import upload_payload, upload_wire
from bench.overhead.jobs import ClientJob, Record, Records
from bench.papers.utility import portraits
from bench.papers.utility.beside_paper import Sources, beside_paper
from bench.papers.utility.cli import utility
from bench.papers.utility.figures import PICTURES, picture
from bench.papers.utility.grid import CREDIT, SWEEPS, default, everybody, of_panel, with_annealing
from bench.papers.utility.portraits import portraits_section
from bench.papers.utility.report import write_report
from bench.papers.utility.runs import Result, measure
from bench.papers.utility.splits import DRAWS, measure_splits, read_splits
from bench.papers.utility.store import Entry, open_store
from bench.papers.utility.sweep import run_all
from mechanisms.accounting import Ledger, fixed_rounds_plan, rho, rho_from_epsilon_delta
from mechanisms.aim import Measurement
from mechanisms.domain import Categorical, Domain
from mechanisms.metrics import nll, table_answers, workload_error
from mechanisms.model import Model
from mechanisms.workload import Workload, count_marginals
from parties.local.partition import iid
from tests.bench.pages import whole

RESULT = Result(0.5, 0.4, 0.45, 20.0, 0.7, 1.5, 10, 100, 0.1)


def small_table(rows: int = 600, seed: int = 0) -> Dataset:
    """Four columns that depend on one another; the last is the target."""
    rng = np.random.default_rng(seed)
    first = rng.integers(4, size=rows)
    second = (first + rng.integers(2, size=rows)) % 4
    third = rng.integers(3, size=rows)
    target = (rng.random(rows) < np.where(first > 1, 0.9, 0.1)).astype(int)
    codes = np.stack([first, second, third, target], axis=1).astype(np.int32)
    domain = Domain(
        tuple(
            Categorical(name, tuple(map(str, range(size))))
            for name, size in zip("abcd", (4, 4, 3, 2), strict=True)
        )
    )
    return Dataset("magic", domain, codes[: 5 * rows // 6], codes[5 * rows // 6 :], 3)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dataset:
    """The name `magic` stands for the small table."""
    table = small_table()
    workload = Workload(table.domain, (("a", "b", "c"), ("a", "b", "d"), ("b", "c", "d")))
    monkeypatch.setattr("bench.methods.problem._table", lambda *args: (table, workload))
    monkeypatch.setenv("SYNCRET_CACHE_DIR", str(tmp_path / "cache"))
    return table


def settings(method: str = "aim", **changes: object) -> Settings:
    """A run that takes a moment."""
    values: dict[str, object] = {
        "dataset": "magic",
        "method": method,
        "partition": "iid",
        "clients": 10,
        "participation": 0.5,
        "rounds": 3,
        "iterations": 20,
        "final_iterations": 50,
        "epsilon": 5.0,
    }
    return Settings(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": "mnist"}, "unknown dataset 'mnist'; expected one of adult"),
        ({"method": "gan"}, "unknown method 'gan'; expected one of aim, distaim"),
        ({"partition": "random"}, "unknown partition 'random'; expected one of iid"),
        ({"partition": "natural"}, "does not go with magic"),
        ({"dataset": "synthfs"}, "takes 'natural'"),
        ({"mpc": True}, "mpc is for distaim"),
        ({"sizes": "secret"}, "unknown sizes 'secret'; expected one of public, estimated"),
        ({"tau": "none"}, "settings of FLAIM's variants, not of aim"),
        ({"local_rounds": 2}, "no local rounds"),
        ({"participation": 0.0}, "participation is 0.0; expected above 0"),
        ({"epsilon": -1.0}, "epsilon is -1.0; expected a positive number"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"rounds": 0}, "rounds is 0; expected at least 1"),
        ({"delta": 1.0}, "delta is 1.0; expected between 0 and 1"),
    ],
)
def test_settings_say_what_is_wrong(changes: dict[str, object], said: str) -> None:
    with pytest.raises((DatasetError, ValueError), match=said):
        settings(**changes)  # type: ignore[arg-type]


def test_digest_depends_on_what_matters_only() -> None:
    aim = settings()
    changes = {"partition": "clustering", "clients": 5, "participation": 1.0}
    for name, value in (changes | {"beta": 2.0}).items():
        assert replace(aim, **{name: value}).digest() == aim.digest()  # type: ignore[arg-type]
    distaim = settings("distaim")
    for name, value in (changes | {"mpc": True}).items():
        assert replace(distaim, **{name: value}).digest() != distaim.digest()  # type: ignore[arg-type]
    assert replace(distaim, beta=2.0).digest() == distaim.digest()
    skewed = settings("distaim", partition="label-skew")
    assert replace(skewed, beta=2.0).digest() != skewed.digest()
    assert len({settings(method).digest() for method in METHODS}) == len(METHODS)


def test_digest_stays_what_published_results_have() -> None:
    assert Settings(dataset="adult", method="aim").digest() == "08aed2f717815613fcbb35d3"
    published = open_store(Path("bench/results/utility.jsonl"))
    for method in METHODS:
        assert published.all_of(default("adult", method))


def test_sizes_are_public_as_the_paper_has_them_unless_asked_for_otherwise() -> None:
    assert settings("private").sizes == flaim_settings(settings("private")).sizes == "public"
    estimated = settings("private", sizes="estimated")
    assert flaim_settings(estimated).sizes == "estimated"
    assert estimated.digest() != settings("private").digest()
    assert settings("distaim", sizes="estimated").digest() == settings("distaim").digest()
    assert "sizes" not in settings("private").relevant()


def test_closure_error_averages_over_subsets_too() -> None:
    domain = Domain((Categorical("a", ("0", "1")), Categorical("b", ("0", "1"))))
    workload = Workload(domain, (("a", "b"),))
    left = np.array([[0, 0], [0, 1]], np.int32)
    right = np.array([[0, 0], [0, 0]], np.int32)
    answers = [table_answers(workload, codes) for codes in (left, right)]
    assert workload_error(workload, *answers) == pytest.approx(1.0)
    # (a): 0, (b): 1, (a, b): 1.
    assert closure_error(workload, *answers) == pytest.approx(2 / 3)


def test_closure_error_leaves_out_columns_that_no_query_has() -> None:
    domain = Domain((Categorical("a", ("0", "1")), Categorical("b", ("0", "1"))))
    workload = Workload(domain, (("a",),))
    left, right = (np.array([[0, value]], np.int32) for value in (0, 1))
    answers = [table_answers(workload, codes) for codes in (left, right)]
    assert closure_error(workload, *answers) == 0


def test_auc_finds_a_target_that_can_be_learnt_and_none_in_noise() -> None:
    table = small_table(3000)
    assert auc_on_held_out(table.train, table.test, 3) > 0.85
    noise = table.train.copy()
    noise[:, 3] = np.random.default_rng(1).integers(2, size=len(noise))
    assert abs(auc_on_held_out(noise, table.test, 3) - 0.5) < 0.2


def test_auc_trains_on_a_part_drawn_from_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half of the rows has one class alone: what is trained on them is worth a half."""
    monkeypatch.setattr(metrics, "TRAINING_ROWS", 1000)
    table = small_table(3000)
    in_order = table.train[np.argsort(table.train[:, 3], kind="stable")]
    assert len(np.unique(in_order[:1000, 3])) == 1
    assert auc_on_held_out(in_order, table.test, 3) > 0.8


def test_auc_of_several_classes_counts_one_that_was_never_learnt_as_chance() -> None:
    rng = np.random.default_rng(0)
    held_out = np.stack([np.arange(300) % 3, np.arange(300) % 3], axis=1).astype(np.int32)
    synthetic = held_out[held_out[:, 1] < 2][rng.permutation(200)]
    assert auc_on_held_out(held_out, held_out, 1) == 1.0
    # Class 0 is learnt; 2 looks like 1, so that 1 has three quarters; 2 itself was never seen, a half.
    assert auc_on_held_out(synthetic, held_out, 1) == pytest.approx((1 + 0.75 + 0.5) / 3)


def test_auc_of_one_synthetic_class_is_a_half() -> None:
    table = small_table()
    constant = table.train.copy()
    constant[:, 3] = 1
    assert auc_on_held_out(constant, table.test, 3) == 0.5


def test_auc_refuses_held_out_rows_of_one_class() -> None:
    table = small_table()
    with pytest.raises(ValueError, match="one class"):
        auc_on_held_out(table.train, table.test[table.test[:, 3] == 0], 3)


def test_arrivals_count_every_client_once_and_at_its_first_round(small: Dataset) -> None:
    workload = Workload(small.domain, (("a", "b"), ("c", "d")))
    partition = iid(len(small.train), clients=10, seed=0)
    arrivals = arrival_counts(
        workload, small.train, partition, settings("distaim"), np.random.default_rng(0)
    )
    assert 0 in arrivals
    assert 1 not in arrivals
    assert sum(clients for clients, _ in arrivals.values()) == 10
    total = sum(counts.astype(np.int64) for _, counts in arrivals.values())
    assert (total == count_marginals(small.train, workload)).all()


def test_arrivals_come_at_the_rate_of_participation(small: Dataset) -> None:
    workload = Workload(small.domain, (("a", "b"),))
    partition = iid(len(small.train), clients=400, seed=0)
    rng = np.random.default_rng(0)
    chosen = settings("distaim", clients=400, participation=0.2)
    arrivals = arrival_counts(workload, small.train, partition, chosen, rng)
    # 80 expected with deviation 8: five deviations, a false-alarm rate below 1e-6.
    assert abs(arrivals[0][0] - 80) < 40
    assert abs(arrivals[2][0] - 64) < 40


@pytest.mark.parametrize("method", METHODS)
def test_measure_is_better_than_nothing_and_repeatable(small: Dataset, method: str) -> None:
    result = measure(settings(method), 0)
    # Exact one-way marginals alone leave 0.92.
    assert 0 < result.workload_error < (1.1 if method == "naivebayes" else 0.6)
    assert result.closure_error < result.workload_error
    assert result.auc is not None
    assert result.auc > (0.3 if method == "naivebayes" else 0.7)
    assert 2 < result.nll < 6
    assert result.rounds_done == 3
    assert (result.single_choosers is None) == (method in ("aim", "distaim"))
    again = measure(settings(method), 0)
    assert replace(again, seconds=0) == replace(result, seconds=0)
    other = measure(settings(method), 1)
    assert replace(other, seconds=0) != replace(result, seconds=0)


@pytest.mark.parametrize("estimator", ["authors", "stopping"])
@pytest.mark.parametrize("method", ["aim", "naive", "private"])
def test_other_estimators_are_about_as_good_and_have_a_digest_of_their_own(
    small: Dataset, method: str, estimator: str
) -> None:
    ours = measure(settings(method, epsilon=8.0), 0)
    other = settings(method, epsilon=8.0, estimator=estimator)
    theirs = measure(other, 0)
    assert theirs != ours
    assert other.digest() != settings(method, epsilon=8.0).digest()
    assert theirs.model_error < 2 * ours.model_error + 0.05
    assert theirs.nll_raw is not None
    # The smoothed likelihood of a row that the model has hardly any room for is better.
    assert theirs.nll_raw > theirs.nll - 1e-5


def test_fresh_first_measures_each_column_of_its_own_draw_and_counts_nobody_for_it(
    small: Dataset,
) -> None:
    workload = Workload(small.domain, (("a", "b"), ("c", "d")))
    plan = fixed_rounds_plan(100.0, 2, 4, measure_share=0.9)
    draws = [np.full(workload.maximal_cells, 1000 * i, np.uint32) for i in (1, 2, 3, 4)]
    backend = FreshFirst(
        workload,
        plan,
        arrivals={0: (3, np.full(workload.maximal_cells, 7, np.uint32))},
        draw=iter(draws).__next__,
        expected=5,
        ledger=Ledger(plan.rho),
        random_bytes=np.random.default_rng(0).bytes,
    )

    async def run() -> None:
        assert await backend.begin_round(0) == 5
        for number, candidate in enumerate(workload.one_way, start=1):
            noisy = await backend.measure(candidate, plan.sigma)
            cells = 16 if candidate in (0, 1) else 6
            # Rows of this draw alone; sigma is about 0.2.
            assert noisy.sum() == pytest.approx(1000 * number * cells, abs=10)
        assert await backend.begin_round(1) == 3
        assert (await backend.measure(0, plan.sigma)).sum() == pytest.approx(7 * 16, abs=10)

    asyncio.run(run())


def test_distaim_as_the_authors_have_it_is_worse_than_ours(small: Dataset) -> None:
    def error(**changes: object) -> float:
        runs = [measure(settings("distaim", rounds=2, **changes), r) for r in range(6)]
        return float(np.mean([run.model_error for run in runs]))

    assert error(participation=0.1, partition="label-skew") < error(
        participation=0.1, partition="label-skew", first="fresh", estimator="authors"
    )
    for changes in ({"method": "aim"}, {"method": "distaim", "mpc": True}):
        with pytest.raises(DatasetError, match="without mpc"):
            settings(first="fresh", **changes)  # type: ignore[arg-type]


def test_random_drawn_by_the_server_has_one_query_a_round(small: Dataset) -> None:
    own = measure(settings("random", estimator="authors"), 0)
    drawn = measure(settings("random", estimator="authors", drawn="server"), 0)
    # Each round's query was chosen by everybody who took part.
    assert own.single_choosers
    assert drawn.single_choosers == 0
    assert drawn.workload_error < own.workload_error
    for changes in ({"method": "naive", "estimator": "authors"}, {"method": "random"}):
        with pytest.raises(DatasetError, match="drawn = 'server' is for random with estimator"):
            settings(drawn="server", **changes)
    with pytest.raises(DatasetError, match="annealed"):
        settings("naive", settles="any")


def test_the_papers_estimator_normalises_by_a_marginals_own_sum_and_judges_the_model_before(
    small: Dataset,
) -> None:
    posed = problem(settings())
    workload, plan = posed.workload, _schedule(settings(), posed)
    estimator = AuthorsEstimator(workload, plan, rows=500, max_model_mb=80.0)
    cells = {i: workload.slice(i) for i in workload.one_way}
    measured = [
        Measurement(0, i, np.arange(1.0, 1 + part.stop - part.start), 2.0, 1)
        for i, part in cells.items()
    ]
    for clique, target in estimator.targets(measured):
        assert target.mean.sum() == pytest.approx(1)
        assert target.weight == (500 / 2.0) ** 2
        assert target.mean.shape == workload.domain.sizes(clique)
    for final in (False, True):
        before = estimator.model
        asyncio.run(estimator.estimate(measured, round=1, final=final))
    assert before is not None
    assert judged(estimator)[0] is before


def test_measure_holds_errors_against_training_rows_and_the_rest_against_held_out_ones(
    small: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload(small.domain, (("a", "b"), ("c", "d")))
    counts = count_marginals(small.train[:50], workload)
    marginals = tuple(
        counts[start:end].reshape(small.domain.sizes(query)) / 50
        for query, start, end in zip(
            workload.maximal, workload.maximal_offsets, workload.maximal_offsets[1:], strict=False
        )
    )
    model = Model(small.domain, workload.maximal, (-1, -1), marginals)

    async def fixed(*_: object) -> Outcome:
        return Outcome(model, 70, 3, (model, None))

    monkeypatch.setattr("bench.papers.utility.runs.run_method", fixed)
    chosen = settings()
    result = measure(chosen, 5)
    seed = [int(chosen.digest(), 16), 5, 1]
    synthetic = model.sample(70, np.random.default_rng(seed))
    posed = problem(chosen).workload
    real, written = (table_answers(posed, codes) for codes in (small.train, synthetic))
    said = model.answers_q32(posed.candidates).astype(float)
    assert result.workload_error == workload_error(posed, real, written)
    assert result.closure_error == closure_error(posed, real, written)
    assert result.model_error == pytest.approx(workload_error(posed, real, said))
    assert result.nll == nll(model, small.test) != nll(model, small.train)
    assert result.auc == auc_on_held_out(synthetic, small.test, 3)
    assert (result.rows, result.rounds_done) == (70, 3)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_every_method_divides_the_budget_of_its_epsilon(small: Dataset, epsilon: float) -> None:
    posed = problem(settings())
    budget = rho_from_epsilon_delta(epsilon, 1e-6)
    for annealed in (False, True):
        chosen = settings(
            "distaim", epsilon=epsilon, delta=1e-6, measure_share=0.7, annealed=annealed
        )
        plan = _schedule(chosen, posed)
        assert plan.rho == budget
        assert plan.adaptive == annealed
        assert plan.rounds == (64 if annealed else 3)
        assert rho(plan.measurement) * (plan.rounds + 4) == pytest.approx(0.7 * budget)
        federated = flaim_settings(replace(chosen, method="private"))
        assert (federated.rho, federated.measure_share) == (budget, 0.7)
        assert federated.annealed == annealed


@pytest.mark.parametrize("annealed", [False, True])
def test_mpc_has_the_schedule_asked_for(small: Dataset, annealed: bool) -> None:
    chosen = settings("distaim", mpc=True, annealed=annealed)
    run = _trial(chosen, problem(chosen)).config.run
    assert (run.schedule, run.rounds) == (("annealed", 64) if annealed else ("fixed", 3))


@pytest.mark.parametrize(
    ("method", "changes", "tau", "combine"),
    [
        ("naive", {}, "none", False),
        ("oracle", {}, "oracle", False),
        ("private", {}, "proxy", True),
        ("private", {"combine": False}, "proxy", False),
        ("private", {"tau": "none"}, "none", True),
    ],
)
def test_flaim_settings_are_the_ablation_asked_for(
    method: str, changes: dict[str, object], tau: str, combine: bool
) -> None:
    found = flaim_settings(settings(method, local_rounds=2, **changes))
    assert (found.tau, found.combine) == (tau, combine)
    assert (found.rounds, found.local_rounds, found.participation) == (3, 2, 0.5)


def test_flaim_settings_refuse_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="tau is none"):
        flaim_settings(settings("random", tau="proxy"))


def test_measure_with_everyone_from_the_start_is_close_to_central(small: Dataset) -> None:
    everyone = measure(settings("distaim", participation=1.0), 0)
    assert abs(everyone.rows - len(small.train)) < 0.2 * len(small.train)


@pytest.mark.slow
def test_umap_itself_places_every_row(small: Dataset) -> None:
    """Compiling it takes most of a minute; other tests give points of their own."""
    points = splits._embedding(small.train, small.domain.shape, 0)
    assert points.shape == (len(small.train), 2)
    assert np.isfinite(points).all()


def test_owners_of_uses_the_embedding_once(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def embed(codes: np.ndarray, sizes: object, seed: int) -> np.ndarray:
        calls.append(seed)
        return codes[:, :2].astype(float)

    monkeypatch.setattr(splits, "umap_embedding", embed)
    first = owners_of(small, "clustering", clients=5)
    second = owners_of(small, "clustering", clients=5)
    assert (first.owners == second.owners).all()
    assert calls == [0]
    owners_of(small, "clustering", clients=5, seed=1)
    assert calls == [0, 1]
    assert "UMAP" in first.note


@pytest.mark.parametrize(("partition", "clients"), [("nothing", 5), ("natural", 5), ("iid", 0)])
def test_owners_of_says_what_is_wrong(small: Dataset, partition: str, clients: int) -> None:
    with pytest.raises(DatasetError, match=r"partition|clients"):
        owners_of(small, partition, clients=clients)


@pytest.mark.slow
def test_owners_of_fits_on_a_part_of_a_large_table(
    small: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "FIT_ROWS", 300)
    found = owners_of(small, "clustering", clients=5)
    assert "fitted on 300 of 500 rows" in found.note
    assert (found.sizes > 0).all()


def test_store_keeps_what_was_added_and_finds_it_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    open_store(path).add([Entry(settings(), 0, RESULT), Entry(settings(), 2, RESULT)])
    store = open_store(path)
    assert store.find(settings(partition="label-skew"), 0) == Entry(
        settings(partition="label-skew"), 0, RESULT
    )
    assert store.find(settings(), 1) is None
    assert [entry.repeat for entry in store.all_of(settings())] == [0, 2]
    assert store.count == 2


def test_store_passes_over_a_torn_line_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    open_store(path).add([Entry(settings(), 0, RESULT), Entry(settings(), 1, RESULT)])
    path.write_bytes(path.read_bytes()[:-20])
    store = open_store(path)
    assert [entry.repeat for entry in store.all_of(settings())] == [0]
    store.add([Entry(settings(), 1, RESULT)])
    assert [entry.repeat for entry in open_store(path).all_of(settings())] == [0, 1]


def test_store_refuses_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}\n', encoding="utf-8")
    with pytest.raises(DatasetError, match="line 1: is not a result"):
        open_store(path)


def test_report_has_errors_by_the_number_of_rounds(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    for rounds, error in ((4, 0.5), (96, 0.25)):
        chosen = Settings(dataset="census", method="distaim", rounds=rounds)
        store.add([Entry(chosen, 0, replace(RESULT, workload_error=error, nll=31.0))])
    write_report(store, tmp_path)
    text = whole(tmp_path / "utility.md")
    assert "| table | method |  | T = 4 | T = 96 |" in text
    assert "| census | distaim | error | 0.500 | 0.250 |" in text
    assert "| census | distaim | NLL | 31.00 | 31.00 |" in text


def test_report_puts_everybody_by_rows_beside_a_tenth_with_flaim(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    write_report(store, tmp_path)
    section = "## Rows: everybody takes part"
    assert f"{section}\n\nNot run." in whole(tmp_path / "utility.md")
    for repeat, error in enumerate((0.2, 0.3)):
        result = replace(RESULT, workload_error=error)
        store.add([Entry(everybody("magic"), repeat, result)])
    store.add([Entry(everybody("magic", "clustering"), 0, replace(RESULT, workload_error=0.1))])
    store.add([Entry(Settings(dataset="magic", method="private", partition="iid"), 0, RESULT)])
    write_report(store, tmp_path)
    text = whole(tmp_path / "utility.md").split(section)[1]
    # With everybody a partition makes no difference: three runs. There are no records of bytes.
    row = "| magic | 10 | 0.200 ± 0.100 | 20.00 ± 0.00 | 0.700 ± 0.000 | 3 | not run |  |  | 0 | 0.500 "
    assert f"{row}| 20.00 | 0.700 | 1 |  |  |" in text
    job = ClientJob("magic", (10,), formula_only=True)
    records = Records(tmp_path / "overhead.json")
    records.add(Record(job.command, job.kind, job.run(), "abc", "2026-11-01", {}))
    write_report(store, tmp_path)
    text = whole(tmp_path / "utility.md").split(section)[1]
    workload = Subject.load("magic", rows=False).workload
    own = upload_wire(upload_payload(workload, "rows", 172)) / 1000
    assert re.search(rf"\| 1 \| {own:.1f} \| [0-9.]+ \|", text)


def test_everybody_has_the_same_sums_by_any_partition(small: Dataset) -> None:
    found = []
    for partition in ("iid", "label-skew"):
        chosen = replace(everybody("magic", partition), clients=5)
        posed = problem(chosen)
        assert posed.partition is not None
        rng = np.random.default_rng(0)
        found.append(arrival_counts(posed.workload, small.train, posed.partition, chosen, rng))
    assert [set(arrivals) for arrivals in found] == [{0}, {0}]
    assert (found[0][0][1] == found[1][0][1]).all()


def fake_measure(chosen: Settings, repeat: int) -> Result:
    """At the place of a real run, in tests of what is around it."""
    if chosen.method == "random":
        raise ValueError("it cannot be done")
    return replace(RESULT, workload_error=chosen.epsilon + repeat)


def test_run_all_runs_what_is_missing_and_goes_on_after_a_failure(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.papers.utility.sweep.measure", fake_measure)
    store = open_store(tmp_path / "results.jsonl")
    jobs = [
        (settings(method), repeat) for repeat in (0, 1) for method in ("random", "naive", "aim")
    ]
    done = []
    failures = run_all(jobs, store, on_done=lambda job, result: done.append(job))
    assert len(failures) == 2
    assert "random on magic, iid, repeat 0: ValueError: it cannot be done" in failures[0]
    assert done == jobs
    assert store.count == 4
    done.clear()
    others = [job for job in jobs if job[0].method != "random"]
    run_all(others, store, on_done=lambda job, result: done.append(job))
    assert done == []


def test_run_all_runs_equal_settings_once(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.papers.utility.sweep.measure", fake_measure)
    store = open_store(tmp_path / "results.jsonl")
    jobs = [(settings(participation=p), 0) for p in (0.1, 0.5)]
    done = []
    run_all(jobs, store, on_done=lambda job, result: done.append(job))
    assert done == jobs[:1]
    assert all(store.find(*job) for job in jobs)


def test_run_all_looks_at_the_tables_before_it_runs_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCRET_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SYNCRET_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "magic.csv").write_text("a\n1\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="has no column"):
        run_all([(settings(), 0)], open_store(tmp_path / "results.jsonl"))


@pytest.mark.parametrize(
    ("module", "partition", "n_jobs", "dask"),
    [
        ("sklearn", "iid", 1, None),
        ("umap", "clustering", 1, None),
        ("joblib", "iid", 2, None),
        ("distributed", "iid", 1, "tcp://127.0.0.1:9"),
    ],
)
def test_run_all_says_what_to_install_before_it_runs_anything(
    small: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    partition: str,
    n_jobs: int,
    dask: str | None,
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else real(name)
    )
    extra = "papers" if n_jobs == 2 or dask else "bench"
    job = (settings("distaim", partition=partition), 0)
    with pytest.raises(ImportError, match=rf"needs {module}, .* -e '\.\[{extra}\]'"):
        run_all([job], open_store(tmp_path / "r.jsonl"), n_jobs=n_jobs, dask=dask)


def test_report_says_what_is_missing_and_quotes_the_paper(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    write_report(store, tmp_path / "empty")
    assert "Not run." in whole(tmp_path / "empty" / "utility.md")
    entries = [
        Entry(chosen, repeat, replace(RESULT, workload_error=0.25 + repeat / 10))
        for chosen in settings_of(SWEEPS, ["all"])
        for repeat in (0, 1)
        if chosen.dataset != CREDIT
    ]
    store.add(entries)
    write_report(store, tmp_path)
    text = whole(tmp_path / "utility.md")
    assert "| adult | aim | 2 | 0.300 ± 0.071 |" in text
    assert "| adult | aim | 0.2 | 0.300 ± 0.071 (2) | within spread, +50% |" in text
    assert "| credit | aim | 0.07 |  | cannot be compared: no table |" in text
    # What epsilon is for, where the paper's sizes are public.
    assert "epsilon is for tables of the same declared sizes" in text
    assert "rho is 2.2 times as much with naive, oracle and private, epsilon = 1.54" in text
    # DistMWEM has a command of its own, and Credit is not here.
    assert text.count("Not run.") == 2
    assert "- The paper: on Credit each of them is, by itself. **Not run.**" in text
    assert "## DistMWEM on a small domain\n\nNot run." in text
    pictures = sorted(path.name for path in tmp_path.glob("*.png"))
    assert pictures == [f"utility-fig{i}.png" for i in (1, 10, 2, 3, 6, 7, 8, 9)]
    for name in PICTURES:
        assert f"![{PICTURES[name].title}](utility-{name}.png)\n\n- The paper: " in text


def test_figures_say_what_the_runs_show(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    errors = {
        "naive": (0.9, 0.8),
        "oracle": (0.6, 0.5),
        "private": (0.5, 0.3),
        "distaim": (0.4, 0.35),
    }
    store.add(
        Entry(of_panel("magic", "epsilon", epsilon, method), 0, replace(RESULT, workload_error=e))
        for method, of_method in errors.items()
        for epsilon, e in zip((1.0, 5.0), of_method, strict=True)
    )
    text = "\n".join(picture(store, tmp_path, "fig6"))
    worst, below, near = (line for line in text.splitlines() if line.startswith("- The paper: "))
    assert worst == (
        "- The paper: naive is the worst at every epsilon. **Agrees.** Ours: magic: naive the worst at 2 of 2 values."
    )
    assert below.endswith("**Agrees.** Ours: magic: private below oracle everywhere.")
    assert near.endswith("**Agrees.** Ours: magic: private over distaim 0.86 at 5.")
    assert "| naive | 0.900 | 0.800 | 1 |" in text
    # One value is no line.
    assert picture(store, tmp_path, "fig7")[-1] == "Not run.\n"
    assert [path.name for path in tmp_path.glob("*.png")] == ["utility-fig6.png"]


def test_portraits_are_on_the_page_once_they_are_drawn(
    small: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert portraits_section(tmp_path) == []
    tables = {"synthfs": small, "adult": small}
    owners = iid(len(small.train), clients=10, seed=0)
    monkeypatch.setattr(
        portraits,
        "problem",
        lambda s, **_: SimpleNamespace(dataset=tables[s.dataset], partition=owners),
    )
    monkeypatch.setattr(
        portraits, "embedded", lambda dataset, **_: dataset.train[:, :2].astype(float)
    )
    monkeypatch.setattr(portraits, "_COLUMNS", ("a", "d"))
    portraits.draw_portraits(tmp_path)
    assert len(portraits_section(tmp_path)) == 2


def test_ranks_are_of_tables_and_repeats_that_all_methods_were_run_on(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.jsonl")
    errors = {"naive": 0.9, "oracle": 0.6, "private": 0.4, "distaim": 0.4, "aim": 0.2}
    store.add(
        Entry(
            with_annealing("adult", method, 1.0),
            0,
            replace(RESULT, workload_error=error, nll=20 + error),
        )
        for method, error in errors.items()
    )
    # A repeat without the others is in no rank.
    lonely = Entry(with_annealing("adult", "naive", 1.0), 1, RESULT)
    store.add([lonely])
    text = beside_paper(store, Sources()).text
    assert "| naive | 4.65/4.75 | 5/5 | one run, higher, +8% / agree |" in text
    assert "| distaim | 2/2.5 | 2.5/2.5 | one run, higher, +25% / agree |" in text
    assert "| aim | 1/1 | 1/1 | agree |" in text
    assert "(epsilon = 1: 1)" in text
    # Three ranks that are the same are no proof that all are.
    store.add(
        Entry(
            with_annealing("adult", method, 1.0),
            repeat,
            replace(RESULT, workload_error=error, nll=20 + error),
        )
        for repeat in (1, 2)
        for method, error in errors.items()
    )
    text = beside_paper(store, Sources()).text
    assert "| distaim | 2/2.5 | 2.5/2.5 | within spread, +25% / agree |" in text


def test_splits_are_measured_once_each_and_stand_beside_the_papers_figures(
    small: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bench.papers.utility.splits.TABLES", ("magic",))
    monkeypatch.setattr("bench.papers.utility.splits.TABLE5", {("magic", "iid"): 0.538})
    monkeypatch.setattr(
        "bench.papers.utility.splits.SPLITS", (("iid", {}), ("label-skew", {"beta": 0.1}))
    )
    path, said = tmp_path / "splits.json", []
    measure_splits(path, progress=said.append)
    rows = read_splits(path)
    assert len(said) == len(rows) == 4
    # Every run is with the first draw of label shares; others are told beside it, and of Table 5 alone.
    assert [len(row.get("draws", [])) for row in rows] == [0, DRAWS, 0, 0]
    assert rows[1]["draws"][0] == rows[1]["mean"] != rows[1]["draws"][1]
    # Four columns have 14 sets of one to three of them; the workload three queries.
    assert [row["marginals"] for row in rows] == [14, 14, 3, 3]
    iid_all = rows[0]["mean"]
    # Marginals of fewer cells are closer than queries of three columns.
    assert 0 < iid_all < rows[2]["mean"] < rows[3]["mean"]
    measure_splits(path, progress=said.append)
    assert len(said) == 4
    # Records of before had one draw.
    older = [{key: row[key] for key in row if key != "draws"} for row in rows]
    path.write_text(json.dumps(older), encoding="utf-8")
    measure_splits(path, progress=said.append)
    assert len(said) == 5
    assert read_splits(path) == rows
    page = beside_paper(open_store(tmp_path / "none.jsonl"), Sources(rows)).text
    assert f"| magic | iid | 0.538 | {iid_all:.3f} ± " in page
    assert "| one run, lower, " in page
    assert "| magic | label-skew 0.8 | 0.603 | - |  |  | not measured |" in page


def test_splits_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(DatasetError, match="cannot be used"):
        read_splits(path)


def test_every_sweep_has_settings_that_are_valid() -> None:
    assert {name: len(settings_of(SWEEPS, [name])) for name in SWEEPS} == {
        "table1": 28,
        "table2": 60,
        "table3": 56,
        "table4": 0,
        "table5": 0,
        "fig1": 30,
        "fig2": 96,
        "fig3": 105,
        "fig4": 0,
        "fig5": 0,
        "fig6": 40,
        "fig7": 50,
        "fig8": 30,
        "fig9": 30,
        "fig10": 48,
        "rows": 24,
        "paper1": 30,
        "paper2": 70,
        "paper6": 80,
        "stopping": 24,
    }
    with pytest.raises(DatasetError, match="unknown sweep 'table9'"):
        settings_of(SWEEPS, ["table9"])


def test_command_prints_the_results_and_resumes(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.papers.utility.sweep.measure", fake_measure)
    options = (
        "--dataset magic --method aim,distaim,private --partition iid --repeats 2 --clients 10"
    )
    arguments = [*options.split(), "--results", str(tmp_path / "r.jsonl"), "--json"]
    first = CliRunner().invoke(utility, arguments)
    assert first.exit_code == 0, first.output
    results = json.loads(first.stdout)["results"]
    runs = [(row["method"], row["repeat"]) for row in results]
    assert runs == list(product(("aim", "distaim", "private"), (0, 1)))
    settings_shown = {"method", "dataset", "partition", "epsilon", "rounds"}
    expected = settings_shown | {"workload_error", "nll", "auc", "seconds", "repeat"}
    assert expected <= set(results[0])
    assert "1 of 6" in first.stderr
    again = CliRunner().invoke(utility, arguments)
    assert json.loads(again.stdout)["results"] == results
    assert "of" not in again.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "mnist"], "unknown dataset 'mnist'"),
        (["--method", "aim,gan"], "unknown method 'gan'"),
        (["--partition", "x"], "unknown partition 'x'"),
        (["--participation", "0"], "participation is 0.0"),
        (["--epsilon", "one"], "'one'; expected by commas: numbers"),
        (["--sweep", "table9"], "unknown sweep"),
        (["--sweep", "fig1", "--dataset", "mnist"], "unknown dataset 'mnist'"),
        (["--method", "private", "--tau", "much"], "'much' is not one of"),
    ],
)
def test_command_says_what_is_wrong(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(utility, [*arguments, "--results", str(tmp_path / "r.jsonl")])
    assert result.exit_code != 0
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_command_reports_a_failed_run_and_keeps_the_others(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.papers.utility.sweep.measure", fake_measure)
    path = tmp_path / "r.jsonl"
    arguments = "--dataset magic --method random,aim --partition iid --clients 10 --results"
    result = CliRunner().invoke(utility, [*arguments.split(), str(path)])
    assert result.exit_code == 1
    assert "it cannot be done" in result.stderr
    assert open_store(path).count == 1
    # The page has what succeeded all the same.
    again = CliRunner().invoke(utility, [*arguments.split(), str(path), "--output", str(tmp_path)])
    assert again.exit_code == 1
    assert "it cannot be done" in again.stderr
    assert "\n1 runs.\n" in whole(tmp_path / "utility.md")


def test_command_runs_what_a_sweep_has_of_a_table(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.papers.utility.sweep.measure", fake_measure)
    monkeypatch.setattr(splits, "umap_embedding", lambda codes, *_: codes[:, :2].astype(np.float64))
    path = tmp_path / "r.jsonl"
    options = ["--sweep", "fig6,paper2", "--dataset", "magic", "--results", str(path), "--json"]
    result = CliRunner().invoke(utility, options)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]
    assert {row["dataset"] for row in rows} == {"magic"}
    assert 0 < len(rows) < len(settings_of(SWEEPS, ("fig6", "paper2")))


def test_a_sweep_passes_over_credit_where_it_cannot_be_had(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that asks for the table fails with the error instead."""

    def load(name: str) -> Dataset:
        raise DatasetError(f"{name}: no network")

    monkeypatch.setattr("bench.papers.utility.cli.load", load)
    monkeypatch.setattr("bench.papers.utility.sweep.measure", fake_measure)
    some = (Settings(dataset=name, method="aim") for name in ("magic", "credit"))
    monkeypatch.setitem(SWEEPS, "table1", lambda chosen=tuple(some): iter(chosen))
    options = ["--sweep", "table1", "--results", str(tmp_path / "r.jsonl"), "--json"]
    result = CliRunner().invoke(utility, options)
    assert result.exit_code == 0, result.output
    assert "credit is left out: credit: no network" in result.stderr
    assert {row["dataset"] for row in json.loads(result.stdout)["results"]} == {"magic"}


def test_command_names_its_example() -> None:
    assert "Example: syncret bench utility" in CliRunner().invoke(utility, ["--help"]).output


def test_the_command_line_imports_nothing_of_the_bench_extra() -> None:
    script = (
        "import sys, parties.cli.main, bench.cli, bench.methods.run\n"
        "found = {'sklearn', 'umap', 'joblib', 'dask', 'distributed'} & set(sys.modules)\n"
        "sys.exit(', '.join(found) or None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_problem_of_central_aim_needs_no_partition(small: Dataset) -> None:
    assert isinstance(problem(settings()), Problem)
    assert problem(settings()).partition is None


@pytest.mark.slow
def test_run_all_in_two_processes_gives_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCRET_CACHE_DIR", str(tmp_path / "cache"))
    jobs = [(_synthfs(method), 0) for method in ("aim", "distaim")]
    stores = [open_store(tmp_path / f"{n}.jsonl") for n in (1, 2)]
    for store, n_jobs in zip(stores, (1, 2), strict=True):
        assert run_all(jobs, store, n_jobs=n_jobs) == []
    for job in jobs:
        left, right = (store.find(*job) for store in stores)
        assert left is not None
        assert right is not None
        assert left.result.workload_error == right.result.workload_error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_run_all_on_a_dask_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dask.distributed import LocalCluster

    monkeypatch.setenv("SYNCRET_CACHE_DIR", str(tmp_path / "cache"))
    jobs = [(_synthfs("aim"), repeat) for repeat in (0, 1)]
    store = open_store(tmp_path / "r.jsonl")
    size = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with LocalCluster(**size, dashboard_address=":0") as cluster:
        assert run_all(jobs, store, dask=cluster.scheduler_address) == []
    assert store.count == 2


@pytest.mark.slow
def test_run_all_says_that_there_is_no_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCRET_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(DatasetError, match="no Dask scheduler at tcp://127"):
        run_all([(_synthfs("aim"), 0)], open_store(tmp_path / "r.jsonl"), dask="tcp://127.0.0.1:9")


@pytest.mark.slow
def test_mpc_is_as_good_as_plaintext() -> None:
    plain = measure(_synthfs("distaim"), 0)
    real = measure(replace(_synthfs("distaim"), mpc=True), 0)
    assert real.rounds_done == 2
    assert abs(real.workload_error - plain.workload_error) < 0.3


def _synthfs(method: str) -> Settings:
    return Settings(
        dataset="synthfs",
        method=method,
        partition="natural",
        skew=4.0,
        rounds=2,
        queries=4,
        participation=0.5,
        iterations=20,
        final_iterations=50,
    )
