"""Tests wait for what they need, with a deadline, and say why where time alone has to pass.

A sleep that hopes that something has happened by then fails under load. So a test sleeps in a loop that looks, as
`tests.until` does, or says on the line for which of these reasons it sleeps.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
REASONS = {
    "quiet": "nothing may happen meanwhile: under load it happens later, and no test fails",
    "head start": "the usual order of two events; the test holds in the other order, too",
    "slow": "a slow peer, disk or step is played",
    "lasts": "that so much time has passed is what the test is about",
}
LOOPS = (ast.While, ast.For, ast.AsyncFor)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def unexplained(source: str) -> Iterator[int]:
    """Lines that sleep, neither in a loop nor for a reason."""
    lines, tree = source.splitlines(), ast.parse(source)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".sleep")):
            continue
        if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0:
            continue
        place: ast.AST = node
        while place in above and not isinstance(place, (*LOOPS, *FUNCTIONS)):
            place = above[place]
        _, _, said = lines[(node.end_lineno or node.lineno) - 1].partition("# Sleeps: ")
        if not isinstance(place, LOOPS) and said.split(".")[0] not in REASONS:
            yield node.lineno


FOLDERS = sorted(path.name for path in TESTS.iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("folder", [*FOLDERS, ""])
def test_every_sleep_looks_for_something_or_says_why(folder: str) -> None:
    paths = (TESTS / folder).rglob("*.py") if folder else TESTS.glob("*.py")
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(paths)
        for line in unexplained(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("time.sleep(1)", [2]),
        ("asyncio.sleep(0)", []),
        ("time.sleep(1)  # Sleeps: quiet.", []),
        ("time.sleep(1)  # Sleeps: it should be there by then.", [2]),
        ("while not there(): time.sleep(1)", []),
        ("for _ in range(9): asyncio.sleep(0.1)", []),
    ],
)
def test_a_sleep_that_hopes_is_seen(body: str, found: list[int]) -> None:
    assert list(unexplained(f"def test():\n    {body}\n")) == found
