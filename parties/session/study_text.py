"""Sentences on a study, for the people who agree to it: data owners and operators. All values here are public."""

from collections.abc import Sequence

from mechanisms.text_table import and_list
from parties.config import MALICIOUS, PERSON, Config
from parties.session.study import Study

_MOST_NAMES = 40


def count_text(number: int, one: str, more: str = "") -> str:
    """Returns a number with its noun, such as 3 columns."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def names_text(names: Sequence[str]) -> str:
    """Returns names as a list of a sentence; of many the first ones, and the number of the others."""
    if len(names) <= _MOST_NAMES:
        return and_list(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES:,} more"


def queries_sentence(study: Study) -> str:
    """Returns a sentence on the study's queries."""
    queries = [" with ".join(query) for query in study.workload.queries]
    columns = max((len(query) for query in study.workload.queries), default=0)
    rounds = study.config.run.rounds
    return (
        f"The servers count rows by up to {columns} columns at a time, with noise, in at most {rounds} rounds, for "
        f"{count_text(len(queries), 'query', 'queries')}: {names_text(queries)}."
    )


def sums_sentence(study: Study) -> str:
    """Returns a sentence on the sums that the one server of a federation asks for."""
    config = study.config
    rounds = config.run.rounds
    if config.algorithm is None:
        queries = [" with ".join(query) for query in study.workload.queries]
        section = config.require_flaim()
        chosen = "" if section.variant == "pairs" else f', chosen as "{section.variant}" says'
        return (
            f"The server asks in at most {rounds} rounds for counts of your rows, for "
            f"{count_text(len(queries), 'query', 'queries')}{chosen}: {names_text(queries)}."
        )
    name, table = config.algorithm
    settings = ", ".join(f"{key} = {_value(value)}" for key, value in sorted(table.items()))
    return (
        f"The server asks for sums of numbers made of your rows by the method {name}, of {rounds} rounds"
        f"{f', with {settings}' if settings else ''}; this program answers no other request."
    )


def _value(value: object) -> str:
    return and_list([str(each) for each in value]) if isinstance(value, list) else str(value)


def owners_sentence(config: Config) -> str:
    """Returns a sentence on the data owners that may take part in a study of three servers."""
    clients = config.clients
    who = f", of {names_text(clients.names)}" if clients.names else ""
    until = f" They may come until {clients.closes}." if clients.closes else ""
    return (
        f"At least {count_text(clients.minimum, 'data owner')} and at most {clients.expected} take part{who}, each "
        f"with at most {clients.rows_per_client:,} rows.{until}"
    )


def study_sentences(study: Study) -> list[str]:
    """Returns the study as its operators approve it: columns, queries, budget, owners and servers."""
    config = study.config
    names = config.domain.names
    return [
        f"{count_text(len(names), 'column')} of the owners' tables: {names_text(names)}.",
        queries_sentence(study) if config.parties else sums_sentence(study),
        _outcome_sentence(config),
        owners_sentence(config) if config.parties else _clients_sentence(config),
        _servers_sentence(config),
    ]


def _outcome_sentence(config: Config) -> str:
    run = config.run
    unit = "each person" if run.unit == PERSON else "each row"
    terms = "" if run.terms is None else " Terms of use go with it."
    if config.algorithm is not None:
        return (
            "The result is a model, with the privacy of these settings. Everybody who takes part gets it."
            f"{terms}"
        )
    return (
        f"The study spends epsilon {run.epsilon:g} and delta {run.delta:g} for {unit}, of the budget of everybody "
        f"whose rows are counted. The result is a synthetic table, which everybody who takes part gets.{terms}"
    )


def _clients_sentence(config: Config) -> str:
    section = config.require_federation()
    who = f": {names_text(section.clients)}" if section.clients else ""
    return (
        f"At least {count_text(section.minimum, 'data owner')} take part in every sum{who}, each with at most "
        f"{config.clients.rows_per_client:,} rows."
    )


def _servers_sentence(config: Config) -> str:
    if not config.parties:
        return f"The server is {config.require_federation().server}, alone."
    names = and_list(party.name for party in config.parties)
    security = (
        "Each proves all that it sends, and one that deviates ends the run."
        if config.run.security == MALICIOUS
        else "Each is assumed to follow the protocol."
    )
    return f"The servers are {names}. None of them can read a row alone, two of them together could. {security}"
