"""The page of keys: it has all that the program reads, its examples load, and its ranges are those of the program."""

import datetime
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mechanisms.table_keys import REQUIRED, Range
from parties.config import config_from_dict
from parties.config.algorithms import OWN_ALGORITHMS, SECTIONS
from parties.config.named_files import FILE_KEYS
from parties.methods.keyed_study import _SECTIONS as KEYED_SECTIONS
from tests.docs.configurations import load, problem, with_example, with_keys
from tests.docs.made import module, tables

made = module("made_keys")
PARTS = {part.title: part for part in made.parts()}
PAGE = "\n".join(made.keys())
ROWS = [(part.title, row.name) for part in PARTS.values() for row in part.rows]
RANGES = [
    (part.title, row.name)
    for part in PARTS.values()
    for row in part.rows
    if isinstance(row.allowed, Range)
]
CHOICES = [
    (part.title, row.name)
    for part in PARTS.values()
    for row in part.rows
    if row.allowed and not isinstance(row.allowed, Range)
]
NUMBERS = ("whole number", "number")
UNKNOWN = "zzqqzz"
_KINDS = ("integer", "real", "date", "datetime")
_PRIVATE_BINS = {"integer": {}, "real": {"decimals": 2}, "date": {}, "datetime": {}}
_PRIVATE_CATEGORIES = {"categories": None, "values": "private", "candidates": ["a", "b"]}
_FREE = {"low": None, "high": None, "values": "private"}
_FINE = "YYYY-MM-DDTHH:MM:SS.ffffff"
Beside = Mapping[str, object] | Callable[[Any], Mapping[str, object]]
BESIDE: Mapping[tuple[str, str], Beside] = {
    ("[run]", "delta"): {"large_delta": True},
    ("[run]", "rounds"): {"schedule": "fixed"},
    ("[run]", "schedule"): lambda value: {"rounds": None} if value == "annealed" else {},
    ("[run]", "tree_share"): {"schedule": "annealed", "rounds": None},
    ("[run]", "rows_per_person"): {"unit": "person"},
    ("[run]", "more_rows"): {"unit": "person", "person": ["patient_id"]},
    ("[clients]", "participation"): {"minimum": 1},
    ("[[column]] categorical", "coarse"): _PRIVATE_CATEGORIES,
    ("[[column]] categorical", "values"): _PRIVATE_CATEGORIES,
    ("[[column]] categorical", "deviation"): {**_PRIVATE_CATEGORIES, "histogram": [5, 5, 1]},
    ("[[column]] integer", "scale"): {"low": 1},
    ("[[column]] real", "scale"): {"low": 0.5, "decimals": 2},
    ("[[column]] real", "digits"): {"decimals": 2, "bins": 2},
    ("[[column]] datetime", "unit"): {"format": _FINE},
    **{(f"[[column]] {kind}", "values"): {**_FREE, **_PRIVATE_BINS[kind]} for kind in _KINDS},
    **{
        (f"[[column]] {kind}", "resolution"): {
            "bins": "private",
            "coarse": 4,
            **_PRIVATE_BINS[kind],
        }
        for kind in _KINDS
    },
    **{
        (f"[[column]] {kind}", "coarse"): {
            "bins": "private",
            "resolution": 1024,
            **_PRIVATE_BINS[kind],
        }
        for kind in _KINDS
    },
    ("[format]", "decimal"): {"delimiter": ";"},
    ("[silos]", "minimum"): lambda value: (
        {"clients.expected": value} if value in range(4, 2000) else {}
    ),
    ("[[source]]", "key"): {"run.link": "order"},
    ("[[source]]", "owners"): {"clients.expected": 1},
    ("[[source]]", "rows_per_person"): {"run.unit": "person"},
    ("[[table]] with parent", "most"): lambda value: {"rows": 1} if value == 1 else {},
    ("[tda]", "mixture_share"): {"frequency_share": 1e-9},
    ("[tda]", "frequency_share"): {"mixture_share": 1e-9},
    ("[mtl]", "objective"): lambda value: {
        "label": "sex" if "logistic" in str(value) else "age",
        "hidden": 4 if "perceptron" in str(value) else 0,
    },
    ("[mtl]", "hidden"): lambda value: {"objective": "perceptron"} if value else {},
    ("[mtl]", "tuning_rounds"): lambda value: (
        {"lambdas": ["0", "1"], "run.rounds": 2000} if value else {}
    ),
    ("[mtl]", "clip"): {"gradient_bits": 30},
    ("[mtl]", "bound"): {"model_bits": 20},
    ("[mtl]", "model_bits"): lambda value: {"bound": 1.0 if value in range(20) else 1e-6},
    ("[mtl]", "gradient_bits"): lambda value: {"clip": 1.0 if value in range(20) else 1e-6},
}
"""Keys that stand beside one, or beside a value of it, so that all that is allowed goes."""
OTHER_WORDS = {
    ("[mtl]", "model_bits"): "bits",
    ("[mtl]", "gradient_bits"): "bits",
    ("[mtl]", "clip"): "bound",
    ("[[column]] with implied_by", "implied_by"): "kind",
    ("[[split]] with pattern", "pattern"): "unknown key",
    ("[[constraint]] born", "on"): "no modelled column",
}
"""Words of errors that do not name their key."""


