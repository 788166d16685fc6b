"""Commands `run` and `demo`: one method on one table, on this machine.

`demo` is a first run, on a generated table; or writes the table alone, to try other commands with. Secret: the table.
"""

import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from parties.cli.numbers import NumberRange
from parties.cli.options import (
    PLAIN_FORMAT,
    TablesWithKeys,
    only_option,
    plain_option,
    table_options,
)
from parties.cli.run_output import (
    budget_line,
    error_line,
    expected_error_lines,
    print_result,
    run_trial_in_folder,
    section,
    time_line,
    verdict_lines,
)
from parties.cli.runtime import common_options
from parties.config import (
    FLAIM_GROUPINGS,
    FLAIM_NOISES,
    FLAIM_VARIANTS,
    INPUTS,
    SCHEDULES,
    SECURITIES,
    UPLOADS,
    Config,
    load_config,
    overrides_from_options,
)
from parties.config.algorithms import silo_algorithms
from parties.foundation.errors import StoreError
from parties.foundation.process import without_gc
from parties.local.children import Children, start_held_children
from parties.local.folder import RunFolder, default_run_folder
from parties.local.methods import open_method_folder, run_method, trial_from_tables
from parties.local.partition import PARTITIONS
from parties.local.recorded_tables import record_tables
from parties.local.request import DISTAIM, METHODS, TrialRequest
from parties.methods.keyed_study import FLAIM, is_keyed_config
from parties.report.model import excluded_text
from parties.session.owner import Table, held, table_name
from parties.storage.files import atomic_replacement
from protocols.noise_kinds import NOISES

_PATH = click.Path(path_type=Path)
_QUERIES_SHOWN = 3
_FEWEST = 3
"""Fewest participants of a federation."""
_OPTIONS: Mapping[str, str] = {
    "given": "--input",
    "upload": "--upload",
    "capacity": "--capacity",
    "schedule": "--schedule",
    "participation": "--participation",
    "partition": "--partition",
    "security": "--security",
    "variant": "--variant",
    "local_rounds": "--local-rounds",
    "grouping": "--grouping",
    "minimum": "--minimum",
    "simulate": "--simulate",
    "processes": "--processes",
    "beta": "--beta",
    "by": "--by",
    "plain": "--plain",
}
"""Options of some methods only, by parameter."""
_OWN_OPTIONS = (
    "given",
    "upload",
    "capacity",
    "schedule",
    "participation",
    "partition",
    "security",
    "plain",
)
"""Those of METHODS; methods with one server register theirs (`parties.methods.registry`)."""


