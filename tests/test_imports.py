"""Imports go one way: bench uses parties, and both use protocols, secagg and mechanisms.

Those three know neither one another nor parties and bench. Within parties the rooms have an order of their own. In no
package do modules import one another in a circle, not even for a type or within a function.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGINES = {"protocols", "secagg", "mechanisms"}
PACKAGES = ENGINES | {"parties", "bench"}
FORBIDDEN = {
    **{package: PACKAGES - {package} for package in ENGINES},
    "parties": {"bench"},
    "bench": set(),
}
OUTSIDE_COMMANDS = {("parties/cli/main.py", "bench.cli")}
"""`syncret bench` is a command of another package: its module's name, imported when somebody asks for it."""

ROOMS = (
    "foundation",
    "crypto",
    "config",
    "network",
    "storage",
    "observability",
    "identity",
    "session",
    "report",
    "mpc",
    "federation",
    "methods",
    "local",
    "service",
    "audit",
    "api",
    "cli",
)
"""A file of parties uses its own room and those before it."""
APART = ({"mpc", "federation"},)
"""Rooms that know nothing of one another."""
OWNERS_PROGRAM = "parties.mpc.submission"
SERVERS_ALONE = tuple(
    f"parties.mpc.{name}"
    for name in (
        *("intake", "storage", "participants", "replay"),
        *("server", "server_folder", "session", "mesh", "computation", "finishing"),
    )
)
"""The modules of a compute server; a data owner's program imports none of them, not even through others."""


class Import(NamedTuple):
    """In `line` of `path` something imports the module, or the name in a module, `imported`."""

    path: str
    line: int
    imported: str

    @property
    def package(self) -> str:
        return self.imported.partition(".")[0]

    def of(self, forbidden: set[tuple[str, str]]) -> bool:
        """Returns True for one of these pairs of path and module, or a name in one of these modules."""
        return any(
            self.path == path and f"{self.imported}.".startswith(f"{module}.")
            for path, module in forbidden
        )

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.imported}"


@cache
def imports_of(source: str, path: str) -> tuple[Import, ...]:
    """Every import of a text, which is read once: see ``_imports_of``."""
    return tuple(_imports_of(source, path))


def _imports_of(source: str, path: str) -> Iterator[Import]:
    """Every import in `source`, wherever it stands, and every string that reads like a module of these packages."""
    module = re.compile(rf"({'|'.join(sorted(PACKAGES))})(\.\w+)+")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            # `from . import x` in package/folder/file.py is relative to package/folder.
            base = ".".join(Path(path).parts[: -node.level]) if node.level else ""
            start = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                yield Import(path, node.lineno, f"{start}.{alias.name}")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            name = str(node.args[0].value)
            if called in {"import_module", "__import__"} and "." not in name:
                yield Import(path, node.lineno, name)
        elif isinstance(node, ast.Constant) and module.fullmatch(str(node.value)):
            yield Import(path, node.lineno, str(node.value))


def imports_below(root: Path, package: str) -> Iterator[Import]:
    """Every import of the files of `package` in the folder `root`."""
    for path in sorted((root / package).rglob("*.py")):
        yield from imports_of(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix())


def violations(root: Path) -> list[Import]:
    """Imports below `root` from one package to another that go the wrong way."""
    return [
        item
        for package, forbidden in FORBIDDEN.items()
        for item in imports_below(root, package)
        if item.package in forbidden
    ]


def room_of_file(path: str) -> str:
    """The room that a file of parties belongs to; the loose one that starts the command line belongs to `cli`."""
    parts = Path(path).parts
    return parts[1] if len(parts) > 2 else "cli"


def room_of_module(name: str) -> str:
    """The room of a module, or of a name in one, of parties."""
    return name.split(".")[1]


def within_parties(root: Path) -> list[Import]:
    """The imports of files of parties from parties."""
    return [item for item in imports_below(root, "parties") if item.imported.startswith("parties.")]


def climbs(root: Path) -> list[Import]:
    """Imports within parties that lead from a room to a later one, or to one that it may not know."""
    found = []
    for item in within_parties(root):
        here, there = room_of_file(item.path), room_of_module(item.imported)
        if ROOMS.index(there) > ROOMS.index(here) or {here, there} in APART:
            found.append(item)
    return found


