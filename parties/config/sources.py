"""[[source]]: columns and owners of each source, linkage of rows, and rows per person.

Everything here is public. Raises ConfigError. Source: `mechanisms` README, "Sources".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mechanisms.constraints.declared import REFUSE, REPAIR
from mechanisms.domain import Domain
from mechanisms.table_keys import within
from mechanisms.text_table import and_list
from parties.config.limits import check, check_allowed, check_name, check_names
from parties.config.schema import BY_ORDER, PERSON, ROWS_INPUT, ClientsSection, RunSection

MAX_SOURCES = 5
MAX_ROWS_PER_PERSON = 1000


@dataclass(frozen=True, slots=True)
class SourceSection:
    """[[source]]: columns at different owners, of the same people."""

    name: str
    """Name of the source."""
    columns: tuple[str, ...]
    """Columns of the domain in the tables of its owners."""
    key: tuple[str, ...] = ()
    """Column or columns that link rows; they are in no query and no result."""
    rows_per_person: int = field(default=1, metadata=within(1, MAX_ROWS_PER_PERSON))
    """Largest number of a person's rows in this source."""
    owners: tuple[str, ...] = ()
    """Names in the owners' certificates; a trial makes up missing names."""

    def __post_init__(self) -> None:
        check_name("source.name", self.name)
        where = f"of source {self.name!r}"
        check(bool(self.columns), "source.columns", f"{where} is empty; expected names of columns")
        for key, names in (("columns", self.columns), ("key", self.key)):
            check(
                len(set(names)) == len(names),
                f"source.{key}",
                f"{where} has a name twice; expected different names",
            )
        check_allowed("source", self)
        check_names("source.owners", self.owners)


def check_sources(
    sources: Sequence[SourceSection], run: RunSection, clients: ClientsSection, domain: Domain
) -> None:
    """Refuses sources that do not make one table, or a run that cannot join them."""
    check(
        run.rows_per_person == 1 or (run.unit == PERSON and not sources),
        "run.rows_per_person",
        f"is {run.rows_per_person}; expected it beside unit = {PERSON!r} and without [[source]] tables, "
        "which have rows_per_person themselves",
    )
    if not sources:
        return
    check(
        len(sources) <= MAX_SOURCES,
        "source",
        f"stands {len(sources)} times; expected at most {MAX_SOURCES} [[source]] tables",
    )
    names = [source.name for source in sources]
    check(len(set(names)) == len(names), "source.name", f"repeats in {names}; expected different")
    _check_columns(sources, domain)
    _check_links(sources, run, domain)
    _check_repairs(run, domain)
    _check_run(run, clients)
    _check_owners(sources, run, clients)


def _check_columns(sources: Sequence[SourceSection], domain: Domain) -> None:
    """Refuses columns that are not in exactly one source."""
    for source in sources:
        for column in source.columns:
            check(
                column in domain.names,
                "source.columns",
                f"of source {source.name!r} has {column!r}, which no [[column]] describes; "
                "implied columns and keys do not stand there",
            )
    for column in domain.names:
        having = [source.name for source in sources if column in source.columns]
        found = and_list(map(repr, having)) or "none"
        check(
            len(having) == 1,
            "source.columns",
            f"has column {column!r} in {found}; expected it in exactly one source",
        )


def _check_links(sources: Sequence[SourceSection], run: RunSection, domain: Domain) -> None:
    written = {*domain.described_names, *domain.written_names}
    for source in sources:
        where = f"of source {source.name!r}"
        if run.link == BY_ORDER:
            check(
                not source.key and source.rows_per_person == 1,
                "source.key",
                f"{where} stands beside run.link = {BY_ORDER!r}, or rows_per_person does; expected neither",
            )
            continue
        check(
            bool(source.key),
            "source.key",
            f"{where} is missing; expected the columns by which rows are linked, or run.link = {BY_ORDER!r}",
        )
        check(
            len(source.key) == len(sources[0].key),
            "source.key",
            f"{where} has {len(source.key)} columns; expected {len(sources[0].key)}, as in {sources[0].name!r}",
        )
        for column in source.key:
            check(
                column not in written,
                "source.key",
                f"{where} has {column!r}, which is a [[column]], too, and would be published; expected one of the two",
            )
    many = [source.name for source in sources if source.rows_per_person > 1]
    check(
        len(many) <= 1,
        "source.rows_per_person",
        f"is above 1 in {and_list(many)}; expected that in one source: with several rows of a person in two sources, "
        "nothing says which of them belong together",
    )
    check(
        not many or run.unit == PERSON,
        "run.unit",
        f"is {run.unit!r} beside rows_per_person above 1 in source {''.join(many[:1])!r}; expected {PERSON!r}",
    )


def _check_repairs(run: RunSection, domain: Domain) -> None:
    """Refuses rows that are left out where rows are linked by their order."""
    repaired = [each.words for each in domain.constraints if each.violations == REPAIR]
    check(
        run.link != BY_ORDER or not repaired,
        "constraint.violations",
        f"is {REPAIR!r} in {and_list(repaired)} beside run.link = {BY_ORDER!r}, by which a row that is left out moves "
        f"all later ones; expected {REFUSE!r}",
    )


def _check_run(run: RunSection, clients: ClientsSection) -> None:
    check(
        run.input == ROWS_INPUT,
        "run.input",
        f"is {run.input!r}; with [[source]] tables servers link rows, and counts have none: expected {ROWS_INPUT!r}",
    )
    check(
        clients.participation == 1,
        "clients.participation",
        f"is {clients.participation}; with [[source]] tables rows are linked once, before round 0: expected 1",
    )


def _check_owners(
    sources: Sequence[SourceSection], run: RunSection, clients: ClientsSection
) -> None:
    owners = [owner for source in sources for owner in source.owners]
    if not owners:
        return
    check(
        all(source.owners for source in sources),
        "source.owners",
        "is missing in some sources; expected it in all, or in none for a trial",
    )
    for owner in owners:
        check(
            owners.count(owner) == 1,
            "source.owners",
            f"has {owner!r} more than once; expected an owner in one source: a certificate for each",
        )
    check(
        set(clients.names) == set(owners),
        "clients.names",
        "differs from the owners of all sources; expected the same names, or no such key",
    )
    check(
        clients.expected == len(owners),
        "clients.expected",
        f"is {clients.expected}; expected {len(owners)}, as many as the sources have owners",
    )
    if run.link == BY_ORDER:
        counts = {len(source.owners) for source in sources}
        check(
            len(counts) == 1 and clients.minimum == clients.expected,
            "source.owners",
            f"beside run.link = {BY_ORDER!r}: expected equally many owners in each source, the first of one beside the "
            "first of the next, and clients.minimum = clients.expected",
        )


def rows_of_unit(sources: Sequence[SourceSection], run: RunSection) -> int:
    """Returns the maximum number of rows of the whole table that one unit of privacy adds or removes.

    For a person with linked rows: the ``rows_per_person`` of the one source where that is above 1. For a row of one
    source: 1, since a key that repeats where it may not joins nothing.
    """
    if run.unit != PERSON:
        return 1
    return max((source.rows_per_person for source in sources), default=run.rows_per_person)
