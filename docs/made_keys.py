"""Page of the site with every key of a configuration, made from the declarations that its readers check values by.

``parts`` yields the sections, those of several kinds by kind; ``keys`` the lines of the page.
"""

import inspect
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import get_type_hints

import tomli_w
from key_examples import EXAMPLES  # MkDocs puts the folder of a hook on the path.
from made_strings import explained, line_of

from mechanisms.column_keys import COLUMN_KEYS, IMPLIED
from mechanisms.constraints.reading import CONSTRAINT_KEYS
from mechanisms.domain import IGNORE_KEY, MISSING_KEYS
from mechanisms.keyed.declared import CHILD_KEYS, PARENT_KEYS
from mechanisms.keyed.summaries import SUMMARY_KEYS
from mechanisms.split_columns import SPLIT_KEYS
from mechanisms.table_keys import ALLOWED, REQUIRED, Allowed, Range, TableKey
from mechanisms.text_format import TextFormat
from parties.config.named_files import FILE_KEYS
from parties.config.schema import (
    Address,
    ClientsSection,
    ComputeSection,
    FlaimSection,
    NetworkSection,
    PartySection,
    RefreshSection,
    RunSection,
    SilosSection,
    TimeoutsSection,
    TlsSection,
    WorkloadSection,
)
from parties.config.sources import SourceSection
from parties.methods.mtl import MtlSection
from parties.methods.tda import TdaSection

NONE = "none"
"""Default of a key without one."""
_TYPES: Mapping[object, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    tuple[str, ...]: "list of texts",
    Address: "text, `host:port`",
}
_OTHER_TYPES = {
    ("workload", "count"): 'whole number or "all"',
    ("workload", "queries"): "list of lists of texts",
    ("workload", "target"): "text or list of texts",
    ("source", "key"): "text or list of texts",
    ("clients", "opens"): "date with time, or text",
    ("clients", "closes"): "date with time, or text",
}
"""Types of keys that have readers of their own."""
OTHER_DEFAULTS = {
    ("run", "id"): "name of the file",
    (
        "run",
        "rounds",
    ): "16 for each modelled column; required beside [silos], or `schedule` of `fixed`",
    ("run", "schedule"): "`annealed`; `fixed` beside `rounds` or [silos]",
    ("run", "input"): "`auto`; `rows` beside [[source]]",
    ("run", "rows"): "the estimated total",
    ("workload", "count"): "`all`",
    ("clients", "expected"): "number of `names`, without which it is required",
    (
        "clients",
        "minimum",
    ): "`expected`; 1 with `participation` below 1; in FLAIM and between silos their `minimum`",
    ("clients", "names"): "owners of [[source]]",
    ("refresh", "digest"): "that of `model`",
}
"""Defaults that follow from other keys, in words."""


@dataclass(frozen=True, slots=True)
class Row:
    """A key in the table of its part. ``default`` is in TOML where ``spelt`` is True, and in words where it is not."""

    name: str
    type: str
    default: str
    spelt: bool
    allowed: Allowed
    said: str


@dataclass(frozen=True, slots=True)
class Part:
    """A section, or one kind of a section's tables: its heading, the section's name, a sentence, and its keys."""

    title: str
    section: str
    said: str
    rows: Sequence[Row]

    @property
    def example(self) -> str:
        """TOML that a configuration may have."""
        return EXAMPLES[self.title]


_DATACLASSES: Mapping[str, type] = {
    "run": RunSection,
    "workload": WorkloadSection,
    "clients": ClientsSection,
    "source": SourceSection,
    "refresh": RefreshSection,
    "format": TextFormat,
    "party": PartySection,
    "tls": TlsSection,
    "timeouts": TimeoutsSection,
    "compute": ComputeSection,
    "network": NetworkSection,
    "flaim": FlaimSection,
    "silos": SilosSection,
    "tda": TdaSection,
    "mtl": MtlSection,
}
_ARRAYS = {"source", "party"}


def parts() -> Iterator[Part]:
    """Yields all sections of a configuration, in the order of the page."""
    yield from map(_of_class, ("run", "workload", "clients"))
    yield from _columns()
    yield Part(
        "ignore",
        "ignore",
        "A key above all sections.",
        [_row("ignore", IGNORE_KEY)],
    )
    for kind, keys in SPLIT_KEYS.items():
        said = "A column of the table that is several columns of the model."
        yield _of_keys(f"[[split]] with {kind}", "split", said, keys)
    for kind, keys in CONSTRAINT_KEYS.items():
        yield _of_keys(
            f"[[constraint]] {kind}", "constraint", "A rule that every row satisfies.", keys
        )
    yield _of_keys("[missing]", "missing", "Missing values.", MISSING_KEYS)
    yield from map(_of_class, ("format", "source", "refresh"))
    yield from _tables()
    yield from map(_of_class, ("flaim", "silos", "tda", "mtl"))
    yield from map(_of_class, ("party", "tls", "timeouts", "compute", "network"))


