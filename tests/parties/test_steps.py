"""The steps of a DistAIM run stand in one table, and no code spells their names but the tables themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import parties.mpc.steps
import protocols.steps
from mechanisms import accounting
from parties.mpc.steps import DONE, OPENED_IN, PASSED, STEPS, WORKING, BatchFacts, MessageFacts
from protocols.costs import Cost
from protocols.steps import CHOICE, COMPARISONS, COUNTS, Step

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = {"protocols/steps.py", "parties/mpc/steps.py"}
TAKE_A_STEP = {"step", "charge", "Opened", "opened", "_add_seconds"}
"""Functions that are called with a step's name, so that a plain word is one there."""


def literals(node: ast.AST) -> Iterator[ast.Constant]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def named(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def spelt(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines that spell a step's name: a dotted one anywhere, a plain word where it can only be a step."""
    dotted = {name for name in (*STEPS, *OPENED_IN) if "." in name}
    plain = STEPS.keys() - dotted
    yield from ((n.lineno, n.value) for n in literals(tree) if n.value in dotted)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and named(node) in TAKE_A_STEP:
            direct = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Compare):
            direct = [node.left, *node.comparators]
        else:
            continue
        for value in direct:
            if isinstance(value, ast.Constant) and value.value in plain:
                yield value.lineno, value.value


def test_step_names_are_spelt_in_the_vocabulary_alone() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{line} spells {name!r}"
        for package in ("protocols", "parties")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, name in spelt(ast.parse(path.read_text(encoding="utf-8")))
        if path.relative_to(ROOT).as_posix() not in VOCABULARY
    ]
    assert found == []


def test_notes_are_called_by_the_names_beside_their_writers() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
        for path in sorted((ROOT / "parties").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and named(node) in {"note", "notes", "is_note"}
        for argument in node.args
        if isinstance(argument, ast.Constant)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('with ctx.step("select.choose", round=1): ...', ["select.choose"]),
        ('limits = {"clients.agree": 1}', ["clients.agree"]),
        ('with ctx.step("agree"): ...', ["agree"]),
        ('ok = step == "finish"', ["finish"]),
        ('ledger.charge(1, "measure", event)', ["measure"]),
        ('phases = ("select", "measure")', []),
        ('""" "select.choose" in prose """', []),
    ],
)
def test_spelt_finds_names_where_they_can_only_be_steps(source: str, names: list[str]) -> None:
    assert [name for _, name in spelt(ast.parse(source))] == names


def test_every_declared_step_is_in_the_table() -> None:
    modules = (protocols.steps, parties.mpc.steps)
    declared = [s for module in modules for s in vars(module).values() if isinstance(s, Step)]
    assert {step.name for step in declared} == set(STEPS)
    assert all(STEPS[step.name] is step for step in declared)


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_step_has_one_way_to_be_judged(step: Step) -> None:
    """A formula, or a rule for messages without one; a step with neither contains others and opens nothing."""
    assert not (step.cost and step.problem)
    assert step.contains == (step.name in {"select", "measure", "prepare", "clients.count"})
    assert not (step.contains and step.opens)
    assert step.first_round == (1 if step.name.startswith("select") else 0)


def test_openings_are_paid_for_by_a_step_or_the_same_for_all_data() -> None:
    assert set(OPENED_IN) == {CHOICE.what, COUNTS.what, PASSED.what, COMPARISONS.what}
    assert (CHOICE.charge, COUNTS.charge) == (accounting.SELECT, accounting.MEASURE)
    for what, (step, opening) in OPENED_IN.items():
        assert opening.what == what
        if opening in (PASSED, COMPARISONS):
            assert opening.charge is None
        else:
            assert step.name.startswith(f"{opening.charge}.")
            assert STEPS[str(opening.charge)].contains


def test_batches_cost_a_digest_of_each_client_and_echoed_exchanges_of_no_problems() -> None:
    compare = STEPS["clients.compare"].cost
    assert compare
    assert compare(BatchFacts([8] * 5, 2)) == Cost(10, (552, 552, 552))


@pytest.mark.parametrize(
    ("name", "messages", "holds"),
    [
        ("agree", MessageFacts([90, 96], 1, 2, is_lead=False, model=100), True),
        ("agree", MessageFacts([90], 1, 1, is_lead=False, model=100), False),
        ("agree", MessageFacts([90, 90], 1, 2, is_lead=False, model=100), False),
        ("agree", MessageFacts([90, 96, 96], 1, 3, is_lead=False, model=100), False),
        # A model as long as a digest.
        ("estimate", MessageFacts([1, 32, 32], 1, 3, is_lead=True, model=100), True),
        ("estimate", MessageFacts([1, 1, 100, 32], 1, 4, is_lead=True, model=100), True),
        ("estimate", MessageFacts([1, 1, 100], 1, 3, is_lead=True, model=100), False),
        ("estimate", MessageFacts([1, 101, 32], 1, 3, is_lead=True, model=100), False),
        # A follower shows a model that the lead has not, and the lead says what it heard.
        ("estimate", MessageFacts([100, 32], 1, 2, is_lead=False, model=100), True),
        ("estimate", MessageFacts([32], 1, 2, is_lead=True, model=100), True),
        ("estimate", MessageFacts([101, 32], 1, 2, is_lead=False, model=100), False),
        ("estimate", MessageFacts([100, 100, 32], 1, 3, is_lead=False, model=100), False),
        ("estimate", MessageFacts([1, 32], 1, 3, is_lead=False, model=0), False),
        ("estimate", MessageFacts([], 1, 1, is_lead=False, model=100), False),
        ("estimate", MessageFacts([32], 1, 2, is_lead=False, model=100), True),
        ("clients.agree", MessageFacts([40, 96, 50, 96], 2, 4, is_lead=False, model=100), True),
        ("clients.agree", MessageFacts([40, 50], 2, 2, is_lead=False, model=100), False),
        ("clients.resume", MessageFacts([2, 96], 1, 2, is_lead=False, model=100), True),
        ("finish", MessageFacts([1, 1, 76, 4, 50, 32], 1, 6, is_lead=True, model=100), True),
        ("finish", MessageFacts([1, 1, 76, 4, 50], 1, 5, is_lead=True, model=100), False),
        ("finish", MessageFacts([1, 1, 4, 4, 50, 32], 1, 6, is_lead=True, model=100), False),
        ("finish", MessageFacts([4, 50, 32], 1, 5, is_lead=False, model=100), True),
        ("finish", MessageFacts([4, 50], 1, 4, is_lead=False, model=100), False),
        ("finish", MessageFacts([1, 4, 50, 32], 1, 5, is_lead=False, model=100), False),
        ("finish", MessageFacts([5, 50, 32], 1, 5, is_lead=False, model=100), False),
    ],
)
def test_problem_is_found_where_messages_are_not_those_of_the_step(
    name: str, messages: MessageFacts, holds: bool
) -> None:
    problem = STEPS[name].problem
    assert problem
    assert (problem(messages) is None) == holds
    assert (len(WORKING), len(DONE)) == (1, 4)
