"""Report of a finished DistAIM run, from the lead's folder.

No real table is available here. All values here are public.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mechanisms.accounting import LedgerEntry
from mechanisms.model import Model
from mechanisms.resolving import unmeasured
from parties.config import ANNEALED, MALICIOUS, Config
from parties.mpc.exclusion import Exclusion
from parties.mpc.outputs import read_attempts
from parties.mpc.planning.budget import (
    composed_epsilon,
    sampling_distance,
    unit_loss,
    zcdp_epsilon,
)
from parties.mpc.steps import CLIENTS_COUNT, ESTIMATE, FINISH
from parties.mpc.transcript_schema import COUNTING
from parties.report.attacker import AttackerBound
from parties.report.from_result import (
    read_result,
    run_parameters,
    selected_queries,
    sources_of,
    workload_size,
)
from parties.report.model import (
    DISTAIM_TRUST,
    MALICIOUS_TRUST,
    TRIAL_TRUST,
    Communication,
    ExcludedOwner,
    Privacy,
    ReportedOpening,
    RunReport,
)
from parties.report.privacy_text import link_trust, report_header, transcript_end, unit_trust
from parties.report.writing import write_report_without_real
from parties.session.result_digests import MODEL_FOLDER
from parties.session.study import Study
from protocols.noise_kinds import DISTRIBUTED
from protocols.steps import MEASURE, SELECT

DISTRIBUTED_TRUST = (
    "Each server added noise of its own. The noise that one server does not know has the charged variance; the whole "
    "noise of a count has 1.5 times that variance."
)


def write_lead_report(config: Config, directory: Path) -> None:
    """Writes the lead's report.json and report.html, without a real table. Raises StoreError."""
    attempts = read_attempts(directory / "costs.json")
    total = sum(float(attempt["seconds"]["total"]) for attempt in attempts)
    report = run_report(Study.of(config), directory, dataset=config.run.id, wall_s={"total": total})
    model = Model.load(directory / MODEL_FOLDER)
    released = config.resolved(model.domain) if unmeasured(config.domain) else config
    write_report_without_real(Study.of(released), directory, report)


def trust_of(config: Config, *, in_trial: bool) -> tuple[str, ...]:
    """Returns the guarantees of a run, and their limits."""
    return (
        *(MALICIOUS_TRUST if config.run.security == MALICIOUS else DISTAIM_TRUST),
        *link_trust(config),
        *unit_trust(config),
        *([DISTRIBUTED_TRUST] if config.run.noise == DISTRIBUTED else []),
        *([TRIAL_TRUST] if in_trial else []),
    )


def run_report(
    study: Study,
    directory: Path,
    *,
    dataset: str,
    wall_s: Mapping[str, float],
    clients: int | None = None,
) -> RunReport:
    """Returns the report of a finished run on shares, from the lead's ``directory``, without utility.

    ``wall_s`` are seconds by phase that the lead does not know, "total" among them. ``clients`` is the number of all
    data owners, which only a trial knows; None counts those that have submitted. Raises StoreError.
    """
    result = read_result(directory)
    opened = _opened(directory / "transcript.jsonl")
    capacities = _capacities(directory / "transcript.jsonl", result)
    traffic = result["client_bytes"]
    count = max(1, clients or traffic["clients"])
    return RunReport(
        method="distaim",
        trust=trust_of(study.config, in_trial=clients is not None),
        dataset=dataset,
        parameters=run_parameters(study.config, clients or result["clients"]),
        privacy=Privacy(
            result["rho_total"],
            _ledger(result),
            implementation_delta(study),
        ),
        workload=workload_size(
            study.workload, sum(capacities.values()), sources_of(study.config, capacities)
        ),
        communication=Communication(
            traffic["sent"] / count,
            traffic["received"] / count,
            {step: (a, b, c) for step, (a, b, c) in result["sent_by_step"].items()},
            study.workload.cells * 8 * 6 / 1e6,
            passed_on_bytes=tuple(result["passed_on_bytes"]),
        ),
        time_s=_times(read_attempts(directory / "costs.json"), wall_s),
        opened=opened,
        selected=selected_queries(result),
        seed=study.config.run.seed,
        synthetic_rows=study.config.run.rows or result["rows_estimated"],
        notes=report_notes(result, study.config) + rows_note(capacities, len(result["counted"])),
        rounds_done=result["rounds_done"],
        excluded=_excluded(result),
        about=report_header(study.config, ended=transcript_end(directory / "transcript.jsonl")),
        attacker=attacker_on(study, result["rho_total"]),
    )


def attacker_on(study: Study, rho_total: float) -> AttackerBound:
    """Returns the bound on an attacker on a run of three servers, or of central AIM, with a budget of ``rho_total``."""
    accountant, cost, distance = unit_loss(study)
    run, rows = study.config.run, study.config.rows_of_unit
    return AttackerBound(
        accountant, max(cost, rho_total * rows * rows), run.epsilon, run.delta, distance
    )


def _excluded(result: Mapping[str, Any]) -> tuple[ExcludedOwner, ...]:
    return tuple(
        excluded_owner(item["client"], item["round"], Exclusion(item["excluded"]), item["by"])
        for item in result["excluded"]
    )


