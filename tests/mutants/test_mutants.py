"""Faults are put where the code has behaviour, and a fault that no test finds is told."""

import ast
import textwrap
from pathlib import Path
from queue import Queue

import pytest

from tests.mutants import __main__ as runner
from tests.mutants.__main__ import PACKAGES, Ended, drawn, run_tests
from tests.mutants.choice import files_of_tests
from tests.mutants.faults import compiles, faults
from tests.test_imports import ROOT

SOURCE = textwrap.dedent(
    '''
    """Rows of 1 == 1."""

    MOST: "int | 3" = 3


    @decorated(5)
    def allowed(rows: int, *, strict: bool = True) -> int:
        """Returns 2 + 2."""
        if (rows) < (MOST) and not strict:
            log("é", rows)
            return -rows
        return rows * 2
    '''
).encode()


def test_faults_change_behaviour_alone() -> None:
    changed = {
        ast.unparse(ast.parse(fault.apply(SOURCE))): fault
        for fault in faults(SOURCE)
        if compiles(fault.apply(SOURCE))
    }
    before = ast.unparse(ast.parse(SOURCE))
    texts = {
        next(b for a, b in zip(before.splitlines(), text.splitlines(), strict=True) if a != b)
        for text in changed
    }
    assert {text.strip() for text in texts} == {
        "MOST: 'int | 3' = 4",
        "def allowed(rows: int, *, strict: bool=False) -> int:",
        "if rows < MOST or not strict:",
        "if rows <= MOST and (not strict):",
        "if rows < MOST and strict:",
        "if False:",
        "pass",
        "return rows",
        "return rows + 2",
        "return rows * 3",
    }


def test_mutants_are_drawn_alike_and_have_tests() -> None:
    one = PACKAGES[1:2]
    sample = drawn(one, 20, 7)
    assert sample == drawn(one, 20, 7) != drawn(one, 20, 8)
    for mutant in sample:
        source = (ROOT / mutant.file).read_bytes()
        assert compiles(mutant.fault.apply(source))
        assert str(mutant).startswith(f"{mutant.file}:")
        assert files_of_tests(Path(mutant.file))[0], mutant


def test_outcome_is_that_of_the_tests(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text("def doubled(rows):\n    return rows * 2\n")
    (tmp_path / "test_counted.py").write_text(
        "from counted import doubled\n\ndef test_it():\n    assert doubled(2) == 4\n"
    )
    (tmp_path / "test_endless.py").write_text("import time\n\ndef test_it():\n    time.sleep(60)\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    statuses = {}
    source = (tmp_path / "counted.py").read_bytes()
    for fault in faults(source):
        (tmp_path / "counted.py").write_bytes(fault.apply(source))
        statuses[fault.kind] = run_tests(tmp_path, ["test_counted.py"], 60)
    # 2 + 2 is 2 * 2: the test is too weak for that, and the command says so.
    assert statuses == {"operator": Ended(0), "number": Ended(1, ("test_counted.py::test_it",))}
    assert [ended.is_failure for ended in statuses.values()] == [False, True]
    assert run_tests(tmp_path, ["test_endless.py"], 3) == Ended(None)


def test_a_mutant_is_killed_by_a_test_that_passes_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One copy of a tree of one module; a test that fails anyhow kills nothing."""
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    tests = {
        "strong": "def test_it():\n    assert doubled(3) == 6\n",
        "weak": "def test_it():\n    assert doubled(2) == 4\n",
        "broken": "def test_it():\n    assert doubled(2) == 5\n",
    }
    for folder in (tree, copy):
        folder.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "counted.py").write_text("def doubled(rows):\n    return rows * 2\n")
        for name, text in tests.items():
            (folder / f"test_{name}.py").write_text("from counted import doubled\n\n" + text)
    monkeypatch.setattr(runner, "ROOT", tree)
    (fault,) = (f for f in faults((tree / "counted.py").read_bytes()) if f.kind == "operator")
    for name, outcome in (
        ("strong", "killed"),
        ("weak", "survived"),
        ("broken", "tests fail without it"),
    ):
        nearest = [Path(f"test_{name}.py")], list[Path]()
        monkeypatch.setattr(runner, "files_of_tests", lambda path, found=nearest: found)
        free: Queue[Path] = Queue()
        free.put(copy)
        found = runner.tried(runner.Mutant("counted.py", fault), free, 60)
        assert found == {"outcome": outcome, "tests": [f"test_{name}.py"]}
        assert free.get() == copy
        assert (copy / "counted.py").read_text() == (tree / "counted.py").read_text()