def modules_of(root: Path, package: str) -> dict[str, Path]:
    """The modules of a package by name; the package itself is its `__init__.py`."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((root / package).rglob("*.py"))
    }


def uses_of(root: Path, package: str) -> dict[str, set[str]]:
    """Modules of its package that each module imports, itself excepted.

    That a submodule's import also runs the packages it lies in counts only where the package itself is named.
    """
    modules = modules_of(root, package)
    uses: dict[str, set[str]] = {}
    for name, path in modules.items():
        source, where = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        found = {item.imported for item in imports_of(source, where)}
        # What is no module itself is a name in one.
        found = {i if i in modules else i.rpartition(".")[0] for i in found}
        uses[name] = (found & modules.keys()) - {name}
    return uses


def reached_from(uses: dict[str, set[str]], start: str) -> set[str]:
    """The modules that ``start`` imports, and those that they import, and so on."""
    reached, waiting = set[str](), [start]
    while waiting:
        new = uses[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def circles(uses: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules of which each reaches every other one by imports."""
    reached = {name: reached_from(uses, name) for name in uses}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in uses
        if name in reached[name]
    }


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_imports_within_a_package_go_round_in_no_circle(package: str) -> None:
    assert circles(uses_of(ROOT, package)) == set()


def test_imports_go_one_way() -> None:
    assert [str(item) for item in violations(ROOT) if not item.of(OUTSIDE_COMMANDS)] == []


def test_parties_names_a_module_of_bench_in_one_place_only() -> None:
    found = [item for item in imports_below(ROOT, "parties") if item.package == "bench"]
    assert {(item.path, item.imported) for item in found} == OUTSIDE_COMMANDS


def test_code_that_repeats_papers_is_named_by_itself_and_the_list_of_commands_only() -> None:
    """So that an installation may leave `bench/papers` out, as images do."""
    papers = "bench.papers"
    found = [
        item
        for package in PACKAGES
        for item in imports_below(ROOT, package)
        if f"{item.imported}.".startswith(f"{papers}.")
        and not item.path.startswith("bench/papers/")
    ]
    assert {item.path for item in found} == {"bench/cli.py"}
    assert {item.package for item in imports_below(ROOT, "tests/robustness")} & PACKAGES
    assert not any(
        item.imported.startswith(papers) for item in imports_below(ROOT, "tests/robustness")
    )