def _columns() -> Iterator[Part]:
    for kind, keys in COLUMN_KEYS.items():
        if kind == IMPLIED:
            found = {**keys, **FILE_KEYS["table"]}
            said = "A column that follows from another one; it is filled in, not modelled."
            yield _of_keys("[[column]] with implied_by", "column", said, found)
            continue
        found = {**keys, **(FILE_KEYS["candidates"] if "candidates" in keys else {})}
        yield _of_keys(f"[[column]] {kind}", "column", "A column that is modelled.", found)


def _tables() -> Iterator[Part]:
    said = "The table of persons, in place of [[column]] (tables with keys)."
    yield _of_keys("[[table]] of persons", "table", said, PARENT_KEYS)
    said = "A table with several rows of a person."
    yield _of_keys("[[table]] with parent", "table", said, CHILD_KEYS)
    said = "Difference of a column from the row before. Its keys are those of `[[column]]` integer, or real."
    yield _of_keys("[[table.change]]", "table.change", said, {})
    for kind, keys in SUMMARY_KEYS.items():
        yield _of_keys(
            f"[[table.summary]] {kind}", "table.summary", "A summary of a person's rows.", keys
        )


def _of_keys(title: str, section: str, said: str, keys: Mapping[str, TableKey]) -> Part:
    return Part(title, section, said, [_row(name, key) for name, key in keys.items()])


def _row(name: str, key: TableKey) -> Row:
    spelt = bool(key.default) and key.default != REQUIRED
    return Row(name, key.type, key.default or NONE, spelt, key.allowed, key.said)


def _of_class(section: str) -> Part:
    """Returns the part of a dataclass, whose fields are the keys, and whose strings below the fields explain them."""
    cls = _DATACLASSES[section]
    hints, said = get_type_hints(cls), explained(cls)
    rows = []
    for item in fields(cls):
        at = (section, item.name)
        default, spelt = _default(item.default)
        if at in OTHER_DEFAULTS:
            default, spelt = OTHER_DEFAULTS[at], False
        allowed = item.metadata.get(ALLOWED, ())
        kind = _OTHER_TYPES.get(at) or _TYPES[_plain(hints[item.name])]
        rows.append(Row(item.name, kind, default, spelt, allowed, said.get(item.name, "")))
    sentence = (inspect.getdoc(cls) or "").split("\n\n")[0].partition(": ")[2]
    title = f"[[{section}]]" if section in _ARRAYS else f"[{section}]"
    return Part(title, section, line_of(sentence[:1].upper() + sentence[1:]), rows)


def _plain(hint: object) -> object:
    """Returns a type without None."""
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in hint.__args__ if each is not types.NoneType)
    return hint


def _default(value: object) -> tuple[str, bool]:
    if value is MISSING:
        return REQUIRED, False
    if value is None:
        return NONE, False
    plain = list(value) if isinstance(value, tuple) else value
    text = " ".join(tomli_w.dumps({"key": plain}).partition(" = ")[2].split())
    return text.replace("[ ", "[").replace(", ]", "]"), True


def keys() -> Iterator[str]:
    """Yields every section with its keys, and an example of each that loads."""
    yield (
        "# Keys of a configuration\n\nEvery key of every section, from the code that reads it. "
        "[The configuration](configuration.md) explains them together."
    )
    for part in parts():
        yield f"\n## {part.title}\n\n{part.said}\n"
        if part.rows:
            yield "| key | type | default | allowed | what it is |\n| --- | --- | --- | --- | --- |"
        for row in part.rows:
            default = f"`{row.default}`" if row.spelt else row.default
            cells = [f"`{row.name}`", row.type, default, _allowed(row.allowed), row.said]
            yield f"| {' | '.join(cells)} |"
        yield f"\n```toml\n{part.example}\n```"


def _allowed(allowed: Allowed) -> str:
    if isinstance(allowed, Range):
        return _words(allowed)
    return ", ".join(f"`{choice}`" for choice in allowed)


def _words(allowed: Range) -> str:
    low = f"above {_number(allowed.low)}" if allowed.above else _number(allowed.low)
    if allowed.high_key:
        return f"{low} to `{allowed.high_key}`"
    if math.isinf(allowed.high):
        return low if allowed.above else f"{low} or more"
    high = _number(allowed.high)
    if allowed.above or allowed.below:
        first = low if allowed.above else f"from {low}"
        return f"{first}, {'below' if allowed.below else 'to'} {high}"
    return f"{low} to {high}"


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else str(value)
