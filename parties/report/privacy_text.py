"""Head of a report (study, method, owners, date, columns) and its privacy in words.

The unit of privacy in words is a row, or a person with its rows in one table or in several sources. Source:
`mechanisms` README, "Units of privacy".
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from mechanisms.columns import Categorical, Column, Implied, Moment
from mechanisms.constraints.derived import Derived
from mechanisms.domain import Domain
from mechanisms.numbers import Integer, Real
from mechanisms.origins import column_in_words, counted
from mechanisms.provenance import TABLE
from parties.config import BY_KEY, PERSON, SAMPLE, Config
from parties.foundation.version import TEXT_EDITION, version
from parties.report.attacker import attacker_of, attacker_text, delta_text, two_studies_text

ROW_OF_ALL = "one row added to or removed from the whole table"
"""Default unit of the guarantee of DistAIM and central AIM."""
MASKED = "masked sums"
"""Word of ``unit_trust`` for the messages of a federation's participants."""
LINKED_TRUST = (
    "Rows were linked on secret shares. Linking opened only the order of secretly shuffled rows: not which rows "
    "match, not how many match, and nothing of a linking key. No query and no result has a key.",
)
ALIGNED_TRUST = (
    "Rows of the sources were joined by their order. The owners state that a row's place has the same person in all "
    "sources.",
)


def unit_text(config: Config) -> str:
    """Returns the unit that a run's guarantee is for."""
    rows, names = config.rows_of_unit, [source.name for source in config.sources]
    if config.run.unit == PERSON and names:
        several = [source for source in config.sources if source.rows_per_person > 1]
        having = f"; in {several[0].name} up to {rows}" if several else ""
        if len(names) == 1:
            return f"one person added or removed with all of its rows, which are at most {rows}"
        key = "the rows that share a linking key" if config.run.link == BY_KEY else "a row's place"
        return (
            f"one person added or removed with all of its rows ({key}: one in each source{having})"
        )
    if config.run.unit == PERSON:
        return f"one person added or removed with all of its rows, which are at most {rows} in the whole table"
    if names and config.run.link != BY_KEY:
        # A row missing in one source alone would shift all later rows against those of the other sources.
        return f"one place added or removed: its rows in all of the sources {', '.join(names)}"
    if names:
        return f"one row added to or removed from one of the sources {', '.join(names)}"
    return ROW_OF_ALL


def link_trust(config: Config) -> tuple[str, ...]:
    """Returns the sentences on leaks of joining sources on shares; none without sources."""
    if not config.sources:
        return ()
    return LINKED_TRUST if config.run.link == BY_KEY else ALIGNED_TRUST


def unit_trust(config: Config, sent: str = "shares") -> tuple[str, ...]:
    """Returns the sentences on the unit of the guarantee, and on its consequences.

    ``sent`` is what owners send, from which nobody can see whose rows they are.
    """
    rows, said = config.rows_of_unit, f"The privacy guarantee is for {unit_text(config)}."
    if config.sources and config.run.link == BY_KEY:
        said += f" {_of_sources(config)}"
    elif config.run.person is not None:
        key = ", ".join(config.run.person)
        did = f"refused a table in which somebody has more than {_rows(rows)}, by {key}"
        if config.run.more_rows == SAMPLE:
            did = f"left rows out where somebody, by {key}, has more than {_rows(rows)}; only the owner knows how many"
        said += (
            f" Each owner's own program {did}. The owners state that "
            f"a person has no more than {_rows(rows)} at all owners together: nobody can see from {sent} "
            "whose rows they are."
        )
    elif config.run.unit == PERSON and not config.sources:
        said += (
            f" The owners state that a person has at most {rows} rows: nobody can see from {sent} whose rows they "
            "are, and a person with more is protected less."
        )
    elif config.sources:
        said += (
            " The owners state that a person has one place, the same in all sources: nobody can see from shares "
            "whose rows lie there, and a person with more places is protected less."
        )
    if rows == 1:
        return (said,)
    scaled = (
        f"Budget and ledger have the cost of one row; a person with {rows} rows costs {rows * rows} times as much. So "
        f"the noise is {rows} times as large as for one row, and choices depend {rows} times less on each."
    )
    return said, scaled


def _of_sources(config: Config) -> str:
    """Returns the sentence on the bound on joined rows per unit, and on its reason, for any rows that owners send."""
    if len(config.sources) == 1:
        return (
            f"A key in more than {_rows(config.rows_of_unit)} is not counted at all, whoever sent these rows. "
            f"So a person counts as {_rows(config.rows_of_unit)} at most, whatever owners send."
        )
    several = [source.name for source in config.sources if source.rows_per_person > 1]
    where = f" (in {several[0]} in more than {config.rows_of_unit})" if several else ""
    return (
        f"A key in more than one row of a source{where} joins nothing, whoever sent these rows. So a row, or a person "
        f"with all of its rows, adds or removes {_rows(config.rows_of_unit, 'joined row')} at most."
    )


def _rows(rows: int, what: str = "row") -> str:
    return f"one {what}" if rows == 1 else f"{rows} {what}s"


