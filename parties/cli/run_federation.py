"""Runs of methods with one server on this machine, for the command `run`."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mechanisms.flaim import last_round
from parties.cli.run_output import (
    budget_line,
    error_line,
    print_result,
    run_in_folder,
    run_trial_in_folder,
    section,
    time_line,
    verdict_lines,
)
from parties.config import Config, load_config
from parties.foundation.errors import ConfigError
from parties.local.federated import SiloSplit, load_silos_trial, open_silos_folder, run_silos_trial
from parties.local.flaim import FLAIM_TRIAL_OVERRIDES, flaim_request, open_flaim_folder, run_flaim
from parties.local.folder import RunFolder
from parties.local.methods import trial_from_tables
from parties.local.partition import PARTITIONS
from parties.local.recorded_tables import record_tables
from parties.methods.flaim.settings import PAIRS, settings_of
from parties.session.owner import Table, held, table_name


class FederationRequest(NamedTuple):
    """A run as the command's options ask for it; ``values`` change the configuration at ``config``, by dotted key.

    ``given`` are the options that some methods have.
    """

    method: str
    config: Path
    values: Mapping[str, object]
    table: Table
    given: Mapping[str, Any]
    seed: int
    out: Path | None
    as_json: bool


def run_federation(kind: str, request: FederationRequest) -> None:
    """Runs a method with one server, of the section ``kind``, on this machine, and prints its report."""
    _RUNS[kind](request)


def _run_flaim(request: FederationRequest) -> None:
    config = load_config(request.config, {**request.values, **FLAIM_TRIAL_OVERRIDES})
    folder, report = run_whole_flaim(
        config, request.table, request.given, seed=request.seed, out=request.out
    )
    print_result(report, folder, flaim_closing_lines, as_json=request.as_json)


def run_whole_flaim(
    config: Config,
    table: Table | Mapping[str, Table],
    given: Mapping[str, Any],
    *,
    seed: int,
    out: Path | None,
    again_in: Path | None = None,
) -> tuple[RunFolder, Mapping[str, Any]]:
    """Runs FLAIM on this machine with the options ``given``; returns the run's folder and its report.

    ``again_in`` is the folder with which the command goes on, if it is another one.
    """
    config, simulate = config.override(FLAIM_TRIAL_OVERRIDES), given["simulate"]
    asked = flaim_request(
        config,
        table_name(table),
        given["clients"],
        partition=given["partition"] or PARTITIONS[0],
        label=given["label"],
        seed=seed,
        simulate=simulate,
    )
    started, read = time.perf_counter(), held(table)
    trial = trial_from_tables(read, config, asked)
    folder = open_flaim_folder(trial, out, simulate=simulate)
    record_tables(folder.path, trial.config, read)
    del read
    read_s = time.perf_counter() - started
    settings = settings_of(trial.config)
    method = partial(run_flaim, trial, folder, simulate=simulate, processes=given["processes"])
    rounds = last_round(settings, settings.schedule(len(settings.common(trial.workload))))
    goes_on = not (simulate or settings.annealed)
    report = run_trial_in_folder(
        trial,
        folder,
        method,
        rounds=rounds,
        goes_on=goes_on,
        read_s=read_s,
        again_in=again_in,
    )
    return folder, report


def _run_silos(request: FederationRequest) -> None:
    given = request.given
    config = _silos_config(request.method, request.config, request.values)
    split = SiloSplit(given["clients"], given["beta"], given["label"], given["by"], request.seed)
    table = request.table.held()
    trial = load_silos_trial(config, table, split)
    folder = open_silos_folder(trial, request.out)
    record_tables(folder.path, trial.config, table)
    del table
    report = run_in_folder(
        folder,
        partial(run_silos_trial, trial, folder, processes=given["processes"]),
        clients=trial.partition.clients,
        rounds=trial.plan.sums,
        then="goes on after the last sum",
    )
    print_result(report, folder, _silos_lines, files=report["files"], as_json=request.as_json)


_RUNS: Mapping[str, Callable[[FederationRequest], None]] = {
    "flaim": _run_flaim,
    "silos": _run_silos,
}
"""Runs by the section of the configuration."""


def flaim_closing_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns a summary of a run of FLAIM: names and texts."""
    facts, traffic = report["flaim"], section(report, "communication")
    if not isinstance(facts, Mapping):
        raise TypeError(f"the report's 'flaim' is {type(facts).__name__}; expected a table")
    sums, choosers = section(facts, "sums"), section(facts, "choosers")
    guarantee: Mapping[str, object] = section(facts, "guarantee")
    setting: Mapping[str, object] = section(facts, "setting")
    sent, received = (traffic[f"client_{way}_bytes_mean"] / 1e6 for way in ("sent", "received"))
    return [
        ("synthetic rows", f"{report.get('synthetic_rows')}"),
        budget_line(report),
        ("guarantee", f"for {guarantee['unit']}"),
        *([("row replaced", f"{guarantee['replaced']}")] if "replaced" in guarantee else []),
        ("against server", f"{guarantee['against_the_server']}"),
        (
            "sums",
            f"{sums['by_secagg']} by SecAgg over {sums['least_clients_behind_one']} clients or more, "
            f"{sums['without_secagg_from_one_or_two_clients']} without; {sums['dropouts']} dropouts",
        ),
        *([] if setting["variant"] == PAIRS else [_chosen_line(choosers)]),
        error_line(report),
        *verdict_lines(report),
        time_line(report, ("setup", "join", "choose", "aggregate", "estimate")),
        ("a client", f"sent {sent:.3f} MB and received {received:.3f} MB on average"),
    ]


def _chosen_line(choosers: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the line on queries that clients chose."""
    single = choosers["with_a_single_chooser"]
    return ("chosen queries", f"{choosers['chosen_queries']}, {single} by a single client")


def _silos_config(algorithm: str, path: Path, values: Mapping[str, object]) -> Config:
    """Returns the config at ``path`` with ``values`` by dotted key; one of another method is adapted to ``algorithm``.

    Raises ConfigError, also for a config of another algorithm between silos.
    """
    found = load_config(path).algorithm
    if found is None:
        return load_config(path, {**values, algorithm: {}, "flaim": None})
    if found[0] != algorithm:
        text = f"is of the method {found[0]}; expected [{algorithm}], or none of an algorithm between silos"
        raise ConfigError(str(path), found[0], text)
    return load_config(path, values)


def _silos_lines(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    sums, traffic, privacy = report["sums"], report["communication"], report["privacy"]
    spent = f"; rho {privacy['rho_spent']:.4g} of {privacy['rho_total']:.4g} spent"
    sent, received = (traffic[f"silo_{way}_bytes_mean"] / 1e6 for way in ("sent", "received"))
    return [
        ("privacy", report["guarantee"] + (spent if privacy["rho_total"] else "")),
        *((name, text) for name, text in report["lines"]),
        (
            "sums",
            f"{sums['taken'] + sums['before']} over {sums['least_survivors'] or 0} silos or more, "
            f"{sums['given_up']} given up; {sums['dropouts']} dropouts",
        ),
        *(
            (name, f"{value:.4g} (from the real table)")
            for name, value in report["utility"].items()
        ),
        ("time", f"{report['time']['total_s']:.1f} s"),
        ("a silo", f"sent {sent:.3f} MB and received {received:.3f} MB on average"),
    ]
