"""The drawings of docs/how.md: `python docs/drawings.py` writes each as docs/NAME.svg.

``DRAWINGS`` has a function for each, which returns the text of the file. Numbers in a drawing are computed here, so
that shares add up and noise is added as the page says.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
WIDTH = 480
"""Width in units; a drawing is legible at the width of a phone, too, since no text is smaller than ``SMALL``."""
_TEXT, SMALL = 18, 16
_INK, _PALE, _LINE = "#1c2733", "#f2f4f7", "#8494a5"
_SEEN, _SEEN_FILL = "#8a1c2b", "#fbe3e5"
_PARTS = (("#174f86", "#dbe9f8"), ("#8a4b00", "#fdebd3"), ("#1f6330", "#dff2e2"))
"""Line and fill of each of the three parts of a number."""


class Drawing:
    """Shapes of one drawing, in the order in which they are painted, on white."""

    def __init__(self, title: str, height: int) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="640" role="img"'
            f' font-family="Helvetica, Arial, sans-serif">\n<title>{escape(title)}</title>\n'
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
            f' orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{_INK}"/></marker></defs>\n'
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>'
        )
        self._shapes: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = _TEXT,
        colour: str = _INK,
        anchor: str = "middle",
        bold: bool = False,
    ) -> None:
        """Writes a line; ``y`` is its middle."""
        weight = ' font-weight="bold"' if bold else ""
        self._shapes.append(
            f'<text x="{x:g}" y="{y + size * 0.35:g}" font-size="{size}" text-anchor="{anchor}"'
            f' fill="{colour}"{weight}>{escape(text)}</text>'
        )

    def lines(self, x: float, y: float, texts: Sequence[str], *, anchor: str = "middle") -> None:
        """Writes small lines one below the other, the first at ``y``."""
        for number, text in enumerate(texts):
            self.text(x, y + 20 * number, text, size=SMALL, anchor=anchor)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = _PALE,
        line: str = _LINE,
        dashed: bool = False,
    ) -> None:
        """Draws a rectangle; dashed ones hold values in shares."""
        dash = ' stroke-dasharray="7 5"' if dashed else ""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}"'
            f' stroke="{line}" stroke-width="1.5"{dash}/>'
        )

    def arrow(self, *points: tuple[float, float], tip: bool = True) -> None:
        """Draws a line through the points, with a tip at its end."""
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        end = ' marker-end="url(#tip)"' if tip else ""
        self._shapes.append(
            f'<path d="M{path}" fill="none" stroke="{_INK}" stroke-width="2"{end}/>'
        )

    def circle(self, x: float, y: float, radius: float, *, fill: str, line: str = _INK) -> None:
        """Draws a circle."""
        self._shapes.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{line}" stroke-width="1.5"/>'
        )

    def grid(
        self,
        x: float,
        y: float,
        rows: Sequence[Sequence[object]],
        *,
        cell: float = 44,
        high: float = 34,
        fill: str = "#ffffff",
        line: str = _LINE,
    ) -> None:
        """Draws a table of short texts."""
        for i, row in enumerate(rows):
            for j, text in enumerate(row):
                left, top = x + j * cell, y + i * high
                self._shapes.append(
                    f'<rect x="{left:g}" y="{top:g}" width="{cell:g}" height="{high:g}" fill="{fill}"'
                    f' stroke="{line}"/>'
                )
                self.text(left + cell / 2, top + high / 2, str(text))

    def lock(self, x: float, y: float) -> None:
        """Draws a padlock: what is beside it stays in shares."""
        self._shapes.append(
            f'<path d="M{x + 4:g} {y + 9:g}v-4a6 6 0 0 1 12 0v4" fill="none" stroke="{_INK}" stroke-width="2.5"/>'
            f'<rect x="{x:g}" y="{y + 9:g}" width="20" height="14" rx="2" fill="{_INK}"/>'
        )

    def __str__(self) -> str:
        return "\n".join([self._head, *self._shapes, "</svg>", ""])


def _signed(number: int) -> str:
    return f"+{number}" if number > 0 else str(number).replace("-", "\N{MINUS SIGN}")


def _plain(number: int) -> str:
    return str(number).replace("-", "\N{MINUS SIGN}")


def shares() -> str:
    """Returns the drawing of a row that is split into three parts, and of the servers that hold them."""
    drawing = Drawing("A row is split into three parts; each server gets two of them", 404)
    row, first, second = "10110010", "01101011", "11100110"
    third = "".join(
        str((int(r) + int(a) + int(b)) % 2) for r, a, b in zip(row, first, second, strict=True)
    )
    drawing.text(150, 37, "a row, as bits", anchor="end")
    drawing.grid(164, 20, [row], cell=37)
    texts = ("part 0, random", "part 1, random", "part 2, the rest")
    for number, (bits, text) in enumerate(zip((first, second, third), texts, strict=True)):
        line, fill = _PARTS[number]
        drawing.text(150, 91 + 42 * number, text, anchor="end", colour=line)
        drawing.grid(164, 74 + 42 * number, [bits], cell=37, fill=fill, line=line)
    for server in range(3):
        left = 12 + 158 * server
        drawing.arrow((left + 70, 206), (left + 70, 238))
        drawing.box(left, 242, 140, 146)
        drawing.text(left + 70, 264, f"server {server}", bold=True)
        for place, number in enumerate((server, (server + 1) % 3)):
            line, fill = _PARTS[number]
            drawing.box(left + 20, 284 + 50 * place, 100, 40, fill=fill, line=line)
            drawing.text(left + 70, 304 + 50 * place, f"part {number}", colour=line)
    return str(drawing)


def counting() -> str:
    """Returns the drawing of rows that become counts: products of marks, added up."""
    drawing = Drawing("Each row marks one cell of a table; the marks are added up, in shares", 474)
    drawing.box(8, 8, 464, 458, dashed=True)
    drawing.lock(20, 18)
    drawing.text(52, 31, "all of this stays in shares", size=SMALL, anchor="start")
    for x, text in ((116, "sex"), (240, "smokes"), (400, "together")):
        drawing.text(x, 62, text, bold=True, size=SMALL)
    marks = ((94, "f"), (138, "m"), (218, "no"), (262, "yes"), (378, "no"), (422, "yes"))
    for x, text in marks:
        drawing.text(x, 86, text, size=SMALL)
    sums = [[0, 0], [0, 0]]
    for number, (sex, smokes) in enumerate((("f", "no"), ("m", "yes"), ("f", "yes"))):
        y = 104 + 84 * number
        left = [int(sex == each) for each in ("f", "m")]
        right = [int(smokes == each) for each in ("no", "yes")]
        cells = [[a * b for b in right] for a in left]
        sums = [[s + c for s, c in zip(*two, strict=True)] for two in zip(sums, cells, strict=True)]
        drawing.text(40, y + 34, f"row {number + 1}", size=SMALL)
        drawing.grid(72, y + 17, [left])
        drawing.text(178, y + 34, "\N{MULTIPLICATION SIGN}")
        drawing.grid(196, y + 17, [right])
        drawing.text(308, y + 34, "=")
        _labelled(drawing, y, cells)
    drawing.text(170, 410, "sum over all rows: the counts", size=SMALL)
    drawing.text(308, 410, "=")
    _labelled(drawing, 376, sums, fill="#dbe9f8", line=_PARTS[0][0])
    return str(drawing)


def _labelled(drawing: Drawing, y: float, cells: Sequence[Sequence[int]], **colours: str) -> None:
    """Draws the cells of a pair of columns, with the values of the first one beside them."""
    drawing.text(340, y + 17, "f", size=SMALL)
    drawing.text(340, y + 51, "m", size=SMALL)
    drawing.grid(356, y, cells, **colours)


def choosing() -> str:
    """Returns the drawing of scores with noise, of which the largest sum is chosen."""
    drawing = Drawing("Every candidate gets a score and noise; the largest sum is chosen", 416)
    drawing.box(8, 8, 464, 306, dashed=True)
    drawing.lock(20, 18)
    drawing.text(52, 31, "scores and noise stay in shares", size=SMALL, anchor="start")
    candidates = (
        ("age, sex", 96, 60),
        ("age, stay", 190, -34),
        ("sex, stay", 128, 108),
        ("ward, stay", 60, 34),
    )
    best = max(candidates, key=lambda each: each[1] + each[2])
    for number, (name, score, noise) in enumerate(candidates):
        y = 76 + 58 * number
        drawing.text(128, y, name, anchor="end", bold=(name, score, noise) == best)
        drawing.box(142, y - 14, score, 28, fill="#dbe9f8", line=_PARTS[0][0])
        end = 142 + score + noise
        drawing.arrow((142 + score, y), (end - math.copysign(9, noise), y))
        chosen = (name, score, noise) == best
        drawing.circle(end, y, 9, fill=_SEEN if chosen else "#ffffff")
    drawing.text(240, 294, "bar: how wrong the model is there; arrow: noise", size=SMALL)
    drawing.arrow((240, 318), (240, 350))
    drawing.box(90, 354, 300, 46, fill=_SEEN_FILL, line=_SEEN)
    drawing.text(
        240,
        377,
        f"opened: \N{LEFT DOUBLE QUOTATION MARK}{best[0]}\N{RIGHT DOUBLE QUOTATION MARK}",
        bold=True,
    )
    return str(drawing)


def measuring() -> str:
    """Returns the drawing of counts and noise in shares, whose sum is opened once it is charged."""
    drawing = Drawing("Noise is added to the counts in shares; only the sum is opened", 426)
    counts, noise = [[40, 12], [7, 3]], [[-2, 5], [1, -4]]
    noisy = [
        [a + b for a, b in zip(*pair, strict=True)] for pair in zip(counts, noise, strict=True)
    ]
    drawing.box(8, 8, 464, 158, dashed=True)
    drawing.lock(20, 18)
    drawing.text(52, 31, "in shares: no server sees these", size=SMALL, anchor="start")
    drawing.text(124, 62, "the counts", size=SMALL)
    drawing.grid(76, 78, counts, cell=48, high=38)
    drawing.text(240, 116, "+", size=26)
    drawing.text(356, 62, "noise that nobody knows", size=SMALL)
    drawing.grid(308, 78, [[_signed(z) for z in row] for row in noise], cell=48, high=38)
    drawing.arrow((240, 168), (240, 196))
    for server in range(3):
        left = 12 + 158 * server
        drawing.box(left, 200, 140, 66)
        drawing.lines(left + 70, 223, [f"server {server}:", "charge first"])
    drawing.arrow((240, 268), (240, 300))
    drawing.box(108, 304, 264, 112, fill=_SEEN_FILL, line=_SEEN)
    drawing.lines(180, 350, ["opened:", "noisy counts"])
    drawing.grid(254, 322, [[_plain(z) for z in row] for row in noisy], cell=50, high=38)
    return str(drawing)


def fitting() -> str:
    """Returns the drawing of the model that is fitted to noisy counts, and of the rows drawn from it."""
    drawing = Drawing("A model is fitted to the noisy counts; rows are drawn from it", 560)
    drawing.box(20, 12, 300, 128, fill=_SEEN_FILL, line=_SEEN)
    drawing.text(170, 34, "opened noisy counts")
    drawing.grid(40, 54, [[38, 17], [8, "\N{MINUS SIGN}1"]], cell=42)
    drawing.grid(146, 54, [[29, 6], [11, 15]], cell=42)
    drawing.grid(252, 54, [[44], [18]], cell=46)
    drawing.arrow((170, 142), (170, 186))
    drawing.text(182, 164, "fit", size=SMALL, anchor="start")
    drawing.box(20, 190, 300, 170)
    drawing.text(170, 212, "model")
    nodes = {"age": (78, 262), "sex": (78, 326), "stay": (190, 262), "ward": (270, 326)}
    for one, other in (("age", "stay"), ("sex", "stay"), ("ward", "stay")):
        drawing.arrow(nodes[one], nodes[other], tip=False)
    for name, (x, y) in nodes.items():
        drawing.box(x - 34, y - 17, 68, 34, fill="#ffffff")
        drawing.text(x, y, name)
    drawing.arrow((170, 362), (170, 406))
    drawing.text(182, 384, "draw", size=SMALL, anchor="start")
    drawing.grid(20, 410, [["age", "sex", "ward", "stay"]], cell=75, fill=_PALE)
    drawing.grid(20, 444, [[61, "f", "B", 4], [35, "m", "A", 1], [78, "f", "B", 9]], cell=75)
    drawing.arrow((322, 275), (396, 275), (396, 190))
    drawing.arrow((396, 104), (396, 76), (324, 76))
    drawing.lines(396, 118, ["next round:", "choose where", "the model is", "most wrong"])
    drawing.lines(400, 300, ["until the budget", "is spent"])
    drawing.lines(400, 470, ["no row stands", "for a person"])
    return str(drawing)


def seeing() -> str:
    """Returns the drawing of the parties, with all that each of them sees."""
    drawing = Drawing("The parties, and the values that each of them sees", 470)
    heads = (
        ("its own", "rows"),
        ("two of", "three", "parts"),
        ("noisy", "counts,", "choices"),
        ("table,", "model,", "report"),
    )
    rows = (
        (("data owner",), (1, 0, 1, 1)),
        (("one server",), (0, 1, 1, 1)),
        (("analyst,", "auditor"), (0, 0, 1, 1)),
        (("network",), (0, 0, 0, 0)),
    )
    for column, texts in enumerate(heads):
        drawing.lines(180 + 82 * column, 24, texts)
    for number, (texts, marks) in enumerate(rows):
        y = 94 + 62 * number
        drawing.box(8, y, 464, 54)
        drawing.lines(20, y + 27 - 10 * (len(texts) - 1), texts, anchor="start")
        for column, mark in enumerate(marks):
            x = 180 + 82 * column
            fill = (_PARTS[2][0], _PARTS[0][0], _SEEN, _SEEN)[column]
            if mark:
                drawing.circle(x, y + 27, 13, fill=fill, line=fill)
        if not any(marks):
            drawing.text(303, y + 27, "sizes and times of messages", size=SMALL)
    drawing.box(8, 350, 464, 108, fill="#ffffff", line=_SEEN)
    drawing.lines(
        240,
        394,
        [
            "Two servers together have all three parts, hence",
            "every row: choose operators who would not collude.",
        ],
    )
    return str(drawing)


def masking() -> str:
    """Returns the drawing of three owners whose masks cancel in the server's sum."""
    drawing = Drawing("Owners add masks that cancel in the sum", 400)
    names, counts, modulus = "ABC", (5, 2, 7), 100
    masks = {(0, 1): 31, (0, 2): 12, (1, 2): 64}
    sent = []
    for owner, count in enumerate(counts):
        left = 12 + 158 * owner
        own = [
            (pair, value if pair[0] == owner else -value)
            for pair, value in masks.items()
            if owner in pair
        ]
        sent.append((count + sum(value for _, value in own)) % modulus)
        drawing.box(left, 12, 140, 190)
        drawing.text(left + 70, 36, f"owner {names[owner]}", bold=True)
        drawing.text(left + 70, 66, f"count: {count}")
        for line, (pair, value) in enumerate(own):
            other = names[pair[1] if pair[0] == owner else pair[0]]
            drawing.text(left + 70, 96 + 26 * line, f"{_signed(value)}, with {other}", size=SMALL)
        drawing.box(left + 18, 152, 104, 38, fill="#ffffff")
        drawing.text(left + 70, 171, f"sends {sent[-1]}", bold=True)
        drawing.arrow((left + 70, 204), (150 + 90 * owner, 248))
    total = sum(sent)
    assert total % modulus == sum(counts)
    drawing.box(60, 252, 360, 136)
    drawing.text(240, 276, "the server", bold=True)
    drawing.text(240, 310, f"{' + '.join(map(str, sent))} = {total}")
    drawing.text(240, 338, f"modulo {modulus}: {total % modulus}", bold=True)
    drawing.lines(240, 366, [f"= {' + '.join(map(str, counts))}, and nothing else"])
    return str(drawing)


DRAWINGS: Mapping[str, Callable[[], str]] = {
    "how-1-shares": shares,
    "how-2-counting": counting,
    "how-3-choosing": choosing,
    "how-4-measuring": measuring,
    "how-5-fitting": fitting,
    "how-6-seeing": seeing,
    "how-7-masking": masking,
}
"""Drawings by the name of their file."""


def _written() -> Iterator[Path]:
    for name, draw in DRAWINGS.items():
        path = DOCS / f"{name}.svg"
        path.write_text(draw(), encoding="utf-8")
        yield path


if __name__ == "__main__":
    print(*_written(), sep="\n")