CENTRAL = "aim"
_NAMES = {"distaim": "DistAIM", CENTRAL: "central AIM", "flaim": "FLAIM"}
_FLAIM = "flaim-"
ACCOUNT = "account"
"""Key of a published report with the statement on the budget that a run on one machine is charged to."""
_NOT_PRIVATE = "flaim-oracle"
_SHOWN_VALUES = 6
NOT_PRIVATE_TEXT = (
    "Not private: this experiment chose its queries by the pooled table, without noise."
)
NO_ORGANISATION = (
    "Organisations are not protected: the result may show that one took part, "
    "and what its rows have in common."
)


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column: its ``kind``, ``cells`` (0 for an implied one), and in words its ``values`` and provenance."""

    name: str
    kind: str
    cells: int
    values: str
    provenance: str = ""


@dataclass(frozen=True, slots=True)
class ReportHeader:
    """Facts of a run: id of the study, digest (hex) of the configuration, end (ISO 8601, UTC), program and columns.

    ``version`` is the program's, ``edition`` that of its sentences. ``unit`` is the unit of the guarantee, in words.
    ``provenance`` has the numbers of the domain's values that are public, private, or from a table
    (`mechanisms.origins.counted`). ``start`` is the digest of the model that a refresh started from.
    """

    study: str
    configuration: str
    ended: str
    version: str
    unit: str
    columns: tuple[ColumnDescription, ...]
    provenance: Mapping[str, int] = field(default_factory=dict)
    edition: int = TEXT_EDITION
    start: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Returns the `about` section of report.json."""
        document = {**asdict(self), "columns": [asdict(column) for column in self.columns]}
        return {key: value for key, value in document.items() if key != "start" or value}


def report_header(config: Config, *, ended: float | None, unit: str | None = None) -> ReportHeader:
    """Returns the facts of a run that ended at ``ended``, in seconds since 1970; None means now.

    ``unit`` None means the unit of DistAIM and central AIM.
    """
    moment = datetime.fromtimestamp(time.time() if ended is None else ended, UTC)
    return ReportHeader(
        config.run.id,
        config.digest(),
        moment.isoformat(timespec="seconds").replace("+00:00", "Z"),
        version(),
        unit_text(config) if unit is None else unit,
        _columns(config.domain),
        counted(config.domain),
        start=None if config.refresh is None else config.refresh.digest,
    )


def transcript_end(transcript: Path | None) -> float | None:
    """Returns the time of a transcript's last record, in seconds since 1970; None if there is none that can be read."""
    if transcript is None:
        return None
    began, last = None, b""
    try:
        with transcript.open("rb") as lines:
            for line in lines:
                if line.startswith((b'{"kind":"header"', b'{"kind":"resumed"')):
                    began = float(json.loads(line)["time"])
                last = line
        return None if began is None else began + float(json.loads(last)["t"]) / 1000
    except (OSError, ValueError, KeyError, TypeError):
        return None


def method_name(method: object) -> str:
    """Returns a method's name for people."""
    text = str(method)
    if text.startswith(_FLAIM):
        return f"FLAIM ({text.removeprefix(_FLAIM)})"
    return _NAMES.get(text, text)


def headline(report: Mapping[str, object]) -> str:
    """Returns the first sentence of a report: size of the table, method, number of owners, version and date."""
    parameters, facts = _table(report, "parameters"), _table(report, "about")
    rows, columns = report.get("synthetic_rows"), facts.get("columns")
    size = (
        "A synthetic table" if not isinstance(rows, int) else f"A synthetic table of {rows:,} rows"
    )
    if isinstance(columns, Sequence) and columns:
        size += f" and {len(columns)} columns"
    owners = parameters.get("clients")
    made = f", made by {method_name(report.get('method'))}"
    if isinstance(owners, int) and report.get("method") != CENTRAL:
        made += f" of the tables of {_count(owners, 'data owner')}"
    if "version" in facts:
        made += f", with Syncret {facts['version']}"
    return f"{size}{made}{_when(facts.get('ended'))}."


