"""The pandemic task on the command line: `syncret bench mtl --task pandemic`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import click

from bench.experiment.commands import failures
from bench.fetch import DatasetError
from bench.papers.pandemic.page import RUNS, rows_of
from bench.papers.pandemic.task import Result, measure, trials


def run_task(
    *,
    persons: int,
    silos: int,
    neighbours: Sequence[int],
    lambdas: Sequence[float],
    epsilons: Sequence[float],
    rate: float,
    rounds: int,
    states: int,
    seed: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """Runs, shows and keeps all comparisons, training alone and FedAvg included. Raises UsageError."""
    wanted = trials(neighbours, epsilons, [*lambdas, 0.0, math.inf], rate=rate, rounds=rounds)
    results: list[Result] = []
    try:
        for number in range(seed, seed + states):
            for result in measure(
                wanted,
                persons=persons,
                silos=silos,
                seed=number,
                progress=lambda line: click.echo(line, err=True),
            ):
                results.append(result)
                click.echo(_line(result), err=as_json)
                if output:
                    with failures(DatasetError):
                        RUNS.add(output, [result])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps({"results": rows_of(results)}, indent=1))


def _line(result: Result) -> str:
    trial = result.trial
    return (
        f"{trial.method:<7} {trial.loss:<6} K {trial.neighbours:>2} lambda {trial.lam:<6g} "
        f"epsilon {trial.epsilon:<5g}: AUPRC {100 * result.auprc:.3f} %, "
        f"recall {100 * result.recall:.2f} %"
    )
