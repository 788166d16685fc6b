"""`syncret bench gan`: DP-CTGAN, central and federated, as the FLAIM paper's baselines."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from bench.experiment.commands import failures, json_option, output_option, repeats_option
from bench.experiment.documents import write_json
from bench.experiment.markdown import markdown_table
from bench.extra import need
from bench.fetch import DatasetError
from bench.papers.gan.outcomes import CENTRAL, FEDERATED, REFERENCES, RESULTS, read_outcomes
from parties.foundation.errors import StoreError

_METHODS = (CENTRAL, FEDERATED, *REFERENCES)


@click.command(epilog="Example: syncret bench gan --dataset adult --method central --repeats 1")
@click.option("--dataset", default="adult", show_default=True, help="One of bench utility's.")
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    multiple=True,
    help="By default all; the last three train nothing.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    show_default=True,
    help="Privacy budget of a run; delta is 1e-5.",
)
@repeats_option
@click.option(
    "--partition",
    default="clustering",
    show_default=True,
    help="Of the federated one; clustering wants UMAP, once.",
)
@output_option(
    "Folder for utility-gan.json, to which runs are added, and which `syncret bench utility --output` reads."
)
@json_option
def gan(
    dataset: str,
    method: tuple[str, ...],
    epsilon: float,
    repeats: int,
    partition: str,
    output: Path | None,
    as_json: bool,
) -> None:
    """DP-CTGAN: workload error, AUC, and the likelihood of a kernel density over its rows.

    On Adult some three minutes of a processor a run, on Covtype a quarter of an hour. What utility-gan.json has is not
    run again. To compare: real (the training rows), shuffled (their columns, each by itself) and uniform codes, in a
    minute each.
    """
    need("sklearn", "the classifier's AUC")
    # JAX and SciPy are loaded by those who ask for it.
    from bench.papers.gan.runs import reference, run

    def say(line: str) -> None:
        click.echo(line, err=True)

    with failures(DatasetError, StoreError, OSError, ValueError):
        outcomes = read_outcomes(output) if output else []
        for repeat in range(repeats):
            for name in method or _METHODS:
                key = (dataset, name, epsilon, repeat)
                if any((o.dataset, o.method, o.epsilon, o.repeat) == key for o in outcomes):
                    continue
                if name in REFERENCES:
                    made = partial(reference, dataset, name)
                else:
                    made = partial(run, dataset, name, partition=partition, progress=say)
                outcomes.append(made(epsilon=epsilon, repeat=repeat))
                if output:
                    write_json(output / RESULTS, [asdict(outcome) for outcome in outcomes])
    rows = [asdict(outcome) for outcome in outcomes]
    if as_json:
        click.echo(json.dumps({"results": rows}))
        return
    shown = [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()]
        for row in rows
    ]
    click.echo(markdown_table(" | ".join(rows[0]), shown))
