"""`syncret bench utility`: utility of each method's tables."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import click
from rich.console import Console
from rich.table import Table

from bench.datasets import NAMES, SYNTHFS, load
from bench.experiment.commands import (
    NAME_LIST,
    Listed,
    failures,
    json_option,
    output_option,
    repeats_option,
    results_option,
)
from bench.experiment.means import table_of_means, values_of
from bench.experiment.progress import progress_bar
from bench.experiment.sweeps import settings_of
from bench.fetch import DatasetError
from bench.methods.settings import (
    ANY,
    CLIENTS,
    ESTIMATED,
    ESTIMATORS,
    FLAIM_METHODS,
    FRESH,
    KEPT,
    METHODS,
    ONCE,
    OURS,
    PAIRS,
    PUBLIC,
    SERVER,
    SUM,
    Settings,
)
from bench.methods.splits import NATURAL
from bench.papers.utility.grid import CREDIT, SWEEPS
from bench.papers.utility.portraits import draw_portraits
from bench.papers.utility.report import write_report
from bench.papers.utility.runs import Result
from bench.papers.utility.sizes import SIZES_FILE, measure_sizes
from bench.papers.utility.splits import SPLITS_FILE, measure_splits
from bench.papers.utility.store import Entry, Store, open_store
from bench.papers.utility.sweep import Job, run_all
from mechanisms.errors import MechanismError
from mechanisms.scores import AIM, RULES

_EXAMPLE = (
    "Example: syncret bench utility --dataset adult --method aim,distaim,naive,private --partition clustering"
    " --repeats 3 --json"
)
_INTEGERS, _NUMBERS = Listed(int, "N,...", "whole numbers"), Listed(float, "X,...", "numbers")


@click.command(epilog=_EXAMPLE)
@click.option(
    "--dataset",
    "datasets",
    type=NAME_LIST,
    default=None,
    help=f"One or more of {', '.join(NAMES)}; by default adult, of a sweep all that it has.",
)
@click.option(
    "--method",
    "methods",
    type=NAME_LIST,
    default="aim,distaim,naive,oracle,private",
    show_default=True,
    help=f"Of {', '.join(METHODS)}; or {PAIRS}, which is not the papers'.",
)
@click.option(
    "--partition",
    type=str,
    default=None,
    help="iid, clustering or label-skew; by default clustering (synthfs: natural, its own).",
)
@click.option("--beta", type=_NUMBERS, default="0.1", show_default=True, help="Of label-skew.")
@click.option("--skew", type=_NUMBERS, default="3", show_default=True, help="Of synthfs.")
@click.option(
    "--epsilon", type=_NUMBERS, default="1", show_default=True, help="Privacy budgets, by commas."
)
@click.option("--delta", type=float, default=1e-5, show_default=True, help="Delta of each budget.")
@click.option("--rounds", type=_INTEGERS, default="10", show_default=True, help="T.")
@click.option("--annealed", is_flag=True, help="Annealing in place of a fixed T.")
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default=AIM,
    show_default=True,
    help="aim and distaim: what error a measurement is taken to leave; aim is the papers'.",
)
@click.option("--degree", type=int, default=3, show_default=True, help="Columns of a query.")
@click.option(
    "--queries",
    type=int,
    default=64,
    show_default=True,
    help="How many are drawn; all where there are no more.",
)
@click.option("--clients", type=int, default=100, show_default=True, help="K.")
@click.option("--participation", type=_NUMBERS, default="0.1", show_default=True, help="p.")
@click.option(
    "--local-rounds", type=_INTEGERS, default="1", show_default=True, help="s; FLAIM only."
)
@click.option(
    "--tau",
    type=click.Choice(["none", "oracle", "proxy"]),
    default=None,
    help="Ablation: what FLAIM's score takes off for heterogeneity.",
)
@click.option(
    "--combine/--no-combine",
    default=None,
    help="Ablation: FLAIM's filter-and-combine of one-way marginals.",
)
@click.option(
    "--sizes",
    type=click.Choice([PUBLIC, ESTIMATED]),
    default=PUBLIC,
    show_default=True,
    help="FLAIM: clients declare their rows, as in the paper, or they are estimated.",
)
@click.option(
    "--estimator",
    type=click.Choice(ESTIMATORS),
    default=OURS,
    show_default=True,
    help="How models are fitted: as everywhere, as in the authors' code, or until the loss is that of noise.",
)
@click.option(
    "--settles",
    type=click.Choice([SUM, ANY]),
    default=SUM,
    show_default=True,
    help="FLAIM annealed: finer rounds once the chosen queries have settled in sum, or any of them.",
)
@click.option(
    "--drawn",
    type=click.Choice([CLIENTS, SERVER]),
    default=CLIENTS,
    show_default=True,
    help="random: each client draws its query, or (with --estimator authors) the server one for all of a round.",
)
@click.option(
    "--first",
    type=click.Choice([KEPT, ONCE, FRESH]),
    default=KEPT,
    show_default=True,
    help="The first one-way marginals are of those who come to round 1 (FLAIM: of one draw of clients), of one other "
    "draw (distaim alone), or each of its own draw.",
)
@click.option("--mpc", is_flag=True, help="distaim as processes over mutual TLS, not in plaintext.")
@click.option("--iterations", type=int, default=100, show_default=True, help="Of PGM, a round.")
@click.option("--final-iterations", type=int, default=1000, show_default=True, help="At the end.")
@click.option(
    "--max-model-mb", type=float, default=80.0, show_default=True, help="Bound on a model's tables."
)
@repeats_option
@results_option(Path("runs") / "utility.jsonl")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes at a time.")
@click.option(
    "--dask", default=None, metavar="ADDRESS", help="Run on this Dask scheduler's workers."
)
@click.option(
    "--sweep",
    "sweeps",
    type=NAME_LIST,
    default=None,
    help=f"In place of the options above, the published runs of {', '.join(SWEEPS)}, or all.",
)
@output_option("Folder for utility.md and its pictures, made of all that --results has.")
@json_option
def utility(
    datasets: tuple[str, ...] | None,
    methods: tuple[str, ...],
    partition: str | None,
    beta: tuple[float, ...],
    skew: tuple[float, ...],
    epsilon: tuple[float, ...],
    delta: float,
    rounds: tuple[int, ...],
    annealed: bool,
    rule: str,
    degree: int,
    queries: int,
    clients: int,
    participation: tuple[float, ...],
    local_rounds: tuple[int, ...],
    tau: str | None,
    combine: bool | None,
    sizes: str,
    estimator: str,
    settles: str,
    drawn: str,
    first: str,
    mpc: bool,
    iterations: int,
    final_iterations: int,
    max_model_mb: float,
    repeats: int,
    store_path: Path,
    jobs: int,
    dask: str | None,
    sweeps: tuple[str, ...] | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Utility: workload error, likelihood and AUC of AIM, DistAIM, FLAIM's variants and baselines.

    Options that take several values with commas are combined with one another. A run of Adult takes 4 to 10 seconds of
    a processor, of Magic 3, of Covtype or Census a minute. --sweep all with three repeats, and with ten of Adult, is
    3,000 runs: by the seconds of their records some 17 hours of one processor, a night on two. Of the paper's grids it
    has four or five values of each axis, and of Figures 6 to 11 two tables: utility.md says what is thinned out, and
    counts runs and hours. What --results has is not run again, so that Ctrl-C costs the runs under way and no more.
    """
    with failures(DatasetError, MechanismError, ImportError, ValueError):
        if sweeps is not None:
            chosen = _only(datasets, settings_of(SWEEPS, sweeps))
            if datasets is None:
                chosen = _at_hand(chosen)
        else:
            base = {
                "delta": delta,
                "annealed": annealed,
                "rule": rule,
                "degree": degree,
                "queries": queries,
                "clients": clients,
                "mpc": mpc,
                "iterations": iterations,
                "final_iterations": final_iterations,
                "max_model_mb": max_model_mb,
                "tau": tau,
                "combine": combine,
                "sizes": sizes,
                "estimator": estimator,
                "settles": settles,
                "drawn": drawn,
                "first": first,
            }
            axes = {
                "dataset": datasets or ("adult",),
                "method": methods,
                "beta": beta,
                "skew": skew,
                "epsilon": epsilon,
                "rounds": rounds,
                "participation": participation,
                "local_rounds": local_rounds,
            }
            chosen = _combined(axes, base, partition)
        store = open_store(store_path)
        entries, failed = _run(chosen, repeats, store, jobs=jobs, dask=dask)
        if output is not None and sweeps is not None and {"table5", "all"} & set(sweeps):
            measure_splits(output / SPLITS_FILE, progress=lambda line: click.echo(line, err=True))
        if output is not None and sweeps is not None and {"table4", "all"} & set(sweeps):
            measure_sizes(output / SIZES_FILE, progress=lambda line: click.echo(line, err=True))
        if output is not None and sweeps is not None and {"fig4", "fig5", "all"} & set(sweeps):
            draw_portraits(output, progress=lambda line: click.echo(line, err=True))
        if output is not None:
            write_report(store, output)
        if failed:
            more = f" ({len(failed) - 1} more)" if len(failed) > 1 else ""
            raise click.ClickException(f"{failed[0]}{more}; what succeeded is in {store.path}")
    if as_json:
        click.echo(json.dumps({"results": [entry.to_json() for entry in entries]}))
    elif sweeps is None:
        Console().print(_table(entries))


