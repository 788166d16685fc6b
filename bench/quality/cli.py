"""`syncret bench quality`: synthetic tables by a third party's score, a classifier, and their atoms."""

import json
import sys
from pathlib import Path

import click

from bench.experiment.commands import failures, json_object_option, output_option, repeats_option
from bench.fetch import DatasetError
from bench.quality.environment import QUALITY, ThirdPartyError, private_pgm
from bench.quality.membership_runs import MEMBERSHIP, MembershipRun, attack, run_line
from bench.quality.methods import METHODS, OURS, PGM_AIM, REAL, Budget
from bench.quality.report import RUNS
from bench.quality.runs import Job, columns_of, measure
from bench.quality.store import QualityEntry, entry_of
from bench.quality.tables import NAMES, PRIVATE, SHAPED, UNIFORM
from mechanisms.errors import MechanismError

_EXAMPLE = "Example: syncret bench quality --dataset adult --method aim --repeats 3 --json"


@click.command(epilog=_EXAMPLE)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=click.Choice(NAMES),
    help="A table; may be given several times [all].",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    type=click.Choice(METHODS),
    help="May be given several times [real and ours].",
)
@click.option(
    "--columns",
    multiple=True,
    type=click.Choice((UNIFORM, SHAPED, PRIVATE)),
    help="Equal bins, atoms and scales as `syncret data draft` drafts them, or (aim) private bins [all].",
)
@repeats_option
@click.option(
    "--rows",
    type=click.IntRange(100),
    default=20_000,
    show_default=True,
    help="Of a table at most, drawn at random; nine tenths are synthesised from.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Privacy budget of a run.",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, min_open=True),
    default=1e-5,
    help="Delta of that budget.",
)
@click.option(
    "--clients",
    type=click.IntRange(3),
    default=20,
    show_default=True,
    help="Owners, of DistAIM and FLAIM.",
)
@click.option("--mpc", is_flag=True, help="DistAIM's servers and owners as processes.")
@click.option(
    "--limit",
    type=click.FloatRange(1),
    default=600.0,
    show_default=True,
    help="Seconds of processor time for a third party's synthesizer.",
)
@click.option(
    "--membership",
    is_flag=True,
    help="Attack the tables instead: who of some rows was among those that they were made of?",
)
@output_option(
    "Add to quality.json and quality.md in this folder, or to membership.json and .md; what is there already is not "
    "run again."
)
@json_object_option
def quality(
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    columns: tuple[str, ...],
    repeats: int,
    rows: int,
    epsilon: float,
    delta: float,
    clients: int,
    mpc: bool,
    limit: float,
    membership: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure synthetic tables by SDMetrics' score, a classifier's AUC and the shares of their atoms.

    With --membership by attacks on single rows, beside what epsilon allows. Third parties' packages are asked in an
    environment of their own, which `make bench-quality` makes.
    """
    budget = Budget(epsilon, delta, clients, mpc, limit)
    with failures(DatasetError, MechanismError, ThirdPartyError):
        if not membership:
            QUALITY.python()
        if PGM_AIM in methods:
            private_pgm()
        jobs = [
            Job(dataset, method, description, rows, repeat, budget)
            for dataset in datasets or NAMES
            for repeat in range(repeats)
            for method in methods or (REAL, *OURS)
            for description in columns_of(dataset, method, rows)
            if description in (columns or (UNIFORM, SHAPED, PRIVATE))
            and not (method == REAL and repeat)
        ]
        if not jobs:
            raise click.UsageError(_nothing(methods, columns))
        entries = [_attacked(job, output) if membership else _done(job, output) for job in jobs]
    if as_json:
        click.echo(json.dumps({"runs": [entry.to_dict() for entry in entries]}))


def _nothing(methods: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """Explains an empty selection: a method does not have every description of the columns."""
    return (
        f"{' and '.join(methods)} with {' or '.join(columns)} columns is nothing to run: private bins are measured with"
        " aim and standard alone, the real tables and SDV have one description (uniform), and some tables no other"
    )


def _done(job: Job, output: Path | None) -> QualityEntry:
    """Returns the job's entry, from the folder or by a new run."""
    for entry in RUNS.read(output) if output else ():
        if entry.job.key == job.key:
            return entry
    entry = entry_of(job, measure(job))
    click.echo(_line(entry), file=sys.stderr)
    if output:
        RUNS.add(output, [entry])
    return entry


def _attacked(job: Job, output: Path | None) -> MembershipRun:
    """Returns the attacks on the job's table, from the folder or by a new run."""
    for known in MEMBERSHIP.read(output) if output else ():
        if known.job.key == job.key:
            return known
    run = attack(job)
    click.echo(run_line(run), file=sys.stderr)
    if output:
        MEMBERSHIP.add(output, [run])
    return run


def _line(entry: QualityEntry) -> str:
    job, record = entry.job, entry.record
    if record.failed is not None:
        return f"{job.dataset} {job.method} {job.columns}: {record.failed}"
    said = [f"shapes {record.shapes:.3f}", f"pairs {record.pairs:.3f}"]
    said += [f"AUC {record.auc:.3f}"] if record.auc is not None else []
    said += [f"error {record.error:.3f}"] if record.error is not None else []
    said += [f"atoms kept {record.kept:.1%}"] if record.kept is not None else []
    said += [f"{record.survived:.0%} of the checks survive"] if record.survived is not None else []
    return f"{job.dataset} {job.method} {job.columns}: {', '.join(said)}; {record.seconds:.1f} s"
