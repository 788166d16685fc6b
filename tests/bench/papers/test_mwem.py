"""DistMWEM: on shares it is MWEM, servers that would differ say so, and three real servers with their owners."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.fetch import DatasetError
from bench.papers.mwem import cli
from bench.papers.mwem.loop import MwemPlan, MwemResult, mwem_plan, run_mwem
from bench.papers.mwem.party import SharedMwem, summed_uploads
from bench.papers.mwem.runs import Small
from mechanisms.accounting import rho_from_epsilon_delta
from mechanisms.workload import count_marginals
from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.select_spec import SELECTION_SLACK
from protocols.upload import SEEDED, StoredUpload, parse_upload, upload
from tests.bench.papers.test_mwem_loop import rows, small_workload
from tests.protocols.local import run_parties

WORKLOAD = small_workload()
OWNERS = 3


def uploads() -> list[list[StoredUpload]]:
    """By server, those of three owners with a third of the rows each."""
    parts = [
        upload(count_marginals(rows()[owner::OWNERS], WORKLOAD), SEEDED) for owner in range(OWNERS)
    ]
    return [
        [parse_upload(pid, SEEDED, part.bodies[pid], WORKLOAD.maximal_cells) for part in parts]
        for pid in range(3)
    ]


def plan_of(budget: float) -> MwemPlan:
    return mwem_plan(budget, 6, slack=SELECTION_SLACK)


def test_mwem_on_shares_learns_as_in_the_clear_and_all_servers_have_the_same() -> None:
    plan, held = plan_of(5.0), uploads()

    async def program(ctx: Context) -> tuple[MwemResult, float]:
        counts = await summed_uploads(ctx, held[ctx.pid], WORKLOAD)
        backend = SharedMwem(ctx, WORKLOAD, plan, counts, max_rows=10_000)
        result = await run_mwem(WORKLOAD, plan, backend, max_rows=10_000)
        return result, backend.ledger.spent

    results = run_parties(program).results
    models = [result.model.marginals[0] for result, _ in results]
    assert all((model == models[0]).all() for model in models)
    for result, spent in results:
        assert abs(result.total - 3000) < 30
        assert spent == pytest.approx(plan.rho)
    # Column b is column a: the diagonal has what the table has, uniform weights a third of it.
    assert np.trace(models[0].sum(axis=(2, 3))) > 0.9


def test_noise_is_of_the_plans_scale() -> None:
    """200 sums of one marginal each: their deviation, within five of its own, a false alarm rarer than 10^-5."""
    held, scale = uploads(), 10

    async def program(ctx: Context) -> list[int]:
        counts = await summed_uploads(ctx, held[ctx.pid], WORKLOAD)
        backend = SharedMwem(ctx, WORKLOAD, MwemPlan(200, 0.1, scale), counts, max_rows=10_000)
        return [await backend.rows(scale) for _ in range(200)]

    totals = np.array(run_parties(program).results[0], float)
    deviation = scale * np.sqrt(2)
    assert abs(totals.mean() - 3000) < 5 * deviation / np.sqrt(200)
    assert abs(totals.std() / deviation - 1) < 5 * np.sqrt(5 / 4 / 200)


def test_servers_with_other_weights_refuse_to_choose() -> None:
    held = uploads()

    async def program(ctx: Context) -> object:
        counts = await summed_uploads(ctx, held[ctx.pid], WORKLOAD)
        # Party 1 has drifted: it takes the table for one of more rows.
        plan = plan_of(5.0)
        backend = SharedMwem(ctx, WORKLOAD, plan, counts, max_rows=10_000)
        if ctx.pid == 1:
            measured = backend.rows

            async def more(scale: int) -> int:
                return await measured(scale) + 1

            backend.rows = more  # type: ignore[method-assign]
        return await run_mwem(WORKLOAD, plan, backend, max_rows=10_000)

    with pytest.raises(CheckFailed, match="weights differ"):
        run_parties(program)


def test_an_owner_who_tells_servers_different_things_is_found() -> None:
    held = uploads()
    other = upload(count_marginals(rows(60), WORKLOAD), SEEDED)
    held[2][1] = parse_upload(2, SEEDED, other.bodies[2], WORKLOAD.maximal_cells)
    with pytest.raises(CheckFailed):
        run_parties(lambda ctx: summed_uploads(ctx, held[ctx.pid], WORKLOAD))


def test_a_choice_that_is_not_planned_is_refused() -> None:
    held, plan = uploads(), plan_of(1.0)

    async def program(ctx: Context) -> object:
        counts = await summed_uploads(ctx, held[ctx.pid], WORKLOAD)
        backend = SharedMwem(ctx, WORKLOAD, plan, counts, max_rows=10_000)
        return await backend.select(None, 2 * plan.epsilon)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="not in the plan"):
        run_parties(program)


def command(
    monkeypatch: pytest.MonkeyPatch, folder: Path, methods: str
) -> dict[str, dict[str, float]]:
    small = Small(rows(), rows(300), WORKLOAD)
    monkeypatch.setattr(cli, "small_table", lambda columns: small)
    options = f"--method {methods} --rounds 4 --epsilon 20 --owners 3 --repeats 1 --json --output"
    done = CliRunner().invoke(cli.mwem, [*options.split(), str(folder)])
    assert done.exit_code == 0, done.output
    return {row["method"]: row for row in json.loads(done.stdout)["results"]}


def test_command_measures_and_the_page_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "Not run." in cli.mwem_section(tmp_path)
    results = command(monkeypatch, tmp_path, "aim,mwem")
    # Four rounds of six queries; uniform weights are off by 0.9.
    assert results["aim"]["workload_error"] < results["mwem"]["workload_error"] < 0.5
    page = cli.mwem_section(tmp_path)
    assert "| mwem | 1 |" in page
    assert "epsilon = 20, T = 4" in page


@pytest.mark.slow
def test_three_servers_make_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = command(monkeypatch, tmp_path, "distmwem")["distmwem"]
    assert result["workload_error"] < 0.5
    # Four bytes a cell, and seeds.
    assert result["owner_bytes"] == 4 * WORKLOAD.maximal_cells + 64
    assert result["rounds"] > 4 * 24


def test_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = CliRunner().invoke(cli.mwem, ["--method", "gan"])
    assert wrong.exit_code == 1
    assert "no method 'gan'; expected aim, mwem, distmwem" in wrong.stderr
    (tmp_path / cli.RESULTS).write_text("{}", encoding="utf-8")
    with pytest.raises(DatasetError, match="cannot be used"):
        cli.mwem_section(tmp_path)


def test_plans_of_servers_charge_for_the_secure_choice() -> None:
    budget = rho_from_epsilon_delta(1.0, 1e-5)
    plan = mwem_plan(budget, 10, slack=SELECTION_SLACK)
    assert plan.selection.epsilon == plan.epsilon + SELECTION_SLACK
    assert plan.rho <= budget