def beside(title: str, key: str, value: object) -> Mapping[str, object]:
    if key == "deviation" and title != "[[column]] categorical":
        return _histogram(title)
    found = BESIDE.get((title, key), {})
    return found(value) if callable(found) else found


def _histogram(title: str) -> Mapping[str, object]:
    """Private bins of a column, with the noisy counts of as many fine cells as it has."""
    private = {"bins": "private", **_PRIVATE_BINS[title.rpartition(" ")[2]]}
    document = document_of(title, {**private, "run.id": "x"})
    config = config_from_dict(document, source="x", base=Path())
    return {**private, "histogram": [5] * config.domain.columns[-1].size}


def row_of(title: str, key: str) -> Any:
    return next(row for row in PARTS[title].rows if row.name == key)


def document_of(title: str, changes: Mapping[str, object]) -> dict[str, Any]:
    part = PARTS[title]
    return with_keys(title, part.section, part.example, changes)


def listed(text: str) -> set[str]:
    """The keys that an error lists for an unknown one."""
    found = re.search(r"(?:expected one of|the keys are) (.*?)(?:, and what describes .*)?$", text)
    assert found is not None, text
    return set(found[1].split(", "))


def test_keys_have_every_section(tmp_path: Path) -> None:
    """The sections are those that the program lists for an unknown one."""
    error = problem({**document_of("[run]", {}), UNKNOWN: {}}, tmp_path)
    assert error is not None
    sections = {part.section.partition(".")[0] for part in PARTS.values()}
    assert listed(str(error)) == {*SECTIONS, *OWN_ALGORITHMS} == sections - {"table"}
    assert {*KEYED_SECTIONS} <= sections


@pytest.mark.parametrize("title", [title for title in PARTS if title != "ignore"])
def test_keys_of_a_part_are_those_that_the_program_takes(title: str, tmp_path: Path) -> None:
    error = problem(document_of(title, {UNKNOWN: 1}), tmp_path)
    assert error is not None
    files = FILE_KEYS["table" if "implied_by" in title else "candidates"]
    named = set(files) if title.endswith(("categorical", "implied_by")) else set()
    table = tables(PAGE)["[[column]] integer" if title == "[[table.change]]" else title]
    shown = [cells[0] for cells in table]
    assert sorted(shown) == sorted(listed(str(error)) | named)


@pytest.mark.parametrize("title", PARTS)
def test_keys_have_an_example_that_loads(title: str, tmp_path: Path) -> None:
    found = re.search(rf"^## {re.escape(title)}\n.*?^```toml\n(.*?)^```", PAGE, re.M | re.S)
    assert found is not None
    part = PARTS[title]
    document = with_example(title, part.section, found[1])
    assert problem(document, tmp_path) is None
    written = set(re.findall(r"^(\w+) = ", found[1], re.MULTILINE))
    assert not part.rows or written & {row.name for row in part.rows}


