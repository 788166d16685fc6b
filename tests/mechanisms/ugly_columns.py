"""Generated columns as people have them: spellings x marks x heaps x encodings, each with what a draft makes of it.

``SPELLINGS`` has a maker of texts for each way to write, and ``column_of`` mixes marks and heaps into them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

import numpy as np

from mechanisms.calendar_names import NAMES

Rng = np.random.Generator
Texts = list[str]
NUMBER, MOMENT, CATEGORY, SPLIT = "number", "moment", "category", "split"
WHOLE = str.maketrans("0123456789.,-", "０１２３４５６７８９．，－")
DEVANAGARI = str.maketrans("0123456789", "०१२३४५६७८९")
ARABIC = str.maketrans("0123456789.", "٠١٢٣٤٥٦٧٨٩٫")


@dataclass(frozen=True, slots=True)
class Spelling:
    """A way to write values: ``write`` makes texts, ``kind`` is what they are, ``encoding`` that of their file.

    ``marks`` are the texts among them that are something else.
    """

    write: Callable[[Rng, int], Texts]
    kind: str = NUMBER
    encoding: str = "utf-8"
    marks: Texts = field(default_factory=list)


def amounts(rng: Rng, rows: int) -> list[float]:
    return [round(float(x), 2) for x in np.exp(rng.normal(6, 1.5, rows))]


def signed(rng: Rng, rows: int) -> list[float]:
    return [float(x) for x in rng.normal(0, 5000, rows)]


def ages(rng: Rng, rows: int) -> list[int]:
    return [int(x) for x in rng.integers(0, 100, rows)]


def days(rng: Rng, rows: int) -> list[date]:
    return [date(2018, 1, 1) + timedelta(int(x)) for x in rng.integers(0, 2000, rows)]


def times(rng: Rng, rows: int) -> list[datetime]:
    start = datetime(2018, 1, 1)
    return [start + timedelta(seconds=int(x)) for x in rng.integers(0, 2000 * 86_400, rows)]


def lengths(rng: Rng, rows: int) -> list[int]:
    return [int(x) for x in np.exp(rng.normal(5, 1, rows))]


def separated(number: float, decimal: str, thousands: str, places: int) -> str:
    return f"{number:,.{places}f}".translate(str.maketrans({",": thousands, ".": decimal}))


def _amounts(write: Callable[[float], str], encoding: str = "utf-8") -> Spelling:
    return Spelling(lambda rng, rows: [write(x) for x in amounts(rng, rows)], NUMBER, encoding)


def _signed(write: Callable[[float], str]) -> Spelling:
    return Spelling(lambda rng, rows: [write(x) for x in signed(rng, rows)])


def _dated(form: str, kind: str = MOMENT, encoding: str = "utf-8") -> Spelling:
    return Spelling(lambda rng, rows: [d.strftime(form) for d in days(rng, rows)], kind, encoding)


def _timed(form: str, kind: str = MOMENT) -> Spelling:
    return Spelling(lambda rng, rows: [t.strftime(form) for t in times(rng, rows)], kind)


def _named(language: str, form: str, encoding: str) -> Spelling:
    months = NAMES["B"][language]
    return Spelling(
        lambda rng, rows: [
            form.format(d=day.day, m=months[day.month - 1], y=day.year) for day in days(rng, rows)
        ],
        MOMENT,
        encoding,
    )


def _long(write: Callable[[int], str], encoding: str = "utf-8") -> Spelling:
    return Spelling(lambda rng, rows: [write(x) for x in lengths(rng, rows)], NUMBER, encoding)


def laps(rng: Rng, rows: int) -> list[int]:
    return [int(x) for x in np.exp(rng.normal(11.4, 0.3, rows))]


def sizes(rng: Rng, rows: int) -> list[float]:
    return [float(x) for x in 10 ** rng.uniform(1, 9, rows)]


def _lap(write: Callable[[int, int, int], str]) -> Spelling:
    """Durations in milliseconds: ``write`` gets minutes, seconds and milliseconds."""
    return Spelling(
        lambda rng, rows: [write(x // 60_000, x // 1000 % 60, x % 1000) for x in laps(rng, rows)]
    )


def _scaled(words: str, *, decimals: int, dropped: bool = False, decimal: str = ".") -> Spelling:
    """Amounts with a word for each thousand, the first for what is below, after ``decimals``, cut off."""

    def write(number: float) -> str:
        known = words.split("|")
        place = min(len(known) - 1, max(0, (len(str(int(number))) - 1) // 3))
        shown = int(number / 1000**place * 10**decimals) / 10**decimals
        text = f"{shown:.{decimals}f}" if place else f"{int(number)}"
        text = text.rstrip("0").rstrip(".") if dropped and place else text
        return text.replace(".", decimal) + known[place]

    return Spelling(lambda rng, rows: [write(x) for x in sizes(rng, rows)])


def _ranges(write: Callable[[date], str], between: str) -> Spelling:
    return Spelling(
        lambda rng, rows: [
            f"{write(first)}{between}{write(first + timedelta(int(length)))}"
            for first, length in zip(days(rng, rows), rng.integers(0, 30, rows), strict=True)
        ],
        SPLIT,
    )


def _between(form: str) -> Spelling:
    return Spelling(
        lambda rng, rows: [
            form.format(a=a, b=a + b)
            for a, b in zip(rng.integers(0, 900, rows), rng.integers(1, 300, rows), strict=True)
        ],
        SPLIT,
    )


def _bands(form: str, width: int, number: int) -> Spelling:
    return Spelling(
        lambda rng, rows: [
            form.format(a=width * int(x), b=width * int(x) + width - 1)
            for x in rng.integers(0, number, rows)
        ],
        CATEGORY,
    )


def _pairs(form: str) -> Spelling:
    return Spelling(
        lambda rng, rows: [
            form.format(a=a, b=b)
            for a, b in zip(rng.normal(52, 4, rows), rng.gamma(2, 2, rows), strict=True)
        ],
        SPLIT,
    )


def _chosen(words: str) -> Spelling:
    known = words.split()
    return Spelling(
        lambda rng, rows: [known[int(x)] for x in rng.integers(0, len(known), rows)], CATEGORY
    )


AFFIXES = {
    "kg": ("", " kg"), "celsius": ("", "°C"), "celsius, blank": ("", " °C"), "euro a square metre": ("", " €/m²"),
    "per cent": ("", " %"), "real": ("R$ ", ""), "zloty": ("", " zł"), "francs": ("CHF ", ""), "rupees": ("Rs. ", ""),
    "roubles": ("", " ₽"), "yen": ("¥", ""), "yen, behind": ("", "円"), "yuan": ("", "元"), "years": ("", "歳"),
    "pounds": ("£", ""), "about": ("~", ""), "circa": ("ca. ", ""),
}  # fmt: skip
NUMBERS = {
    "english": lambda x: separated(x, ".", ",", 2),
    "german": lambda x: separated(x, ",", ".", 2),
    "swiss": lambda x: separated(x, ".", "'", 2),
    "french": lambda x: separated(x, ",", "\u00a0", 1),
    "french, narrow": lambda x: separated(x, ",", "\u202f", 0),
    "comma": lambda x: separated(x, ",", "", 1),
    "power": lambda x: f"{x:.2e}",
    "power, comma": lambda x: f"{x:.2E}".replace(".", ","),
    "power, some": lambda x: f"{x * x * x:g}",
    "thousands of": lambda x: f"{x / 1000 + 0.5:.1f}k",
    "whole width": lambda x: f"{x:.1f}".translate(WHOLE),
    "arabic": lambda x: f"{x:.1f}".translate(ARABIC),
    "padded": lambda x: f"  {x:.1f} ",
    "doubles": lambda x: repr(x * 1e-5),
}
DATES = (
    "%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%y", "%Y/%m/%d", "%d-%b-%Y", "%d%b%Y", "%b %d, %Y", "%B %d, %Y",
    "%A, %d %B %Y", "%a %d %b %Y", "%Y.%m.%d", "%Y%m%d", "%d%m%Y", "%Y年%m月%d日", "%Y년 %m월 %d일", "%b-%y", "%B %Y",
    "%m/%Y", "%Y-%m", "%Y%m", "%G-W%V", "%G-W%V-%u", "%Y. %m. %d.", "%d. %m. %Y", "%d %m %Y", "%Y年%m月",
)  # fmt: skip
TIMES = (
    "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M",
    "%m/%d/%Y %I:%M %p", "%Y%m%d_%H%M%S", "%Y%m%d%H%M%S", "%Y-%m-%dT%H:%M:%S+01:00", "%Y-%m-%dT%H:%M:%S.%f",
    "%d %b %Y %H:%M", "%a, %d %b %Y %H:%M:%S GMT", "%H:%M %d.%m.%Y", "%Y/%m/%d %H:%M:%S", "%Y年%m月%d日 %H時%M分",
    "%d.%m.%Y, %H:%M Uhr", "%d/%b/%Y:%H:%M:%S",
)  # fmt: skip
MONTHS = {
    "de": ("{d}. {m} {y}", "cp1252"), "fr": ("{d} {m} {y}", "utf-8"), "es": ("{d} de {m} de {y}", "cp1252"),
    "it": ("{d} {m} {y}", "utf-8"), "ru": ("{d} {m} {y} г.", "cp1251"), "uk": ("{d} {m} {y}", "cp1251"),
    "pl": ("{d} {m} {y}", "cp1250"), "cs": ("{d}. {m} {y}", "cp1250"), "tr": ("{d} {m} {y}", "cp1254"),
    "nl": ("{d} {m} {y}", "utf-8"), "pt": ("{d} de {m} de {y}", "cp1252"), "sv": ("{d} {m} {y}", "utf-8"),
    "da": ("{d}. {m} {y}", "utf-8"), "nb": ("{d}. {m} {y}", "utf-8"),
}  # fmt: skip
SPELLINGS: dict[str, Spelling] = {
    **{name: _amounts(write) for name, write in NUMBERS.items()},
    **{
        name: _amounts(lambda x, before=before, behind=behind: f"{before}{x:.1f}{behind}")  # type: ignore[misc]
        for name, (before, behind) in AFFIXES.items()
    },
    "trailing minus": _signed(lambda x: f"{abs(int(x))}{'-' * (x < 0)}"),
    "minus sign": _signed(lambda x: f"{x:.1f}".replace("-", "\u2212")),
    "minus and blank": _signed(lambda x: f"- {-x:.1f}" if x < 0 else f"{x:.1f}"),
    "parentheses": _signed(lambda x: f"({-x:,.2f})" if x < 0 else f"{x:,.2f}"),
    "parentheses, dollars": _signed(lambda x: f"$({-x:,.2f})" if x < 0 else f"${x:,.2f}"),
    "plus": _signed(lambda x: f"{x:+.1f}"),
    "latitude": _signed(lambda x: f"{abs(x / 200):.4f}° {'S' if x < 0 else 'N'}"),
    "whole width, cp932": Spelling(
        lambda rng, rows: [f"{x}".translate(WHOLE) for x in ages(rng, rows)], NUMBER, "cp932"
    ),
    "devanagari": Spelling(lambda r, n: [f"{x}".translate(DEVANAGARI) for x in ages(r, n)]),
    "whole with a decimal": Spelling(lambda rng, rows: [f"{x}.0" for x in ages(rng, rows)]),
    **{form: _dated(form) for form in DATES},
    "day.month.year": Spelling(
        lambda rng, rows: [f"{d.day}.{d.month}.{d.year}" for d in days(rng, rows)], MOMENT
    ),
    "月日, cp932": Spelling(
        lambda r, n: [f"{d.year}年{d.month}月{d.day}日" for d in days(r, n)], MOMENT, "cp932"
    ),
    "quarter": Spelling(
        lambda rng, rows: [f"Q{(d.month + 2) // 3} {d.year}" for d in days(rng, rows)], MOMENT
    ),
    **{form: _timed(form) for form in TIMES},
    **{f"month {name}": _named(name, *of) for name, of in MONTHS.items()},
    **{
        form: _timed(form, NUMBER)
        for form in ("%H:%M", "%H:%M:%S", "%I:%M %p", "%Hh%M", "%H時%M分")
    },
    "minutes and seconds": _long(lambda x: f"{x // 60}:{x % 60:02d}"),
    "min": _long(lambda x: f"{x} min"),
    "min s": _long(lambda x: f"{x // 60} min {x % 60} s"),
    "ISO duration": _long(lambda x: f"PT{x // 60}M{x % 60}S"),
    "days": _long(lambda x: f"{x} day{'s' * (x != 1)}"),
    "分秒, cp932": _long(lambda x: f"{x // 60}分{x % 60}秒", "cp932"),
    "blood pressure": Spelling(
        lambda r, n: [f"{a}/{b}" for a, b in zip(ages(r, n), ages(r, n), strict=True)], SPLIT
    ),
    "mean and deviation": _pairs("{a:.1f} ({b:.1f})"),
    "plus or minus": _pairs("{a:.1f} ± {b:.1f}"),
    "interval": _pairs("{a:.2f} [{a:.1f}–{b:.2f}]"),
    "point": _pairs("POINT ({a:.4f} {b:.4f})"),
    "coordinates": _pairs("({a:.4f}, {b:.4f})"),
    "limit below": Spelling(lambda r, n: ["≤5" if x <= 5 else f"{x}" for x in ages(r, n)]),
    "limit above": Spelling(lambda r, n: ["90+" if x >= 90 else f"{x}" for x in ages(r, n)]),
    "small shares": Spelling(
        lambda r, n: ["<0.001" if x < 0.001 else f"{x:.3f}" for x in r.beta(0.5, 2, n)]
    ),
    "days and clock": _long(lambda x: f"{x // 100}d {x % 24:02d}:{x % 60:02d}:{x % 59:02d}"),
    "euros before": _amounts(lambda x: "€ " + separated(x, ",", ".", 2)),
    "euros behind": _amounts(lambda x: separated(x, ",", "", 2) + "€"),
    "signed degrees": _signed(lambda x: f"{x / 100:+.1f} °C".replace(".", ",")),
    "blanks": _amounts(lambda x: f"{int(x * 100):,}".replace(",", " ")),
    "Oracle": Spelling(
        lambda r, n: [t.strftime("%d-%b-%y %I.%M.%S.000000 %p").upper() for t in times(r, n)],
        MOMENT,
    ),
    "SAS": Spelling(
        lambda r, n: [t.strftime("%d%b%Y:%H:%M:%S").upper() for t in times(r, n)], MOMENT
    ),
    "lap": _lap(lambda m, s, f: f"{m}:{s:02d}.{f:03d}"),
    "lap, tenths": _lap(lambda m, s, f: f"{m}:{s:02d}.{f // 100}"),
    "lap, comma": _lap(lambda m, s, f: f"{m:02d}:{s:02d},{f // 10:02d}"),
    "lap, prime": _lap(lambda m, s, f: f"{m}'{s:02d}.{f:03d}"),
    "lap, hours": _lap(lambda m, s, f: f"{m // 2}:{m % 60:02d}:{s:02d}.{f:03d}"),
    "lap, no zeros": _lap(lambda m, s, f: f"{m}:{s:02d}{f'.{f:03d}'.rstrip('0').rstrip('.')}"),
    "pandas duration": _lap(lambda m, s, f: f"{m % 3} days 00:{m:02d}:{s:02d}.{f:03d}000"),
    "Python duration": _lap(
        lambda m, s, f: (["", "1 day, ", "2 days, "][s % 3]) + f"{m}:{s:02d}:{s:02d}.{f:03d}000"
    ),
    "ISO duration, decimals": _lap(lambda m, s, f: f"PT{m}M{s}.{f:03d}S"),
    "words, decimals": _lap(lambda m, s, f: f"{m}m {s}.{f // 100}s"),
    "thousands and millions": _scaled("|K|M", decimals=1),
    "thousands and millions, short": _scaled("|k|m", decimals=1, dropped=True),
    "all with decimals": Spelling(
        lambda r, n: [f"{x / 1e6:.1f}M" if x >= 1e6 else f"{x / 1e3:.1f}K" for x in sizes(r, n)]
    ),
    "Tsd. and Mio.": _scaled("| Tsd.| Mio.", decimals=1, decimal=","),
    "Mio. and euros": _scaled(" €| Tsd. €| Mio. €", decimals=2, decimal=","),
    "bytes": _scaled(" B| KB| MB", decimals=1),
    "watts": _scaled(" W| kW| MW", decimals=2),
    "million": _scaled("| thousand| million", decimals=1),
    "lakh and crore": Spelling(
        lambda r, n: [f"{x / 1e7:.2f} Cr" if x >= 1e7 else f"{x / 1e5:.2f} L" for x in sizes(r, n)]
    ),
    "dates, slash": _ranges(lambda d: d.isoformat(), "/"),
    "dates, hyphen": _ranges(lambda d: d.strftime("%d.%m.%Y"), " - "),
    "dates, bis": _ranges(lambda d: d.strftime("%d.%m.%Y"), " bis "),
    "dates, dash": _ranges(lambda d: d.strftime("%d %b %Y"), "–"),
    "dates, US": _ranges(lambda d: d.strftime("%m/%d/%Y"), " - "),
    "hours": Spelling(
        lambda r, n: [
            f"{t.hour:02d}:{t.minute:02d}-{t.second % 24:02d}:{(t.day * 2) % 60:02d}"
            for t in times(r, n)
        ],
        SPLIT,
    ),
    "from to": _between("{a}-{b}"),
    "from to, blanks": _between("{a} – {b}"),
    "from to, per cent": _between("{a}%-{b}%"),
    "bands": _bands("{a}-{b}", 10, 10),
    "bands, thousands": _bands("${a:,} - ${b:,}", 5000, 8),
    "ja": _chosen("ja nein"),
    "да": _chosen("да нет"),
    "はい": _chosen("はい いいえ"),
    "✓": _chosen("✓ ✗"),
    "★": _chosen("★☆☆ ★★☆ ★★★"),
}
MARKS: dict[str, tuple[str, ...]] = {
    "none": (), "<5": ("<5",), "-": ("-",), "k. A.": ("k. A.",), "*": ("*",), "words": ("refused", "unknown"),
    "不明": ("不明",), "нет данных": ("нет данных",), "limits": ("<0.5", ">1000"), "99.99.9999": ("99.99.9999",),
    "infinite": ("inf", "-inf"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class UglyTable:
    """A file's bytes, the cells of its column x, and what they are."""

    content: bytes
    cells: tuple[str, ...]
    spelling: Spelling
    marks: tuple[str, ...]
    encoding: str


