"""Frame, style, tables and small parts of the pages `report.html` and `audit.html`.

A page needs no other file. Every text is escaped, and the page's own policy forbids scripts and every outside resource,
so opening the page sends nothing to anyone. No secret value may come in. The readers of report.json's values raise
ValueError if a report lacks a value that every report has.
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
    """Returns the page with ``body`` (HTML) under ``title`` (text)."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def html_text(value: object) -> str:
    """Returns a value as escaped text; numbers to six digits."""
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    return html.escape(shown, quote=True)


def html_table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, whole: bool = False
) -> str:
    """Returns a table with right-aligned numbers; a long table scrolls in a window of its own unless ``whole``."""

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
    """Returns a table of the report. Raises ValueError if the value is none."""
    value = report[key]
    if not isinstance(value, Mapping):
        raise ValueError(f"the report's {key!r} is not a table")
    return value


def optional(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Returns a table of the report, or an empty one, as for reports of older versions."""
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[object]:
    """Returns a list of the report; empty for any other value."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def tables(value: object) -> list[Mapping[str, object]]:
    """Returns the tables in a list of the report."""
    return [item for item in items(value) if isinstance(item, Mapping)]


def number(value: object) -> float:
    """Returns a number of the report. Raises ValueError if the value is none."""
    if not isinstance(value, int | float):
        raise ValueError(f"{value!r} in the report is not a number")
    return float(value)


def picture(svg: str, caption: str, *, alt: str) -> str:
    """Returns a drawing with its caption; ``alt`` is the text for screen readers."""
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    source = f"data:image/svg+xml;base64,{data}"
    return (
        f'<figure><img alt="{html_text(alt)}" src="{source}">\n'
        f"<figcaption>{html_text(caption)}</figcaption></figure>"
    )


def pairs(values: Mapping[str, object]) -> str:
    """Returns a table of names and values."""
    return html_table(("", ""), list(values.items()))


def fold(title: str, body: str) -> str:
    """Returns a part of the page that shows only its title until a reader opens it."""
    return f"<details><summary>{html_text(title)}</summary>\n{body}\n</details>"
