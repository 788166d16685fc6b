"""A module's tests: the files that import it, or import the modules that do."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.test_imports import ROOT

FIRST, MORE = 4, 10
"""Files of tests that a mutant meets: the nearest, and if it survives, further ones and the golden texts."""
GOLDEN = Path("tests/golden/test_texts.py")


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields all statements of a file, and none of their expressions, which are ten times as many."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, ())
            left += inner if isinstance(inner, list) else ()


@cache
def _importers() -> dict[str, set[Path]]:
    """Returns the files of the tree that import each module, by the module's name."""
    found = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        relative = path.relative_to(ROOT)
        if relative.parts[0].startswith((".", "build", "docs")):
            continue
        for node in _statements(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            for name in names:
                found[name].add(relative)
    return dict(found)


def module_of(path: Path) -> str:
    """Returns the name by which a file is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files_of_tests(path: Path) -> tuple[list[Path], list[Path]]:
    """Returns the files of tests for a module of the tree that are nearest to it, and those for what survives them."""
    stem = path.stem if path.stem != "__init__" else path.parent.name
    chosen: list[Path] = []
    modules, seen = {module_of(path)}, {module_of(path)}
    while modules and len(chosen) < FIRST + MORE:
        files = {file for module in modules for file in _importers().get(module, ())}
        near = [
            file for file in files if file.name.startswith("test_") and file.parts[0] == "tests"
        ]
        chosen += _ordered((file for file in near if file not in chosen), stem, path)
        modules = {module_of(file) for file in files} - seen
        seen |= modules
    return chosen[:FIRST], [*chosen[FIRST : FIRST + MORE], GOLDEN]


def _ordered(files: Iterable[Path], stem: str, path: Path) -> list[Path]:
    """Returns files in the order of nearness: of the module's name, its folder's, its package; the shortest first."""
    return sorted(
        files,
        key=lambda file: (
            stem not in file.stem,
            path.parent.name not in file.stem,
            path.parts[0] not in file.parts,
            (ROOT / file).stat().st_size,
            str(file),
        ),
    )
