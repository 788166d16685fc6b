"""FLAIM with all clients in one process: variants, budgets, dropouts, SecAgg beside plain sums, and noise."""

import asyncio
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

import secagg.server
from mechanisms.accounting import DiscreteGaussianEvent, ExponentialEvent, rho
from mechanisms.errors import BudgetExceeded, EstimationError, FlaimError, RoundLost
from mechanisms.flaim_settings import FLAIM_VARIANTS, FlaimSettings
from mechanisms.metrics import table_answers, workload_error
from mechanisms.workload import Workload, draw_workload
from parties.local.flaim_simulation import FlaimOutcome, simulate
from secagg import Stage, ThreatModel
from secagg.parameters import Encoding
from tests.mechanisms.tables import domain_of, random_codes

DOMAIN = domain_of(3, 4, 2, 5)
WORKLOAD = draw_workload(DOMAIN, 3, None)
TABLES = [random_codes(DOMAIN, 200 + 20 * k, k) for k in range(12)]
CODES = np.concatenate(TABLES)
FAST: dict[str, object] = {"iterations": 20, "final_iterations": 60, "rounds": 4}


def settings_of(variant: str = "naive", **changes: object) -> FlaimSettings:
    values: dict[str, object] = {"rho": 1.0, "participation": 0.7, **FAST, **changes}
    return FlaimSettings.preset(variant, **values)  # type: ignore[arg-type]


def run(
    settings: FlaimSettings, tables: list[NDArray[np.int32]] | None = None, **changes: object
) -> FlaimOutcome:
    values: dict[str, object] = {"seed": 1, **changes}
    return asyncio.run(simulate(tables or TABLES, WORKLOAD, settings, **values))  # type: ignore[arg-type]


def error(outcome: FlaimOutcome) -> float:
    answers = outcome.model.answers_q32(WORKLOAD.candidates)
    return workload_error(WORKLOAD, table_answers(WORKLOAD, CODES), answers)


def spent(outcome: FlaimOutcome) -> Fraction:
    return sum((Fraction(entry.rho) for entry in outcome.ledger), Fraction(0))


