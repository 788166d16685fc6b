"""Imports go one way: parties and bench use protocols, secagg and mechanisms.

Those three know neither one another nor parties and bench.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGINES = {"protocols", "secagg", "mechanisms"}
PACKAGES = ENGINES | {"parties", "bench"}
FORBIDDEN = {
    **{package: PACKAGES - {package} for package in ENGINES},
    # A trial run splits its table with parties.trial.partition, and the benchmarks start parties.
    "parties": set(),
    "bench": set(),
}


def imported_packages(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every import in `source`, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            name = package if node.level else (node.module or "")
            yield node.lineno, name.partition(".")[0]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            if called in {"import_module", "__import__"}:
                yield node.lineno, str(node.args[0].value).partition(".")[0]


def violations(root: Path) -> list[str]:
    """Imports below `root` that go the wrong way, as `file:line imports package`."""
    found = []
    for package, forbidden in FORBIDDEN.items():
        for path in sorted((root / package).rglob("*.py")):
            for line, name in imported_packages(path.read_text(encoding="utf-8"), package):
                if name in forbidden:
                    found.append(f"{path.relative_to(root).as_posix()}:{line} imports {name}")
    return found


def test_imports_go_one_way() -> None:
    assert violations(ROOT) == []


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_packages_exist_with_a_docstring(package: str) -> None:
    module = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(module)


@pytest.mark.parametrize(
    ("package", "statement", "imported"),
    [
        ("protocols", "import mechanisms.domain", "mechanisms"),
        ("protocols", "def f():\n    from parties import store", "parties"),
        ("mechanisms", "from protocols.ring import R32", "protocols"),
        ("mechanisms", "import numpy, bench", "bench"),
        ("mechanisms", "import importlib\nimportlib.import_module('secagg.client')", "secagg"),
        ("secagg", "if True:\n    import parties as p", "parties"),
    ],
)
def test_violations_are_found_when_there_is_one(
    tmp_path: Path, package: str, statement: str, imported: str
) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "module.py").write_text(statement, encoding="utf-8")
    line = statement.count("\n") + 1
    assert violations(tmp_path) == [f"{package}/module.py:{line} imports {imported}"]


@pytest.mark.parametrize(
    ("package", "statement"),
    [
        ("parties", "from protocols import ring\nimport mechanisms.aim"),
        ("bench", "import secagg"),
        (
            "protocols",
            "from . import ring\nfrom protocols.errors import ProtocolError\nimport numpy",
        ),
        ("mechanisms", "from .protocols import x"),
    ],
)
def test_violations_are_empty_when_imports_go_the_right_way(
    tmp_path: Path, package: str, statement: str
) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "module.py").write_text(statement, encoding="utf-8")
    assert violations(tmp_path) == []
