"""Strings below the fields and members of a class, which explain them."""

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise


def explained(cls: type) -> Mapping[str, str]:
    """Returns the strings below the fields or members of a class by their names, each paragraph in one line."""
    (tree,) = ast.parse(inspect.getsource(cls)).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    found = {}
    for item, after in pairwise(body):
        text = after.value if isinstance(after, ast.Expr) else None
        if not isinstance(text, ast.Constant):
            continue
        target = item.target if isinstance(item, ast.AnnAssign) else None
        target = item.targets[0] if isinstance(item, ast.Assign) else target
        if isinstance(target, ast.Name):
            found[target.id] = "\n\n".join(map(line_of, str(text.value).split("\n\n")))
    return found


def line_of(text: str) -> str:
    """Returns a paragraph of a docstring as one line of Markdown."""
    return " ".join(text.split()).replace("``", "`")
