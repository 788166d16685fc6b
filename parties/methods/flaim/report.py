"""Report of a FLAIM run: trust, sums, costs, and the quality of its synthetic table.

``flaim_report`` makes the report of a result.json; ``write_server_report`` writes it without a real table;
``write_flaim_quality`` stores the quality beside the table until the report is made. All values here are public.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import ZCDP, LedgerEntry
from mechanisms.flaim import FlaimResult, last_round
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.units import unit_cost
from mechanisms.workload import Workload
from parties.config import PERSON, Config
from parties.federation.sum_parameters import is_malicious
from parties.methods.flaim.settings import (
    PAIRS,
    ReplacementCost,
    flaim_section,
    neighbours_text,
    settings_of,
)
from parties.report.attacker import AttackerBound
from parties.report.from_result import read_result, run_parameters, selected_queries, workload_size
from parties.report.model import (
    TRIAL_TRUST,
    Communication,
    Parameters,
    Privacy,
    ReportedOpening,
    RunReport,
)
from parties.report.privacy_text import MASKED, report_header, transcript_end, unit_trust
from parties.report.quality import flaim_quality, write_quality
from parties.report.writing import write_report_without_real
from parties.session.study import Study

_CHOICES_PRIVATE = (
    "Each client's choices are private against the server and everybody else, by the exponential mechanism that ran on "
    "the client itself. The transcript has them."
)
_CHOICES_FREE = "What was measured did not depend on anybody's rows."


def flaim_report(
    study: Study,
    result: Mapping[str, Any],
    *,
    dataset: str,
    wall_s: Mapping[str, float],
    trial: bool,
    transcript: Path | None = None,
) -> RunReport:
    """Returns the report of ``result`` (a result.json) without utility. ``trial``: one machine held everything.

    The ``transcript`` dates the end of the run; without one the end is now.
    """
    section, settings = flaim_section(study.config), settings_of(study.config)
    rho_total, entries = result["rho_total"], tuple(map(LedgerEntry.from_dict, result["ledger"]))
    phases = {**result["seconds"], **_step_seconds(result)}
    times = {**{k: v for k, v in phases.items() if k != "total"}, **wall_s}
    total = times.pop("total", phases["total"])
    clients = study.config.clients.expected
    return RunReport(
        method=f"flaim-{settings.variant}",
        dataset=dataset,
        parameters=parameters_of(study.config),
        privacy=Privacy(rho_total, entries),
        workload=workload_size(study.workload),
        communication=Communication(
            sum(result["clients_sent"].values()) / clients,
            sum(result["clients_received"].values()) / clients,
            {name: (int(cost["sent"]),) for name, cost in result["steps"].items()},
            study.workload.cells * 8 / 1e6,
            servers=1,
        ),
        time_s={"total": total, **times, "other": max(0.0, total - sum(times.values()))},
        opened=tuple(ReportedOpening(**item) for item in result["opened"]),
        selected=selected_queries(result),
        seed=study.config.run.seed,
        synthetic_rows=result["synthetic_rows"],
        rounds_done=result["rounds_done"],
        about=report_header(
            study.config, ended=transcript_end(transcript), unit=neighbours_text(study.config)
        ),
        trust=trust_of(study.config, result, trial=trial),
        notes=_notes(study.config, result),
        attacker=attacker_on(study.config),
        flaim={
            "setting": {
                "variant": settings.variant,
                "grouping": settings.grouping,
                "noise": settings.noise,
                "local_rounds": settings.local_rounds,
                "sizes": settings.sizes,
                "clients": clients,
                "clients_that_came": result["clients"],
            },
            "guarantee": guarantee_of(study.config, result),
            "sums": {
                "by_secagg": result["sums"]["secagg"],
                "least_clients_behind_one": result["sums"]["least_survivors"] or 0,
                "without_secagg_from_one_or_two_clients": result["sums"]["plain"],
                "given_up": result["sums"]["given_up"],
                "rounds_lost": len(result["lost_rounds"]),
                "dropouts": result["sums"]["dropouts"],
                "noise_deviation_smallest": _deviation(result, 0),
                "noise_deviation_largest": _deviation(result, -1),
            },
            "choosers": {
                "chosen_queries": result["chosen_queries"],
                "with_a_single_chooser": result["single_choosers"],
                "minimum_behind_a_sum": section.minimum,
            },
            "clients_sent_bytes_by_kind": dict(result["by_kind"]["received"]),
            "clients_received_bytes_by_kind": dict(result["by_kind"]["sent"]),
        },
    )


def attacker_on(config: Config) -> AttackerBound | None:
    """Returns the bound on an attacker on a run of FLAIM; None for the variant without a guarantee."""
    if flaim_section(config).variant == "oracle":
        return None
    run = config.run
    cost = unit_cost(settings_of(config).rho, config.rows_of_unit)
    return AttackerBound(ZCDP.name, cost, run.epsilon, run.delta)


TRIAL_TRUST_FLAIM = TRIAL_TRUST.replace("all three servers and all owners", "server and clients")


def parameters_of(config: Config) -> Parameters:
    """Returns the run's parameters in FLAIM's terms."""
    return replace(
        run_parameters(config, config.clients.expected),
        noise=flaim_section(config).noise,
        upload="secagg",
    )


def _step_seconds(result: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(cost["seconds"]) for name, cost in result["steps"].items()}


def _deviation(result: Mapping[str, Any], index: int) -> float:
    return float(result["deviation"][index]) if result["deviation"] else 0.0


def guarantee_of(config: Config, result: Mapping[str, Any]) -> dict[str, object]:
    """Returns (epsilon, delta) by adversary, for one row added to or removed from one client's table."""
    section, run = flaim_section(config), config.run
    full = f"epsilon = {run.epsilon:g}, delta = {run.delta:g}"
    private = section.variant not in ("oracle",)
    outside = full if private else "none: variant oracle looks at the pooled table"
    if section.noise == "distributed" and private:
        server = f"{full}, with up to {_corrupt(config)} in league with it"
        if is_malicious(config):
            server += ", whatever it does"
    elif result["sums"]["plain"]:
        server = "none: it saw sums before their noise, and some clients' counts bare"
    elif section.variant == PAIRS:
        server = "none: it saw sums before their noise"
    else:
        server = "none: it saw sums before their noise, and knew who had chosen what"
    hidden = section.noise == "distributed" or not (
        result["sums"]["plain"] or result["single_choosers"]
    )
    return {
        "unit": neighbours_text(config),
        **({} if (replaced := _replaced(config, result)) is None else {"replaced": str(replaced)}),
        "against_everybody_but_the_server": outside,
        "against_the_server": server,
        "single_clients_counts_hidden_from_the_server": hidden,
        "rho_spent": sum(entry["rho"] for entry in result["ledger"]),
        "rho_total": result["rho_total"],
    }