@pytest.mark.parametrize(("title", "key"), ROWS)
def test_keys_have_type_and_sentence(title: str, key: str) -> None:
    row = row_of(title, key)
    assert re.fullmatch(r"[A-Z`\"].*\.", row.said), row.said
    assert row.type
    if row.type in NUMBERS:
        assert isinstance(row.allowed, Range) or key in ("low", "high")
    (cells,) = (cells for cells in tables(PAGE)[title] if cells[0] == key)
    assert len(cells) == 5


def _refused(title: str, key: str, value: object, folder: Path) -> bool:
    """True if the value is refused, in an error that names the key."""
    error = problem(document_of(title, {**beside(title, key, value), key: value}), folder)
    if error is not None:
        _check_named(title, key, str(error))
    return error is not None


def _check_named(title: str, key: str, error: str) -> None:
    word = OTHER_WORDS.get((title, key), key)
    assert re.search(rf"\b({key}|{word})\b", error), error


def _check_taken(title: str, key: str, value: object, folder: Path) -> None:
    error = problem(document_of(title, {**beside(title, key, value), key: value}), folder)
    assert error is None, f"{value}: {error}"


def _probes(row: Any) -> tuple[list[float], list[float]]:
    """Numbers at the ends of a key's range: inside, and outside."""
    allowed, whole = row.allowed, row.type.startswith("whole")
    high = allowed.high
    if allowed.high_key:
        high = {"expected": 3, "resolution": 1024}[allowed.high_key]
    step = 1 if whole else 1e-6
    inside = [allowed.low + step if allowed.above else allowed.low]
    outside = [allowed.low if allowed.above else allowed.low - step]
    if math.isinf(high):
        inside.append(allowed.low + 1000)
    else:
        inside.append(high - step if allowed.below else high)
        outside.append(high if allowed.below else high + step)
    if whole:
        return inside, outside
    return [float(value) for value in inside], [*map(float, outside), math.inf, math.nan]


@pytest.mark.parametrize(("title", "key"), RANGES)
def test_keys_ranges_are_those_of_the_program(title: str, key: str, tmp_path: Path) -> None:
    inside, outside = _probes(row_of(title, key))
    for value in inside:
        _check_taken(title, key, value, tmp_path)
    for value in outside:
        assert _refused(title, key, value, tmp_path), value


@pytest.mark.parametrize(("title", "key"), CHOICES)
def test_keys_choices_are_those_of_the_program(title: str, key: str, tmp_path: Path) -> None:
    for value in row_of(title, key).allowed:
        _check_taken(title, key, value, tmp_path)
    assert _refused(title, key, UNKNOWN, tmp_path)


@pytest.mark.parametrize(
    ("title", "key"), [(title, key) for title, key in ROWS if row_of(title, key).spelt]
)
def test_keys_defaults_are_those_of_the_program(title: str, key: str, tmp_path: Path) -> None:
    value = tomllib.loads(f"key = {row_of(title, key).default}")["key"]
    other = {name: each for name, each in beside(title, key, value).items() if name != key}
    without = load(document_of(title, {**other, key: None}), tmp_path)
    assert load(document_of(title, {**other, key: value}), tmp_path) == without


@pytest.mark.parametrize(
    ("title", "key"),
    [(title, key) for title, key in ROWS if row_of(title, key).default == REQUIRED],
)
def test_keys_that_are_required_are_missed(title: str, key: str, tmp_path: Path) -> None:
    error = problem(document_of(title, {key: None}), tmp_path)
    assert error is not None
    _check_named(title, key, str(error))


SAMPLES: Mapping[str, object] = {
    "whole number": 3,
    "number": 3.5,
    "text": "x",
    "true or false": True,
    "list": [[]],
    "table": {UNKNOWN: {}},
    "date": datetime.date(2020, 1, 1),
}
"""A value of each type, of TOML's."""


@pytest.mark.parametrize(("title", "key"), ROWS)
def test_keys_refuse_other_types(title: str, key: str, tmp_path: Path) -> None:
    said = row_of(title, key).type
    takes = {name for name in SAMPLES if name in said}
    takes |= {"whole number"} if "number" in said else set()
    takes |= {"text"} if "date" in said else set()
    takes |= {"list"} if said == "tables" else set()
    for name, value in SAMPLES.items():
        if name not in takes:
            assert _refused(title, key, value, tmp_path), name


