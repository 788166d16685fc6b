"""A page that needs nothing else: the frame, style and tables of `report.html` and `audit.html`.

Every text is escaped, and the page's own policy forbids scripts and every outside resource, so that opening it sends
nothing to anyone. Secret: nothing may come in.
"""

import html
from collections.abc import Iterable, Sequence

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


def document(title: str, body: str) -> str:
    """The page with ``body`` (HTML) under ``title`` (text)."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """A value as escaped text; numbers to six digits."""
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    return html.escape(shown, quote=True)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, whole: bool = False) -> str:
    """A table, numbers to the right; a long one scrolls in a window of its own unless it is to be seen ``whole``."""

    def cell(value: object, tag: str) -> str:
        kind = ' class="n"' if isinstance(value, int | float) else ""
        return f"<{tag}{kind}>{text(value)}</{tag}>"

    body = [list(row) for row in rows]
    lines = ["".join(cell(value, "td") for value in row) for row in body]
    numeric = [bool(body) and isinstance(body[0][i], int | float) for i in range(len(heads))]
    head = "".join(
        f'<th class="n">{text(name)}</th>' if right else f"<th>{text(name)}</th>"
        for name, right in zip(heads, numeric, strict=True)
    )
    rows_html = "\n".join(f"<tr>{line}</tr>" for line in lines)
    kind = "" if whole else ' class="scroll"'
    return f"<div{kind}><table>\n<tr>{head}</tr>\n{rows_html}\n</table></div>"