def _only(datasets: tuple[str, ...] | None, chosen: list[Settings]) -> list[Settings]:
    if datasets is None:
        return chosen
    if unknown := [name for name in datasets if name not in NAMES]:
        raise DatasetError(f"unknown dataset {unknown[0]!r}; expected one of {', '.join(NAMES)}")
    return [settings for settings in chosen if settings.dataset in datasets]


def _at_hand(chosen: list[Settings]) -> list[Settings]:
    """Leaves out the runs on a table that few have, if it is not available."""
    if any(settings.dataset == CREDIT for settings in chosen):
        try:
            load(CREDIT)
        except DatasetError as error:
            click.echo(f"{CREDIT} is left out: {error}", err=True)
            return [settings for settings in chosen if settings.dataset != CREDIT]
    return chosen


def _combined(
    axes: Mapping[str, tuple[object, ...]], base: Mapping[str, object], partition: str | None
) -> list[Settings]:
    chosen = []
    for values in product(*axes.values()):
        given = dict(zip(axes, values, strict=True)) | dict(base)
        if partition is None:
            given["partition"] = NATURAL if given["dataset"] == SYNTHFS else "clustering"
        else:
            given["partition"] = partition
        if given["method"] not in (*FLAIM_METHODS, PAIRS):
            # So that one command can have ablations beside methods without them.
            given |= {"tau": None, "combine": None, "local_rounds": 1, "sizes": PUBLIC}
            given["settles"] = SUM
        if given["method"] != "random":
            given["drawn"] = CLIENTS
        if given["method"] != "distaim":
            given["mpc"] = False
            if given["first"] == ONCE or given["method"] not in FLAIM_METHODS:
                given["first"] = KEPT
        chosen.append(Settings(**given))  # type: ignore[arg-type]  # checked there
    return list(dict.fromkeys(chosen))


