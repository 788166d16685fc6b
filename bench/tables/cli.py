"""`syncret bench tables`: persons and their rows, beside the same tables flattened."""

import json
import sys
from pathlib import Path

import click

from bench.experiment.commands import failures, json_object_option, output_option, repeats_option
from bench.quality.environment import QUALITY, ThirdPartyError
from bench.tables.data import NAMES, PERSONS
from bench.tables.methods import HALVES, METHODS, THEIRS, Budget
from bench.tables.page import RUNS
from bench.tables.runs import Job, Run, measure
from mechanisms.errors import MechanismError


@click.command(
    epilog="Example: syncret bench tables --dataset clinic --method keyed --repeats 3 --json"
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=click.Choice(NAMES),
    help="Made-up tables; may be given several times [all].",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    type=click.Choice(list(METHODS)),
    help="May be given several times [all but SDV's].",
)
@repeats_option
@click.option(
    "--persons", type=click.IntRange(100), default=PERSONS, show_default=True, help="In the tables."
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Privacy budget of a person, over all tables.",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, min_open=True),
    default=1e-5,
    help="Delta of that budget.",
)
@click.option(
    "--limit",
    type=click.FloatRange(1),
    default=600.0,
    show_default=True,
    help="Seconds of processor time for SDV's methods.",
)
@output_option(
    "Add to tables.json and tables.md in this folder; what is there already is not run again."
)
@json_object_option
def tables(
    *,
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    repeats: int,
    persons: int,
    epsilon: float,
    delta: float,
    limit: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure tables of persons and their rows: constants, order, numbers, change within a person.

    keyed and flat are central AIM with epsilon and delta for a person with all rows. sdv-hma and sdv-par are not
    private. SDMetrics' scores are added where its environment is, which `make bench-quality` makes, with sdv-hma;
    sdv-par needs torch and an environment of its own, which `make bench-par` makes.
    """
    budget = Budget(epsilon, delta, limit)
    with failures(MechanismError, ThirdPartyError):
        for method in methods:
            if method in THEIRS:
                THEIRS[method].python()
        jobs = [
            Job(dataset, method, persons, repeat, budget)
            for dataset in datasets or NAMES
            for method in methods or [name for name in METHODS if name not in THEIRS]
            for repeat in range(1 if method in (HALVES, *THEIRS) else repeats)
        ]
        runs = [_done(job, output) for job in jobs]
    if as_json:
        click.echo(json.dumps({"runs": [run.to_dict() for run in runs]}))


def _done(job: Job, output: Path | None) -> Run:
    """Returns the job's run, from the folder or by a new one."""
    for known in RUNS.read(output) if output else ():
        if known.job.key == job.key:
            return known
    run = measure(job)
    click.echo(_line(run), file=sys.stderr)
    if output:
        RUNS.add(output, [run])
    return run


def _line(run: Run) -> str:
    said = f"{run.job.dataset} {run.job.method}"
    if run.figures is None:
        return f"{said}: {run.failed}"
    found = run.figures
    return (
        f"{said}: constants broken {found['broken']:.1%}, associations off by {found['own_v']:.3f} and "
        f"{found['step_v']:.3f}, pairs by {found['own_pairs']:.3f} and {found['step_pairs']:.3f}; "
        f"{run.seconds or 0:.1f} s; {_scored(run)}"
    )


def _scored(run: Run) -> str:
    if run.scores is None:
        return (
            f"no scores by SDMetrics, {run.unscored or f'which `make {QUALITY.target}` installs'}"
        )
    known = [
        f"{name} {value:.3f}" for name, value in run.scores.items() if isinstance(value, float)
    ]
    return f"SDMetrics' {', '.join(known)}"
