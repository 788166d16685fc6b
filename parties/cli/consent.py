"""Consent of a data owner, in sentences: what leaves, what it is used for, what it costs, and who takes part.

All figures but the table's rows are of the configuration that everybody compares by its words. Secret: the number of
rows, which is for the screen of the table's owner.
"""

import textwrap
from collections.abc import Iterable, Sequence

from mechanisms.text_table import and_list
from parties.config import MALICIOUS, PERSON, Config, FederationSection, FlaimSection
from parties.foundation.untrusted_text import printable
from parties.identity.join_documents import fingerprint_lines
from parties.mpc.submission.preview import Preview
from parties.session.study import Study
from parties.session.study_text import (
    count_text,
    names_text,
    owners_sentence,
    queries_sentence,
    sums_sentence,
)

_WIDTH = 110


def consent_text(study: Study, found: Preview, cost: Iterable[str]) -> str:
    """Returns what a data owner agrees to when it sends its table; ``cost`` are sentences on its budget."""
    config = study.config
    sentences = [
        f"You take part in the study {config.run.id}, as {found.client}, with {found.rows:,} rows of your own.",
        _columns(config),
        queries_sentence(study),
        _release(config),
        *cost,
        _servers(config),
        owners_sentence(config),
    ]
    lines = [line for each in sentences for line in textwrap.wrap(printable(each), _WIDTH)]
    words = [
        "These words stand for all of that. Two operators at least read you the same ones:",
        *fingerprint_lines(config.digest()),
    ]
    away = [f"{s.party} at {s.address}: {s.says}" for s in found.servers if not s.takes]
    return "\n".join([*lines, *words, *away])


def federation_consent(
    study: Study,
    client: str,
    *,
    rows: int,
    guarantee: Sequence[str],
    private: bool,
    cost: Iterable[str],
) -> str:
    """Returns what a participant of a study with one server agrees to when it takes part with ``rows`` rows.

    ``guarantee`` are the method's sentences, of a run that is ``private`` or not; ``cost`` are those on its budget.
    """
    config, section = study.config, study.config.require_federation()
    sentences = [
        f"You take part in the study {config.run.id}, as {client}, with {rows:,} rows of your own. They stay on this "
        "machine, and this command stays connected until the study ends.",
        _used_columns(config),
        sums_sentence(study),
        _noise(section),
        _outcome(config, guarantee, private=private),
        *cost,
        f"The server is {section.server} ({_host(section)}), alone.",
        _participants(config),
    ]
    lines = [line for each in sentences for line in textwrap.wrap(printable(each), _WIDTH)]
    words = [
        "These words stand for all of that. The server's operator and another owner read you the same ones:",
        *fingerprint_lines(config.digest()),
    ]
    return "\n".join([*lines, *words])


def _used_columns(config: Config) -> str:
    names = config.domain.names
    person = config.run.person or ()
    keys = (
        f" The columns {and_list(person)} identify a person's rows; they are used on this machine alone."
        if person
        else ""
    )
    return f"Of your table {count_text(len(names), 'column')} are used: {names_text(names)}.{keys}"


def _noise(section: FederationSection) -> str:
    among = f"over {section.minimum} or more owners"
    if section.noise == "distributed":
        return (
            f"Your numbers leave masked: the server learns only sums {among}. Each owner adds a part of the noise, "
            "so that not even the server sees a sum without noise."
        )
    single = (
        " Counts of a query that one or two owners chose reach it by themselves."
        if isinstance(section, FlaimSection) and section.grouping == "query"
        else ""
    )
    return (
        f"Your numbers leave masked: the server learns only sums {among}.{single} The server adds any noise that the "
        "method does not add here: you trust it with sums without noise."
    )


def _outcome(config: Config, guarantee: Sequence[str], *, private: bool) -> str:
    terms = "" if config.run.terms is None else " The terms of use in the configuration go with it."
    what = "model" if config.algorithm is not None else "synthetic table"
    return (
        f"The result is a {what} with {'this guarantee' if private else 'THIS STATEMENT'}: "
        f"{_sentence(' '.join(guarantee))} It goes to everybody who takes part, with a report and what an audit reads; "
        f"your name is in them.{terms}"
    )


def _participants(config: Config) -> str:
    section = config.require_federation()
    least = max(section.minimum, config.clients.minimum)
    until = f" They may come until {config.clients.closes}." if config.clients.closes else ""
    lists = " and their keys" if section.client_keys else ""
    against = (
        "Every owner checks and signs who is in a sum, so that the server can invent nobody"
        if config.run.security == MALICIOUS
        else "The server is trusted to follow the protocol"
    )
    return (
        f"At least {least:,} of these {count_text(len(section.clients), 'owner')}{lists} take part: "
        f"{names_text(section.clients)}, each with at most {config.clients.rows_per_client:,} rows.{until} {against}."
    )


def _host(section: FederationSection) -> str:
    return "" if section.address is None else section.address.host


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _columns(config: Config) -> str:
    names = config.domain.names
    keys = {name for source in config.sources for name in source.key}
    linked = (
        f" The columns {and_list(sorted(keys))} link your rows with others', hashed."
        if keys
        else ""
    )
    return (
        f"Of your table {count_text(len(names), 'column')} may leave this machine: {names_text(names)}; nothing else "
        f"does.{linked} "
        "These columns leave as sealed secret shares: no single server can read a value, two of them together could."
    )


def _release(config: Config) -> str:
    run = config.run
    terms = "" if run.terms is None else " The terms of use in the configuration go with the table."
    unit = "each person in your table" if run.unit == PERSON else "each row of your table"
    return (
        f"The result is a synthetic table, with epsilon {run.epsilon:g} and delta {run.delta:g} of privacy for "
        f"{unit}, "
        "whatever the other owners send. It goes to everybody who takes part, with its model, a report and what an "
        f"audit reads; your name is in them.{terms} Your rows are deleted at the study's end."
    )


def _servers(config: Config) -> str:
    ends = and_list(f"{party.name} ({party.ingest.host})" for party in config.require_parties())
    return f"The servers are {ends}."