@click.command(
    epilog="Example: syncret run examples/adult.toml --data adult.csv.gz --clients 100 --partition iid --out runs/adult"
)
@click.argument("config", type=_PATH)
@table_options(help="The pooled table", several=True)
@click.option(
    "--method",
    metavar="METHOD",
    default=None,
    help=f"{', '.join(METHODS)} (central AIM), flaim, {', '.join(silo_algorithms())}; by default that of the "
    "config: a method between silos if it has a table of one, else distaim.",
)
@click.option(
    "--clients",
    type=click.IntRange(1),
    default=None,
    help="How many participants share it; with --source, each of them.",
)
@click.option(
    "--partition", type=click.Choice(PARTITIONS), default=None, help="By default iid; not of silos."
)
@click.option(
    "--label", default=None, help="Column that label-skew or --beta goes by; by default the last."
)
@click.option(
    "--beta",
    type=NumberRange(0, min_open=True),
    default=None,
    help="Silos: each label's rows by Dirichlet(beta) shares; by default rows are dealt at random.",
)
@click.option("--by", default=None, help="Silos: instead, one for each value of this column.")
@click.option("--rounds", type=int, default=None, help="Rounds of the method.")
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
    help="DistAIM: what owners send: their counts, their rows, or whichever is smaller.",
)
@click.option(
    "--upload", type=click.Choice(UPLOADS), default=None, help="DistAIM: form of the counts."
)
@click.option(
    "--capacity",
    type=click.IntRange(1),
    default=None,
    help="DistAIM: rows that each owner may have at most, as it says; by default some more than it has.",
)
@click.option(
    "--security",
    type=click.Choice(SECURITIES),
    default=None,
    help="Whether servers prove what they compute before they open anything (malicious).",
)
@click.option(
    "--noise",
    type=click.Choice(tuple(dict.fromkeys((*NOISES, *FLAIM_NOISES)))),
    default=None,
    help=f"DistAIM: {', '.join(NOISES)}. FLAIM and silos: {', '.join(FLAIM_NOISES)}, who adds it.",
)
@click.option(
    "--variant", type=click.Choice(FLAIM_VARIANTS), default=None, help="FLAIM; by default pairs."
)
@click.option(
    "--local-rounds", type=int, default=None, help="FLAIM: choices of one client in a round."
)
@click.option(
    "--grouping",
    type=click.Choice(FLAIM_GROUPINGS),
    default=None,
    help="FLAIM: one sum a round over all that was chosen (by default), or one for each query.",
)
@click.option("--minimum", type=int, default=None, help="FLAIM: fewest clients behind a sum.")
@click.option(
    "--simulate", is_flag=True, help="FLAIM: all clients in this process; same messages and bytes."
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=None,
    help="FLAIM and silos: how many processes play the participants; by default one each up to 8, else one a "
    "processor.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the split; public."
)
@click.option("--out", type=_PATH, default=None, help="Run folder; by default runs/ID-TIME.")
@plain_option
@only_option
@common_options
def run(
    config: Path,
    table: Table | Mapping[str, Table],
    method: str | None,
    only: str | None,
    seed: int,
    out: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Split one table among participants and run a method on this machine, as processes over mutual TLS.

    Where the config has [[source]] tables, each has a table of its own (--source NAME=TABLE), split among owners of its
    own, and servers link the rows. Where it has [[table]] tables, persons and what belongs to them, give each with
    --table NAME=TABLE: the method runs on views of them, and tables with keys come out (docs/tables.md).

    The same command on the folder of an interrupted run goes on with it (a simulation and an annealed schedule of FLAIM
    begin anew). --method aim runs central AIM, for comparison; a config of another method is taken over for FLAIM and
    for methods between silos.
    """
    if only is not None and method not in (None, only):
        raise click.UsageError(
            f"--method {method} is another method than {only}, of the command's name"
        )
    if isinstance(table, TablesWithKeys) or is_keyed_config(config):
        run_keyed(
            config,
            table,
            method or only or DISTAIM,
            given=given,
            seed=seed,
            out=out,
            as_json=as_json,
        )
        return
    chosen = (only or _method_of(config)) if method is None else method
    server = _section_of(chosen)
    _check_options(chosen, server, given)
    split = (given["clients"], given["partition"] or PARTITIONS[0], given["label"])
    if server is not None and isinstance(table, Mapping):
        raise click.UsageError(f"--source is for DistAIM and central AIM; give --data to {chosen}")
    plain = PLAIN_FORMAT if given["plain"] else {}
    if server is None:
        loaded = load_config(config, overrides_from_options(_own_values(given)) | plain)
        request = TrialRequest(chosen, table_name(table), *split, seed, given["capacity"])
        run_trial(loaded, table, request, out=out, as_json=as_json)
        return
    if not isinstance(table, Table):
        raise TypeError(f"a table is {type(table).__name__}")
    # Imported on demand: DistAIM does not need what federations need.
    from parties.cli.run_federation import FederationRequest, run_federation

    changes = overrides_from_options(_served_values(given, server)) | plain
    run_federation(
        server, FederationRequest(chosen, config, changes, table, given, seed, out, as_json)
    )


def run_keyed(
    config: Path,
    table: Table | Mapping[str, Table],
    method: str,
    *,
    given: Mapping[str, Any],
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Runs a method on the views of tables with keys, and prints what came out."""
    # Imported on demand: a flat run needs none of it.
    from parties.cli.keyed import print_keyed_result
    from parties.local.keyed import run_views
    from parties.methods.keyed_study import load_keyed_study

    section = _section_of(method)
    if section not in (None, FLAIM):
        raise click.UsageError(
            f"{method} runs on one table; expected one of {', '.join((*METHODS, FLAIM))} with --table"
        )
    _check_options(method, section, given)
    for name in ("label", "capacity", "plain"):
        if given[name] not in (None, False):
            raise click.UsageError(f"--{name} is for one table; expected none with --table")
    values = _own_values(given) if section is None else _served_values(given, section)
    study = load_keyed_study(config, overrides_from_options(values), method=method)
    if isinstance(table, Table):
        if len(study.tables.names) > 1:
            names = " ".join(f"--table {name}=FILE" for name in study.tables.names)
            raise click.UsageError(f"the config has several tables; expected {names}")
        table = {study.tables.names[0]: table}
    split = (given["clients"], given["partition"] or PARTITIONS[0], None)

    def run_view(name: str, rows: Table | Mapping[str, Table], folder: Path) -> None:
        click.echo(f"{name}: a row is {study.views[name].holds}", err=True)
        if section is not None:
            # Imported on demand: DistAIM does not need what federations need.
            from parties.cli.run_federation import run_whole_flaim

            run_whole_flaim(study.configs[name], rows, given, seed=seed, out=folder, again_in=whole)
            return
        request = TrialRequest(method, table_name(rows), *split, seed)
        run_whole_trial(study.configs[name], rows, request, out=folder, again_in=whole)

    whole = out or default_run_folder(study.id)
    report = run_views(study, table, whole, method=method, run=run_view)
    print_keyed_result(report, whole, as_json=as_json)


def _common_values(given: Mapping[str, Any]) -> dict[str, object]:
    """Returns the values that all methods take from the options, by dotted key."""
    return {
        "run.rounds": given["rounds"],
        "run.epsilon": given["epsilon"],
        "run.schedule": given["schedule"],
        "run.security": given["security"],
        "clients.participation": given["participation"],
    }


def _own_values(given: Mapping[str, Any]) -> dict[str, object]:
    """Returns the values that DistAIM and central AIM take from the options, by dotted key."""
    return _common_values(given) | {
        "run.input": given["given"],
        "run.upload": given["upload"],
        "run.noise": given["noise"],
    }


def _served_values(given: Mapping[str, Any], section: str) -> dict[str, object]:
    """Returns the values that a method with one server takes from the options, by dotted key."""
    own = ("variant", "local_rounds", "grouping", "noise", "minimum")
    return _common_values(given) | {f"{section}.{key}": given[key] for key in own}


def _method_of(path: Path) -> str:
    """Returns the method of a configuration, where --method does not say one. Raises ConfigError."""
    algorithm = load_config(path).algorithm
    return METHODS[0] if algorithm is None else algorithm[0]


def _section_of(method: str) -> str | None:
    """Returns the configuration's section of a method with one server, None for METHODS.

    Raises UsageError if there is none of that name.
    """
    if method in METHODS:
        return None
    # Imported on demand: DistAIM does not need what federations need.
    from parties.methods.registry import section_of

    if (section := section_of(method)) is None:
        known = (*METHODS, "flaim", *silo_algorithms())
        raise click.UsageError(f"there is no method {method!r}; expected one of {', '.join(known)}")
    return section


def _check_options(method: str, section: str | None, given: Mapping[str, Any]) -> None:
    """Raises UsageError for options of other methods, and for values that this one has not."""
    own: Sequence[str] = _OWN_OPTIONS
    if section is not None:
        from parties.methods.registry import served_method

        own = served_method(section).run_options
    for name, option in _OPTIONS.items():
        if given[name] not in (None, False) and name not in own:
            raise click.UsageError(f"{option} is not of {method}: it is of {_having(name)}")
    noises = NOISES if section is None else FLAIM_NOISES
    if given["noise"] not in (None, *noises):
        raise click.UsageError(
            f"--noise {given['noise']} is not of {method}; expected one of {', '.join(noises)}"
        )
    if section is None:
        return
    if given["clients"] is not None and given["clients"] < _FEWEST:
        raise click.UsageError(f"--clients {given['clients']}: {method} needs {_FEWEST} or more")
    if given["by"] is not None and (given["beta"] is not None or given["clients"] is not None):
        raise click.UsageError(
            "--by splits by a column's values; give it without --clients, --beta"
        )


def _having(option: str) -> str:
    """Returns the methods that have an option, in words."""
    from parties.methods.registry import served_methods

    own = METHODS if option in _OWN_OPTIONS else ()
    others = (served.title for served in served_methods() if option in served.run_options)
    return ", ".join((*own, *others))


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
    folder, report = run_whole_trial(config, table, request, out=out, children=children)
    print_result(report, folder, closing_lines, as_json=as_json)


def run_whole_trial(
    config: Config,
    table: Table | Mapping[str, Table],
    request: TrialRequest,
    *,
    out: Path | None,
    children: Children | None = None,
    again_in: Path | None = None,
) -> tuple[RunFolder, Mapping[str, Any]]:
    """Does the work of ``run_trial`` without the summary; returns the run's folder and its report.

    ``again_in`` is the folder with which the command goes on, if it is another one.
    """
    run_folder = out or default_run_folder(config.run.id)
    distaim = request.method == DISTAIM
    if distaim and children is None:
        children = start_held_children(RunFolder(run_folder))
    try:
        started, read = time.perf_counter(), held(table)
        trial = trial_from_tables(read, config, request)
        folder = open_method_folder(trial, run_folder)
        record_tables(folder.path, trial.config, read)
        del read
        read_s = time.perf_counter() - started
        method = partial(run_method, trial, folder, children=children)
        report = run_trial_in_folder(
            trial,
            folder,
            method,
            rounds=config.run.rounds,
            goes_on=distaim,
            read_s=read_s,
            again_in=again_in,
        )
    finally:
        if children is not None:
            children.kill()
    return folder, report


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
        ("chosen queries", f"{len(queries)}: {shown}{more}" if queries else "none"),
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
