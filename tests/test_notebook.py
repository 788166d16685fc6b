"""The example notebook: its cells run one after the other where an event loop is running, and it has no outputs."""

import ast
import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.ipynb"))


def cells_of(path: Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


async def run_cell(source: str, names: dict[str, object]) -> object:
    """Result that a kernel shows of a cell: the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for part in (tree, ast.Expression(last.value) if isinstance(last, ast.Expr) else None):
        if part is not None:
            mode = "eval" if isinstance(part, ast.Expression) else "exec"
            value: object = eval(compile(part, "<cell>", mode, flags=flags), names)  # noqa: S307  # It is a kernel.
            value = await value if inspect.iscoroutine(value) else value
    return value if last is not None else None


async def shown_by(cells: list[dict[str, Any]]) -> list[object]:
    names: dict[str, object] = {"__name__": "__main__"}
    return [await run_cell("".join(cell["source"]), names) for cell in cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs_in_an_event_loop_as_a_kernel_has_it(path: Path) -> None:
    shown = asyncio.run(shown_by(cells_of(path)))
    assert any("READ FROM THE DATA" in repr(value) for value in shown)
    assert shown[-1] is True, "the audit has passed"
    pages = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(pages) >= 5
    assert sum(page.startswith("<iframe srcdoc=") for page in pages) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_stripped(path: Path) -> None:
    for cell in cells_of(path):
        assert (cell["outputs"], cell["execution_count"], cell["metadata"]) == ([], None, {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_imports_public_names_alone(path: Path) -> None:
    code = "\n".join("".join(cell["source"]) for cell in cells_of(path))
    imported = [
        alias.name if isinstance(node, ast.Import) else str(getattr(node, "module", ""))
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert "syncret" in imported
    private = {"mechanisms", "protocols", "secagg", "parties", "bench"}
    assert not private & {name.partition(".")[0] for name in imported}
