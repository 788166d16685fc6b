"""`syncret bench mtl`: errors of personalised private models, over lambda and epsilon."""

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click

from bench.experiment.commands import (
    POSITIVE,
    Listed,
    failures,
    output_option,
    whole_numbers,
)
from bench.fetch import DatasetError
from bench.papers.mtl.page import RUNS, rows_of
from bench.papers.mtl.school import (
    CHOSEN,
    DITTO,
    FEDAVG,
    FINETUNING,
    IFCA,
    IFCA_NEAR,
    LOCAL,
    MR_MTL,
    ROUNDS,
    SCALINGS,
    Result,
    load_school,
    measure,
    measure_ditto,
    measure_finetuning,
    measure_ifca,
)
from bench.papers.pandemic.cli import run_task

_EXAMPLE = (
    "Example: syncret bench mtl --task school --lambda 0.3,1,3 --epsilon 1,6 --splits 5 --json"
)
METHODS = {
    "fedavg": FEDAVG,
    "local": LOCAL,
    "mr-mtl": MR_MTL,
    "chosen": CHOSEN,
    "finetuning": FINETUNING,
    "ditto": DITTO,
    "ifca": IFCA,
    "ifca-near": IFCA_NEAR,
}
HELD_OUT = 0.1


@click.command("mtl", epilog=_EXAMPLE)
@click.option(
    "--task",
    type=click.Choice(["school", "pandemic"]),
    default="school",
    show_default=True,
    help="School: exam scores in 139 schools; pandemic: infections in a made-up state.",
)
@click.option(
    "--method",
    "methods",
    type=Listed(
        str, "NAME,...", f"some of {', '.join(METHODS)}", holds=lambda name: name in METHODS
    ),
    default="fedavg,local,mr-mtl",
    show_default=True,
    help=f"By commas: {', '.join(METHODS)}. With chosen, silos vote for one of --lambda, local and FedAvg.",
)
@click.option(
    "--lambda",
    "lambdas",
    type=POSITIVE,
    help="Of mr-mtl and ditto, by commas; 1 by default, 0.0003 for pandemic.",
)
@click.option(
    "--epsilon", "epsilons", type=POSITIVE, default="6", show_default=True, help="By commas."
)
@click.option(
    "--splits",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Splits into training and test rows, or made-up states; each is run.",
)
@click.option(
    "--first-split",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of the first of them.",
)
@click.option(
    "--scaling",
    type=click.Choice(SCALINGS),
    default="silo",
    show_default=True,
    help="Features by each silo's own mean and deviation, not charged, as the paper; or by public bounds.",
)
@click.option("--rounds", type=click.IntRange(2), help=f"{ROUNDS} by default, 2 for pandemic.")
@click.option(
    "--tuning-rounds",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Rounds after which silos vote, with --method chosen.",
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option(
    "--persons",
    type=click.IntRange(300),
    default=100_000,
    show_default=True,
    help="Persons of the made-up state.",
)
@click.option(
    "--silos",
    type=click.IntRange(1, 40),
    default=3,
    show_default=True,
    help="Silos that share them.",
)
@click.option(
    "--neighbours",
    type=whole_numbers(100, "20,5"),
    default="20",
    show_default=True,
    help="K, by commas; the first is varied with.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    default=0.2,
    show_default=True,
    help="Learning rate.",
)
@click.option("--json", "as_json", is_flag=True, help='{"results": [...]} on standard output.')
@output_option("Folder of the page and of all runs, which are added to those there.")
def mtl(
    task: str,
    methods: tuple[str, ...],
    lambdas: tuple[float, ...] | None,
    epsilons: tuple[float, ...],
    splits: int,
    first_split: int,
    scaling: str,
    rounds: int | None,
    tuning_rounds: int,
    jobs: int,
    persons: int,
    silos: int,
    neighbours: tuple[int, ...],
    rate: float,
    as_json: bool,
    output: Path | None,
) -> None:
    """Errors of models that silos train together, each with its own privacy: FedAvg, local, MR-MTL, its neighbours.

    A run of School takes about half a minute, of ditto a whole one. --persons, --silos, --neighbours and --rate are for
    the task pandemic, a made-up state each split; --method, --scaling, --tuning-rounds and --jobs are for School.
    """
    if task == "pandemic":
        run_task(
            persons=persons,
            silos=silos,
            neighbours=neighbours,
            lambdas=lambdas or (0.0003,),
            epsilons=epsilons,
            rate=rate,
            rounds=rounds or 2,
            states=splits,
            seed=first_split,
            as_json=as_json,
            output=output,
        )
        return
    rounds = rounds or ROUNDS
    if output and rounds != ROUNDS:
        raise click.UsageError(f"--output: the page is about {ROUNDS} rounds")
    pulls = tuple(sorted(lambdas or (1.0,)))
    with failures(DatasetError):
        school = load_school()
    # Of the extra papers, so imported only here.
    from joblib import Parallel, delayed

    wanted: dict[str, list[tuple[float, ...]]] = {
        "fedavg": [(math.inf,)],
        "local": [(0.0,)],
        "mr-mtl": [(pull,) for pull in pulls],
        "chosen": [(0.0, *pulls, math.inf)],
    }
    beside: dict[str, list[Callable[..., Result]]] = {
        "finetuning": [measure_finetuning],
        "ditto": [partial(measure_ditto, pull=pull) for pull in pulls],
        "ifca": [partial(measure_ifca, method=IFCA)],
        "ifca-near": [partial(measure_ifca, method=IFCA_NEAR)],
    }
    calls = []
    for split in range(first_split, first_split + splits):
        for epsilon in epsilons:
            alike = {"epsilon": epsilon, "split": split, "scaling": scaling, "rounds": rounds}
            calls += [
                delayed(measure)(
                    school,
                    candidates,
                    **alike,
                    tuning_rounds=tuning_rounds if len(candidates) > 1 else 0,
                    held_out=HELD_OUT if len(candidates) > 1 else 0.0,
                )
                for name in methods
                for candidates in wanted.get(name, ())
            ]
            calls += [
                delayed(one)(school, **alike) for name in methods for one in beside.get(name, ())
            ]
    results: list[Result] = []
    made: Iterator[Result] = Parallel(n_jobs=jobs, return_as="generator")(calls)
    for result in made:
        results.append(result)
        click.echo(
            f"{len(results)} of {len(calls)}: {result.method}, lambda {result.lambda_:g}, "
            f"epsilon {result.epsilon:g}, split {result.split}: {result.mse:.5f}",
            err=True,
        )
        if output:
            with failures(DatasetError):
                RUNS.add(output, [result])
    rows = rows_of(results)
    if as_json:
        click.echo(json.dumps({"results": rows}, indent=1))
    else:
        for row in rows:
            pull = "-" if row["lambda"] is None else row["lambda"]
            click.echo(
                f"{row['method']:<24} lambda {pull!s:>5} epsilon {row['epsilon']:g}: "
                f"{row['mse']:.5f} ± {row['std']:.5f}"
            )
