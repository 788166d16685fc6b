"""Parts of report.json: each is held by a check, follows from the run, or is its writer's word and named so.

``unchecked_parts`` goes through all keys of a report; one that no report has fails. Sentences follow from the run to
the last letter in reports of this program's edition (`parties.foundation.version.TEXT_EDITION`); those of other
editions are unchecked. All values here are public.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mechanisms.aim import AimResult, Estimate, estimated_total
from parties.audit.checks.participants import counted_capacities, counted_owners
from parties.audit.checks.privacy import RunTerms, finished_rounds
from parties.audit.checks.released import released_measurements
from parties.audit.checks.report import FIGURES, REPORT_FILE, require_same
from parties.audit.evidence import Evidence
from parties.audit.findings import CheckFailure, require
from parties.config import Config
from parties.foundation.version import TEXT_EDITION
from parties.methods.distaim import attacker_on, report_notes, rows_note, trust_of
from parties.mpc.outputs import result_document
from parties.report.from_result import read_table_of
from parties.report.model import REAL_FIGURES
from parties.report.privacy_text import ACCOUNT, account_text, report_header, transcript_end
from parties.report.public import LEFT_OUT, json_columns, real_figures
from parties.session.result_digests import TABLE_FILE

NOT_PRIVATE_LIST = "not_private"
OF_THE_REAL_TABLE = "figures of the real table"
_WORDS = ("unit", "columns", "version")
"""Keys of a report's header that another edition or program words otherwise."""


@dataclass(frozen=True, slots=True)
class ReportParts:
    """Parts of a method's report, by their keys.

    Other checks compare those in ``held`` whole. ``exact`` has values that follow from the run, ``derived`` those that
    earlier editions lack. ``sentences`` has the
    values that a report of this edition may have; ``header`` is its section `about`. ``usual`` has values of most
    reports: another value is nobody's to check, like all of ``claimed``.
    """

    held: Sequence[str] = ()
    exact: Mapping[str, object] = field(default_factory=dict)
    derived: Mapping[str, object] = field(default_factory=dict)
    sentences: Mapping[str, Sequence[object]] = field(default_factory=dict)
    header: Mapping[str, object] = field(default_factory=dict)
    usual: Mapping[str, object] = field(default_factory=dict)
    claimed: Sequence[str] = ()


def edition_of(document: Mapping[str, object]) -> object:
    """Returns the edition of the texts in a report or package; 1 for one that does not state it."""
    about = document.get("about")
    facts = about if isinstance(about, Mapping) else document
    return facts.get("edition", 1)


def three_servers_parts(evidence: Evidence, terms: RunTerms) -> ReportParts:
    """Returns the parts of the report of a run of three servers."""
    config = terms.config
    measured, done = released_measurements(evidence, terms).measurements, finished_rounds(evidence)
    counted, capacities = counted_owners(evidence), counted_capacities(evidence)
    total = estimated_total(measured, max(m.clients for m in measured), config.max_rows)
    nothing = Estimate(np.zeros(0, np.bool_), np.zeros(0, np.uint32))
    results = [
        result_document(
            AimResult(measured, nothing, done, len(counted), total),
            terms.workload,
            config=config,
            rho_total=terms.plan.rho,
            ledger=(),
            finished_early=early,
        )
        for early in (False, True)
    ]
    return ReportParts(
        held=(*FIGURES, "selected", "excluded"),
        derived={"attacker": attacker_on(terms.study, terms.plan.rho).to_dict()},
        sentences={
            "trust": [trust_of(config, in_trial=trial) for trial in (False, True)],
            "notes": [
                report_notes(result, config) + rows_note(capacities, len(counted))
                for result in results
            ],
        },
        header=header_of(evidence, report_header(config, ended=ended(evidence)).to_dict()),
        usual={"dataset": config.run.id},
        claimed=("communication", "time"),
    )


def with_quality(parts: ReportParts, *, held: bool) -> ReportParts:
    """Returns ``parts`` with the section `quality`: ``held`` by a check, or claimed."""
    if held:
        return replace(parts, held=(*parts.held, "quality"))
    return replace(parts, claimed=(*parts.claimed, "quality"))


