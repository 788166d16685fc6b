"""HTML pages from Jinja templates: one environment for reports, audits, notebooks and the console.

A template has all markup of its page, and Python code only values. Every value is escaped, none is ever marked as safe,
and a name that a template uses without a value is an error. Templates are files in `templates/` beside the module that
renders them; `page.html` (frame, style and content policy) and `parts.html` (tables, pictures, folded parts) are in the
folder of this package, and found from all. A page needs no other file, and its own policy forbids scripts and every
outside resource, so opening it sends nothing to anyone. No secret value may come in.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import jinja2

_SHARED = Path(__file__).with_name("templates")


def page_templates(module: str) -> jinja2.Environment:
    """Returns the templates in `templates/` beside the file ``module``, and those that all pages share."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(module).with_name("templates"), _SHARED]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["shown"] = _shown
    environment.filters["zip"] = partial(zip, strict=True)
    return environment


def _shown(value: object) -> object:
    """Returns a value as pages show it: numbers to six digits."""
    return f"{value:.6g}" if isinstance(value, float) else value


class HtmlTable:
    """Table of a page: a wide one scrolls from left to right unless ``whole``, and numbers are right-aligned."""

    def __init__(
        self, heads: Sequence[str], rows: Iterable[Sequence[object]], *, whole: bool = False
    ) -> None:
        self.rows = [list(row) for row in rows]
        self.whole = whole
        first = self.rows[0] if self.rows else [""] * len(heads)
        self.heads = list(zip(heads, first, strict=True))
        """Each head with the first value below it, whose kind decides its alignment."""


def pairs_table(values: Mapping[str, object]) -> HtmlTable:
    """Returns a table of names and values, without those that there are not."""
    return HtmlTable(("", ""), [item for item in values.items() if item[1] is not None])


class HtmlPicture:
    """Drawing of a page with its caption; ``alt`` is the text for screen readers, ``name`` a heading above it."""

    def __init__(self, svg: str, caption: str, *, alt: str, name: str = "") -> None:
        data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
        self.source = f"data:image/svg+xml;base64,{data}"
        self.caption, self.alt, self.name = caption, alt, name