def _replaced(config: Config, result: Mapping[str, Any]) -> ReplacementCost | None:
    events = [LedgerEntry.from_dict(entry).event for entry in result["ledger"]]
    return ReplacementCost.of(flaim_section(config), events, delta=config.run.delta)


def _corrupt(config: Config) -> str:
    of = "the run's" if is_malicious(config) else "a sum's"
    return f"{flaim_section(config).corrupt:.0%} of {of} clients (or one of them)"


def _sums_trust(config: Config, least: int) -> str:
    over = f"Clients sent masked counts, in sums over at least {least} of them. The server learnt"
    if is_malicious(config):
        return (
            f"{over} at most one sum with a client's counts at a time, and nothing else of them. This holds whatever "
            f"the server did, as long as at most {_corrupt(config)} told it what they know. Each client checked that "
            "the others are the run's, by their certificates, and that all saw the same list of survivors. That rests "
            "on the authority that issued the certificates"
            + (
                ", but for the keys, which the configuration has (flaim.client_keys)."
                if flaim_section(config).client_keys
                else ", which could have made others of the same names (no flaim.client_keys)."
            )
        )
    return (
        f"{over} sums and nothing else of the counts, provided that it followed the protocol and at most "
        f"{_corrupt(config)} told it what they know."
    )