def _run(
    chosen: Sequence[Settings], repeats: int, store: Store, *, jobs: int, dask: str | None
) -> tuple[list[Entry], list[str]]:
    """Returns the entries, in the order of `chosen`, and the messages of failed runs."""
    work = [(settings, repeat) for repeat in range(repeats) for settings in chosen]
    missing = len({(s.digest(), r) for s, r in work if store.find(s, r) is None})
    with progress_bar(missing) as bar:

        def on_done(job: Job, result: Result | str) -> None:
            settings, repeat = job
            run = f"{settings.dataset} {settings.partition} {settings.method} repeat {repeat}"
            end = result if isinstance(result, str) else f"error {result.workload_error:.3f}"
            bar.done(f"{run}: {end}")

        failed = run_all(work, store, n_jobs=jobs, dask=dask, progress=bar.say, on_done=on_done)
    entries = [entry for s, r in work if (entry := store.find(s, r)) is not None]
    entries.sort(key=lambda entry: chosen.index(entry.settings))
    return entries, failed


def _table(entries: Sequence[Entry]) -> Table:
    heads = "dataset partition method eps T repeats error ± closure NLL AUC s"
    table = table_of_means(entries, heads, _row)
    if any(entry.settings.flaim and entry.settings.sizes == PUBLIC for entry in entries):
        table.caption = "FLAIM with public sizes: eps is for tables of the same declared sizes"
    return table


def _row(group: Sequence[Entry]) -> tuple[str, ...]:
    """Returns the means of all repeats of one setting."""
    s = group[0].settings
    errors, aucs = values_of(group, "workload_error"), values_of(group, "auc")
    return (
        s.dataset,
        "-" if s.method == "aim" else s.partition,
        s.method,
        f"{s.epsilon:g}",
        "annealed" if s.annealed else str(s.rounds),
        str(len(group)),
        f"{fmean(errors):.3f}",
        f"{stdev(errors):.3f}" if len(group) > 1 else "-",
        f"{fmean(values_of(group, 'closure_error')):.3f}",
        f"{fmean(values_of(group, 'nll')):.2f}",
        f"{fmean(aucs):.3f}" if aucs else "-",
        f"{fmean(values_of(group, 'seconds')):.1f}",
    )
