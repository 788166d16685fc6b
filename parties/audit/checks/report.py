"""Check ``report``: the figures of report.json follow from the transcripts and the configuration.

A trial writes its report after its servers have ended, with the real table at hand; therefore no server seals the
report, and the auditor computes its figures anew: parameters, budget and charges, workload, openings, choices, rounds,
rows; and its study, columns and end. ``compare_figures`` and ``check_header`` verify any report's figures. All values
here are public. Known limits: seconds, bytes and utility (which only a trial knows) are not verified; sentences and
report.html are for the check `contents`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mechanisms.accounting import LedgerEntry
from mechanisms.aim import AimResult, Estimate, estimated_total
from parties.audit.checks.participants import counted_capacities, excluded
from parties.audit.checks.privacy import RunTerms, finished_rounds
from parties.audit.checks.publication import sealed_digests
from parties.audit.checks.released import released_measurements
from parties.audit.evidence import Evidence, ServerTranscript, event_of
from parties.audit.findings import CheckFailure, NotApplicable, require
from parties.config import Config
from parties.foundation.untrusted_text import parse_json
from parties.methods.distaim import implementation_delta
from parties.mpc.outputs import result_document
from parties.report.from_result import run_parameters, selected_queries, sources_of, workload_size
from parties.report.model import Communication, Privacy, ReportedOpening, RunReport
from parties.report.privacy_text import report_header, transcript_end
from parties.session.study import Study

REPORT_FILE = "report.json"
UNCHECKED_COMMUNICATION = Communication(0.0, 0.0, {}, 0.0)
_TOLERANCE = 1e-9
FIGURES = (
    "method",
    "seed",
    "parameters",
    "privacy",
    "workload",
    "opened",
    "synthetic_rows",
    "rounds_done",
)
"""Keys that are verified in every report."""


def report(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies the parameters, budget, charges, openings, choices and rows in report.json."""
    document = read_report(evidence)
    config, workload = terms.config, terms.workload
    measurements, rounds = (
        released_measurements(evidence, terms).measurements,
        finished_rounds(evidence),
    )
    clients = max(m.clients for m in measurements)
    total = estimated_total(measurements, clients, config.max_rows)
    nothing = Estimate(np.zeros(0, np.bool_), np.zeros(0, np.uint32))
    ledger = charges_of(evidence.transcripts[0])
    declared = counted_capacities(evidence)
    result = result_document(
        AimResult(measurements, nothing, rounds, clients, total),
        workload,
        config=config,
        rho_total=terms.plan.rho,
        ledger=ledger,
    )
    rows = sealed_digests(evidence).rows
    require(
        rows == (config.run.rows or total), f"the table is said to have {rows} rows, not {total}"
    )
    # A trial states its number of owners, counted or not.
    there = _section(document, "parameters").get("clients") == config.clients.expected
    figures = RunReport(
        method="distaim",
        dataset="",
        parameters=run_parameters(config, config.clients.expected if there else clients),
        privacy=Privacy(terms.plan.rho, ledger, implementation_delta(Study(config, workload))),
        workload=workload_size(
            config.build_workload(), sum(declared.values()), sources_of(config, declared)
        ),
        communication=UNCHECKED_COMMUNICATION,
        time_s={"total": 0.0},
        opened=openings_of(evidence.transcripts[0]),
        selected=selected_queries(result),
        seed=config.run.seed,
        synthetic_rows=rows,
        rounds_done=rounds,
        excluded=excluded(evidence),
    )
    compare_figures(document, figures, (*FIGURES, "selected", "excluded"))
    check_header(document, config, evidence.directory / "transcripts" / "party-0.jsonl")
    return (
        f"report.json has the figures that the transcripts make: epsilon = {config.run.epsilon:g}, delta = "
        f"{config.run.delta:g}, {len(ledger)} charges, the openings, the choices and {rows} rows; "
        "its seconds, bytes and errors are its writer's word alone. Its sentences, and report.html, are for contents."
    )


