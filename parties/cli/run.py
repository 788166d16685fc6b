"""Commands `run` and `demo`: DistAIM or central AIM on one machine, and helpers for all trial commands.

``run_trial`` implements `run`, and `demo` with a generated table (which `demo --table` writes instead of running).
``run_in_folder``, ``print_result`` and the functions for closing lines also serve `flaim`. Secret: the table.
"""

import json
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from parties.cli.display import Display
from parties.cli.options import PLAIN_FORMAT, plain_option, table_options
from parties.cli.runtime import common_options, run_supervised
from parties.config import (
    INPUTS,
    SCHEDULES,
    SECURITIES,
    UPLOADS,
    Config,
    load_config,
    overrides_from_options,
)
from parties.foundation.errors import StoreError
from parties.foundation.process import without_gc
from parties.local.assemble import finish_trial
from parties.local.children import Children, start_held_children
from parties.local.folder import RunFolder, default_run_folder
from parties.local.methods import open_method_folder, run_method, trial_from_tables
from parties.local.partition import PARTITIONS
from parties.local.processes import Supervision
from parties.local.request import DISTAIM, METHODS, Trial, TrialRequest
from parties.observability.events import Progress
from parties.report.html_parts import optional
from parties.report.likely import likely_error_text
from parties.report.model import RunReport, excluded_text
from parties.session.owner import Table, table_name
from parties.storage.files import atomic_replacement
from protocols.measure import NOISES

_SENTENCES = 3
"""Maximum number of sentences of a verdict on the terminal, of each kind."""


def run_in_folder(
    trial: Trial,
    folder: RunFolder,
    method: Callable[[Progress], Awaitable[RunReport]],
    *,
    rounds: int,
    goes_on: bool,
) -> Mapping[str, object]:
    """Runs ``method``, which has at most ``rounds`` rounds, writes the report and tidies up; returns report.json.

    ``goes_on``: the method keeps finished rounds, and the same command on the same folder continues.
    """
    display = Display(clients=trial.partition.clients, rounds=rounds)

    async def work(supervision: Supervision) -> Mapping[str, object]:
        with display:
            beginning = "going on with the run in" if folder.resumed else "run folder"
            display.event("folder", f"{beginning} {folder.path}")
            return finish_trial(trial, folder, await method(display))

    then = "goes on after the last finished round" if goes_on else "begins anew"
    again = f"the same command with --out {folder.path} {then}"
    return run_supervised(work, watch_stdin=False, events=None, again=again)


def print_result(
    report: Mapping[str, object],
    folder: RunFolder,
    lines: Callable[[Mapping[str, object]], Sequence[tuple[str, str]]],
    *,
    as_json: bool,
) -> None:
    """Prints the report as JSON, or the names and texts that ``lines`` makes of it, and the paths of the files."""
    if as_json:
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    for name, text in lines(report):
        click.echo(f"{name:<16}{text}")
    for name in ("synthetic.csv", "report.html", "report.json"):
        click.echo(f"{'':<16}{folder.path / name}")


def section(document: Mapping[str, object], name: str) -> Mapping[str, float]:
    """Returns a table of a report, or an empty one if it is missing."""
    value = document[name]
    return value if isinstance(value, Mapping) else {}


def budget_line(report: Mapping[str, object]) -> tuple[str, str]:
    """Returns the requested budget, and the spent part of it."""
    asked, privacy = section(report, "parameters"), section(report, "privacy")
    return (
        "privacy",
        f"epsilon = {asked['epsilon']:g}, delta = {asked['delta']:g}; "
        f"rho {privacy['rho_spent']:.4g} of {privacy['rho_total']:.4g} spent",
    )


def error_line(report: Mapping[str, object]) -> tuple[str, str]:
    """Returns the distance of the synthetic table from the real one, which a trial has."""
    error = section(report, "utility").get("workload_error", float("nan"))
    return "workload error", f"{error:.3f} (0 to 2; from the real table)"


def expected_error_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns the likely bound on the error of most marginals; empty if it was not estimated."""
    said = likely_error_text(optional(report, "quality"))
    return [("likely errors", said)] if said else []


def verdict_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns the first sentences of the report's verdict: purposes that the table is good for and not for."""
    quality = report.get("quality")
    verdict = quality.get("verdict") if isinstance(quality, Mapping) else None
    if not isinstance(verdict, Mapping):
        return []
    lines = []
    for key, name in (("good_for", "good for"), ("not_for", "not for")):
        sentences = [str(sentence) for sentence in verdict.get(key, [])]
        more = [f"{len(sentences) - _SENTENCES} more in report.html"]
        shown = sentences[:_SENTENCES] + (more if len(sentences) > _SENTENCES else [])
        lines += [(name if not i else "", sentence) for i, sentence in enumerate(shown)]
    return lines


