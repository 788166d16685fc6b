"""Modules of docs/ that make pages of the site, as tests import them."""

import importlib
import re
import sys
from types import ModuleType

from tests.docs.guides import DOCS

_CODE = re.compile(r"^`([^`]*)`$")


def module(name: str) -> ModuleType:
    """A module of docs/, by its name."""
    # At the end: docs/site.py has the name of a module of Python.
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))
    return importlib.import_module(name)


def tables(page: str) -> dict[str, list[list[str]]]:
    """Rows of the tables of a page, without their headings and code marks, by the heading above them."""
    found: dict[str, list[list[str]]] = {}
    title, before = "", ""
    for line in page.splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        if line.startswith("|") and not line.startswith("| ---"):
            cells = [_CODE.sub(r"\1", cell.strip()) for cell in line[1:-1].split(" | ")]
            if before.startswith("|"):
                found.setdefault(title, []).append(cells)
        before = line
    return found
