"""Generator of tables with keys as people have them: several tables, odd names, gaps, any order of rows.

``ugly_office`` returns columns of text by table. A key has leading zeros or letters; columns are called as those of
views are, or have blanks, quotes and points in their names; tables repeat a column of persons, have a constant one, a
group of which one is 1, bounds that keep an order, or a number that counts rows.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

Columns = dict[str, list[str]]
KEYS = ("pid", "patient_id", "person id", "Patienten-ID", "id")
_NAMES = (
    "number", "first", "before", "change", "now", "key", "first.x", "before.x", "change.day", "a b", 'q"x', "x'y",
    "größe", "x.y", "weight", "missing", "none", "ward", "sex", "day", "note.number", "None", "persons",
    "stays.first.ward",
)  # fmt: skip
_CATEGORIES = (("f", "m"), ("none", "missing", "x"), ("a b", 'c"d', "é"), ("yes", "no"), ("", ""))


def _date(chance: random.Random, start: str, most: int) -> str:
    return str(np.datetime64(start) + chance.randint(0, most)).replace("T", " ")


_CELLS: dict[str, Callable[[random.Random], str]] = {
    "whole": lambda chance: str(chance.randint(-5, 120)),
    "large": lambda chance: str(int(chance.gauss(1000, 300))),
    "real": lambda chance: f"{chance.gauss(75, 12):.1f}",
    "comma": lambda chance: f"{chance.gauss(75, 12):.1f}".replace(".", ","),
    "double": lambda chance: repr(chance.gauss(0, 1)),
    "mark": lambda chance: chance.choice(["<5", str(chance.randint(5, 90))]),
    "split": lambda chance: f"{chance.randint(100, 160)}/{chance.randint(60, 95)}",
    "date": lambda chance: _date(chance, "2020-01-01", 900),
    "time": lambda chance: _date(chance, "2020-01-01T00:00", 900_000),
    "month": lambda chance: _date(chance, "2020-01", 40),
    "year": lambda chance: str(chance.randint(1930, 2020)),
    "same": lambda chance: "1",
}


def _column(chance: random.Random, rows: int) -> list[str]:
    gaps = 0.2 if chance.random() < 0.3 else 0.0
    values, cell = chance.choice(_CATEGORIES), chance.choice([None, None, *_CELLS.values()])
    drawn = (chance.choice(values) if cell is None else cell(chance) for _ in range(rows))
    return ["" if chance.random() < gaps else value for value in drawn]


def _columns(chance: random.Random, rows: int, most: int) -> Columns:
    names = chance.sample(_NAMES, chance.randint(1, most))
    return {name: _column(chance, rows) for name in names}


def ugly_office(seed: int) -> dict[str, Columns]:
    """Returns the tables by name; ``patients``, if it is there, has one row of each person."""
    chance = random.Random(seed)
    persons = chance.choice([12, 30, 60, 150])
    form = "{:05}" if chance.random() < 0.3 else "P{:03}"
    keys, key = [form.format(number) for number in range(persons)], chance.choice(KEYS)
    tables: dict[str, Columns] = {}
    if chance.random() < 0.75:
        tables["patients"] = {key: keys} | _columns(chance, persons, 4)
    others = chance.choice([1, 1, 1, 2, 3] if tables else [1, 1, 2])
    for name in ("stays", "lab", "drugs")[:others]:
        numbers = [chance.choice([0, 1, 1, 2, 3, 4]) for _ in keys]
        if chance.random() < 0.1:
            numbers[0] = 250
        if "patients" not in tables:
            numbers = [max(1, number) for number in numbers]
        of = [each for each, number in zip(keys, numbers, strict=True) for _ in range(number)]
        found = {key: of} | _columns(chance, len(of), 5) | _regular(chance, of)
        if chance.random() < 0.3 and "patients" in tables:
            copied = chance.choice([c for c in tables["patients"] if c != key])
            known = dict(zip(keys, tables["patients"][copied], strict=True))
            found[copied] = [known[each] for each in of]
        order = list(range(len(of)))
        chance.shuffle(order)
        tables[name] = {column: [cells[i] for i in order] for column, cells in found.items()}
    return tables


def _regular(chance: random.Random, of: Sequence[str]) -> Columns:
    """Columns in which cells depend on others, each in a part of the tables."""
    found: Columns = {}
    if chance.random() < 0.2:
        hot = [chance.randint(0, 2) for _ in of]
        found |= {f"h{place}": [str(int(each == place)) for each in hot] for place in range(3)}
    if chance.random() < 0.3:
        known = {each: chance.choice(["", "A", "B"]) for each in of}
        found["cons"] = [known[each] for each in of]
    if chance.random() < 0.3:
        low = [chance.randint(0, 50) for _ in of]
        found |= {
            "lo": list(map(str, low)),
            "hi": [str(each + chance.randint(0, 9)) for each in low],
        }
    if chance.random() < 0.2:
        seen = Counter[str]()
        found["seq"] = []
        for each in of:
            seen[each] += 1
            found["seq"].append(str(seen[each]))
    return found
