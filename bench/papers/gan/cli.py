"""`syncret bench gan`: DP-CTGAN, central and federated, as the FLAIM paper's baselines."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from bench.experiment.markdown import markdown_table
from bench.extra import need
from bench.fetch import DatasetError
from bench.papers.gan.outcomes import CENTRAL, FEDERATED, REFERENCES, RESULTS, read_outcomes
from parties.foundation.errors import StoreError
from parties.storage.files import write_atomic

_METHODS = (CENTRAL, FEDERATED, *REFERENCES)


@click.command(epilog="Example: syncret bench gan --dataset adult --method central --repeats 1")
@click.option("--dataset", default="adult", show_default=True, help="One of bench utility's.")
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    multiple=True,
    help="By default all; the last three train nothing.",
)
@click.option("--epsilon", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--partition",
    default="clustering",
    show_default=True,
    help="Of the federated one; clustering wants UMAP, once.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Folder for utility-gan.json, to which runs are added, and which `syncret bench utility --output` reads.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON and nothing else on standard output."
)
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

    try:
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
                    output.mkdir(parents=True, exist_ok=True)
                    rows = [asdict(outcome) for outcome in outcomes]
                    write_atomic(output / RESULTS, json.dumps(rows, indent=1) + "\n")
    except (DatasetError, StoreError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    rows = [asdict(outcome) for outcome in outcomes]
    if as_json:
        click.echo(json.dumps({"results": rows}))
        return
    shown = [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()]
        for row in rows
    ]
    click.echo(markdown_table(" | ".join(rows[0]), shown))
