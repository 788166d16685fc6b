"""Settings that make "as theirs" as in the FLAIM authors' code, each pinned by what a run with fixed randomness asks.

Client k has 2^k rows and noise is far below a row, so a sum of counts says which clients are in it.
"""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.fetch import DatasetError
from bench.methods import authors_fit, flaim
from bench.methods.problem import Problem
from bench.methods.run import _fresh_first, _schedule, run_method
from bench.methods.settings import FLAIM_METHODS, Settings
from bench.papers.utility.grid import as_theirs
from mechanisms.accounting import Ledger, rho_from_epsilon_delta
from mechanisms.flaim import FlaimResult
from mechanisms.flaim_client import FlaimClient
from mechanisms.flaim_messages import Brief
from mechanisms.workload import Workload
from parties.local.flaim_simulation import simulate
from parties.local.partition import Partition
from tests.bench.papers.test_utility import small_table

CLIENTS, ROUNDS, COLUMNS = 8, 4, 4
ROWS = 2**CLIENTS - 1
SELECTING = ("naive", "oracle", "private")
Taus = list[tuple[FlaimClient, NDArray[np.int64]]]


@pytest.fixture
def posed() -> Problem:
    table = small_table(6 * ROWS // 5)
    workload = Workload(table.domain, (("a", "b", "c"), ("a", "b", "d"), ("b", "c", "d")))
    owners = np.repeat(np.arange(CLIENTS, dtype=np.int32), 2 ** np.arange(CLIENTS))
    return Problem(table, workload, Partition("iid", CLIENTS, owners, ""))


def theirs(method: str, **changes: Any) -> Settings:
    given = {"clients": CLIENTS, "participation": 0.5, "rounds": ROUNDS, "max_model_mb": 1.0}
    return replace(as_theirs("magic", method, 500.0), **(given | changes))


def members(counts: NDArray[np.float64]) -> tuple[int, ...]:
    total = round(float(counts.sum()))
    return tuple(client for client in range(CLIENTS) if total >> client & 1)


def run(settings: Settings, posed: Problem, monkeypatch: pytest.MonkeyPatch) -> FlaimResult:
    """Runs FLAIM and returns everything that was released."""
    found = []

    async def kept(*args: Any, **named: Any) -> Any:
        found.append(await simulate(*args, **named))
        return found[-1]

    monkeypatch.setattr(flaim, "simulate", kept)
    for name in ("ITERATIONS", "FINAL_ITERATIONS"):
        monkeypatch.setattr(authors_fit, name, 2)
    asyncio.run(run_method(settings, posed, np.random.default_rng(0)))
    result: FlaimResult = found[0].result
    return result


def first_of_distaim(settings: Settings, posed: Problem) -> list[tuple[int, ...]]:
    """Returns the clients in each first marginal, then those of round 1."""
    plan = _schedule(settings, posed)
    rng = np.random.default_rng(1)
    backend = _fresh_first(settings, posed, plan, Ledger(1e6), rng)

    async def measured() -> list[tuple[int, ...]]:
        await backend.begin_round(0)
        first = [members(await backend.measure(q, 0.01)) for q in posed.workload.one_way]
        await backend.begin_round(1)
        return [*first, members(await backend.measure(posed.workload.one_way[0], 0.01))]

    return asyncio.run(measured())


@pytest.mark.parametrize("method", SELECTING)
def test_flaim_as_theirs_draws_clients_anew_for_each_first_marginal(
    method: str, posed: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(theirs(method), posed, monkeypatch).rounds[0].measurements
    assert [m.candidate for m in first] == list(posed.workload.one_way)
    assert [members(m.noisy) for m in first] == [m.contributors for m in first]
    # Who comes hangs on nobody's rows; the noise of a column, whose deviation is the method's, moves the later draws.
    second = (0, 1, 2, 3, 4, 5, 7) if method == "private" else (1, 2, 3, 4, 5, 6)
    asked = [(0, 1, 2), second, (0, 1, 2, 3, 5), (0, 1, 2, 4, 6)]
    assert [m.contributors for m in first] == asked
    once = run(theirs(method, first="kept"), posed, monkeypatch).rounds[0].measurements
    assert len({m.contributors for m in once}) == 1


def test_distaim_as_theirs_has_one_draw_of_clients_for_all_first_marginals(posed: Problem) -> None:
    *first, of_round_1 = first_of_distaim(theirs("distaim"), posed)
    assert first == [(2, 4, 5, 7)] * COLUMNS
    assert of_round_1 == (1, 4, 6, 7)
    *each, _ = first_of_distaim(theirs("distaim", first="fresh"), posed)
    assert each == [(1, 4, 6, 7), (1, 2, 7), (4, 6, 7), (4,)]


def test_settings_as_theirs_say_who_is_asked_first() -> None:
    assert {m: as_theirs("adult", m, 1.0).first for m in ("aim", "distaim", *FLAIM_METHODS)} == {
        "aim": "kept",
        "distaim": "once",
        **dict.fromkeys(FLAIM_METHODS, "fresh"),
    }
    for method, changes in (
        ("aim", {"first": "fresh"}),
        ("private", {"first": "once"}),
        ("private", {"first": "fresh", "annealed": True}),
        ("pairs", {"first": "fresh"}),
        ("distaim", {"first": "once", "mpc": True}),
    ):
        with pytest.raises(DatasetError, match=r"first = '\w+' does not go with"):
            Settings(dataset="adult", method=method, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "later"), [("naive", 0), ("oracle", 0), ("private", 1)])
def test_every_column_is_summed_in_each_of_t_rounds_with_private_and_once_without(
    method: str, later: int, posed: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(theirs(method), posed, monkeypatch)
    one_way = [sum(m.one_way for m in done.measurements) for done in result.rounds]
    # The first sums stand for those of round 1 (Lemma A.3 of the paper: T (s + d) measurements): T - 1 follow.
    assert one_way == [COLUMNS, 0, *[later * COLUMNS] * (ROUNDS - 1)]
    paid = ROUNDS + COLUMNS * (ROUNDS if later else 1)
    rho = rho_from_epsilon_delta(500.0, 1e-5)
    assert result.rounds[0].measurements[0].deviation == pytest.approx(
        (paid / (2 * 0.9 * rho)) ** 0.5, rel=1e-6
    )


@pytest.mark.parametrize("method", SELECTING)
def test_heterogeneity_is_nothing_the_querys_own_distance_or_the_mean_of_its_columns(
    method: str, posed: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Taus = []
    tau = FlaimClient._tau

    def kept(self: FlaimClient, brief: Brief, rows: int) -> NDArray[np.int64]:
        taken.append((self, tau(self, brief, rows)))
        return taken[-1][1]

    monkeypatch.setattr(FlaimClient, "_tau", kept)
    first = run(theirs(method, rounds=1), posed, monkeypatch).rounds[0].measurements
    assert bool(taken) == (method != "naive")
    workload, codes = posed.workload, posed.dataset.train
    shares = [m.noisy / m.noisy.sum() for m in first]

    def counted(table: NDArray[np.int32], clique: tuple[str, ...]) -> NDArray[np.float64]:
        sizes = workload.domain.sizes(clique)
        cells = np.ravel_multi_index([table[:, workload.domain.index(n)] for n in clique], sizes)
        return np.bincount(cells, minlength=int(np.prod(sizes))).astype(np.float64)

    for client, values in taken:
        own = client._codes
        for clique, found in zip(workload.candidates, values, strict=True):
            if method == "oracle":
                expected = distance(counted(own, clique), counted(codes, clique) / ROWS)
            else:
                each = [
                    distance(counted(own, (n,)), shares[workload.domain.index(n)]) for n in clique
                ]
                expected = sum(each) / len(each)
            assert found / 2**32 == pytest.approx(expected, abs=1e-4)


def distance(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> float:
    return float(np.abs(counts - counts.sum() * shares).sum())
