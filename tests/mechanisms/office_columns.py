"""Further generated columns: those of banks, laboratories, statistics offices, spreadsheets and statistics programs.

``OFFICE`` has a maker of texts for each, with the kind that a person would call it. Makers are those of
`tests.mechanisms.ugly_columns`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta

from mechanisms.draft import KNOWN_MISSING
from tests.mechanisms.ugly_columns import (
    CATEGORY,
    MOMENT,
    NUMBER,
    SPLIT,
    Rng,
    Spelling,
    Texts,
    ages,
    amounts,
    days,
    lengths,
    separated,
    signed,
    times,
)

LEFT_OUT = "left out"
EPOCH = datetime(1970, 1, 1)
GERMAN = ("Jan", "Feb", "Mrz", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez")
FRENCH = [
    "janv.",
    "févr.",
    "mars",
    "avr.",
    "mai",
    "juin",
    "juil.",
    "août",
    "sept.",
    "oct.",
    "nov.",
    "déc.",
]


def of_amounts(
    write: Callable[[float], str], kind: str = NUMBER, encoding: str = "utf-8"
) -> Spelling:
    return Spelling(lambda rng, rows: [write(x) for x in amounts(rng, rows)], kind, encoding)


def of_signed(write: Callable[[float], str], kind: str = NUMBER) -> Spelling:
    return Spelling(lambda rng, rows: [write(x) for x in signed(rng, rows)], kind)


def of_wholes(
    write: Callable[[int], str], kind: str = NUMBER, low: int = 0, high: int = 100
) -> Spelling:
    return Spelling(lambda rng, rows: [write(int(x)) for x in rng.integers(low, high, rows)], kind)


def of_days(write: Callable[[date], str], kind: str = MOMENT, encoding: str = "utf-8") -> Spelling:
    return Spelling(lambda rng, rows: [write(d) for d in days(rng, rows)], kind, encoding)


def of_times(write: Callable[[datetime], str], kind: str = MOMENT) -> Spelling:
    return Spelling(lambda rng, rows: [write(t) for t in times(rng, rows)], kind)


def of_lengths(write: Callable[[int], str], kind: str = NUMBER) -> Spelling:
    return Spelling(lambda rng, rows: [write(x) for x in lengths(rng, rows)], kind)


def words(text: str, between: str = " ", kind: str = CATEGORY) -> Spelling:
    known = text.split(between)
    return Spelling(
        lambda rng, rows: [known[int(x)] for x in rng.integers(0, len(known), rows)], kind
    )


def mixed(
    write: Callable[[Rng, int], Texts], others: str, kind: str, share: float = 0.04
) -> Spelling:
    """Values beside ``others``, each in a share of the rows."""
    known = others.split("|")

    def made(rng: Rng, rows: int) -> Texts:
        cells, picks = write(rng, rows), rng.random(rows)
        return [
            known[int(pick / share)] if pick < share * len(known) else cell
            for cell, pick in zip(cells, picks, strict=True)
        ]

    return Spelling(made, kind, marks=[each for each in known if each not in KNOWN_MISSING])


def numbers(rng: Rng, rows: int) -> Texts:
    return [f"{x:.1f}" for x in amounts(rng, rows)]


def wholes(rng: Rng, rows: int) -> Texts:
    return [str(x) for x in ages(rng, rows)]


def iso(rng: Rng, rows: int) -> Texts:
    return [d.isoformat() for d in days(rng, rows)]


def seconds(of: datetime) -> int:
    return int((of - EPOCH).total_seconds())


def binary(number: float, words: tuple[str, ...], decimals: int) -> str:
    """A number in the largest power of 1,024 that is not above it, as programs show sizes of files."""
    place = 0
    while number >= 1024 and place < len(words) - 1:
        number, place = number / 1024, place + 1
    return f"{number:.{decimals if place else 0}f}{words[place]}"


def of_sizes(written: str, decimals: int) -> Spelling:
    known = tuple(written.split("|"))
    return Spelling(
        lambda rng, rows: [binary(float(x), known, decimals) for x in 2 ** rng.uniform(4, 36, rows)]
    )


def dms(x: float) -> str:
    degrees, rest = divmod(round(abs(x) * 3600), 3600)
    return f"{degrees}°{rest // 60:02d}'{rest % 60:02d}\"N"


OFFICE: dict[str, Spelling] = {
    # Banks and accounts
    "debit and credit, S and H": of_signed(
        lambda x: f"{separated(abs(x), ',', '.', 2)} {'S' if x < 0 else 'H'}", SPLIT
    ),
    "debit and credit, DR and CR": of_signed(
        lambda x: f"{abs(x):,.2f} {'DR' if x < 0 else 'CR'}", SPLIT
    ),
    "trailing minus, thousands": of_signed(lambda x: f"{abs(x):,.2f}{'-' * (x < 0)}"),
    "parentheses, German": of_signed(
        lambda x: f"({separated(-x, ',', '.', 2)})" if x < 0 else separated(x, ",", ".", 2)
    ),
    "signs and euros": of_signed(
        lambda x: f"{'-' if x < 0 else '+'}{separated(abs(x), ',', '.', 2)} EUR"
    ),
    "Swiss, before": of_amounts(lambda x: f"CHF {separated(x, '.', chr(39), 2)}"),
    "Swiss, whole": of_amounts(lambda x: f"Fr. {separated(round(x), '.', '’', 0)}.–"),
    "rupees, slash": of_amounts(lambda x: f"Rs. {round(x):,}/-"),
    "accounting": mixed(lambda r, n: [f"$ {x:,.2f}" for x in amounts(r, n)], "$ -", NUMBER),
    "a year": of_amounts(lambda x: f"{separated(x / 1000, ',', '', 2)} % p.a."),
    "basis points": of_amounts(lambda x: f"{x / 10:.0f} bps"),
    "short year": of_days(lambda d: d.strftime("%d.%m.%y")),
    "IBAN": of_wholes(
        lambda x: f"DE{x % 89 + 10} {x:04d} 0000 {x * 7 % 10_000:04d} {x * 13 % 10_000:04d} 00",
        LEFT_OUT,
        0,
        10**9,
    ),
    "card": of_wholes(lambda x: f"**** **** **** {x:04d}", LEFT_OUT, 0, 10_000),
    "yen, full width": of_amounts(lambda x: f"￥{round(x):,}"),
    "money, thin blank": of_amounts(lambda x: separated(x * 10, ",", "\u2009", 2)),
    "money, figure blank": of_amounts(lambda x: separated(x * 10, ",", "\u2007", 2)),
    "euros, nbsp": of_amounts(lambda x: separated(x * 10, ",", "\u202f", 2) + "\u00a0€"),
    # Laboratories and wards
    "beyond limits": mixed(numbers, "<0.01|>1000", NUMBER),
    "pressure, unit": Spelling(
        lambda r, n: [
            f"{a + 60}/{b + 40} mmHg" for a, b in zip(ages(r, n), ages(r, n), strict=True)
        ],
        SPLIT,
    ),
    "per litre": of_amounts(lambda x: f"{x / 100:.1f} mmol/L"),
    "filtration": of_amounts(lambda x: f"{x / 10:.0f} mL/min/1.73m²", SPLIT),
    "titre": words("1:20 1:40 1:80 1:160 1:320 1:640"),
    "crosses": words("neg (+) + ++ +++"),
    "blood group": words("A+ A- B+ B- AB+ AB- 0+ 0-"),
    "flags": of_amounts(
        lambda x: f"{x / 100:.1f}{' H' if x > 900 else ' L' if x < 90 else ''}", LEFT_OUT
    ),
    "powers, signs": of_amounts(lambda x: f"{x / 100:.1f} x 10^{3 + int(x) % 4}", SPLIT),
    "feet and inches": of_wholes(lambda x: f"{4 + x % 3}'{x // 3 % 12}\"", CATEGORY, 0, 400),
    "weeks and days": of_wholes(lambda x: f"{24 + x // 7}+{x % 7}", SPLIT, 0, 130),
    "doses": words("1-0-0 1-0-1 0-0-1 1-1-1"),
    "degrees, comma": of_wholes(
        lambda x: f"{35 + x / 20:.1f} °C".replace(".", ","), NUMBER, 0, 120
    ),
    "no unit's blank": of_amounts(lambda x: f"{x / 10:.1f}kg"),
    "not detected": mixed(numbers, "n.n.", NUMBER),
    # Statistics offices
    "Eurostat": mixed(numbers, ":", NUMBER),
    "not available": mixed(numbers, "..|...|X", NUMBER),
    "nil": mixed(wholes, "–|/", NUMBER),
    "NUTS": words("DE111 DE112 DE113 DE114 FR101 FR102 AT130 AT211"),
    "quarter, Q": of_days(lambda d: f"{d.year}Q{(d.month + 2) // 3}"),
    "quarter, q": of_days(lambda d: f"{d.year}q{(d.month + 2) // 3}"),
    "quarter, first": of_days(lambda d: f"{(d.month + 2) // 3}/{d.year}"),
    "quarter, T": of_days(lambda d: f"T{(d.month + 2) // 3} {d.year}"),
    "month, M": of_days(lambda d: f"{d.year}M{d.month:02d}"),
    "month, m": of_days(lambda d: f"{d.year}m{d.month}"),
    "week, W": of_days(lambda d: f"{d.isocalendar()[0]}W{d.isocalendar()[1]:02d}"),
    "half year": of_days(lambda d: f"{d.year}-S{(d.month + 5) // 6}", CATEGORY),
    "fiscal": of_days(lambda d: f"FY{d.year}/{d.year % 100 + 1}", CATEGORY),
    "season": of_days(lambda d: f"{d.year}/{d.year % 100 + 1}", CATEGORY),
    "age groups": words("Y_LT15 Y15-24 Y25-49 Y50-64 Y_GE65"),
    "Altersgruppen": words(
        "unter 15 Jahre|15 bis 24 Jahre|25 bis 64 Jahre|65 Jahre und älter", "|"
    ),
    "years old": of_wholes(lambda x: f"{x} Jahre"),
    "provisional": of_wholes(lambda x: f"{x}{' p' if x % 5 == 0 else ''}", LEFT_OUT, 100, 9999),
    # Spreadsheets
    "serial day": of_days(lambda d: str((d - date(1899, 12, 30)).days), NUMBER),
    "serial time": of_times(
        lambda t: f"{(t - datetime(1899, 12, 30)) / timedelta(days=1):.6f}", NUMBER
    ),
    "errors": mixed(numbers, "#DIV/0!|#VALUE!", NUMBER),
    "WAHR": words("WAHR FALSCH"),
    "VRAI": words("VRAI FAUX"),
    "day and time, British": of_times(lambda t: t.strftime("%d/%m/%Y %H:%M")),
    "day and time, American": of_times(
        lambda t: f"{t.month}/{t.day}/{t:%y} {(t.hour - 1) % 12 + 1}:{t:%M %p}"
    ),
    "month, German": of_days(lambda d: f"{GERMAN[d.month - 1]} {d:%y}"),
    "month, French": of_days(lambda d: f"{FRENCH[d.month - 1]}-{d:%y}"),
    "month, French, no dots": of_days(
        lambda d: f"{FRENCH[d.month - 1].removesuffix(chr(46))}-{d:%y}"
    ),
    "month, English": of_days(lambda d: d.strftime("%b-%y")),
    "lakh, sign": Spelling(lambda r, n: [f"₹ {lakh(round(x * 1000))}" for x in amounts(r, n)]),
    "weekday, Japanese": of_days(
        lambda d: f"{d.year}年{d.month}月{d.day}日({'月火水木金土日'[d.weekday()]})"
    ),
    "era, Japanese": of_days(
        lambda d: (
            f"令和{d.year - 2018}年{d.month}月{d.day}日"
            if d.year > 2018
            else f"平成{d.year - 1988}年{d.month}月{d.day}日"
        ),
        LEFT_OUT,
    ),
    "thousands, full width": of_amounts(
        lambda x: f"{round(x * 10):,}".translate(
            str.maketrans("0123456789,", "０１２３４５６７８９，")
        )
    ),
    "yen": of_amounts(lambda x: f"{round(x):,}円"),
    "per cent, nbsp": of_amounts(lambda x: f"{x / 100:.1f}\u00a0%".replace(".", ",")),
    "per cent, parentheses": of_signed(
        lambda x: f"({-x / 100:.1f}%)" if x < 0 else f"{x / 100:.1f}%"
    ),
    "blank": mixed(wholes, "(blank)", NUMBER),
    # Statistics programs and data bases
    "SAS missing": mixed(numbers, ".|.A|.B", NUMBER),
    "SAS day": of_days(lambda d: str((d - date(1960, 1, 1)).days), NUMBER),
    "Unix": of_times(lambda t: str(seconds(t)), NUMBER),
    "Unix, ms": of_times(lambda t: str(seconds(t) * 1000 + t.second * 7), NUMBER),
    "labels": words("[1] male|[2] female|[9] not told", "|"),
    "labels, equals": words("1 = agree|2 = neutral|3 = disagree", "|"),
    "Zulu": of_times(lambda t: t.strftime("%Y-%m-%dT%H:%M:%S.000Z")),
    "basic": of_times(lambda t: t.strftime("%Y%m%dT%H%M%SZ")),
    "UTC": of_times(lambda t: t.strftime("%Y-%m-%d %H:%M:%S UTC")),
    "offset, no colon": of_times(lambda t: t.strftime("%Y-%m-%dT%H:%M:%S+0000")),
    "ctime": of_times(lambda t: t.strftime("%a %b %d %H:%M:%S %Y")),
    ".NET": of_times(lambda t: f"{t.month}/{t.day}/{t.year} {(t.hour - 1) % 12 + 1}:{t:%M:%S %p}"),
    "JSON": of_times(lambda t: f"/Date({seconds(t) * 1000})/", LEFT_OUT),
    "day of year": of_days(lambda d: d.strftime("%Y-%j")),
    "unpadded": of_days(lambda d: f"{d.year}-{d.month}-{d.day}"),
    "ISO days": of_lengths(lambda x: f"P{x}D"),
    "ISO weeks": of_lengths(lambda x: f"P{x % 90}W"),
    "ISO, days and hours": of_lengths(lambda x: f"P{x // 24}DT{x % 24}H"),
    "hours and minutes": of_lengths(lambda x: f"{x // 60} hours {x % 60} minutes"),
    "hours, comma": of_lengths(lambda x: f"{separated(x / 60, chr(44), '', 1)} Std."),
    "years and months": of_wholes(lambda x: f"{x // 12}y {x % 12}m", SPLIT, 0, 900),
    "half of a day": of_wholes(lambda x: f"{x % 12 + 1}{'ap'[x // 12]}m", CATEGORY, 0, 24),
    "military": of_wholes(lambda x: f"{x // 60:02d}{x % 60:02d}", NUMBER, 0, 1440),
    # Classifications, grades, answers
    "ICD, dots": Spelling(
        lambda r, n: [
            f"{'EIJKMN'[int(x) % 6]}{int(x) % 60:02d}.{int(x) % 7}" for x in r.zipf(1.3, n) % 900
        ],
        CATEGORY,
    ),
    "ICD, no dots": Spelling(
        lambda r, n: [
            f"{'EIJKMN'[int(x) % 6]}{int(x) % 60:02d}{int(x) % 7}" for x in r.zipf(1.3, n) % 900
        ],
        CATEGORY,
    ),
    "ATC": words("A10BA02 B01AC06 C07AB02 C09AA05 N02BE01 N06AB04 R03AC02"),
    "OPS": words("5-470.11 5-511.11 5-820.00 8-930 9-401.22"),
    "grades, letters": words("A+ A A- B+ B B- C+ C C- D F"),
    "grades, German": words("1,0 1,3 1,7 2,0 2,3 2,7 3,0 3,3 3,7 4,0 5,0", kind=NUMBER),
    "grades, signs": words("1- 1 1+ 2- 2 2+ 3"),
    "degree": words("First 2:1 2:2 Third"),
    "Likert": words("strongly disagree|disagree|neither|agree|strongly agree|don't know", "|"),
    "Likert, German": words(
        "trifft nicht zu|trifft eher nicht zu|teils, teils|trifft zu|k.A.", "|"
    ),
    "rating": words("1/5 2/5 3/5 4/5 5/5"),
    "oui": words("oui non"),
    "sí": words("sí no"),
    "não": words("sim não"),
    "tak": words("tak nie"),
    "evet": words("evet hayır"),
    "kyllä": words("kyllä ei"),
    "是": words("是 否"),
    "J": words("J N"),
    "X or empty": Spelling(
        lambda r, n: ["X" if hit else "" for hit in r.random(n) < 0.3], CATEGORY
    ),
    "Roman": words("I II III IV V"),
    "ordinals": words("1st 2nd 3rd 4th"),
    "sizes": words("XS S M L XL XXL"),
    "fractions": words("1/4 1/2 3/4 1"),
    "versions": words("1.2.3 1.2.10 2.0.0 2.1.0"),
    "colours": words("#ff0000 #00ff00 #0000ff"),
    # Places, things, sizes
    "degrees, minutes, seconds": Spelling(
        lambda r, n: [dms(x) for x in r.uniform(47, 55, n)], NUMBER
    ),
    "postcode, Swiss": Spelling(
        lambda r, n: [f"CH-{8000 + int(x)}" for x in r.integers(0, 30, n)], CATEGORY
    ),
    "postcode, Dutch": Spelling(
        lambda r, n: [f"{1010 + int(x)} A{'BCD'[int(x) % 3]}" for x in r.integers(0, 15, n)],
        CATEGORY,
    ),
    "postcode, leading zero": Spelling(
        lambda r, n: [f"{1060 + int(x):05d}" for x in r.integers(0, 30, n)], CATEGORY
    ),
    "dimensions": Spelling(
        lambda r, n: [
            f"{a + 1} x {b + 1} x {a + b + 1} cm"
            for a, b in zip(ages(r, n), ages(r, n), strict=True)
        ],
        SPLIT,
    ),
    "score": Spelling(
        lambda r, n: [
            f"{a}:{b}" for a, b in zip(r.poisson(1.5, n), r.poisson(1.1, n), strict=True)
        ],
        CATEGORY,
    ),
    "of": Spelling(
        lambda r, n: [
            f"{a % 20} von {a % 20 + b}" for a, b in zip(ages(r, n), ages(r, n), strict=True)
        ],
        SPLIT,
    ),
    "e-mail": of_wholes(lambda x: f"person{x}@example.org", LEFT_OUT, 0, 10**6),
    "UUID": of_wholes(
        lambda x: f"{x:08x}-{x * 7 % 65536:04x}-4{x % 4096:03x}-8{x % 4096:03x}-{x * 31:012x}",
        LEFT_OUT,
        0,
        10**8,
    ),
    "network address": of_wholes(
        lambda x: f"10.{x >> 16 & 255}.{x >> 8 & 255}.{x & 255}", LEFT_OUT, 0, 2**24
    ),
    "KiB": of_sizes(" B| KiB| MiB| GiB|", 1),
    "KB of 1,024": of_sizes("B|K|M|G|", 1),
    "GB of 1,024": of_sizes(" bytes| KB| MB| GB|", 2),
    # Programs of firms, logs, forms
    "SAP minus": of_signed(lambda x: f"{separated(abs(x), ',', '.', 2)}{'-' * (x < 0)}"),
    "per cent, Turkish": of_amounts(lambda x: f"%{x / 50:.1f}"),
    "apostrophe": of_amounts(lambda x: f"'{x:.2f}"),
    "a kilogram": of_amounts(lambda x: f"€{x / 100:.2f}/kg"),
    "trailing point": of_amounts(lambda x: f"{int(x) + 1}."),
    "two decimal signs": Spelling(
        lambda r, n: [
            f"{x:.2f}".replace(".", ",") if x % 2 < 0.7 else f"{x:.2f}" for x in amounts(r, n)
        ],
        LEFT_OUT,
    ),
    "mean and deviation, comma": Spelling(
        lambda r, n: [
            f"{a / 3:.1f} ({b / 9:.1f})".replace(".", ",")
            for a, b in zip(ages(r, n), ages(r, n), strict=True)
        ],
        SPLIT,
    ),
    "SQL Server": of_times(lambda t: t.strftime("%Y-%m-%d %H:%M:%S.0000000")),
    "Java": of_times(lambda t: t.strftime("%Y-%m-%dT%H:%M:%S.000+0000")),
    "Apache": of_times(lambda t: t.strftime("[%d/%b/%Y:%H:%M:%S +0000]")),
    "zone, name": of_times(lambda t: t.strftime("%Y-%m-%d %H:%M:%S Europe/Berlin")),
    "zone, letters": of_times(lambda t: t.strftime("%d.%m.%Y %H:%M:%S CET")),
    "day and time, French": of_times(lambda t: t.strftime("%d/%m/%Y à %Hh%M")),
    "day and time, um": of_times(lambda t: t.strftime("%d.%m.%Y um %H:%M Uhr")),
    "ordinal day": of_days(lambda d: f"{_ordinal(d.day)} {d:%B %Y}"),
    "ordinal day, American": of_days(lambda d: f"{d:%B} {_ordinal(d.day)}, {d.year}"),
    "births": Spelling(
        lambda r, n: [
            (date(1925, 1, 1) + timedelta(int(x))).strftime("%d.%m.%y")
            for x in r.integers(0, 35_000, n)
        ],
        MOMENT,
    ),
    "digits, short year": of_days(lambda d: d.strftime("%y%m%d")),
    "digits, day of year": of_days(lambda d: d.strftime("%Y%j")),
    "digits, week": of_days(lambda d: f"{d.isocalendar()[0]}{d.isocalendar()[1]:02d}"),
    "digits, time": of_times(lambda t: t.strftime("%H%M%S"), NUMBER),
    "digits, time, no zeros": of_times(lambda t: str(100 * t.hour + t.minute), NUMBER),
    "digits, time, float": of_times(lambda t: f"{100 * t.hour + t.minute}.0", NUMBER),
    "digits, seconds, no zeros": of_times(lambda t: str(int(t.strftime("%H%M%S"))), NUMBER),
    "CW": of_days(lambda d: f"CW{d.isocalendar()[1]:02d}/{d.isocalendar()[0]}"),
    "week, words": of_days(lambda d: f"Week {d.isocalendar()[1]}, {d.isocalendar()[0]}"),
    "year and week": of_days(lambda d: f"{d.isocalendar()[0]}/{d.isocalendar()[1]:02d}"),
    "quarter, bank": of_days(lambda d: f"{(d.month + 2) // 3}Q{d:%y}"),
    "Quartal": of_days(lambda d: f"{(d.month + 2) // 3}. Quartal {d.year}"),
    "days, colons": of_lengths(lambda x: f"{x // 50}:{x % 24:02d}:{x % 60:02d}:{x % 59:02d}"),
    "Std. Min.": of_lengths(lambda x: f"{x // 60} Std. {x % 60} Min."),
    # Marks of several kinds beside one another
    "mixed, numbers": mixed(numbers, "n.a.|-|k.A.|(blank)", NUMBER),
    "mixed, dates": mixed(iso, "n.a.|-|unknown", MOMENT),
    "mixed, wholes": mixed(wholes, "NULL|#N/A|99|-9", NUMBER),
    "mixed, answers": words("yes|no|n/a|(blank)|-", "|"),
}


def _ordinal(day: int) -> str:
    ending = "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def lakh(number: int) -> str:
    whole, groups = str(number), list[str]()
    rest, last = whole[:-3], whole[-3:]
    while rest:
        groups.insert(0, rest[-2:])
        rest = rest[:-2]
    return ",".join([*groups, last])
