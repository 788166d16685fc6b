"""The vocabulary of steps: protocols run under its names, cost what it says and open what it lets them."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import numpy as np
import pytest

from protocols import base, count_bits, measure, select
from protocols.context import Context
from protocols.costs import Cost
from protocols.ring import R32
from protocols.select_spec import bounds, integer_bits
from protocols.steps import (
    OF_MEASUREMENT,
    OF_SELECTION,
    Measurement,
    Phase,
    Selection,
    Step,
)
from tests.protocols.local import Outcome, run_parties

SIZES = [3, 4, 5]
SPEC = SimpleNamespace(
    sizes=np.array(SIZES),
    answers=np.full(12, 64, np.uint32),
    gains=(1 << 20,) * 3,
    offsets=(0,) * 3,
    max_rows=1000,
)
SIGMA = 3.0


async def choose(ctx: Context) -> object:
    return await select.select(ctx, base.random(ctx, R32, (12,)), SPEC)


def measuring(kind: str) -> Callable[[Context], Awaitable[object]]:
    async def run(ctx: Context) -> object:
        counts = base.random(ctx, R32, (7,))
        return await measure.measure(ctx, counts, SIGMA, 1000, measure.noise_of(kind))

    return run


def measurement(kind: str) -> Measurement:
    noise = measure.noise_of(kind)
    return Measurement(7, lambda count: noise.cost(count, SIGMA))


def costs_by_step(outcome: Outcome) -> dict[str, Cost]:
    steps = [party.costs.steps for party in outcome.parties]
    return {
        first.step: Cost(first.rounds, (first.sent_bytes, second.sent_bytes, third.sent_bytes))
        for first, second, third in zip(*steps, strict=True)
    }


def opened_by_step(outcome: Outcome) -> set[tuple[str, str]]:
    return {(o.step, o.what) for party in outcome.parties for o in party.costs.openings}


async def choose_by_bits(ctx: Context) -> object:
    x_sh = base.random(ctx, R32, (12,))
    kept = await select.keep_bits(ctx, x_sh, SIZES, integer_bits(bounds(SPEC)[0]))
    return await select.select(ctx, x_sh, SPEC, kept=count_bits.CountBits.joined(kept))


BY_BITS = Selection(SIZES, *bounds(SPEC), 3, kept=True, made=SIZES)
CASES = [
    pytest.param(OF_SELECTION, BY_BITS, choose_by_bits, id="select-by-bits"),
    pytest.param(OF_SELECTION, Selection(SIZES, *bounds(SPEC), 3), choose, id="select"),
    *(
        pytest.param(OF_MEASUREMENT, measurement(kind), measuring(kind), id=kind)
        for kind in measure.NOISES
    ),
]


@pytest.mark.parametrize(("steps", "facts", "program"), CASES)
def test_steps_run_under_their_names_and_cost_what_their_formulas_say(
    steps: tuple[Step, ...], facts: object, program: Callable[[Context], Awaitable[object]]
) -> None:
    expected = {step.name: step.cost(facts) for step in steps if step.cost}
    # A selection that makes no bits does not have the step.
    run = {name: cost for name, cost in expected.items() if cost != Cost()}
    assert costs_by_step(run_parties(program)) == run


@pytest.mark.parametrize(("steps", "facts", "program"), CASES)
def test_steps_open_what_their_rules_let_them(
    steps: tuple[Step, ...], facts: object, program: Callable[[Context], Awaitable[object]]
) -> None:
    outcome = run_parties(program)
    assert opened_by_step(outcome) == {(s.name, s.opens.what) for s in steps if s.opens}
    (opening,) = (step.opens for step in steps if step.opens)
    (opened,) = outcome.parties[0].costs.openings
    ((_, value),) = outcome.parties[0].opened_values
    assert len(value) == opened.count * opening.itemsize


@pytest.mark.parametrize("step", [*OF_SELECTION, *OF_MEASUREMENT], ids=lambda step: step.name)
def test_step_has_a_formula_or_contains_others(step: Step) -> None:
    container = step.name.partition(".")[0]
    assert (step.cost is None) == step.contains == (step.name == container)
    assert step.in_round
    assert not step.opens or step.opens.charge == container


def test_phase_in_is_another_one_in_round_0_where_that_is_said() -> None:
    step: Step[object] = Step("x", Phase.MEASUREMENT, phase_in_first=Phase.MODEL)
    assert [step.phase_in(round) for round in (0, 1, 2)] == [
        Phase.MODEL,
        Phase.MEASUREMENT,
        Phase.MEASUREMENT,
    ]
    assert Step("x", Phase.CHOICE).phase_in(0) is Phase.CHOICE
    assert not Step("x", Phase.START).in_round