@pytest.mark.parametrize("variant", FLAIM_VARIANTS)
@pytest.mark.parametrize("sizes", ["public", "estimated"])
def test_simulate_spends_the_budget_of_every_variant(variant: str, sizes: str) -> None:
    outcome = run(settings_of(variant, sizes=sizes))
    assert outcome.result.rounds_done == 4
    assert outcome.result.lost_rounds == ()
    assert 1 - 1e-9 < float(spent(outcome)) <= 1
    assert all(entry.rho == rho(entry.event) for entry in outcome.ledger)
    assert outcome.total == pytest.approx(len(CODES), rel=0 if sizes == "public" else 0.15)
    assert set(outcome.model.domain.names) == set(DOMAIN.names)
    rounds = [done.round for done in outcome.result.rounds]
    assert rounds == ([0, 2, 3, 4] if variant in ("naivebayes", "pairs") else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("variant", FLAIM_VARIANTS)
@pytest.mark.parametrize("sizes", ["public", "estimated"])
def test_simulate_takes_clients_without_rows(variant: str, sizes: str) -> None:
    tables = [TABLES[0][:0], *TABLES[1:11], TABLES[11][:0]]
    outcome = run(settings_of(variant, sizes=sizes), tables)
    assert outcome.result.lost_rounds == ()
    rows = sum(len(table) for table in tables)
    assert outcome.total == pytest.approx(rows, rel=0 if sizes == "public" else 0.3)


def test_simulate_learns_more_with_choices_than_from_columns_alone() -> None:
    rich = {"rho": 50.0, "participation": 1.0, "iterations": 60, "final_iterations": 300}
    columns, chosen = (error(run(settings_of(v, **rich))) for v in ("naivebayes", "private"))
    assert chosen < columns / 2


def test_simulate_chooses_no_one_way_marginals_when_they_are_combined() -> None:
    outcome = run(settings_of("private", participation=1.0))
    chosen = [q for done in outcome.result.rounds for q in done.choosers]
    assert chosen
    assert min(chosen) >= len(DOMAIN.names)
    one_way = [m.round for done in outcome.result.rounds for m in done.measurements if m.one_way]
    # Round 1's are taken ahead of it.
    assert sorted(set(one_way)) == [0, 2, 3, 4]


def test_simulate_lets_clients_take_turns_with_pairs() -> None:
    settings = settings_of("pairs", participation=0.25, rho=50.0)
    assert settings.turns == 1
    outcome = run(settings)
    rounds = outcome.result.rounds
    assert [done.round for done in rounds] == [0, 2, 3, 4]
    drawn = [client for done in rounds for client in done.participants]
    assert sorted(drawn) == list(range(len(TABLES)))
    # The charges of one round are the whole budget, since nobody is in two.
    assert {entry.round for entry in outcome.ledger} == {0}
    assert 1 - 1e-9 < float(spent(outcome)) / 50 <= 1
    assert all(m.one_way for done in rounds for m in done.measurements)
    assert outcome.result.chosen_queries == 0
    assert error(outcome) < error(run(settings_of("private", participation=0.25, rho=50.0)))


def test_simulate_ends_where_nobody_has_a_turn_left() -> None:
    settings = settings_of("pairs", participation=0.25, min_participants=5)
    outcome = run(settings)
    # Twelve clients make two sums of five at least.
    sizes = [len(done.participants) for done in outcome.result.rounds]
    assert sizes == [5, 7]
    assert "have a turn left" in outcome.result.stopped


@pytest.mark.parametrize(
    "changes",
    [
        {"tau": "none", "combine": False},
        {"tau": "proxy", "combine": False},
        {"tau": "none", "combine": True},
        {"tau": "oracle", "combine": True},
    ],
)
def test_simulate_runs_the_ablations(changes: dict[str, object]) -> None:
    outcome = run(settings_of("private", **changes))
    assert outcome.result.rounds_done == 4
    assert 1 - 1e-9 < float(spent(outcome)) <= 1


def test_simulate_charges_local_measurements() -> None:
    outcome = run(settings_of("naive", local_rounds=3))
    of_round = [e for e in outcome.ledger if e.round == 2]
    kinds = [(e.step, type(e.event)) for e in of_round]
    assert kinds == (
        [("select", ExponentialEvent)] * 3
        + [("local", DiscreteGaussianEvent)] * 2
        + [("measure", DiscreteGaussianEvent)] * 3
    )
    assert float(spent(outcome)) <= 1
    for done in outcome.result.rounds[1:]:
        assert sum(map(len, done.choosers.values())) == 3 * len(done.participants)


def test_simulate_anneals_within_the_budget() -> None:
    outcome = run(settings_of("private", annealed=True, rho=20.0, iterations=10))
    sigmas = [
        entry.event.sigma
        for entry in outcome.ledger
        if isinstance(entry.event, DiscreteGaussianEvent) and entry.round > 0
    ]
    assert 1 - 1e-9 < float(spent(outcome)) / 20 <= 1
    # Some round was finer than the one before, by exactly a half until the last takes the rest.
    assert min(sigmas) <= max(sigmas) / 2
    halves = [a / b for a, b in pairwise(sigmas) if a != b]
    assert 2.0 in halves


@pytest.mark.parametrize("grouping", ["union", "query"])
@pytest.mark.parametrize("drops", [False, True])
def test_simulate_gives_the_same_by_secagg_as_by_addition(grouping: str, drops: bool) -> None:
    settings = settings_of("private", grouping=grouping, participation=1.0)
    gone = {
        (1, 3): Stage.ADVERTISE,
        (1, 4): Stage.MASKED,
        (2, 5): Stage.REVEAL,
        (3, 0): None,
        (0, 7): Stage.SHARES,
    }
    plain, real = (
        run(settings, secagg=secagg, drops=gone if drops else None) for secagg in (False, True)
    )
    assert [r.choosers for r in plain.result.rounds] == [r.choosers for r in real.result.rounds]
    for a, b in zip(plain.result.rounds, real.result.rounds, strict=True):
        assert [(m.candidate, m.contributors) for m in a.measurements] == [
            (m.candidate, m.contributors) for m in b.measurements
        ]
        for m, n in zip(a.measurements, b.measurements, strict=True):
            assert (m.noisy == n.noisy).all()
    assert plain.ledger == real.ledger
    assert error(plain) == error(real)
    assert all(t.secagg == 0 for t in plain.traffic)
    assert sum(t.secagg for t in real.traffic) > 0


@pytest.mark.parametrize("stage", [None, Stage.ADVERTISE, Stage.SHARES, Stage.MASKED, Stage.REVEAL])
@pytest.mark.parametrize("secagg", [False, True])
def test_simulate_survives_a_client_that_leaves_at_any_stage(
    stage: Stage | None, secagg: bool
) -> None:
    settings = settings_of("naive", participation=1.0)
    outcome = run(settings, secagg=secagg, drops={(2, 6): stage})
    assert outcome.result.rounds_done == 4
    assert outcome.result.lost_rounds == ()
    contributors = {k for m in outcome.result.rounds[2].measurements for k in m.contributors}
    # Its vector was in by the time that shares are revealed.
    assert (6 in contributors) is (stage is Stage.REVEAL)
    assert contributors >= set(range(12)) - {6}


@pytest.mark.parametrize("secagg", [False, True])
def test_simulate_goes_on_after_a_round_that_lost_too_many(secagg: bool) -> None:
    settings = settings_of("naive", participation=1.0, min_participants=6)
    drops = {(2, k): Stage.MASKED for k in range(8)}
    outcome = run(settings, secagg=secagg, drops=drops)
    assert outcome.result.lost_rounds == (2,)
    assert outcome.result.rounds[2].measurements == ()
    assert outcome.result.rounds_done == 4
    # What was charged for it stays spent.
    assert 1 - 1e-9 < float(spent(outcome)) <= 1


def test_simulate_asks_for_no_sum_when_too_few_chose() -> None:
    settings = settings_of("naive", participation=1.0, min_participants=6)
    drops: dict[tuple[int, int], Stage | None] = {(2, k): None for k in range(8)}
    outcome = run(settings, drops=drops)
    assert outcome.result.lost_rounds == (2,)
    assert [e.step for e in outcome.ledger if e.round == 2] == ["select"]


def test_simulate_ends_in_an_error_when_there_is_no_first_model() -> None:
    drops = {(0, k): Stage.MASKED for k in range(11)}
    with pytest.raises(RoundLost, match="first sums"):
        run(settings_of("naive", participation=1.0), drops=drops)


def test_simulate_counts_single_choosers() -> None:
    settings = settings_of("naive", grouping="query")
    outcome = run(settings, secagg=True)
    choosers = [c for done in outcome.result.rounds for c in done.choosers.values()]
    assert outcome.result.chosen_queries == len(choosers)
    assert outcome.result.single_choosers == sum(len(c) == 1 for c in choosers) > 0
    # Grouped by query, choosers of one query and the others have sums of their own.
    for done in outcome.result.rounds[1:]:
        for m in done.measurements:
            assert m.contributors == done.choosers[m.candidate]


def test_simulate_adds_distributed_noise_of_the_guaranteed_deviation() -> None:
    # Everybody counts nothing: what is released is noise.
    domain = domain_of(40, 50)
    workload = draw_workload(domain, 2, None)
    tables = [np.zeros((0, 2), np.int32)] * 12
    settings = settings_of(
        "naivebayes",
        rho=0.01,
        noise="distributed",
        min_participants=7,
        corrupt=1,
        participation=1.0,
        rounds=1,
        sizes="public",
    )
    captured: list[NDArray[np.float64]] = []
    with pytest.raises(EstimationError):
        asyncio.run(
            simulate(
                tables,
                workload,
                settings,
                seed=5,
                on_round=lambda done: captured.extend(m.noisy for m in done.measurements),
            )
        )
    noise = np.concatenate(captured)
    sigma = settings.schedule(2).sigma
    # Twelve survive where six honest ones are sure: sqrt(2) more. 90 samples, 5 deviations of the variance.
    ratio = float((noise**2).mean()) / (2 * sigma**2)
    assert abs(ratio - 1) < 5 * math.sqrt(2 / noise.size)


def test_server_never_sees_a_sum_without_noise_when_it_is_distributed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unmasked: list[NDArray[np.int64]] = []
    decode = Encoding.decode

    def watched(self: Encoding, total: NDArray[np.uint32], survivors: int) -> NDArray[np.int64]:
        # What the server has once the masks are off; what it adds itself is nothing here.
        unmasked.append(decode(self, total, survivors))
        return unmasked[-1]

    monkeypatch.setattr(Encoding, "decode", watched)
    monkeypatch.setattr(
        secagg.server, "discrete_gaussian", lambda _, size, **__: np.zeros(size, np.int64)
    )
    true = sum(table_answers(WORKLOAD, table)[: sum(DOMAIN.shape)] for table in TABLES)
    settings = settings_of(
        "naivebayes",
        rho=0.002,
        rounds=1,
        participation=1.0,
        noise="distributed",
        min_participants=8,
    )
    outcome = run(settings, secagg=True)
    scale = settings.sum_noise(settings.schedule(4).sigma).scale
    (m, *_) = outcome.result.rounds[0].measurements
    noise = unmasked[0] / scale - true
    # 14 cells of a deviation above 28: that three are below one row happens once in 10^4 runs.
    assert m.deviation > 28
    assert (np.abs(noise) > 1).sum() > 11
    # The control: the server's own noise is all there is.
    unmasked.clear()
    run(settings_of("naivebayes", rho=0.05, rounds=1, participation=1.0), secagg=True)
    assert (unmasked[0] == true).all()


def test_simulate_refuses_a_threat_that_is_not_the_settings_own() -> None:
    settings = settings_of("naive", noise="distributed", min_participants=6, corrupt=2)
    with pytest.raises(ValueError, match="corrupt = 2"):
        run(settings, threat=ThreatModel(corrupt=0.1))


def test_simulate_refuses_a_client_of_another_domain() -> None:
    other = random_codes(domain_of(3, 4, 2, 6), 300, 9)
    with pytest.raises(FlaimError, match="another domain"):
        run(settings_of(), [*TABLES, other])
    with pytest.raises(FlaimError, match="columns"):
        run(settings_of(), [*TABLES, other[:, :2]])


def test_simulate_refuses_too_few_clients_and_a_hopeless_participation() -> None:
    with pytest.raises(FlaimError, match="min_participants"):
        run(settings_of(), TABLES[:2])
    with pytest.raises(RoundLost, match="raise it"):
        run(settings_of(participation=1e-6))


def test_simulate_says_which_limit_leaves_nothing_to_choose() -> None:
    with pytest.raises(EstimationError, match="max_model_mb"):
        run(settings_of("private", max_model_mb=1e-6))


def test_simulate_stops_before_a_round_that_the_ledger_cannot_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # More rounds than the budget pays for: a schedule made for twice as much.
    generous = settings_of("naive", rho=2.0)
    monkeypatch.setattr(
        FlaimSettings, "schedule", lambda self, columns: SCHEDULE(generous, columns)
    )
    outcome = run(settings_of("naive", rho=1.0))
    assert outcome.result.rounds_done < 4
    assert "was refused" in outcome.result.stopped
    assert float(spent(outcome)) <= 1
    assert outcome.model.answers([("c0",)])[0].sum() == pytest.approx(1)
    with pytest.raises(BudgetExceeded):
        run(settings_of("naive", rho=0.01))


SCHEDULE = FlaimSettings.schedule


def test_simulate_repeats_with_a_seed_and_differs_without() -> None:
    assert error(run(settings_of())) == error(run(settings_of()))
    assert error(run(settings_of(), seed=None)) != error(run(settings_of()))


def test_simulate_counts_the_bytes_of_every_message() -> None:
    settings = settings_of("random", participation=1.0, local_rounds=2)
    outcome = run(settings)
    assert len(outcome.traffic) == 12 * 5
    # Up: version, round, count and two numbers, in a box. Down: a key, a brief without a model, and a layout.
    assert {t.sent for t in outcome.traffic if t.round} == {1136 + 7 + 4}
    assert min(t.received for t in outcome.traffic if t.round) > 1216
    assert {t.sent for t in outcome.traffic if not t.round} == {0}


def test_simulate_takes_a_workload_that_leaves_a_column_out() -> None:
    workload = Workload(DOMAIN, (("c0", "c1"), ("c1", "c2")))
    outcome = asyncio.run(simulate(TABLES, workload, settings_of("private"), seed=2))
    assert outcome.model.answers([("c3",)])[0].shape == (5,)
