"""Utility of a table whose columns have different owners: DistAIM on the join of two sources beside central AIM.

A published table's columns are dealt to two sources in turn; each has as many rows, a part of which (the overlap) are
the same people's, in an order of its own, with a number as the key. DistAIM runs as `syncret run --source` does, by
processes over mutual TLS; central AIM has the plaintext join. Both have the same budget, so that differences are
chance. All values here are public.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from bench.datasets import Dataset, load
from bench.experiment.commands import NAME_LIST, Listed, failures, repeats_option
from bench.experiment.markdown import markdown_table, spread
from bench.experiment.means import grouped, known
from bench.fetch import DatasetError
from mechanisms.sampling import public_generator
from mechanisms.table import decode
from mechanisms.text_table import TextTable
from parties.config import Config, config_from_dict
from parties.local.assemble import finish_trial
from parties.local.methods import open_method_folder, run_method
from parties.local.request import AIM, DISTAIM, TrialRequest, load_linked_trial
from parties.local.sources import LocatedTable
from parties.observability.events import Progress

SOURCES, KEY = ("left", "right"), "number"
METHODS = (DISTAIM, AIM)


@dataclass(frozen=True, slots=True)
class Result:
    """A run: rows of each source and of their join, the workload error of its table (0 to 2), seconds, bytes sent.

    ``sent_mb`` is the sum over the three servers, 0 for central AIM.
    """

    dataset: str
    overlap: float
    method: str
    repeat: int
    rows: int
    joined: int
    workload_error: float
    seconds: float
    sent_mb: float


def split_by_columns(
    dataset: Dataset, rows: int, overlap: float, seed: int
) -> Mapping[str, TextTable]:
    """Returns two tables of ``rows`` rows, with every other column each; ``overlap`` of the rows are the same people's.

    Raises ValueError if the table is too small.
    """
    shared = round(rows * overlap)
    people = 2 * rows - shared
    codes = np.concatenate([dataset.train, dataset.test])
    if people > len(codes):
        raise ValueError(f"{dataset.name} has {len(codes)} rows; {people} are needed")
    draw = public_generator(seed)
    chosen = draw.permutation(len(codes))[:people]
    written = decode(dataset.domain, codes[chosen], draw)
    of_sources = np.arange(rows), np.arange(people - rows, people)
    tables = {}
    for number, (source, own) in enumerate(zip(SOURCES, of_sources, strict=True)):
        own = draw.permutation(own)
        columns = {KEY: [f"{person:07d}" for person in own]}
        for name in dataset.domain.names[number::2]:
            values = written[name].tolist()
            columns[name] = [values[person] for person in own]
        tables[source] = TextTable(columns, range(1, rows + 1), "row")
    return tables


def config_of(
    dataset: Dataset, *, rows: int, epsilon: float, rounds: int, degree: int, queries: int
) -> Config:
    """Returns a trial of two sources with ``queries`` random queries, which may span both sources."""
    names = dataset.domain.names
    document: dict[str, object] = {
        "run": {"id": "linked", "epsilon": epsilon, "delta": 1e-5, "rounds": rounds},
        "workload": {"degree": degree, "count": queries},
        "clients": {"expected": 2, "rows_per_client": rows},
        "source": [
            {"name": source, "columns": list(names[number::2]), "key": [KEY]}
            for number, source in enumerate(SOURCES)
        ],
    }
    return config_from_dict(document | dataset.domain.to_dict(), source="bench", base=Path())


async def measure(
    config: Config, dataset: Dataset, *, rows: int, overlap: float, clients: int, repeat: int
) -> list[Result]:
    """Runs each method once on the same tables. Raises as `syncret run`, ValueError for a table too small."""
    tables = split_by_columns(dataset, rows, overlap, seed=repeat)
    located = {name: LocatedTable(table, name) for name, table in tables.items()}
    found = []
    for method in METHODS:
        request = TrialRequest(method, dataset.name, clients, "iid", None, repeat)
        trial = load_linked_trial(config, located, request)
        with tempfile.TemporaryDirectory(prefix="syncret-bench-") as place:
            folder = open_method_folder(trial, Path(place) / "run")
            began = time.perf_counter()
            report = await run_method(trial, folder, Progress())
            seconds = time.perf_counter() - began
            document = finish_trial(trial, folder, report)
        sent = document["communication"]["server_sent_bytes"]  # type: ignore[index]
        error = document["utility"]["workload_error"]  # type: ignore[index]
        found.append(
            Result(
                dataset.name,
                overlap,
                method,
                repeat,
                rows,
                len(trial.codes),
                error,
                seconds,
                sum(sent) / 1e6,
            )
        )
    return found


def page(results: list[Result]) -> str:
    """Returns the results as a table in Markdown: means and deviations over repeats."""
    rows = []
    for (dataset, overlap), runs in grouped(results, lambda r: (r.dataset, r.overlap)).items():
        of_method = grouped(runs, lambda r: r.method)
        ours, central = of_method[DISTAIM], of_method[AIM]
        errors = (spread(known(part, "workload_error"), 3) for part in (ours, central))
        seconds = (spread(known(part, "seconds"), 1) for part in (ours, central))
        sent = spread(known(ours, "sent_mb"), 0)
        joined = f"{ours[0].joined:,} of {ours[0].rows:,}"
        rows.append([dataset, f"{overlap:.0%}", joined, *errors, *seconds, sent])
    heads = (
        "table | overlap | joined rows | error, DistAIM on shares | error, central AIM on the join"
        " | seconds | central | MB sent by three servers"
    )
    return markdown_table(heads, rows, right=range(2, 8))


@click.command(
    "link-utility",
    epilog="Example: syncret bench link-utility --dataset adult,covtype --rows 20000 --repeats 3 --json",
)
@click.option(
    "--dataset",
    "datasets",
    type=NAME_LIST,
    default="adult",
    show_default=True,
    help="Names, by commas.",
)
@click.option(
    "--overlap",
    "overlaps",
    type=Listed(
        float, "X,...", "numbers above 0 and at most 1", holds=lambda share: 0 < share <= 1
    ),
    default="1,0.8,0.5",
    show_default=True,
    help="By commas.",
)
@click.option(
    "--rows",
    type=click.IntRange(10),
    default=10_000,
    show_default=True,
    help="Rows in both sources, at most.",
)
@click.option("--clients", type=click.IntRange(1), default=3, show_default=True, help="A source.")
@click.option(
    "--epsilon", type=float, default=1.0, show_default=True, help="Privacy budget of a run."
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Rounds of DistAIM and central AIM.",
)
@click.option(
    "--degree", type=click.IntRange(1), default=3, show_default=True, help="Columns of a query."
)
@click.option(
    "--queries",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Queries that are drawn.",
)
@repeats_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run, on standard output.")
def link_utility(
    datasets: tuple[str, ...],
    overlaps: tuple[float, ...],
    rows: int,
    clients: int,
    epsilon: float,
    rounds: int,
    degree: int,
    queries: int,
    repeats: int,
    as_json: bool,
) -> None:
    """Compare tables made of two sources on shares with those of central AIM on the plaintext join."""
    results: list[Result] = []
    for name in datasets:
        with failures(DatasetError):
            dataset = load(name, progress=lambda line: click.echo(line, err=True))
        config = config_of(
            dataset, rows=rows, epsilon=epsilon, rounds=rounds, degree=degree, queries=queries
        )
        for overlap in overlaps:
            for repeat in range(1, repeats + 1):
                click.echo(f"{dataset.name}, overlap {overlap:.0%}, repeat {repeat}", err=True)
                made = asyncio.run(
                    measure(
                        config, dataset, rows=rows, overlap=overlap, clients=clients, repeat=repeat
                    )
                )
                for result in made:
                    results.append(result)
                    if as_json:
                        click.echo(json.dumps(asdict(result)))
    if not as_json:
        click.echo(page(results))