def trust_of(config: Config, result: Mapping[str, Any], *, trial: bool) -> tuple[str, ...]:
    """Returns the guarantees of a run, and their limits."""
    section = flaim_section(config)
    # The oracle's choices used the pooled table: there is no guarantee to speak of.
    private = section.variant != "oracle"
    least = result["sums"]["least_survivors"] or section.minimum
    sums = _sums_trust(config, least)
    if section.noise == "distributed":
        noise = "Every client added noise before it masked its counts: no sum without noise ever existed."
        if private:
            noise += (
                " The guarantee holds against the server, too, provided that as many clients are honest as the noise "
                "was made for."
            )
    else:
        noise = "The server added the noise, after it had seen the sums."
        if private:
            noise += (
                " The guarantee holds against everybody else (other clients, the network, readers of the table, the "
                "model or this report), but not against the server."
            )
    items = [sums, noise]
    if section.noise != "distributed" and result["single_choosers"]:
        items.append(
            f"{result['single_choosers']} of {result['chosen_queries']} chosen queries had a single chooser. Other "
            "clients add zeros to such a sum, and the server knows the choices. So it saw that client's counts without "
            'noise. With noise = "distributed" it does not.'
        )
    if result["sums"]["plain"]:
        items.append(
            f"{result['sums']['plain']} sums were of one or two clients whose query nobody else had chosen. The "
            'server got these sums unmasked (grouping = "query"), and then added the noise.'
        )
    if private:
        selects = section.variant in ("naive", "private")
        items.append(_CHOICES_PRIVATE if selects else _CHOICES_FREE)
    settings = settings_of(config)
    if settings.turns < settings.rounds:
        items.append(
            f"Clients took turns: each was in the sums of at most {settings.turns} of {settings.rounds} rounds. The "
            "budget is for so many, and a client's own ledger refuses more."
        )
    if not private:
        items.append(
            "Variant oracle is an experiment: its choices used the pooled table without noise, so that nothing here is "
            "private. A client that sends other counts than its own can bend the result."
        )
    elif config.run.unit == PERSON:
        items += [
            *unit_trust(config, MASKED),
            "A client that sends other counts can bend the result.",
        ]
    else:
        items.append(
            f"The privacy guarantee is for {neighbours_text(config)}. A client that sends other counts than its own "
            "can bend the result."
        )
    if (replaced := _replaced(config, result)) is not None:
        items.append(
            'How many rows each client has is public in this run (sizes = "public"), so that tables of one size are '
            f"told apart; {replaced}."
        )
    return (*items, TRIAL_TRUST_FLAIM) if trial else tuple(items)


def _notes(config: Config, result: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    if result["rho_earlier"]:
        notes.append(
            f"An attempt before this one was interrupted; the rho of {result['rho_earlier']:.6g} that it had charged "
            "stays spent, and this run had the rest."
        )
    if result["lost_rounds"]:
        lost = ", ".join(map(str, result["lost_rounds"]))
        notes.append(
            f"Rounds {lost} were lost: the server was interrupted, or too few clients were left for a sum; what had "
            "been charged for them stays spent."
        )
    if result["stopped"]:
        notes.append(f"The run ended after {result['rounds_done']} rounds: {result['stopped']}.")
    if result["clients"] < config.clients.expected:
        notes.append(
            f"{result['clients']} of {config.clients.expected} clients came, over the whole run."
        )
    if result["sums"]["dropouts"]:
        notes.append(
            f"{result['sums']['dropouts']} times a client dropped out of a round that it had been drawn for."
        )
    return tuple(notes)


def write_server_report(config: Config, directory: Path) -> None:
    """Writes the server's report.json and report.html, without a real table. Raises StoreError."""
    workload = config.build_workload()
    report = flaim_report(
        Study(config, workload),
        read_result(directory),
        dataset=config.run.id,
        wall_s={},
        trial=False,
        transcript=directory / "transcript.jsonl",
    )
    write_report_without_real(Study(config, workload), directory, report)


def write_flaim_quality(
    into: Path,
    workload: Workload,
    settings: FlaimSettings,
    result: FlaimResult,
    *,
    codes: NDArray[np.int32],
) -> None:
    """Writes the run's quality figures for the synthetic table ``codes`` (rows, columns) into a folder.

    Raises StoreError.
    """
    rounds = last_round(settings, settings.schedule(len(settings.common(workload))))
    write_quality(into, flaim_quality(workload, result, rounds=rounds, codes=codes))
