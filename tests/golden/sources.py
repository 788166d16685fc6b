"""Texts of the source code: the module finds them by syntax, so that neither their place nor any name matters.

Known limit: a text that is put together elsewhere, and handed to an error in a variable, is not found.
"""

import ast
import builtins
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("parties", "protocols", "secagg", "mechanisms")
JUDGES = frozenset({"check", "require"})
"""Functions that raise an error with the text they are given, unless something holds."""
_SHORTEST_LABEL = 3
_SPOKEN = re.compile(r"SYNCRET_\w+|Syncret-[\w-]+")
"""Environment variables and headers."""


def errors() -> str:
    """The snapshot has the templates of all error texts, sorted; {} stands for a placeholder."""
    found = {text for tree in _trees() for call in _raising(tree) for text in _templates(call)}
    return _lines(_on_one_line(text) for text in found if re.search(r"[A-Za-z]", text))


def labels() -> str:
    """The snapshot has byte strings, such as magic lines and labels of digests, environment variables and headers."""
    return _lines(chain.from_iterable(map(_labels_in, _trees())))


def tables() -> str:
    """The snapshot has the statements that make tables of SQLite, one a line."""
    return _lines(
        " ".join(text.split())
        for tree in _trees()
        for text in _strings(tree)
        if text.lstrip().upper().startswith("CREATE ")
    )


def _on_one_line(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in sorted(set(texts)))


@cache
def _trees() -> tuple[ast.Module, ...]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in paths)


@cache
def _errors() -> frozenset[str]:
    """The set has the names of all classes of exceptions, Python's and ours."""
    known = {
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    classes = [n for tree in _trees() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    while True:
        more = {c.name for c in classes if known & {_name(base) for base in c.bases}}
        if more <= known:
            return frozenset(known)
        known |= more


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _raising(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls have texts for errors: those of a `raise`, of a class of errors, of a judge, or in such a class."""
    names = _errors()
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call() as call):
                yield call
            case ast.Call(func=func) if _name(func) in names or _name(func) in JUDGES:
                yield node
            case ast.ClassDef(name=name) if name in names:
                yield from (n for n in ast.walk(node) if isinstance(n, ast.Call) and _is_super(n))


def _is_super(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))):
            return True
    return False


def _templates(node: ast.AST) -> Iterator[str]:
    """The function finds string constants and f-strings within, also those within a placeholder."""
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.JoinedStr(values=values):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in values)
            for part in values:
                if isinstance(part, ast.FormattedValue):
                    yield from _templates(part.value)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _templates(child)


def _strings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _labels_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=bytes() as label) if len(label) >= _SHORTEST_LABEL:
                yield repr(label)
            case ast.Constant(value=str() as text) if _SPOKEN.fullmatch(text):
                yield text
