"""A person more or less in tables with keys: the exact privacy loss of the runs of all views together.

Views are made of both tables by the owner's program, with the rows that a person has and those that count. The loss of
a person is the sum over the views, and may be that of the whole budget.
"""

import random
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, fixed_rounds_plan
from mechanisms.aim import run_aim
from mechanisms.domain import Categorical, Domain
from mechanisms.keyed.declared import ChildTable, KeyedTables, ParentTable
from mechanisms.keyed.views import KEY, View, view_tables, views_of
from mechanisms.linking import linking_keys
from mechanisms.person_rows import sampled_rows
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend
from mechanisms.scores import AIM
from mechanisms.table import encode
from mechanisms.units import row_budget
from mechanisms.workload import Workload, count_marginals, draw_workload
from tests.mechanisms.tables import random_stream
from tests.mechanisms.test_canary import FEW, MANY, RHO, Beside, check
from tests.mechanisms.test_keyed import Columns, table

ROWS = 3


def of_categories(name: str, *values: str) -> Domain:
    return Domain((Categorical(name, values),), ignore=("pid",))


TABLES = KeyedTables(
    ParentTable("patients", "pid", of_categories("sex", "f", "m", "x")),
    (ChildTable("stays", "pid", of_categories("ward", "a", "b", "c"), ROWS, 5),),
)
SHARES = {"patients": 0.4, "stays": 0.6}


def office(*, canary: bool) -> dict[str, Columns]:
    """Persons with one to four stays; the canary has five, of wards and of a sex that nobody else has."""
    chance = random.Random(1)
    patients: Columns = {"pid": [], "sex": []}
    stays: Columns = {"pid": [], "ward": []}
    for number in range(20):
        patients["pid"].append(str(number))
        patients["sex"].append(chance.choice("fm"))
        for _ in range(chance.randint(1, 4)):
            stays["pid"].append(str(number))
            stays["ward"].append(chance.choice("ab"))
    if canary:
        patients["pid"].append("canary")
        patients["sex"].append("x")
        stays["pid"] += ["canary"] * 5
        stays["ward"] += ["c"] * 5
    return {"patients": patients, "stays": stays}


def codes_of(of: Mapping[str, Columns]) -> dict[str, NDArray[np.int32]]:
    """Returns the rows of each view that count, as an owner's program makes them."""
    rows = view_tables(TABLES, {n: table(c) for n, c in of.items()}, where={n: n for n in of})
    found = {}
    for view in views_of(TABLES):
        own = rows[view.name]
        keys = linking_keys(own, [KEY], source=view.name, at_most=None)
        kept = sampled_rows(own, keys, at_most=view.rows, columns=view.domain.names, salt=b"salt")
        found[view.name] = encode(view.domain, kept)
    return found


async def loss_of(
    view: View, tables: list[NDArray[np.int32]], *, rho: float, seed: int, number: int
) -> tuple[float, float]:
    """Returns the loss of a run on the first of two tables, and the largest range of a choice by its epsilon."""
    workload: Workload = draw_workload(view.domain, 2, None)
    ours, theirs = (workload.expand(count_marginals(codes, workload)) for codes in tables)
    budget = row_budget(rho, view.rows)
    plan = fixed_rounds_plan(budget, len(view.domain.columns), 3, noise="discrete-gaussian")
    ledger = Ledger(budget, accountant=plan.accountant)
    own = PlaintextBackend.pooled(
        workload,
        plan,
        codes=tables[0],
        ledger=ledger,
        random_bytes=random_stream(seed * 100_000 + number),
    )
    beside = Beside(own, ours, theirs, plan, workload=workload)
    estimator = PgmEstimator(workload, plan, iterations=5, final_iterations=1)
    await run_aim(workload, plan, beside, estimator, max_rows=1_000, rule=AIM)
    return beside.loss, max((each / view.rows for each in beside.ranges), default=0.0)


async def losses(
    runs: int, *, seed: int, shares: Mapping[str, float]
) -> tuple[NDArray[np.float64], float]:
    """Of runs of all views, with the person and without in turns (runs,), and the widest range of a choice."""
    of = [codes_of(office(canary=there)) for there in (True, False)]
    found, widest = [], 0.0
    for number in range(runs):
        loss = 0.0
        for place, view in enumerate(views_of(TABLES)):
            pair = [of[number % 2][view.name], of[1 - number % 2][view.name]]
            rho = RHO * shares[view.name]
            own, wide = await loss_of(view, pair, rho=rho, seed=seed + place, number=number)
            loss, widest = loss + own, max(widest, wide)
        found.append(loss)
    return np.array(found), widest


def test_the_canary_has_as_many_rows_in_a_view_as_count() -> None:
    there, without = (codes_of(office(canary=canary)) for canary in (True, False))
    more = {view.name: len(there[view.name]) - len(without[view.name]) for view in views_of(TABLES)}
    assert (
        more == {view.name: view.rows for view in views_of(TABLES)} == {"patients": 1, "stays": 2}
    )


async def test_a_person_of_all_views_costs_no_more_than_the_budget() -> None:
    check(*await losses(FEW // 2, seed=11, shares=SHARES))


@pytest.mark.slow
async def test_a_person_of_all_views_costs_no_more_than_the_budget_in_many_runs() -> None:
    check(*await losses(2 * MANY, seed=12, shares=SHARES))


async def test_check_sees_views_with_several_budgets() -> None:
    """A control: each view has four times the budget, as noise of half the deviation has it."""
    found, widest = await losses(FEW // 3, seed=13, shares=dict.fromkeys(SHARES, 4.0))
    with pytest.raises(AssertionError):
        check(found, widest)
