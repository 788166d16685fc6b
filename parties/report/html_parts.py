"""A page that needs nothing else: the frame, style and tables of `report.html` and `audit.html`.

Every text is escaped, and the page's own policy forbids scripts and every outside resource, so that opening it sends
nothing to anyone. Secret: nothing may come in.

Small parts of a report's page: values of report.json by their types, pictures, pairs, parts that fold.

Secret: nothing. Raises ValueError where a report lacks what every report has.
"""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #2d3640; background: #fff; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.tiles div { border: 1px solid #dde2e8; border-radius: .4rem; padding: .4rem .8rem; }
.tiles b { display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.tiles span, figcaption, .quiet { color: #5c6773; font-size: .85rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid #e7eaee; vertical-align: top; }
td:last-child { overflow-wrap: anywhere; }
td.n, th.n { text-align: right; }
.scroll { max-height: 24rem; overflow: auto; margin: .5rem 0; }
figure { margin: 0; } img { max-width: 100%; height: auto; }
details { margin: .4rem 0; } summary { cursor: pointer; font-weight: 600; }
.warning { border-left: .25rem solid #dd7a1f; padding-left: .6rem; }
"""


def html_document(title: str, body: str) -> str:
    """The page with ``body`` (HTML) under ``title`` (text)."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def html_text(value: object) -> str:
    """A value as escaped text; numbers to six digits."""
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    return html.escape(shown, quote=True)


def html_table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, whole: bool = False
) -> str:
    """A table, numbers to the right; a long one scrolls in a window of its own unless it is to be seen ``whole``."""

    def cell(value: object, tag: str) -> str:
        kind = ' class="n"' if isinstance(value, int | float) else ""
        return f"<{tag}{kind}>{html_text(value)}</{tag}>"

    body = [list(row) for row in rows]
    lines = ["".join(cell(value, "td") for value in row) for row in body]
    numeric = [bool(body) and isinstance(body[0][i], int | float) for i in range(len(heads))]
    head = "".join(
        f'<th class="n">{html_text(name)}</th>' if right else f"<th>{html_text(name)}</th>"
        for name, right in zip(heads, numeric, strict=True)
    )
    rows_html = "\n".join(f"<tr>{line}</tr>" for line in lines)
    kind = "" if whole else ' class="scroll"'
    return f"<div{kind}><table>\n<tr>{head}</tr>\n{rows_html}\n</table></div>"


def section(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    """A table of the report."""
    value = report[key]
    if not isinstance(value, Mapping):
        raise ValueError(f"the report's {key!r} is not a table")
    return value


def optional(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    """A table of the report that older ones lack; then empty."""
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[object]:
    """A list of the report; empty for anything else."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def tables(value: object) -> list[Mapping[str, object]]:
    """The tables in a list of the report."""
    return [item for item in items(value) if isinstance(item, Mapping)]


def number(value: object) -> float:
    """A number of the report."""
    if not isinstance(value, int | float):
        raise ValueError(f"{value!r} in the report is not a number")
    return float(value)


def picture(svg: str, caption: str, *, alt: str) -> str:
    """A drawing with its caption; ``alt`` is for who cannot see it."""
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    source = f"data:image/svg+xml;base64,{data}"
    return (
        f'<figure><img alt="{html_text(alt)}" src="{source}">\n'
        f"<figcaption>{html_text(caption)}</figcaption></figure>"
    )


def pairs(values: Mapping[str, object]) -> str:
    """A table of names and values."""
    return html_table(("", ""), list(values.items()))


def fold(title: str, body: str) -> str:
    """A part of which the title is seen until somebody opens it."""
    return f"<details><summary>{html_text(title)}</summary>\n{body}\n</details>"