def table_of(spelling: str, marks: str, *, rows: int, seed: int) -> UglyTable:
    """Returns a table with a column g of three values and an ugly column x; each mark has a thirtieth of the rows."""
    rng = np.random.default_rng(seed)
    of = SPELLINGS[spelling]
    cells = of.write(rng, rows)
    if rng.random() < 0.4:
        cells = [
            cells[0] if heap else cell
            for cell, heap in zip(cells, rng.random(rows) < 0.3, strict=True)
        ]
    # Rare categories are merged, and a mark with a pattern's blank or hyphen could not be told from its cells.
    known = [
        m
        for m in MARKS[marks]
        if of.kind != CATEGORY and (of.kind != SPLIT or not set(m) & set(" -"))
    ]
    for mark in known:
        cells = [
            mark if hit else cell for cell, hit in zip(cells, rng.random(rows) < 0.033, strict=True)
        ]
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=";")
    writer.writerow(["g", "x"])
    writer.writerows(["abc"[i % 3], cell] for i, cell in enumerate(cells))
    encoding = of.encoding
    try:
        content = out.getvalue().encode(encoding)
    except UnicodeEncodeError:
        encoding, content = "utf-8", out.getvalue().encode()
    return UglyTable(content, tuple(cells), of, tuple(known), encoding)


def shape_of_text(text: str) -> str:
    """Returns a text with one sign for each run of digits, and one for each word."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", text.strip()))
