"""`syncret bench tda`: classifiers of silos whose labels differ, with and without synthetic rows."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

import click
from rich.console import Console
from rich.table import Table

from bench.experiment.commands import (
    failures,
    json_option,
    output_option,
    repeats_option,
    results_option,
)
from bench.experiment.markdown import spread
from bench.experiment.means import known, table_of_means
from bench.experiment.progress import progress_bar
from bench.experiment.sweeps import settings_of
from bench.fetch import DatasetError
from bench.papers.tda.grid import PAGE, SWEEPS
from bench.papers.tda.settings import (
    FEDAVG,
    FEDMIX,
    FEDPROX,
    METHODS,
    PAPER_ROUNDS,
    SOURCES,
    TDA,
    Settings,
)
from bench.papers.tda.store import Entry, Store, open_store, to_json
from bench.papers.tda.tables import NAMES
from mechanisms.errors import MechanismError

_EXAMPLE = "Example: syncret bench tda --dataset body --beta 0.05 --train-rows 2000 --rounds 10 --repeats 3 --json"
NONE = "none"
_DEFAULT = (FEDAVG, FEDPROX, FEDMIX, f"{TDA}+{FEDAVG}", f"{TDA}+{FEDPROX}")


class _Epsilon(click.ParamType[float | None]):
    """A positive number, or none."""

    name = f"X|{NONE}"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """The number, None for none; the settings check its range."""
        if value == NONE or value is None:
            return None
        try:
            return float(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {NONE!r}", param, ctx)


@click.command(epilog=_EXAMPLE)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=click.Choice(NAMES),
    default=("clinical",),
    show_default=True,
    help="May be given several times, as the next four.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    type=click.Choice(METHODS),
    default=_DEFAULT,
    show_default=True,
    help="A way to train; SOURCE+TRAINING: own and synthetic rows; SOURCE: synthetic rows alone. "
    + ". ".join(f"{name}: {what}" for name, what in SOURCES.items())
    + ".",
)
@click.option(
    "--beta",
    "betas",
    multiple=True,
    type=float,
    default=(0.05,),
    show_default=True,
    help="Of the Dirichlet shares that silos have of each label.",
)
@click.option(
    "--epsilon",
    "epsilons",
    multiple=True,
    type=_Epsilon(),
    default=(NONE,),
    show_default=True,
    help="Of the synthetic rows; none: exact statistics, as the paper's utility tables have them, not private.",
)
@click.option("--clients", multiple=True, type=int, default=(5,), show_default=True, help="Silos.")
@click.option("--rounds", type=int, default=PAPER_ROUNDS, show_default=True, help="Of training.")
@click.option(
    "--epochs", multiple=True, type=int, default=(3,), show_default=True, help="Local, in a round."
)
@click.option(
    "--train-rows", type=int, default=None, help="At most so many training rows, drawn [all]."
)
@click.option(
    "--synthetic-rows", type=int, default=1_000, show_default=True, help="That each silo gets."
)
@repeats_option
@results_option(Path("runs") / "tda.jsonl")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    type=click.Choice([*SWEEPS, "all"]),
    help="In place of the options above, the page's runs of this name; may be given several times.",
)
@output_option(f"Folder for {PAGE} and its picture, made of all that --results has.")
@json_option
def tda(
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    betas: tuple[float, ...],
    epsilons: tuple[float | None, ...],
    clients: tuple[int, ...],
    rounds: int,
    epochs: tuple[int, ...],
    train_rows: int | None,
    synthetic_rows: int,
    repeats: int,
    store_path: Path,
    sweeps: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> None:
    """Fed-TDA's evaluation: AUC or accuracy, similarity of synthetic rows, and bytes sent.

    Options that may be given several times are combined with one another. At the paper's 100 rounds the larger tables
    take many minutes a run.
    """
    with failures(DatasetError, MechanismError, ImportError, ValueError):
        chosen = settings_of(SWEEPS, sweeps) or [
            Settings(
                dataset=dataset,
                method=method,
                beta=beta,
                epsilon=epsilon,
                clients=silos,
                rounds=rounds,
                epochs=local,
                train_rows=train_rows,
                synthetic_rows=synthetic_rows,
            )
            for dataset, beta, epsilon, silos, local, method in product(
                datasets, betas, epsilons, clients, epochs, methods
            )
        ]
        store = open_store(store_path)
        entries = run_all(chosen, repeats, store)
        if output is not None:
            from bench.papers.tda.page import write_page

            write_page(store, output)
    if as_json:
        click.echo(json.dumps({"results": [to_json(entry) for entry in entries]}))
    else:
        Console().print(_table(entries))


def run_all(chosen: Sequence[Settings], repeats: int, store: Store) -> list[Entry]:
    """Runs every repeat of `chosen`, each once; runs in the store are not repeated. Raises as `measure`."""
    from bench.papers.tda.runs import measure

    unique = dict.fromkeys(settings.relevant() for settings in chosen)
    work = [(settings, repeat) for repeat in range(repeats) for settings in unique]
    todo = [job for job in work if store.find(*job) is None]
    with progress_bar(len(todo)) as bar:
        for settings, repeat in todo:
            name = f"{settings.dataset} {settings.method} repeat {repeat}"
            result = measure(settings, repeat, progress=bar.beside(name))
            store.add([Entry(settings, repeat, result)])
            bar.done(f"{name}: {result.score:.3f}, {result.seconds:.0f} s")
    return [entry for job in work if (entry := store.find(*job)) is not None]


def _table(entries: Sequence[Entry]) -> Table:
    heads = (
        "dataset method beta eps K rounds repeats AUC|accuracy JSD Wasserstein sent-MB formula-MB s"
    )
    return table_of_means(entries, heads, _row)


def _row(group: Sequence[Entry]) -> tuple[str, ...]:
    settings, results = group[0].settings, [entry.result for entry in group]
    similar = [
        f"{fmean(values):.3f}" if (values := known(results, name)) else "-"
        for name in ("jsd", "wasserstein")
    ]
    formula = results[0].formula_mb
    return (
        settings.dataset,
        settings.method,
        "-" if settings.beta is None else f"{settings.beta:g}",
        NONE if settings.epsilon is None else f"{settings.epsilon:g}",
        str(settings.clients),
        str(settings.rounds),
        str(len(group)),
        spread(known(results, "score"), 3),
        *similar,
        f"{fmean(known(results, 'sent_mb')):.4g}",
        "-" if formula is None else f"{formula:.4g}",
        f"{fmean(known(results, 'seconds')):.0f}",
    )
