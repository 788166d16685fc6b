"""A row more or less at an owner, through each form of upload and three servers: the exact loss of what they open.

`tests/mechanisms/test_canary.py` has the loss of the loop in the clear. Here owners' uploads are added up on shares,
and choices and noise are drawn on shares; the loss is computed beside the run from the openings and both tables'
counts.
"""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.accounting import fixed_rounds_plan
from mechanisms.aim import run_aim
from mechanisms.pgm import PgmEstimator
from mechanisms.workload import count_marginals
from parties.config import TOTALS
from parties.mpc.inputs import RowLimit, SubmissionBatch, input_form
from parties.mpc.inputs.rows import Rows
from parties.mpc.records import RunningTotal, StoredSubmission
from protocols.context import Context
from protocols.upload import FORMS, ROWS, UploadSeeds
from tests.mechanisms.test_canary import CANARY, DOMAIN, RHO, WORKLOAD, Beside, check
from tests.parties.one_total import backend_of
from tests.parties.support import make_submission
from tests.protocols.local import run_parties

FEW, MANY = 16, 2_500
CAPACITY, MAX_ROWS = 32, 1_000


def stored(name: str, form: str, client: str, body: bytes) -> StoredSubmission:
    made = make_submission(client, form=form, capacity=CAPACITY, cells=WORKLOAD.maximal_cells)
    return StoredSubmission.of(made, "ab" * 32, name, "cd" * 32, "ef" * 32, len(body), 0.0)


def loss_of(
    form_name: str, tables: list[list[NDArray[np.int32]]], folder: Path, *, seed: int
) -> tuple[float, list[float]]:
    """Of a run on the owners' tables ``tables[0]``, against ``tables[1]``, with the ranges of its choices."""
    form = input_form(form_name, WORKLOAD)
    bodies = {}
    for number, codes in enumerate(tables[0]):
        values = (
            form.values(codes, CAPACITY)
            if isinstance(form, Rows)
            else count_marginals(codes, WORKLOAD).astype(np.uint32)
        )
        bodies[f"owner-{number}"] = form.share(values, UploadSeeds.draw()).bodies
    ours, theirs = (
        WORKLOAD.expand(count_marginals(np.concatenate(each), WORKLOAD)) for each in tables
    )

    async def party(ctx: Context) -> Beside:
        plan = fixed_rounds_plan(RHO, 2, 3, noise="discrete-gaussian", initial_share=0.2)
        mine = tuple(
            stored("ab" * 32, form_name, name, each[ctx.pid]) for name, each in bodies.items()
        )
        empty = RunningTotal.empty(1, ctx.pid, WORKLOAD.maximal_cells).share
        batch = SubmissionBatch(1, mine, lambda c: bodies[c][ctx.pid], RowLimit(TOTALS, CAPACITY))
        added = await form.add(ctx, empty, batch)
        assert not added.failed
        total = RunningTotal(0, added.total, [(name, "") for name in bodies])
        own = folder / str(ctx.pid)
        with backend_of(ctx, WORKLOAD, plan, total=total, folder=own, max_rows=MAX_ROWS) as (
            backend,
            _,
        ):
            beside = Beside(backend, ours, theirs, plan)  # type: ignore[arg-type]
            estimator = PgmEstimator(WORKLOAD, plan, iterations=5, final_iterations=1)
            await run_aim(WORKLOAD, plan, beside, estimator, max_rows=MAX_ROWS)
        return beside

    first, *others = run_parties(party, seed=seed).results
    assert [other.loss for other in others] == pytest.approx([first.loss] * 2)
    return first.loss, first.ranges


def losses(
    form: str, runs: int, folder: Path, *, seed: int, rows: int = 1
) -> tuple[NDArray[np.float64], float]:
    """Of runs with the row, so many times, at one of two owners, and without it, in turns."""
    rng = np.random.default_rng(seed)
    others = np.column_stack([rng.integers(0, n - 1, 40) for n in DOMAIN.shape]).astype(np.int32)
    without = [others[:20], others[20:]]
    tables = [[without[0], np.concatenate([without[1], *[CANARY] * rows])], without]
    found, widest = [], 0.0
    for number in range(runs):
        place = folder / str(number)
        place.mkdir()
        one = number % 2
        loss, ranges = loss_of(
            form, [tables[one], tables[1 - one]], place, seed=seed * 100_000 + number
        )
        found.append(loss)
        widest = max(widest, *ranges)
    return np.array(found), widest


ALL_FORMS = (*FORMS, ROWS)


@pytest.mark.parametrize("form", ALL_FORMS)
def test_a_row_at_an_owner_of_distaim_costs_no_more_than_is_charged(
    form: str, tmp_path: Path
) -> None:
    check(*losses(form, FEW, tmp_path, seed=1), least=RHO / 10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", ALL_FORMS)
def test_a_row_at_an_owner_of_distaim_costs_no_more_than_is_charged_in_many_runs(
    form: str, tmp_path: Path
) -> None:
    check(*losses(form, MANY, tmp_path, seed=2))


def test_check_sees_a_row_that_counts_more_than_once(tmp_path: Path) -> None:
    """A control: eight rows, with the charge of one."""
    found, widest = losses(ROWS, FEW, tmp_path, seed=1, rows=8)
    assert widest > 1
    with pytest.raises(AssertionError, match="varies by"):
        check(found, widest)
    with pytest.raises(AssertionError):
        check(found, 1.0)