def check_header(document: Mapping[str, object], config: Config, transcript: Path) -> None:
    """Verifies the study, configuration, end and columns of a report. Raises CheckFailure if one differs.

    Older reports lack these. The program's version, and the words for columns and unit, are not verified.
    """
    said = document.get("about")
    if said is None:
        return
    made, facts = (
        report_header(config, ended=transcript_end(transcript)).to_dict(),
        _section(document, "about"),
    )
    for name in ("study", "configuration", "ended"):
        require_same(facts.get(name), made[name], f"about.{name}")
    require_same(_shapes(facts.get("columns")), _shapes(made["columns"]), "about.columns")
    # Older reports lack the provenance, if the configuration states none.
    if config.domain.provenance or "provenance" in facts:
        require_same(facts.get("provenance"), made["provenance"], "about.provenance")


def _shapes(columns: object) -> list[object]:
    """Returns columns without the words for their values and provenance."""
    listed = columns if isinstance(columns, list) else []
    return [
        {key: value for key, value in item.items() if key not in ("values", "provenance")}
        if isinstance(item, dict)
        else item
        for item in listed
    ]


def read_report(evidence: Evidence) -> Mapping[str, object]:
    """Returns the report in the folder. Raises NotApplicable if there is none, CheckFailure if it is unreadable."""
    path = evidence.directory / REPORT_FILE
    if not path.exists():
        raise NotApplicable(f"There is no {REPORT_FILE} in the folder.")
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckFailure(f"{REPORT_FILE} is no report: {type(error).__name__}") from error
    if not isinstance(document, dict):
        raise CheckFailure(f"{REPORT_FILE} is no report: it is no table")
    return document


def _section(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    section = document.get(name)
    return section if isinstance(section, dict) else {}


def charges_of(transcript: ServerTranscript) -> tuple[LedgerEntry, ...]:
    """Returns the charges of a transcript. Raises CheckFailure."""
    entries = (entry for entry in transcript.entries if entry.kind == "ledger")
    return tuple(
        LedgerEntry(
            e.number("round"),
            e.text("step"),
            event_of(e),
            e.real("rho"),
            e.text("opening") if "opening" in e.record else "",
        )
        for e in entries
    )


def openings_of(transcript: ServerTranscript) -> tuple[ReportedOpening, ...]:
    """Returns the openings of a transcript."""
    entries = (entry for entry in transcript.entries if entry.kind == "opened")
    return tuple(
        ReportedOpening(e.number("round"), e.text("step"), e.text("what"), e.number("count"))
        for e in entries
    )


def compare_figures(
    document: Mapping[str, object], figures: RunReport, names: Sequence[str]
) -> None:
    """Raises CheckFailure, with the place, unless ``document`` has the figures ``names`` of a report."""
    # In the form of the written report: lists instead of tuples, charges in one order.
    expected = json.loads(json.dumps(figures.to_dict()))
    for name in names:
        require_same(_sorted(document.get(name)), _sorted(expected.get(name)), name)


def _sorted(value: object) -> object:
    """Returns charges in one order: servers enter charges adopted from one another after their own."""
    if isinstance(value, dict) and isinstance(value.get("ledger"), list):
        return {**value, "ledger": sorted(value["ledger"], key=json.dumps)}
    return value


def require_same(said: object, made: object, where: str) -> None:
    """Raises CheckFailure, with the place, unless a part of a report is what the run makes it."""
    if isinstance(said, dict) and isinstance(made, dict):
        require(
            said.keys() == made.keys(), f"{REPORT_FILE} does not have exactly the fields of {where}"
        )
        for name, value in made.items():
            require_same(said[name], value, f"{where}.{name}")
    elif isinstance(said, list) and isinstance(made, list):
        require(
            len(said) == len(made),
            f"{REPORT_FILE} has {len(said)} entries in {where}, where the transcripts make {len(made)}",
        )
        for number, (one, other) in enumerate(zip(said, made, strict=True)):
            require_same(one, other, f"{where}[{number}]")
    else:
        require(
            _equal(said, made),
            f"{REPORT_FILE} says that {where} is {str(said)[:60]}, where the transcripts make it {str(made)[:60]}",
        )


def _equal(said: object, made: object) -> bool:
    if isinstance(said, float) and isinstance(made, float):
        return math.isclose(said, made, rel_tol=_TOLERANCE)
    return type(said) is type(made) and said == made