def excluded_owner(client: str, round: int, reason: Exclusion, by: Sequence[int]) -> ExcludedOwner:
    """Returns a report's entry for a data owner that was not counted."""
    return ExcludedOwner(client, round, reason.value, tuple(by), reason.sentence(by))


def implementation_delta(study: Study) -> float:
    """Share of delta for the finite precision of the noise sampling."""
    # Both neighbouring tables contribute a sum of statistical distances, one of them times e^epsilon.
    return (1 + math.exp(study.config.run.epsilon)) * sampling_distance(study)


def report_notes(result: Mapping[str, Any], config: Config) -> tuple[str, ...]:
    """Returns a report's notes on the rounds, from a result.json."""
    done, chosen = result["rounds_done"], result["selected"]
    also = _accounting(config)
    if config.run.schedule == ANNEALED and not result.get("finished_early"):
        sigmas = [one["sigma"] for one in chosen]
        later = f", and from {sigmas[0]:.4g} rows to {min(sigmas):.4g} in rounds" if sigmas else ""
        return (
            f"Annealed: {done} rounds. The noise had a standard deviation of {result['sigma']:.4g} rows for single "
            f"columns{later}.",
            *also,
        )
    if done == config.run.rounds:
        return also
    if result.get("finished_early"):
        return (
            f"The run ended after {done} of {config.run.rounds} rounds, as the operators of all three servers asked. "
            "Less was measured than planned, and the rest of the budget stays unspent.",
            *also,
        )
    return (
        f"The run ended after {result['rounds_done']} of {config.run.rounds} rounds: values that were charged and "
        "lost in a crash had to be paid for again, and the rest of the budget did not cover a further round.",
        *also,
    )


def _accounting(config: Config) -> tuple[str, ...]:
    """Sentences on the accounting of epsilon, with the figure of the alternative accounting."""
    study = Study.of(config)
    plain = zcdp_epsilon(study)
    if plain is not None:
        # Delta covers the distance of samples at the epsilon of one Gaussian, and at a larger one it need not.
        charged = f"epsilon {_rounded_up(plain):g}" if math.isfinite(plain) else "no epsilon"
        return (
            "Epsilon is computed from the privacy loss of one Gaussian mechanism, which bounds that of the whole run. "
            f"By zCDP alone the same release would have {charged} at this delta.",
        )
    composed = composed_epsilon(study)
    if composed is None:
        return ()
    return (
        f"Numerical composition gives the same release epsilon {_rounded_up(composed):g} at this delta. Ledgers and "
        "owners' budgets use zCDP, and so the epsilon above.",
    )


def _rounded_up(epsilon: float) -> float:
    return math.ceil(1000 * epsilon) / 1000


def _ledger(result: Mapping[str, Any]) -> tuple[LedgerEntry, ...]:
    return tuple(LedgerEntry.from_dict(entry) for entry in result["ledger"])


def _opened(transcript: Path) -> tuple[ReportedOpening, ...]:
    """Returns every opening in the lead's transcript, including openings lost in a crash."""
    items = []
    with transcript.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"kind":"opened"'):
                record = json.loads(line)
                items.append(
                    ReportedOpening(
                        record["round"] or 0, record["step"], record["what"], record["count"]
                    )
                )
    return tuple(items)


def _capacities(transcript: Path, result: Mapping[str, Any]) -> Mapping[str, int]:
    """Returns the counted data owners that sent rows, with each one's maximum number of rows."""
    noted: dict[str, int] = {}
    with transcript.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"kind":"note"') and COUNTING.what.encode() in line:
                record = json.loads(line)
                noted |= record["capacities"] if record["what"] == COUNTING.what else {}
    counted = (item["client"] for item in result["counted"])
    return {client: noted[client] for client in counted if client in noted}


def rows_note(capacities: Mapping[str, int], counted: int) -> tuple[str, ...]:
    """Returns a report's note on the owners that sent rows, by their ``capacities``, among all ``counted`` ones."""
    if not capacities:
        return ()
    rows, others = sum(capacities.values()), counted - len(capacities)
    rest = f" The other {others} sent counts." if others else ""
    return (
        f"{len(capacities)} data owners sent their rows, which the servers counted; together they declared at most "
        f"{rows:,} rows.{rest}",
    )


def _times(attempts: Sequence[Mapping[str, Any]], wall_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase at the lead, over all attempts, beside ``wall_s``; the remainder is "other"."""
    names = {step.name: step.name for step in (SELECT, MEASURE, ESTIMATE)} | {FINISH.name: "write"}
    names[CLIENTS_COUNT.name] = "count"
    phases = dict.fromkeys(("share", *names.values()), 0.0)
    for attempt in attempts:
        phases["share"] += float(attempt["seconds"].get("share", 0.0))
        for step in attempt["steps"]:
            if step["step"] in names:
                phases[names[step["step"]]] += step["seconds"]
    # Row counting happens during the "share" phase.
    phases["share"] = max(0.0, phases["share"] - phases["count"])
    earlier = sum(float(attempt["seconds"]["total"]) for attempt in attempts[:-1])
    total = wall_s["total"] + earlier
    times = {**{phase: s for phase, s in wall_s.items() if phase != "total"}, **phases}
    return {"total": total, **times, "other": max(0.0, total - sum(times.values()))}