_CODES = [str(number) for number in range(4097)]
_DIGITS = {"digits": 5, "low": 1e-300, "high": 1.0, "bins": 2}
LIMITS: Sequence[tuple[str, str, str, object, object, Mapping[str, object]]] = [
    ("[run]", "id", "1 to 63 letters", "x" * 63, "x" * 64, {}),
    ("[run]", "terms", "1 to 20,000", "x" * 20_000, "x" * 20_001, {}),
    ("[clients]", "rows_per_client", "16,646,144", 16_646_144, 16_646_145, {"expected": 1}),
    (
        "[[column]] categorical",
        "candidates",
        "1 to 4,096",
        _CODES[:-1],
        _CODES,
        {**_PRIVATE_CATEGORIES, "coarse": 32},
    ),
    ("[[column]] real", "decimals", "up to 340", 340, 341, _DIGITS),
    (
        "[[table]] of persons",
        "name",
        "With run.id it has at most 62",
        "x" * 57,
        "x" * 58,
        {"run.id": "study"},
    ),
]
"""Limits that sentences name: the part and key, the words, the last value that is allowed, the next, keys beside."""


@pytest.mark.parametrize(("title", "key", "words", "last", "after", "others"), LIMITS)
def test_keys_limits_in_sentences_are_those_of_the_program(
    title: str,
    key: str,
    words: str,
    last: object,
    after: object,
    others: Mapping[str, object],
    tmp_path: Path,
) -> None:
    assert words in row_of(title, key).said
    for value in (last, after):
        document = document_of(title, {**others, key: value})
        for child in document.get("table", [])[1:]:
            child["parent"] = value
        error = problem(document, tmp_path)
        assert (error is None) == (value is last), str(error)


def test_keys_refuse_a_number_beyond_all_doubles(tmp_path: Path) -> None:
    assert problem(document_of("[clients]", {"expected": 10**400}), tmp_path) is not None
    assert problem(document_of("[run]", {"seed": 10**400}), tmp_path) is None


def test_keys_defaults_in_words_are_true(tmp_path: Path) -> None:
    assert {*made.OTHER_DEFAULTS} <= {
        (part.section, row.name) for part in PARTS.values() for row in part.rows
    }

    def loaded(title: str, changes: Mapping[str, object]) -> Any:
        return load(document_of(title, changes), tmp_path)

    free = loaded("[run]", {"rounds": None})
    assert (free.run.id, free.run.rounds, free.run.schedule) == ("study", 32, "annealed")
    assert free.run.rows is None
    assert loaded("[run]", {"rounds": 3}).run.schedule == "fixed"
    assert free.run.input == "auto"
    assert free.workload.count is None
    assert loaded("[workload]", {"count": "all"}).workload == free.workload
    sources = loaded("[[source]]", {})
    assert sources.run.input == "rows"
    assert (sources.clients.names, sources.clients.expected) == (("north",), 1)
    named = {"expected": None, "names": ["a", "b"]}
    assert loaded("[clients]", named).clients.expected == 2
    assert problem(document_of("[clients]", {"expected": None}), tmp_path) is not None
    assert loaded("[clients]", {"expected": 7}).clients.minimum == 7
    assert loaded("[clients]", {"expected": 7, "participation": 0.5}).clients.minimum == 1
    assert loaded("[flaim]", {"minimum": 3, "clients.expected": 7}).clients.minimum == 3


def test_keys_of_two_types_take_both(tmp_path: Path) -> None:
    for title, key, values in (
        ("[workload]", "target", ["sex", ["sex"]]),
        ("[[source]]", "key", ["id", ["id"]]),
        ("[clients]", "opens", ["2026-12-01T08:00:00+01:00", _TIME]),
        ("[clients]", "closes", ["2026-12-01T08:00:00+01:00", _TIME]),
    ):
        one, other = (load(document_of(title, {key: value}), tmp_path) for value in values)
        assert one == other


_TIME = datetime.datetime.fromisoformat("2026-12-01T08:00:00+01:00")


