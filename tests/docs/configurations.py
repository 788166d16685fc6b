"""Configurations around the examples of the page of keys, and around single keys of it."""

import tomllib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import tomli_w

from parties.config import load_config
from parties.foundation.errors import ConfigError
from parties.methods.keyed_study import is_keyed_config, load_keyed_study
from parties.methods.registry import plan_of
from protocols.sealing import SealTo
from tests.docs.made import module

Document = dict[str, Any]
SEAL: str = module("key_examples").SEAL
SEAL_BYTES = 1216
_LEAST = """
[run]
epsilon = 1.0
delta = 1e-6
rounds = 3

[clients]
expected = 3
rows_per_client = 100

[[column]]
name = "sex"
kind = "categorical"
categories = ["f", "m"]

[[column]]
name = "age"
kind = "integer"
low = 0
high = 109
"""
_MORE_COLUMNS = """
[[column]]
name = "pregnant"
kind = "categorical"
categories = ["yes", "no"]

[[column]]
name = "birth"
kind = "date"
low = 1900-01-01
high = 2024-12-31

[[column]]
name = "visit"
kind = "date"
low = 1900-01-01
high = 2024-12-31
""" + "".join(
    f'[[column]]\nname = "{name}"\nkind = "real"\nlow = 0.0\nhigh = 100.0\ndecimals = 2\n'
    for name in ("net", "vat", "gross")
)
_STAYS = """
[[table]]
name = "stays"
parent = "patients"
key = "patient_id"
rows = 3

[[table.column]]
name = "weight"
kind = "integer"
low = 30
high = 250

[[table.column]]
name = "ward"
kind = "categorical"
categories = ["a", "b"]
"""
_TABLES = (
    """
[run]
epsilon = 1.0
delta = 1e-6

[clients]
expected = 3
rows_per_client = 100

[[table]]
name = "patients"
key = "patient_id"

"""
    + _STAYS
)
_DIED = '[[column]]\nname = "died"\nkind = "integer"\nlow = 0\nhigh = 1\n'
_ARRAYS = ("column", "source", "party", "split", "constraint")


def around(title: str, section: str) -> Document:
    """The rest of a configuration around the part of the page with this heading."""
    if section.startswith("table"):
        return tomllib.loads(_TABLES)
    text = _LEAST
    if section in ("constraint", "format"):
        text += _MORE_COLUMNS
    if section == "source":
        text += _DIED
    found: Document = tomllib.loads(text)
    if title == "[run]":
        found["ignore"] = ["patient_id"]
    if section in ("clients", "source"):
        del found["clients"]["expected"]
    if section == "silos":
        found["tda"] = {}
    if section == "mtl":
        found["run"]["rounds"] = 5
    return found


def with_example(title: str, section: str, example: str) -> Document:
    """The configuration of an example."""
    return joined(around(title, section), title, section, tomllib.loads(_sealed(example)))


def _sealed(example: str) -> str:
    """The example with whole keys of servers, each another one."""
    first, *rest = example.split(SEAL)
    keys = (SealTo(bytes([number]) * SEAL_BYTES) for number, _ in enumerate(rest, start=1))
    return first + "".join(f"{key}{text}" for key, text in zip(keys, rest, strict=True))


def joined(base: Document, title: str, section: str, part: Document) -> Document:
    """A configuration with the tables of an example: columns come beside those that are there."""
    found, part = deepcopy(base), deepcopy(part)
    if section == "table":
        (own,) = part["table"]
        found["table"] = [each for each in found["table"] if each["name"] != own["name"]]
        found["table"].insert(0 if "parent" not in own else 1, own)
        return found
    if section.startswith("table."):
        found["table"][1] |= part["table"][0] if isinstance(part["table"], list) else part["table"]
        return found
    for name, value in part.items():
        if name in _ARRAYS:
            found[name] = [*found.get(name, []), *value]
        elif isinstance(value, dict):
            found[name] = found.get(name, {}) | value
        else:
            found[name] = value
    return found


