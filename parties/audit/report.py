"""The check ``report``: report.json says what the transcripts say. Everything is public."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parties.audit.evidence import Evidence, ServerTranscript
from parties.audit.findings import Failed, NotApplicable, require
from parties.audit.privacy import finished_rounds
from parties.distaim import notes as distaim


@dataclass(frozen=True, slots=True)
class _Said:
    """What a report says: charges, openings and choices, sorted, and what was spent in all."""

    charges: Sequence[tuple[object, ...]]
    opened: Sequence[tuple[object, ...]]
    chosen: Sequence[list[object]]
    spent: float


def report(evidence: Evidence) -> str:
    """report.json has the charges, the openings and, of three servers, the choices of the transcripts."""
    path = evidence.directory / "report.json"
    if not path.exists():
        raise NotApplicable("There is no report.json in the folder.")
    said, transcript = _read(path), evidence.transcripts[0]
    ledger = [e for e in transcript.entries if e.kind == "ledger"]
    charges = sorted(e.values("round", "step", "rho") for e in ledger)
    require(charges == said.charges, "report.json has another ledger than the transcripts")
    require(
        math.isclose(said.spent, math.fsum(e.real("rho") for e in ledger), rel_tol=1e-12),
        "report.json says that another budget was spent",
    )
    entries = [e for e in transcript.entries if e.kind == "opened"]
    opened = sorted(e.values("round", "step", "what", "count") for e in entries)
    require(opened == said.opened, "report.json has other openings than the transcripts")
    if transcript.protocol != distaim.PROTOCOL:
        return "report.json has the ledger and the openings of the transcript."
    chosen = _chosen(transcript, finished_rounds(evidence))
    require(chosen == said.chosen, "report.json has other choices than the transcripts")
    return "report.json has the ledger, the openings and the choices of the transcripts."


def _read(path: Path) -> _Said:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        privacy, opened, selected = document["privacy"], document["opened"], document["selected"]
        return _Said(
            sorted((e["round"], e["step"], e["rho"]) for e in privacy["ledger"]),
            sorted((o["round"], o["step"], o["what"], o["count"]) for o in opened),
            [[s["round"], ", ".join(s["query"])] for s in selected],
            float(privacy["rho_spent"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"report.json is no report: {type(error).__name__}") from error


def _chosen(transcript: ServerTranscript, rounds: int) -> list[list[object]]:
    """Round and query of every choice of the finished ``rounds``; the last one's measurement may be lost."""
    notes = [e for e in transcript.entries if e.is_note(distaim.SELECTED.what)]
    noted = {e.number("round"): e.text("query") for e in notes}
    return [[number, query] for number, query in sorted(noted.items()) if number <= rounds]
