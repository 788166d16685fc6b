"""The language of the code: how docstrings open, and names that say nothing any more."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("parties", "protocols", "secagg", "mechanisms", "bench", "tests", "docs", "examples")
QUESTION = re.compile(r"(What|Who|Whose|Whom|Whether|How|Where|Which|When|Whoever|Whatever)\b")
"""A docstring begins with the noun of what it describes, or with its verb."""
FORBIDDEN = {
    *("place", "places", "told", "book", "gist", "standing", "standings", "roll", "tape", "offers"),
    *("doing", "pulse", "whose", "misfit", "stranger", "farewell", "patience", "hasty", "anew"),
}
"""Names of `parties` before it had those of the field."""


def modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    """The files of packages, by path, parsed."""
    for package in packages:
        yield from parsed(package)


@cache
def parsed(package: str) -> list[tuple[str, ast.Module]]:
    """The files of one package, by path; each is parsed once for all tests."""
    paths = sorted((ROOT / package).rglob("*.py"))
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in paths
    ]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings of the module, its classes and functions, and the strings below attributes; by line."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else []:
            value = item.value if isinstance(item, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield item.lineno, value.value.strip()


def questions(path: str, tree: ast.Module) -> list[str]:
    """The docstrings of a file that open with a question word."""
    return [
        f"{path}:{line}: {text.splitlines()[0]}"
        for line, text in docstrings(tree)
        if QUESTION.match(text)
    ]


def defined(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that a file gives to classes, functions, parameters, variables and attributes; by line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def forbidden(path: str, tree: ast.Module) -> list[str]:
    """The names of a file that say nothing any more."""
    return [
        f"{path}:{line}: {name}"
        for line, name in defined(tree)
        if name.strip("_").lower() in FORBIDDEN
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_open_with_a_noun_or_a_verb(package: str) -> None:
    assert [found for path, tree in modules(package) for found in questions(path, tree)] == []


def test_names_of_before_are_gone() -> None:
    assert [found for path, tree in modules("parties") for found in forbidden(path, tree)] == []


def test_every_class_of_parties_has_a_name_of_its_own() -> None:
    found = defaultdict(list)
    for path, tree in modules("parties"):
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_questions_and_names_are_found_where_they_are() -> None:
    tree = ast.parse(
        '"""What a module is."""\nX = 1\n"""How many."""\n\n\ndef roll(place):\n    """Whether."""\n'
        "    told = self._anew = 1\n"
    )
    assert len(questions("x.py", tree)) == 3
    assert [name.split()[-1] for name in forbidden("x.py", tree)] == [
        "roll",
        "place",
        "told",
        "_anew",
    ]


MANY_POSITIONAL = {"parties": 185, "bench": 133, "protocols": 99, "mechanisms": 60, "secagg": 18}
"""Functions that take a fourth positional argument, from before the rule that none does. These numbers only fall."""


def positional(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a file with more than three parameters that are not keyword-only, besides self or cls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
            if len(names) - (names[:1] in (["self"], ["cls"])) > 3:
                yield node


@pytest.mark.parametrize("package", MANY_POSITIONAL)
def test_no_further_function_takes_a_fourth_positional_argument(package: str) -> None:
    found = [
        f"{path}:{node.lineno}: {node.name}"
        for path, tree in modules(package)
        for node in positional(tree)
    ]
    listed = "\n".join(found)
    assert len(found) == MANY_POSITIONAL[package], f"make what is new keyword-only:\n{listed}"


def test_a_fourth_positional_argument_is_seen() -> None:
    """A control."""
    tree = ast.parse("def f(a, b, c, d): ...\ndef g(self, a, b, c): ...\ndef h(a, *, b, c, d): ...")
    assert [node.name for node in positional(tree)] == ["f"]