def account_text(report: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the sentence on the budget that a published run on one machine is charged to; none for other reports."""
    match report.get(ACCOUNT):
        case {"charged": True}:
            return (
                "This run was made on one machine. Its publisher states that it was charged to the budget of the "
                "people in its table.",
            )
        case {"charged": False, "why": str() as why}:
            return (
                f"This run was made on one machine, and is charged to no budget. The reason: {why.strip()}.",
            )
    return ()


def privacy_text(report: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the sentences on epsilon and delta, on the best attacker, on conditions, and on the spent budget."""
    parameters, privacy = _table(report, "parameters"), _table(report, "privacy")
    unit = _table(report, "about").get("unit", ROW_OF_ALL)
    if not is_private(report):
        return (NOT_PRIVATE_TEXT, *account_text(report))
    who, bound = str(parameters.get("unit", "row")), attacker_of(report)
    large = delta_text(bound.delta, report.get("synthetic_rows"))
    meanings = (
        f"Privacy: epsilon = {bound.epsilon:g}, delta = {bound.delta:g}, for {unit}.",
        attacker_text(bound, who),
        *([large] if large else []),
        f"{_condition(parameters, who)} {NO_ORGANISATION} {two_studies_text(bound)}",
        *_not_covered(report),
        *_start_text(report),
    )
    if "rho_spent" not in privacy:
        return (*meanings, *account_text(report))
    spent, total = float(privacy["rho_spent"]), float(privacy["rho_total"])  # type: ignore[arg-type]
    rows = int(float(parameters.get("rows_of_unit", 1)))  # type: ignore[arg-type]
    of_person = f" for a row ({total * rows * rows:.4g} for {rows} of them)" if rows > 1 else ""
    budget = (
        f"The privacy budget is rho = {total:.4g} in zCDP{of_person}; {100 * spent / total:.1f} % of it was spent"
        f"{_spent_on(privacy.get('ledger'))}."
    )
    return *meanings, budget, *account_text(report)


def is_private(report: Mapping[str, object]) -> bool:
    """True for a report with a privacy guarantee."""
    return report.get("method") != _NOT_PRIVATE and report.get("private", True) is True


def _condition(parameters: Mapping[str, object], who: str) -> str:
    """Returns the bound on rows under which the guarantee holds."""
    rows = parameters.get("rows_of_unit", 1)
    if who == PERSON:
        several = "one row" if rows == 1 else f"{rows} rows"
        return f"This holds for people with at most {several}: one who has more is protected less."
    return "This holds for a single row: a person with several of them is protected less."


def _not_covered(report: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the sentence on values of the domain that were read from a table; none if there are none."""
    counts = _table(_table(report, "about"), "provenance")
    read = counts.get(TABLE)
    if not isinstance(read, int) or not read:
        return ()
    return (
        f"Not covered by this: {_count(read, 'value')} of the domain (categories, bounds, bins, values by themselves) "
        "were read from a table, and are published as they are.",
    )


def _start_text(report: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the sentence on the model that a refresh started from; none for other runs."""
    start = _table(report, "about").get("start")
    if not start:
        return ()
    return (
        f"The run started from the published model {str(start)[:12]} of an earlier run, which costs nothing more. "
        "Somebody who is in both tables has the cost of both runs: their rho (in zCDP) add up.",
    )


def _spent_on(ledger: object) -> str:
    """Returns the ledger's steps with their shares, largest first."""
    sums: dict[str, list[float]] = {}
    for entry in ledger if isinstance(ledger, Sequence) else ():
        if isinstance(entry, Mapping):
            sums.setdefault(str(entry.get("step", "")), []).append(float(entry["rho"]))
    whole = math.fsum(rho for items_ in sums.values() for rho in items_)
    if not whole:
        return ""
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1]))
    said = [f"{step} {100 * sum(items_) / whole:.0f} %" for step, items_ in ordered]
    return f" ({', '.join(said)})"


def _when(ended: object) -> str:
    try:
        moment = datetime.fromisoformat(str(ended))
    except ValueError:
        return ""
    return f", on {moment.day} {moment:%B %Y} at {moment:%H:%M} UTC"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _table(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def _columns(domain: Domain) -> tuple[ColumnDescription, ...]:
    columns = domain.described
    return tuple(
        replace(_column(columns[name]), provenance=column_in_words(domain, name))
        for name in domain.described_names
    )


def _column(column: Column | Implied | Derived) -> ColumnDescription:
    if isinstance(column, Derived):
        return ColumnDescription(column.name, "derived", 0, f"is {column.formula}")
    if isinstance(column, Implied):
        return ColumnDescription(column.name, "implied", 0, f"follows from {column.source}")
    missing = ", or missing" if column.missing else ""
    return ColumnDescription(column.name, column.kind, column.size, f"{_values(column)}{missing}")


def _values(column: Column) -> str:
    if isinstance(column, Categorical):
        if column.private is not None and not column.private.measured:
            listed = f"{len(column.categories):,} candidates"
            return f"those of {listed} that noisy counts keep; all others are {column.other!r}"
        shown = ", ".join(column.categories[:_SHOWN_VALUES])
        more = len(column.categories) - _SHOWN_VALUES
        shown = f"{shown} and {more} more" if more > 0 else shown
        return f"{shown}; all others are {column.other!r}" if column.other else shown
    free = column.private is not None and column.private.free
    said = "any, with bounds from noisy counts" if free else f"{column.low} to {column.high}"
    if isinstance(column, Moment):
        said += f", to the {column.unit}"
    if isinstance(column, Real) and column.digits is not None:
        said += f", {_count(column.digits, 'digit')}"
    elif isinstance(column, Real) and column.decimals is not None:
        said += f", {_count(column.decimals, 'decimal')}"
    if isinstance(column, Integer | Real) and column.scale != "linear":
        said += ", log scale"
    if column.private is not None:
        said += ", bins from noisy counts"
    if column.atoms:
        atoms = ", ".join(str(atom) for atom in column.atoms[:_SHOWN_VALUES])
        more = len(column.atoms) - _SHOWN_VALUES
        said += f"; by themselves {atoms}" + (f" and {more} more" if more > 0 else "")
    if column.form:
        said += f"; as in {column.form}"
    if column.marks:
        said += f"; or {', '.join(column.marks)}"
    return said