def with_columns(
    parts: ReportParts, released: Config, directory: Path, document: Mapping[str, object]
) -> ReportParts:
    """Returns ``parts`` with a report's section `columns`: that of the table, if there is no real one beside it."""
    if "columns" not in document:
        return parts
    if real_figures(document) or not (directory / TABLE_FILE).exists():
        return replace(parts, claimed=(*parts.claimed, "columns"))
    own = json_columns(released, read_table_of(released, directory))
    return replace(parts, sentences={**parts.sentences, "columns": [own]})


def ended(evidence: Evidence) -> float | None:
    """Returns the time at which the first transcript ends."""
    folder = evidence.directory / "transcripts"
    return transcript_end(next(iter(sorted(folder.glob("*.jsonl"))), None))


def header_of(evidence: Evidence, header: Mapping[str, object]) -> Mapping[str, object]:
    """Returns a report's header with the version of the program that ran."""
    return {**header, "version": evidence.version}


def unchecked_parts(document: Mapping[str, object], parts: ReportParts) -> Iterator[str]:
    """Yields the parts of a report that nobody has checked.

    Raises CheckFailure for a part that the run contradicts, or that no report has.
    """
    ours = edition_of(document) == TEXT_EDITION
    if "about" not in document:
        yield "no about"
    real = real_figures(document)
    if real:
        yield OF_THE_REAL_TABLE
    for key in parts.sentences:
        found = any(_is_same(document.get(key), text) for text in parts.sentences[key])
        require(found or not ours, f"{REPORT_FILE} has other {key} than those of this run")
        if not found:
            yield key
    for key, value in parts.derived.items():
        # Reports of earlier editions lack them.
        if ours or key in document:
            require_same(document.get(key), _json(value), key)
    for key in parts.exact:
        require_same(document.get(key), _json(parts.exact[key]), key)
    for key, value in document.items():
        if key == "about":
            yield from _unchecked_header(value, parts.header, ours=ours)
        elif key == LEFT_OUT:
            _require_places(value, key)
            require(not real, f"{REPORT_FILE} has figures of the real table, and says it has none")
            if value:
                yield key
        elif key == ACCOUNT:
            require(
                bool(account_text(document)), f"{REPORT_FILE} has another {key} than a report has"
            )
            yield key
        elif key == "utility" or key in (
            *parts.held,
            *parts.sentences,
            *parts.exact,
            *parts.derived,
        ):
            continue
        elif key in parts.usual or key in parts.claimed:
            if key not in parts.usual or value != parts.usual[key]:
                yield key
        elif key == NOT_PRIVATE_LIST:
            _require_places(value, key)
            same = set(value) == set(real) if isinstance(value, list) else False
            require(same or not ours, f"{REPORT_FILE} lists in {key} other figures than it has")
        else:
            raise CheckFailure(f"{REPORT_FILE} has a part {key[:40]!r}, which no report has")


def _unchecked_header(said: object, made: Mapping[str, object], *, ours: bool) -> Iterator[str]:
    facts = said if isinstance(said, Mapping) else {}
    if not ours:
        yield "about.edition"
    for key in {**facts, **made}:
        if key == "edition" or (key not in facts and not ours):
            continue
        require(key in made, f"{REPORT_FILE} has a part about.{key[:40]}, which no report has")
        same = _is_same(facts.get(key), made[key])
        require(same or not (ours or key not in _WORDS), f"{REPORT_FILE} has another about.{key}")
        if not same:
            yield f"about.{key}"


def _require_places(value: object, key: str) -> None:
    listed = value if isinstance(value, list) else [None]
    known = all(item in REAL_FIGURES for item in listed)
    require(known, f"{REPORT_FILE} lists in {key} what no report has")


def _is_same(said: object, made: object) -> bool:
    try:
        require_same(said, _json(made), "")
    except CheckFailure:
        return False
    return True


def _json(value: object) -> object:
    """Returns a value as a written report has it."""
    return json.loads(json.dumps(value))
