"""Content of FLAIM's result.json for its report, of a deployed server or of a simulation.

``ServerFacts`` holds the server's measurements. All values here are public: names and sizes of released values,
charges, bytes, times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from mechanisms.accounting import Ledger
from mechanisms.flaim import FlaimMeasurement, FlaimResult
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.workload import Workload
from parties.report.model import ReportedOpening

RESULT = "result.json"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Bytes by client's name (frames) and by direction and kind of message, costs by step, seconds by phase.

    ``sums`` is the federation's tally, ``lost`` holds the reasons for lost clients, ``earlier_rho`` is the cost of
    earlier attempts.
    """

    clients: int
    clients_sent: Mapping[str, int]
    clients_received: Mapping[str, int]
    by_kind: Mapping[str, Mapping[str, int]]
    steps: Mapping[str, Mapping[str, float]]
    sums: Mapping[str, object]
    seconds: Mapping[str, float]
    opened: Sequence[ReportedOpening] = field(default=())
    lost: Mapping[str, str] = field(default_factory=dict)
    earlier_rho: float = 0.0


def flaim_document(
    result: FlaimResult,
    workload: Workload,
    settings: FlaimSettings,
    *,
    ledger: Ledger,
    rows: int,
    facts: ServerFacts,
) -> dict[str, object]:
    """Returns the content of result.json."""
    chosen = [m for done in result.rounds for m in done.measurements if not m.one_way]
    deviations = [m.deviation for done in result.rounds for m in done.measurements]
    return {
        "variant": settings.variant,
        "rounds_done": result.rounds_done,
        "lost_rounds": list(result.lost_rounds),
        "stopped": result.stopped,
        "clients": facts.clients,
        "rows_estimated": result.total,
        "synthetic_rows": rows,
        "rho_total": settings.rho,
        "rho_earlier": facts.earlier_rho,
        "ledger": [entry.to_dict() for entry in ledger.entries],
        "selected": [_selected(m, workload, result.total) for m in chosen],
        "opened": [asdict(item) for item in facts.opened],
        "participants": [
            {"round": done.round, "participants": len(done.participants), "lost": done.lost}
            for done in result.rounds
        ],
        "chosen_queries": result.chosen_queries,
        "single_choosers": result.single_choosers,
        "deviation": [min(deviations), max(deviations)] if deviations else [],
        "sums": dict(facts.sums),
        "clients_sent": dict(facts.clients_sent),
        "clients_received": dict(facts.clients_received),
        "by_kind": {direction: dict(kinds) for direction, kinds in facts.by_kind.items()},
        "steps": {name: dict(cost) for name, cost in facts.steps.items()},
        "lost": dict(facts.lost),
        "seconds": dict(facts.seconds),
    }


def _selected(measurement: FlaimMeasurement, workload: Workload, total: int) -> dict[str, object]:
    return {
        "round": measurement.round,
        "query": list(workload.candidates[measurement.candidate]),
        "clients": len(measurement.contributors),
        "rows_estimated": total,
        "sigma": measurement.deviation,
    }
