"""FLAIM's loop against clients that only look at when they are asked for what."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.accounting import Ledger
from mechanisms.flaim import FlaimResult, FlaimRound, Participant, SumRequest, Sums, run_flaim
from mechanisms.flaim_messages import Brief
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.model import Model
from mechanisms.pgm import FederatedEstimator
from mechanisms.workload import draw_workload
from tests.mechanisms.tables import domain_of

DOMAIN = domain_of(3, 4, 2)
WORKLOAD = draw_workload(DOMAIN, 2, None)
COLUMNS = len(DOMAIN.names)
ROWS = 50


class Clients:
    """Four clients; ``charged`` has, for each question, the charges of its round by step at the time it was asked."""

    def __init__(self, settings: FlaimSettings, ledger: Ledger) -> None:
        rows = ROWS if settings.sizes == "public" else None
        self.population = tuple(Participant(client, rows) for client in range(4))
        self.asked: list[tuple[str, int, Counter[str]]] = []
        self._settings = settings
        self._ledger = ledger

    async def begin_round(self, round: int) -> Sequence[int]:
        return [p.client for p in self.population]

    async def choices(self, brief: Brief) -> Mapping[int, tuple[int, ...]]:
        self._note("choices", brief.round)
        some = np.flatnonzero(brief.allowed).tolist()[-self._settings.chosen :]
        return {p.client: tuple(some) for p in self.population}

    async def aggregate(self, requests: Sequence[SumRequest]) -> Sequence[Sums | None]:
        self._note("sums", requests[0].layout.round)
        return [
            Sums(np.ones(r.layout.cells(WORKLOAD)), r.members, r.layout.sigma) for r in requests
        ]

    def _note(self, what: str, number: int) -> None:
        steps = Counter(entry.step for entry in self._ledger.entries if entry.round == number)
        self.asked.append((what, number, steps))


def settings_of(variant: str, **changes: object) -> FlaimSettings:
    values = {"rho": 1.0, "rounds": 3, "iterations": 2, "final_iterations": 2, **changes}
    return FlaimSettings.preset(variant, **values)


def play(
    settings: FlaimSettings, ledger: Ledger | None = None, history: Sequence[FlaimRound] = ()
) -> tuple[Clients, FlaimResult]:
    ledger = Ledger(settings.rho) if ledger is None else ledger
    clients = Clients(settings, ledger)
    estimator = FederatedEstimator(WORKLOAD, iterations=2, final_iterations=2)
    schedule = settings.schedule(COLUMNS)
    work = run_flaim(WORKLOAD, settings, schedule, clients, estimator, ledger, history=history)
    return clients, asyncio.run(work)


@pytest.mark.parametrize("grouping", ["union", "query"])
@pytest.mark.parametrize(
    ("variant", "local", "choices", "sums", "later"),
    [
        ("private", 1, {"select": 1}, 1, COLUMNS),
        ("naive", 2, {"select": 2, "local": 1}, 2, 0),
        ("random", 2, {}, 2, 0),
    ],
)
def test_run_flaim_charges_everything_before_it_asks_for_it(
    variant: str, local: int, choices: dict[str, int], sums: int, later: int, grouping: str
) -> None:
    clients, result = play(settings_of(variant, local_rounds=local, grouping=grouping))
    expected = [("sums", 0, Counter(measure=COLUMNS))]
    for number in (1, 2, 3):
        measured = sums + (later if number > 1 else 0)
        expected.append(("choices", number, Counter(choices)))
        expected.append(("sums", number, Counter(choices, measure=measured)))
    assert clients.asked == expected
    assert result.rounds_done == 3


@pytest.mark.parametrize("variant", ["private", "naive", "random"])
def test_run_flaim_takes_a_single_round_with_all_of_the_budget(variant: str) -> None:
    settings = settings_of(variant, rounds=1)
    ledger = Ledger(settings.rho)
    _, result = play(settings, ledger)
    assert (result.rounds_done, result.stopped) == (1, "")
    spent = sum(map(Fraction, (entry.rho for entry in ledger.entries)))
    assert 1 - 1e-9 < float(spent) <= 1


@pytest.mark.parametrize("variant", ["private", "naive", "naivebayes"])
def test_run_flaim_goes_on_after_its_history(variant: str) -> None:
    settings = settings_of(variant, rounds=4)
    ledger = Ledger(settings.rho)
    _, whole = play(settings, ledger)
    before = whole.rounds[:3]
    last = before[-1].round
    left = Ledger(settings.rho, [entry for entry in ledger.entries if entry.round <= last])
    clients, result = play(settings, left, before)
    assert {number for _, number, _ in clients.asked} == set(range(last + 1, 5))
    assert result.rounds[:3] == before
    assert [done.round for done in result.rounds] == [done.round for done in whole.rounds]
    assert (result.rounds_done, result.stopped) == (4, "")
    assert [e.event for e in left.entries] == [e.event for e in ledger.entries]


def test_run_flaim_only_makes_the_model_where_all_rounds_are_taken() -> None:
    settings = settings_of("private")
    ledger = Ledger(settings.rho)
    _, whole = play(settings, ledger)
    clients, again = play(settings, ledger, whole.rounds)
    assert clients.asked == []
    assert again.rounds_done == 3
    assert again.model.answers([("c0",)])[0].sum() == pytest.approx(1)


@pytest.mark.parametrize("settles", ["sum", "any"])
def test_an_annealed_round_is_finer_after_all_or_any_of_the_last_has_settled(
    settles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two queries a client measured one has settled; the other moved the model by much more than noise would."""
    settings = settings_of("naive", annealed=True, local_rounds=2, settles=settles)
    heard: list[bool] = []
    schedule = settings.schedule(COLUMNS)
    advance = schedule.advance

    def listen(round: int, *, settled: bool) -> None:
        heard.append(settled)
        advance(round, settled=settled)

    monkeypatch.setattr(schedule, "advance", listen)
    # The model leaves one query where it was and moves the other one by twice everything.
    calls = iter(range(1000))

    def answers(self: Model, cliques: Sequence[tuple[str, ...]]) -> list[NDArray[np.float64]]:
        still, moved = np.zeros(1), np.full(1, 1e6 * (next(calls) % 2))
        return [still, moved][: len(list(cliques))]

    monkeypatch.setattr(Model, "answers", answers)
    ledger = Ledger(settings.rho)
    clients = Clients(settings, ledger)
    estimator = FederatedEstimator(WORKLOAD, iterations=2, final_iterations=2)
    asyncio.run(run_flaim(WORKLOAD, settings, schedule, clients, estimator, ledger))
    assert heard[0] is False
    assert set(heard[1:]) == {settles == "any"}


def test_run_flaim_does_not_go_on_with_an_annealed_schedule() -> None:
    settings = settings_of("naive", annealed=True)
    with pytest.raises(ValueError, match="begins anew"):
        play(settings, None, [FlaimRound(0, (), {}, (), lost=False)])
