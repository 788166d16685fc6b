"""Consent of a data owner, in sentences: what leaves, what it is used for, what it costs, and who takes part.

All figures but the table's rows are of the configuration that everybody compares by its words. Secret: the number of
rows, which is for the screen of the table's owner.
"""

import textwrap
from collections.abc import Iterable

from mechanisms.text_table import and_list
from parties.config import PERSON, Config
from parties.foundation.untrusted_text import printable
from parties.identity.join_documents import fingerprint_lines
from parties.mpc.submission.preview import Preview
from parties.session.study import Study
from parties.session.study_text import count_text, names_text, owners_sentence, queries_sentence

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
        "What leaves is split into secret shares and sealed: no single server can read a value, two of them together "
        "could."
    )


def _release(config: Config) -> str:
    run = config.run
    terms = (
        "" if run.terms is None else " Terms of use go with the table, which the configuration has."
    )
    unit = "each person in your table" if run.unit == PERSON else "each row of your table"
    return (
        f"What comes out is a synthetic table, with epsilon {run.epsilon:g} and delta {run.delta:g} of privacy for "
        f"{unit}, "
        "whatever the other owners send. It goes to everybody who takes part, with its model, a report and what an "
        f"audit reads; your name is in them.{terms} Your rows are deleted at the study's end."
    )


def _servers(config: Config) -> str:
    ends = and_list(f"{party.name} ({party.ingest.host})" for party in config.require_parties())
    return f"The servers are {ends}."