def test_keys_of_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "codes.txt").write_text("a\nb\n")
    (tmp_path / "map.csv").write_text("sex,x\nf,1\nm,2\n")
    private = {"categories": None, "values": "private", "candidates": "codes.txt"}
    assert load(document_of("[[column]] categorical", private), tmp_path)
    implied = {"values": None, "table": "map.csv"}
    assert load(document_of("[[column]] with implied_by", implied), tmp_path)
    for title, changes in (
        ("[[column]] categorical", private),
        ("[[column]] with implied_by", implied),
    ):
        error = problem(document_of(title, {**changes, "sha256": "00" * 32}), tmp_path)
        assert error is not None
        assert "sha256" in str(error)


def test_probes_find_a_wrong_range(tmp_path: Path) -> None:
    """The control: ranges that are a number too short, or too long."""
    row = row_of("[run]", "rounds")
    short, long = (replace(row, allowed=Range(1, high)) for high in (9_999, 10_001))
    assert not _refused("[run]", "rounds", _probes(short)[1][-1], tmp_path)
    assert _refused("[run]", "rounds", _probes(long)[0][-1], tmp_path)


ODD: Sequence[object] = (
    [],
    [[]],
    [""],
    ["sex", "sex"],
    [0],
    [math.inf, -math.inf],
    {},
    {"x": {}},
    {"sex": ["a"]},
    "",
    " ",
    "\0",
    "x" * 5000,
    "\N{RIGHT-TO-LEFT OVERRIDE}",
    "age",
    True,
    0,
    -1,
    1,
    2**31,
    10**400,
    -(10**400),
    -0.0,
    1e308,
    5e-324,
    math.inf,
    math.nan,
    datetime.date(1, 1, 1),
    datetime.date(9999, 12, 31),
    datetime.time(),
)
"""Values that TOML can have, of which a reader must think."""


def check_odd(title: str, key: str, value: object, folder: Path) -> None:
    """No reader ends in an error of its own, alone or beside what belongs to a key."""
    for others in ({}, beside(title, key, value)):
        error = problem(document_of(title, {**others, key: value}), folder)
        assert error is None or str(error)


@pytest.mark.parametrize(
    ("title", "key", "value"),
    [
        ("[tda]", "row_norm", 5e-324),
        ("[tda]", "mixture_share", 5e-324),
        ("[tda]", "frequency_share", 5e-324),
        ("[silos]", "minimum", 10**400),
        ("[refresh]", "model", "x" * 5000),
        ("[format]", "encoding", "\0"),
        ("[[constraint]] shares", "shares", []),
        ("[[column]] with implied_by", "table", "\0"),
        ("[[column]] real", "bins", 10**400),
        ("[[column]] integer", "bins", 10**400),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_an_odd_value_is_taken_or_refused_in_words(
    title: str, key: str, value: object, tmp_path: Path
) -> None:
    """Cases in which a reader ended in an error of its own."""
    check_odd(title, key, value, tmp_path)


@pytest.mark.parametrize(("title", "key"), ROWS)
def test_odd_values_of_a_key_are_taken_or_refused_in_words(
    title: str, key: str, tmp_path: Path
) -> None:
    """Each key with every sixth of the values; all of them in the slow tests."""
    for value in ODD[ROWS.index((title, key)) % 6 :: 6]:
        check_odd(title, key, value, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("title", "key"), ROWS)
def test_all_odd_values_of_a_key_are_taken_or_refused_in_words(
    title: str, key: str, tmp_path: Path
) -> None:
    for value in ODD:
        check_odd(title, key, value, tmp_path)


def test_a_deviation_may_be_a_whole_number(tmp_path: Path) -> None:
    title = "[[column]] categorical"
    others = beside(title, "deviation", 3)
    assert problem(document_of(title, {**others, "deviation": 3}), tmp_path) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("split", []), ("constraint", []), ("missing", {}), ("format", {}), ("ignore", [])],
)
def test_persons_without_columns_have_nothing_that_is_about_columns(
    key: str, value: object, tmp_path: Path
) -> None:
    document = document_of("[[table]] of persons", {})
    del document["table"][0]["column"]
    assert problem(document, tmp_path) is None
    document["table"][0][key] = value
    assert f"{key} stands without [[table.column]]" in str(problem(document, tmp_path))