def time_line(report: Mapping[str, object], phases: Sequence[str]) -> tuple[str, str]:
    """Returns the seconds in all and in the timed ``phases``."""
    times = section(report, "time")
    shown = [f"{name} {times[f'{name}_s']:.1f} s" for name in phases if f"{name}_s" in times]
    return "time", f"{times['total_s']:.1f} s: {', '.join(shown)}"


_PATH = click.Path(path_type=Path)
_QUERIES_SHOWN = 3


@click.command(
    epilog="Example: syncret run examples/adult.toml --data adult.csv.gz --clients 100 --partition iid --out runs/adult"
)
@click.argument("config", type=_PATH)
@table_options(help="The pooled table", several=True)
@click.option(
    "--clients",
    type=click.IntRange(1),
    default=None,
    help="How many data owners share it; with --source, each of them.",
)
@click.option("--partition", type=click.Choice(PARTITIONS), default="iid", show_default=True)
@click.option("--label", default=None, help="Column that label-skew goes by; by default the last.")
@click.option("--rounds", type=int, default=None, help="Rounds of select and measure.")
@click.option(
    "--schedule",
    type=click.Choice(SCHEDULES),
    default=None,
    help="Rounds alike, or finer ones once the model has settled (then without --rounds).",
)
@click.option("--epsilon", type=float, default=None, help="Privacy budget of the whole run.")
@click.option("--participation", type=float, default=None, help="Chance to take part in a round.")
@click.option(
    "--input",
    "given",
    type=click.Choice(INPUTS),
    default=None,
    help="What owners send: their counts, their rows, or whichever is smaller.",
)
@click.option("--upload", type=click.Choice(UPLOADS), default=None, help="Form of the counts.")
@click.option(
    "--capacity",
    type=click.IntRange(1),
    default=None,
    help="Rows that each owner may have at most, as it says; by default some more than it has.",
)
@click.option(
    "--security",
    type=click.Choice(SECURITIES),
    default=None,
    help="Whether servers prove what they compute before they open anything (malicious).",
)
@click.option("--noise", type=click.Choice(NOISES), default=None, help="Kind of noise.")
@click.option("--method", type=click.Choice(METHODS), default="distaim", show_default=True)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the partition; public."
)
@click.option("--out", type=_PATH, default=None, help="Run folder; by default runs/ID-TIME.")
@plain_option
@common_options
def run(
    config: Path,
    table: Table | Mapping[str, Table],
    clients: int | None,
    partition: str,
    label: str | None,
    rounds: int | None,
    schedule: str | None,
    epsilon: float | None,
    participation: float | None,
    given: str | None,
    upload: str | None,
    capacity: int | None,
    security: str | None,
    noise: str | None,
    method: str,
    seed: int,
    out: Path | None,
    plain: bool,
    as_json: bool,
) -> None:
    """Split one table among data owners and run on this machine, as processes over mutual TLS.

    Where the config has [[source]] tables, each has a table of its own (--source NAME=TABLE), split among owners of its
    own, and servers link the rows.

    The same command on the folder of an interrupted run goes on with it. --method aim runs central AIM instead, for
    comparison.
    """
    values: dict[str, object] = {
        "run.rounds": rounds,
        "run.schedule": schedule,
        "run.epsilon": epsilon,
        "clients.participation": participation,
        "run.input": given,
        "run.upload": upload,
        "run.security": security,
        "run.noise": noise,
    }
    changes = overrides_from_options(values) | (PLAIN_FORMAT if plain else {})
    loaded = load_config(config, changes)
    request = TrialRequest(method, table_name(table), clients, partition, label, seed, capacity)
    run_trial(loaded, table, request, out=out, as_json=as_json)


def run_trial(
    config: Config,
    table: Table | Mapping[str, Table],
    request: TrialRequest,
    *,
    out: Path | None,
    as_json: bool,
    children: Children | None = None,
) -> None:
    """Checks everything, runs, writes the report and prints a summary.

    ``children`` are DistAIM's processes in the folder ``out``, if they are started already.
    """
    run_folder = out or default_run_folder(config.run.id)
    distaim = request.method == DISTAIM
    if distaim and children is None:
        children = start_held_children(RunFolder(run_folder))
    try:
        trial = trial_from_tables(table, config, request)
        folder = open_method_folder(trial, run_folder)
        method = partial(run_method, trial, folder, children=children)
        report = run_in_folder(trial, folder, method, rounds=config.run.rounds, goes_on=distaim)
    finally:
        if children is not None:
            children.kill()
    print_result(report, folder, closing_lines, as_json=as_json)


