"""Conversion of TOML tables to sections and back: known keys, required keys, types. Raises ConfigError.

The errors lack the file's name, which `parties.config.config` adds.
"""

import datetime
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import TypeVar

from mechanisms.annealing import CENTRAL_ROUNDS
from mechanisms.constraints.reading import computed_columns
from mechanisms.domain import Domain
from mechanisms.errors import MechanismError
from parties.config.algorithms import SECTIONS, silo_algorithms
from parties.config.limits import check
from parties.config.schema import (
    ANNEALED,
    FLAIM_MIN_CLIENTS,
    ROWS_INPUT,
    Address,
    ClientsSection,
    ComputeSection,
    FederationSection,
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
from parties.crypto.hpke import SealTo
from parties.foundation.errors import ConfigError

_OF_THE_DOMAIN = ("column", "split", "constraint", "missing", "ignore", "format")
_Section = TypeVar("_Section")


def check_sections(document: Mapping[str, object]) -> None:
    """Refuses a document with an unknown section, or without a required one."""
    check(
        "table" not in document,
        "table",
        "is of tables with keys, which are run and sampled as a whole (syncret run, data sample); expected the "
        "configuration of one of their views (syncret data tables)",
    )
    _check_known(document, (*SECTIONS, *silo_algorithms()), "")
    for name in ("run", "clients", "column"):
        check(name in document, name, f"is missing; expected {_heading(name)}")


def read_run(document: Mapping[str, object]) -> RunSection:
    """Returns [run].

    With schedule = "annealed" the default of ``rounds`` follows from the columns. With sources the default of ``input``
    is rows. Without rounds and schedule the run is annealed, except between silos, whose algorithms define their
    rounds. A refresh has no ``fallback``.
    """
    table = document["run"]
    given = table if isinstance(table, Mapping) else {}
    silent = not {"rounds", "schedule"} & set(given) and "silos" not in document
    annealed = silent or given.get("schedule") == ANNEALED
    computed = computed_columns(_tables(document, "constraint"))
    modelled = [
        table
        for table in _tables(document, "column")
        if "implied_by" not in table and str(table.get("name")) not in computed
    ]
    rounds = CENTRAL_ROUNDS * len(modelled)
    defaults: dict[str, object] = {"rounds": rounds, "schedule": ANNEALED} if annealed else {}
    if "source" in document:
        defaults["input"] = ROWS_INPUT
    section = _section(RunSection, document, "run", defaults=defaults)
    # A refresh draws a noisy pair towards the earlier model, and pairs show what has changed.
    return replace(section, fallback=None) if "refresh" in document else section


def read_workload(document: Mapping[str, object]) -> WorkloadSection:
    """Returns [workload]: drawn queries or listed ones, not both."""

    def count(key: str, value: object) -> int | None:
        return None if value == "all" else _integer(key, value, or_else=' or "all"')

    def queries(key: str, value: object) -> tuple[tuple[str, ...], ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise ConfigError("", key, f"is {_kind(value)}; expected lists of column names")
        for query in value:
            ok = isinstance(query, Sequence) and not isinstance(query, str)
            check(
                ok and all(isinstance(c, str) for c in query), key, "expected lists of column names"
            )
        return tuple(tuple(query) for query in value)

    def target(key: str, value: object) -> tuple[str, ...]:
        columns = [value] if isinstance(value, str) else value
        several = isinstance(columns, Sequence) and all(isinstance(c, str) for c in columns)
        check(several, key, "expected a column's name, or a list of them")
        return tuple(columns) if isinstance(columns, Sequence) else ()

    section = _section(
        WorkloadSection,
        document,
        "workload",
        convert={"count": count, "queries": queries, "target": target},
    )
    table = document.get("workload", {})
    drawn = {"degree", "count", "seed"} & set(table if isinstance(table, Mapping) else ())
    check(
        section.queries is None or not drawn,
        "workload.queries",
        f"stands beside {', '.join(sorted(drawn))}; expected either a list or a drawing",
    )
    return section


def read_clients(document: Mapping[str, object]) -> ClientsSection:
    """Returns [clients]; ``names`` default to the sources' owners, ``expected`` to the number of names.

    The default of ``minimum`` depends on the participation. FLAIM and algorithms between silos continue without clients
    that leave; there the default is the ``minimum`` of [flaim] or [silos].
    """
    table = document["clients"]
    table = table if isinstance(table, Mapping) else {}
    everyone = table.get("participation", 1.0) == 1
    sources = read_sources(document)
    owners = tuple(dict.fromkeys(owner for source in sources for owner in source.owners))
    named = table.get("names", owners)
    known = {"expected": len(named)} if isinstance(named, list | tuple) and named else {}
    expected = table.get("expected", known.get("expected", 1))
    return _section(
        ClientsSection,
        document,
        "clients",
        convert={"names": _names, "opens": _time, "closes": _time},
        defaults={
            **known,
            "names": owners,
            "minimum": _default_minimum(document, expected) if everyone else 1,
        },
    )


def _default_minimum(document: Mapping[str, object], expected: object) -> object:
    """Returns the default of clients.minimum if every client takes part in every round."""
    section = document.get("flaim")
    if any(name in document for name in silo_algorithms()):
        section = document.get("silos", {})
    if not isinstance(section, Mapping) or "party" in document:
        return expected
    least = section.get("minimum", FLAIM_MIN_CLIENTS)
    both = isinstance(least, int) and isinstance(expected, int)
    return min(least, expected) if both else expected


def read_sources(document: Mapping[str, object]) -> tuple[SourceSection, ...]:
    """Returns all [[source]] tables; a key of one column may stand without brackets."""

    def key(name: str, value: object) -> tuple[str, ...]:
        return (value,) if isinstance(value, str) else _names(name, value)

    readers = {"columns": _names, "key": key, "owners": _names}
    return tuple(
        _section(SourceSection, {"source": table}, "source", convert=readers)
        for table in _tables(document, "source")
    )


def source_dict(section: SourceSection) -> dict[str, object]:
    """Returns a [[source]] as its TOML table, without empty lists."""
    values = section_dict(section)
    lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
    return {name: value for name, value in (values | lists).items() if value != []}


def read_refresh(document: Mapping[str, object]) -> RefreshSection | None:
    """Returns [refresh], or None if there is none."""
    return _section(RefreshSection, document, "refresh") if "refresh" in document else None


def read_domain(document: Mapping[str, object]) -> Domain:
    """Returns the domain of [[column]], [[split]], [[constraint]], [missing], [format] and ignore."""
    tables = {key: document[key] for key in _OF_THE_DOMAIN if key in document}
    _tables(document, "column")
    try:
        return Domain.from_dict(tables)
    except MechanismError as error:
        raise ConfigError("", "column", str(error)) from error


def read_parties(document: Mapping[str, object]) -> tuple[PartySection, ...]:
    """Returns all [[party]] tables."""
    return tuple(_party(table, index) for index, table in enumerate(_tables(document, "party")))


def read_tls(document: Mapping[str, object]) -> TlsSection | None:
    """Returns [tls], or None if there is none."""
    return _section(TlsSection, document, "tls") if "tls" in document else None


def read_compute(document: Mapping[str, object]) -> ComputeSection:
    """Returns [compute]."""
    return _section(ComputeSection, document, "compute")


def read_network(document: Mapping[str, object]) -> NetworkSection:
    """Returns [network]."""
    return _section(NetworkSection, document, "network")


def read_timeouts(document: Mapping[str, object]) -> TimeoutsSection:
    """Returns [timeouts]."""
    return _section(TimeoutsSection, document, "timeouts")


def read_flaim(document: Mapping[str, object]) -> FlaimSection | None:
    """Returns [flaim], or None if there is none."""
    if "flaim" not in document:
        return None
    return _section(FlaimSection, document, "flaim", convert=_FEDERATION)


def read_silos(document: Mapping[str, object]) -> SilosSection | None:
    """Returns [silos], with defaults if only an algorithm between silos has a table; None if there is neither."""
    if not any(name in document for name in ("silos", *silo_algorithms())):
        return None
    return _section(SilosSection, document, "silos", convert=_FEDERATION)


def read_algorithm(document: Mapping[str, object]) -> tuple[str, Mapping[str, object]] | None:
    """Returns name and unparsed table of the algorithm between silos; None if there is none."""
    found = [name for name in silo_algorithms() if name in document]
    check(
        len(found) < 2,
        ", ".join(found),
        f"stand in one configuration; expected [{'] or ['.join(silo_algorithms())}]",
    )
    check(
        bool(found) or "silos" not in document,
        "silos",
        f"stands without an algorithm; expected [{'] or ['.join(silo_algorithms())}] beside it",
    )
    for name in found:
        table = document[name]
        if not isinstance(table, Mapping):
            raise ConfigError("", name, f"is {_kind(table)}; expected {_heading(name)}")
        return name, dict(table)
    return None


def section_of(
    cls: type[_Section],
    name: str,
    table: Mapping[str, object],
    *,
    convert: Mapping[str, Callable[[str, object], object]] | None = None,
) -> _Section:
    """Returns the settings ``cls`` of an algorithm from the ``table`` [name], checked as all sections are.

    ``convert`` maps keys to readers of values that are neither numbers, text nor booleans. Raises ConfigError.
    """
    try:
        return _section(cls, {name: table}, name, convert=convert)
    except ValueError as error:
        raise ConfigError("", name, str(error)) from error


def federation_dict(section: FederationSection) -> dict[str, object]:
    """Returns [flaim] or [silos] as its TOML table."""
    values = section_dict(section) | {"clients": list(section.clients)}
    del values["client_keys"]
    values |= {"client_keys": list(section.client_keys)} if section.client_keys else {}
    return values | ({} if section.address is None else {"address": str(section.address)})


def clients_dict(section: ClientsSection) -> dict[str, object]:
    """Returns [clients] as its TOML table; without ``names`` if there are none."""
    values = section_dict(section)
    names = values.pop("names")
    return values | ({"names": list(section.names)} if names else {})


def section_dict(section: object) -> dict[str, object]:
    """Returns a section as its TOML table, without the keys that are None."""
    values = {item.name: getattr(section, item.name) for item in fields(section)}  # type: ignore[arg-type]
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values.items()
        if value is not None
    }


def workload_dict(section: WorkloadSection) -> dict[str, object]:
    """Returns [workload] as its TOML table."""
    target = {"target": list(section.target)} if section.target else {}
    if section.queries is not None:
        return {"queries": [list(query) for query in section.queries], **target}
    drawn = {"degree": section.degree, "count": section.count or "all", "seed": section.seed}
    return {**drawn, **target}


def _section(
    cls: type[_Section],
    document: Mapping[str, object],
    name: str,
    *,
    convert: Mapping[str, Callable[[str, object], object]] | None = None,
    defaults: Mapping[str, object] | None = None,
) -> _Section:
    """Returns ``cls`` from the table [name] after checks of known keys, required keys and types.

    Args:
        convert: readers by key, in place of the readers by type.
        defaults: values of keys that the table lacks.
    """
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigError("", name, f"is {_kind(table)}; expected {_heading(name)}")
    values: dict[str, object] = dict(defaults or {})
    items = fields(cls)  # type: ignore[arg-type]
    _check_known(table, [item.name for item in items], name)
    for item in items:
        key = f"{name}.{item.name}"
        if item.name in table:
            reader = (convert or {}).get(item.name, _READERS.get(item.type))
            values[item.name] = reader(key, table[item.name]) if reader else table[item.name]
        elif item.name not in values:
            check(item.default is not MISSING, key, f"is missing; expected it in {_heading(name)}")
    return cls(**values)


def _party(table: Mapping[str, object], index: int) -> PartySection:
    def address(key: str, value: object) -> Address:
        try:
            return Address.parse(_string(key, value))
        except ValueError as error:
            raise ConfigError("", key, f"{error} (party {index})") from error

    def seal(key: str, value: object) -> str:
        try:
            return str(SealTo.parse(_string(key, value)))
        except ValueError as error:
            expected = "expected the key from the server's card"
            raise ConfigError("", key, f"{error}; {expected} (party {index})") from error

    readers = {"mesh": address, "ingest": address, "seal": seal}
    return _section(PartySection, {"party": table}, "party", convert=readers)


def _tables(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    value = document.get(name, [])
    ok = isinstance(value, Sequence) and all(isinstance(item, Mapping) for item in value)
    check(ok, name, f"is {_kind(value)}; expected {_heading(name)}")
    return list(value)  # type: ignore[call-overload,no-any-return]


def _check_known(table: Mapping[str, object], allowed: Sequence[str], section: str) -> None:
    for key in table:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(allowed)}"
            what = "key" if section else "section"
            raise ConfigError("", f"{section}.{key}".strip("."), f"is an unknown {what}; {hint}")


def _heading(name: str) -> str:
    return (
        f"[[{name}]] tables"
        if name in ("column", "constraint", "party", "source")
        else f"a [{name}] table"
    )


def _kind(value: object) -> str:
    return {dict: "a table", list: "a list", str: "text", bool: "true or false"}.get(
        type(value), f"{value!r}"
    )


def _integer(key: str, value: object, or_else: str = "") -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError("", key, f"is {_kind(value)}; expected a whole number{or_else}")
    return value


def _number(key: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError("", key, f"is {_kind(value)}; expected a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ConfigError("", key, "is larger than any number has to be") from error


def _boolean(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("", key, f"is {_kind(value)}; expected true or false")
    return value


def _names(key: str, value: object) -> tuple[str, ...]:
    ok = isinstance(value, Sequence) and not isinstance(value, str)
    check(ok, key, f"is {_kind(value)}; expected a list of names")
    return tuple(_string(key, name) for name in value)  # type: ignore[attr-defined]


def _time(key: str, value: object) -> str:
    """Returns a TOML time, or a text, as text."""
    return value.isoformat() if isinstance(value, datetime.datetime) else _string(key, value)


def _string(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError("", key, f"is {_kind(value)}; expected text")
    return value


def _address(key: str, value: object) -> Address:
    try:
        return Address.parse(_string(key, value))
    except ValueError as error:
        raise ConfigError("", key, str(error)) from error


_FEDERATION = {"address": _address, "clients": _names, "client_keys": _names}
_READERS: Mapping[object, Callable[[str, object], object]] = {
    int: _integer,
    int | None: _integer,
    float: _number,
    float | None: _number,
    str: _string,
    str | None: _string,
    bool: _boolean,
    bool | None: _boolean,
    tuple[str, ...]: _names,
    tuple[str, ...] | None: _names,
}