def test_packages_do_not_know_what_programs_import() -> None:
    """`syncret` is over all others, and names what it passes on."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert not re.search(r"^\s*(from|import) syncret\b", path.read_text(), re.MULTILINE)
    source = (ROOT / "syncret.py").read_text(encoding="utf-8")
    found = {item.package for item in imports_of(source, "syncret.py")} - sys.stdlib_module_names
    assert found == {"mechanisms", "parties", "protocols"}


def test_imports_within_parties_do_not_climb() -> None:
    assert [str(item) for item in climbs(ROOT)] == []


def test_rooms_are_the_folders_of_parties_and_no_module_lies_loose() -> None:
    folders = {path.parent.name for path in (ROOT / "parties").glob("*/__init__.py")}
    assert folders == set(ROOMS)
    loose = {path.name for path in (ROOT / "parties").glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}


def test_owners_program_reaches_nothing_of_the_servers() -> None:
    uses = uses_of(ROOT, "parties")
    start = {name for name in uses if f"{name}.".startswith(f"{OWNERS_PROGRAM}.")}
    reached = set().union(*(reached_from(uses, name) for name in start))
    assert start
    assert [name for name in sorted(reached) if f"{name}.".startswith(_BELOW)] == []
    assert reached_from(uses, "parties.mpc.server") & {
        name for name in uses if f"{name}.".startswith(_BELOW)
    }


def test_a_process_of_one_study_imports_no_database_of_the_service() -> None:
    """SQLAlchemy takes a fifth of such a process's start."""
    code = (
        "import sys, parties.cli.server, parties.cli.worker\n"
        "assert 'sqlalchemy' not in sys.modules\n"
        "import parties.service.studies\n"
        "assert 'sqlalchemy' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


_BELOW = tuple(f"{name}." for name in SERVERS_ALONE)


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_folders_with_modules_are_packages_which_an_installation_has(package: str) -> None:
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_packages_exist_with_a_docstring(package: str) -> None:
    module = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(module)


def written(root: Path, path: str, source: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")


@pytest.mark.parametrize(
    ("package", "statement", "imported"),
    [
        ("protocols", "import mechanisms.domain", "mechanisms.domain"),
        ("protocols", "def f():\n    from parties import store", "parties.store"),
        ("mechanisms", "from protocols.ring import R32", "protocols.ring.R32"),
        ("mechanisms", "import numpy, bench", "bench"),
        ("mechanisms", "import importlib\nimportlib.import_module('secagg')", "secagg"),
        ("mechanisms", "f'{1}'\n__import__('secagg.client')", "secagg.client"),
        ("secagg", "if True:\n    import parties as p", "parties"),
        ("parties", "from bench.cli import bench", "bench.cli.bench"),
        ("parties", "LATER = {'bench': 'bench.cli'}", "bench.cli"),
    ],
)
def test_violations_are_found_when_there_is_one(
    tmp_path: Path, package: str, statement: str, imported: str
) -> None:
    written(tmp_path, f"{package}/module.py", statement)
    line = statement.count("\n") + 1
    assert violations(tmp_path) == [Import(f"{package}/module.py", line, imported)]


@pytest.mark.parametrize(
    ("package", "statement"),
    [
        ("parties", "from protocols import ring\nimport mechanisms.aim"),
        ("parties", "NAMES = ('audit', 'bench')"),
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
    written(tmp_path, f"{package}/module.py", statement)
    assert violations(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("parties/identity/tls.py", "from parties.session.owner import x"),
        ("parties/config/files.py", "def f():\n    import parties.report.document"),
        ("parties/federation/secagg_server.py", "from parties import mpc"),
        ("parties/mpc/storage/store.py", "from ...federation import journal"),
        ("parties/methods/flaim/server.py", "__import__('parties.audit.runner')"),
        ("parties/audit/runner.py", "import parties.cli.main as x"),
    ],
)
def test_climbs_are_found_when_there_is_one(tmp_path: Path, path: str, statement: str) -> None:
    written(tmp_path, path, statement)
    assert [item.path for item in climbs(tmp_path)] == [path]


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("parties/__main__.py", "from parties.cli.main import main"),
        (
            "parties/identity/tls.py",
            "from parties.config import Config\nfrom parties import crypto",
        ),
        ("parties/config/files.py", "from parties.foundation.errors import ConfigError"),
        ("parties/mpc/server.py", "from parties.mpc import storage\nimport secagg.client"),
        (
            "parties/audit/checks/flaim.py",
            "from parties.federation.transcript import x\nfrom . import page",
        ),
        ("parties/cli/run.py", "from parties.local.launcher import launch"),
    ],
)
def test_climbs_are_empty_when_imports_go_down(tmp_path: Path, path: str, statement: str) -> None:
    written(tmp_path, path, statement)
    assert climbs(tmp_path) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from protocols.first import X",
        "from protocols import first",
        "def f():\n    import protocols.first",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .first import X",
        "import protocols.third",
    ],
)
def test_circles_are_found_when_there_is_one(tmp_path: Path, statement: str) -> None:
    written(tmp_path, "protocols/__init__.py", "")
    written(tmp_path, "protocols/first.py", "from protocols.second import Y\nX = 1")
    written(tmp_path, "protocols/second.py", statement)
    written(tmp_path, "protocols/third.py", "from protocols import first")
    (circle,) = circles(uses_of(tmp_path, "protocols"))
    assert {"protocols.first", "protocols.second"} <= circle


def test_circles_are_none_where_modules_use_one_another_one_way(tmp_path: Path) -> None:
    written(tmp_path, "protocols/__init__.py", "from protocols.first import X\n")
    written(tmp_path, "protocols/first.py", "from protocols.second import Y\nX = 1")
    written(tmp_path, "protocols/second.py", "import numpy\nfrom protocols.third import Z")
    written(tmp_path, "protocols/third.py", "Z = 'protocols.third.Z'")
    assert circles(uses_of(tmp_path, "protocols")) == set()