def closing_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns a summary of a run of DistAIM or central AIM: names and texts."""
    selected = report.get("selected")
    queries = [", ".join(item["query"]) for item in selected] if isinstance(selected, list) else []
    shown = "; ".join(queries[:_QUERIES_SHOWN])
    more = "; ..." if len(queries) > _QUERIES_SHOWN else ""
    excluded = excluded_text(report)
    lines = [
        *([("not counted", excluded)] if excluded else []),
        ("synthetic rows", f"{report.get('synthetic_rows')}"),
        budget_line(report),
        ("chosen queries", f"{len(queries)}: {shown}{more}"),
        error_line(report),
        *expected_error_lines(report),
        *verdict_lines(report),
        time_line(report, ("setup", "share", "count", "select", "measure", "estimate")),
    ]
    return [*lines, _sent_line(report)] if report.get("method") == "distaim" else lines


def _sent_line(report: Mapping[str, object]) -> tuple[str, str]:
    traffic = section(report, "communication")
    by_servers = traffic["server_sent_bytes"]
    sent = ", ".join(f"{value / 1e6:.1f}" for value in by_servers)  # type: ignore[attr-defined]
    owner = traffic["client_sent_bytes_mean"]
    shown = f"{owner / 1e6:.2f} MB" if owner >= 1e5 else f"{owner / 1e3:.1f} KB"
    return "sent", f"{shown} by each data owner; {sent} MB by the three servers"


@click.command(
    epilog="Example: syncret demo --out runs/demo; syncret demo --table stays.csv --rows 500"
)
@click.option("--out", type=_PATH, default=None, help="Run folder; by default runs/demo-TIME.")
@click.option("--table", type=_PATH, default=None, help="Only write the table here, as CSV.")
@click.option(
    "--config",
    type=_PATH,
    default=None,
    help="With --table: invent one for this configuration's columns.",
)
@click.option("--rows", type=click.IntRange(0), default=None, help="With --table.")
@click.option("--seed", type=click.IntRange(0), default=1, help="With --table: another table.")
@common_options
def demo(
    out: Path | None,
    table: Path | None,
    config: Path | None,
    rows: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Try it: three compute servers and 24 data owners on this machine, as processes over mutual TLS.

    Runs DistAIM on a generated table of hospital stays, writes a run folder and prints a summary. With --table it
    runs nothing, and writes a generated table to try other commands with.
    """
    if table is not None:
        rows = _write_table(table, config, rows, seed)
        said = json.dumps({"table": str(table), "rows": rows, "seed": seed})
        click.echo(said if as_json else f"{rows} invented rows are in {table}")
    elif config is not None:
        raise click.UsageError(f"--config {config} goes with --table FILE")
    else:
        _run_demo(out, as_json)


def _run_demo(out: Path | None, as_json: bool) -> None:
    folder = out or default_run_folder("demo")
    # Started before this process imports its own modules, which takes as long again.
    children = start_held_children(RunFolder(folder))
    with without_gc():
        from mechanisms.source import TableSource
        from mechanisms.text_table import TextTable

        pass
        from parties.config import config_from_dict
        from parties.local.demo_data import DEMO_CONFIG, demo_table
        from parties.local.request import TrialRequest
        from parties.session.owner import Table

    config = config_from_dict(tomllib.loads(DEMO_CONFIG), source="demo", base=Path.cwd())
    request = TrialRequest("distaim", "demo", None, "iid", None, 1)
    table = Table(TableSource("demo table"), False, TextTable.of(demo_table()))
    run_trial(config, table, request, out=folder, as_json=as_json, children=children)


def _write_table(path: Path, config: Path | None, rows: int | None, seed: int) -> int:
    from parties.config import load_config
    from parties.local.demo_data import DEMO_ROWS, demo_table, invented_table

    rows = DEMO_ROWS if rows is None else rows
    if path.exists():
        raise StoreError(path, "is there already; expected a new name")
    if config is None:
        frame = demo_table(rows, seed=seed)
    else:
        frame = invented_table(load_config(config).domain, rows, seed=seed)
    with atomic_replacement(path) as beside:
        frame.to_csv(beside, index=False)
    return rows