def load(document: Mapping[str, Any], folder: Path) -> object:
    """Loads a configuration from a file, as the program does.

    Returns what it means: tables with keys, or a configuration; of a method between silos its settings.
    """
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(dict(document)))
    if is_keyed_config(path):
        return load_keyed_study(path).tables
    config = load_config(path)
    if config.algorithm is None:
        return config
    plan = plan_of(config)
    return config.run, config.silos, plan.document, getattr(plan, "settings", None)


def problem(document: Mapping[str, Any], folder: Path) -> ConfigError | None:
    """The error with which a configuration is refused, or None."""
    try:
        load(document, folder)
    except ConfigError as error:
        return error
    return None


_COLUMN = '[[column]]\nname = "x"\nkind = '
_LEAST_TABLES: Mapping[str, str] = {
    "[[column]] categorical": _COLUMN + '"categorical"\ncategories = ["a", "b"]',
    "[[column]] integer": _COLUMN + '"integer"\nlow = 0\nhigh = 5000',
    "[[column]] real": _COLUMN + '"real"\nlow = 0.0\nhigh = 1.0',
    "[[column]] date": _COLUMN + '"date"\nlow = 2000-01-01\nhigh = 2025-12-31',
    "[[column]] datetime": _COLUMN
    + '"datetime"\nlow = 2020-01-01T00:00:00\nhigh = 2025-12-31T00:00:00',
    "[[column]] with implied_by": '[[column]]\nname = "x"\nimplied_by = "sex"\nvalues = {f = "1", m = "2"}',
    "[[split]] with answers": """
[[split]]
column = "drugs"
separator = "; "
answers = ["a", "b"]

[[column]]
name = "drugs: a"
kind = "categorical"
categories = ["no", "yes"]

[[column]]
name = "drugs: b"
kind = "categorical"
categories = ["no", "yes"]
""",
    "[[constraint]] one_hot": """
[[constraint]]
one_hot = ["red", "green"]
column = "colour"

[[column]]
name = "colour"
kind = "categorical"
categories = ["red", "green"]
""",
    "[[table]] with parent": _STAYS,
    "[[table]] of persons": """
[[table]]
name = "patients"
key = "patient_id"

[[table.column]]
name = "sex"
kind = "categorical"
categories = ["f", "m"]
""",
    "[[table.change]]": '[[table.change]]\nname = "weight"\nkind = "integer"\nlow = -5000\nhigh = 5000',
    "[mtl]": '[mtl]\nlabel = "age"',
    "[[source]]": """
[[source]]
name = "hospitals"
columns = ["sex", "age", "died"]
key = ["id"]
owners = ["north"]
""",
    "[clients]": "[clients]\nexpected = 3",
}
"""The least that a part has where that is less than its example."""
_FULL = ("[[split]]", "[[constraint]]", "[[table.summary]]", "[refresh]", "[[party]]", "[tls]")
"""Beginnings of headings of parts that have no less than their example."""


def with_keys(title: str, section: str, example: str, changes: Mapping[str, object]) -> Document:
    """A configuration with the least of a part and some of its keys, or others' ("run.unit"); None removes a key."""
    text = _LEAST_TABLES.get(title)
    if text is None:
        text = _sealed(example) if title.startswith(_FULL) else ""
    single = not text and not section.startswith("table") and section != "ignore"
    part = {section: {}} if single else tomllib.loads(text)
    document = (
        joined(around(title, section), title, section, part) if part else around(title, section)
    )
    table = _table_of(document, title, section)
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        of = document[section] if section else table
        if value is None:
            of.pop(name, None)
        else:
            of[name] = value
    return document


def _table_of(document: Document, title: str, section: str) -> Document:
    if section == "ignore":
        return document
    if section == "table":
        found: Document = document["table"]["parent" in title]
        return found
    if section.startswith("table."):
        found = document["table"][1][section.removeprefix("table.")][0]
        return found
    value = document[section]
    return value[-1] if isinstance(value, list) else value  # type: ignore[no-any-return]
