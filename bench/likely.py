"""`syncret bench likely`: number of marginals whose error is within its likely bound, table by table.

Runs are those of central AIM as a draft asks for it, in the clear: all pairs of columns, annealed, by our own rule.
Tables are those of `bench.quality.tables` in their shape, 14 columns of a wide one, drawn by the repeat; `generated`
ones follow a law of the repeat: latent classes, normal factors, or a network. All values here are public: the tables
are published.

Limits: a run's model may take `MODEL_MB`, so that a hundred runs take minutes.
"""

import asyncio
import itertools
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click
import numpy as np
from numpy.typing import NDArray

from bench.experiment.commands import failures, json_object_option, repeats_option
from bench.fetch import DatasetError
from bench.quality.tables import NAMES, SHAPED, load_table
from mechanisms.accounting import Ledger
from mechanisms.aim import run_aim
from mechanisms.annealing import CENTRAL_ROUNDS
from mechanisms.domain import Categorical, Domain
from mechanisms.errors import MechanismError
from mechanisms.likely_errors import SHARE
from mechanisms.pgm import PgmEstimator
from mechanisms.plaintext import PlaintextBackend
from mechanisms.resolving import stand_in
from mechanisms.sampling import public_generator
from mechanisms.scores import REMAINING_ERROR
from mechanisms.table import encode
from mechanisms.workload import draw_workload
from parties.config import ANNEALED, FIXED, MAX_ROWS, RunSection
from parties.mpc.planning.budget import divide
from parties.report.quality import aim_quality, with_truth

GENERATED = "generated"
MOST_COLUMNS = 14
GENERATED_ROWS = 8000
MODEL_MB = 3.0
_EXAMPLE = "Example: syncret bench likely --dataset adult --epsilon 1 --repeats 2 --json"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage over all runs on one table: `marginals`, either `measured` or not, and the shares `below` and `held`.

    `below`: share with an error of at most the likely one; `held`: share within the proven interval. `needed`: factor
    on the likely errors for a coverage of `SHARE`. `likely` and `proven`: ratio to the true error at the median.
    """

    dataset: str
    measured: bool
    runs: int
    marginals: int
    below: float
    held: float
    needed: float
    likely: float
    proven: float


def measure(
    dataset: str, epsilons: Sequence[float], rows: int, repeats: int, *, rounds: int | None = None
) -> list[Coverage]:
    """Returns the coverage of measured and of other marginals of a table's runs, which are annealed without `rounds`.

    Raises DatasetError, MechanismError.
    """
    marginals = [
        marginal
        for repeat, epsilon in itertools.product(range(repeats), epsilons)
        for marginal in _run(dataset, epsilon, rows, repeat, rounds)
    ]
    found = []
    for measured in (True, False):
        some = [m for m in marginals if (m[3] > 0) == measured]
        if not some:
            continue
        true, likely, high = np.array([m[:3] for m in some]).T
        found.append(
            Coverage(
                dataset,
                measured,
                repeats * len(epsilons),
                len(some),
                float((true <= likely + 1e-9).mean()),
                float((true <= high + 1e-9).mean()),
                float(np.quantile(true / likely, SHARE)),
                float(np.median(likely / np.maximum(true, 1e-4))),
                float(np.median(high / np.maximum(true, 1e-4))),
            )
        )
    return found


def _run(
    dataset: str, epsilon: float, rows: int, repeat: int, rounds: int | None
) -> list[tuple[float, float, float, float]]:
    """Returns each marginal's true, likely and largest error of one run, and its noise, 0 without a measurement."""
    domain, codes = _table(dataset, rows, repeat)
    workload = draw_workload(domain, min(2, len(domain.columns)), None)
    run = RunSection(
        id="bench",
        epsilon=epsilon,
        delta=1e-5,
        rounds=rounds or CENTRAL_ROUNDS * len(workload.one_way),
        schedule=FIXED if rounds else ANNEALED,
    )
    plan = divide(run, workload)
    stream = np.random.default_rng([repeat, round(100 * epsilon), zlib.crc32(dataset.encode())])
    ledger = Ledger(plan.rho, accountant=plan.accountant)
    backend = PlaintextBackend.pooled(
        workload, plan, codes=codes, ledger=ledger, random_bytes=stream.bytes
    )
    estimator = PgmEstimator(workload, plan, max_model_mb=MODEL_MB)
    result = asyncio.run(
        run_aim(workload, plan, backend, estimator, max_rows=MAX_ROWS, rule=REMAINING_ERROR)
    )
    model = estimator.model
    if model is None:
        raise RuntimeError("the final estimate made no model")
    made = model.sample(result.total, public_generator(repeat))
    quality = aim_quality(run, workload, result, noise=plan.noise, model=model, codes=made)
    return [
        (m["true_error"], m["likely"], m["high"], m["noise"] or 0.0)
        for m in with_truth(quality, workload, made, codes)["marginals"]
    ]


def _table(dataset: str, rows: int, repeat: int) -> tuple[Domain, NDArray[np.int32]]:
    if dataset == GENERATED:
        domain, codes = generated(repeat)
        return domain, codes[:rows]
    table = load_table(dataset, rows)
    domain, frame = table.domains[SHAPED], table.train
    if len(domain.columns) > MOST_COLUMNS:
        rng = np.random.default_rng([repeat, len(domain.columns)])
        kept = sorted(rng.choice(len(domain.columns), MOST_COLUMNS, replace=False).tolist())
        domain = domain.only([domain.names[i] for i in kept])
        frame = frame[list(domain.names)]
    domain = stand_in(domain)
    return domain, encode(domain, frame, source=dataset, ignore_extra=True)


def generated(seed: int) -> tuple[Domain, NDArray[np.int32]]:
    """Draws a domain of 6 to 12 columns of up to 40 values, and rows (GENERATED_ROWS, columns) by one of three laws."""
    rng = np.random.default_rng([7, seed])
    columns = int(rng.integers(6, 13))
    sizes = [int(size) for size in np.minimum(2 + rng.geometric(0.12, columns), 40)]
    law = (_of_classes, _of_factors, _of_parents)[seed % 3]
    codes = law(rng, sizes)
    described = tuple(
        Categorical(f"c{j}", tuple(map(str, range(size)))) for j, size in enumerate(sizes)
    )
    return Domain(described), codes


def _of_classes(rng: np.random.Generator, sizes: Sequence[int]) -> NDArray[np.int32]:
    """Draws columns that are independent within each of three to eight latent classes."""
    classes = int(rng.integers(3, 9))
    of_row = rng.choice(classes, GENERATED_ROWS, p=rng.dirichlet(np.ones(classes)))
    codes = np.empty((GENERATED_ROWS, len(sizes)), np.int32)
    for j, size in enumerate(sizes):
        shares = rng.dirichlet(np.full(size, 0.4), classes)
        for one in range(classes):
            where = of_row == one
            codes[where, j] = rng.choice(size, int(where.sum()), p=shares[one])
    return codes


def _of_factors(rng: np.random.Generator, sizes: Sequence[int]) -> NDArray[np.int32]:
    """Draws numbers of one to three normal factors, half of them exponentials, in bins of equal width."""
    factors = int(rng.integers(1, 4))
    loadings = rng.normal(size=(len(sizes), factors))
    own = rng.uniform(0.2, 1.5, len(sizes))
    values = rng.normal(size=(GENERATED_ROWS, factors)) @ loadings.T
    values += rng.normal(size=values.shape) * own
    skewed = rng.random(len(sizes)) < 0.5
    values[:, skewed] = np.exp(values[:, skewed])
    low, high = values.min(axis=0), values.max(axis=0)
    bins = (values - low) / (high - low) * sizes
    codes: NDArray[np.int32] = np.minimum(bins, np.array(sizes) - 1).astype(np.int32)
    return codes


def _of_parents(rng: np.random.Generator, sizes: Sequence[int]) -> NDArray[np.int32]:
    """Draws from a Bayesian network of up to two parents a column."""
    codes = np.empty((GENERATED_ROWS, len(sizes)), np.int32)
    for j, size in enumerate(sizes):
        number = min(j, int(rng.integers(0, 3)))
        parents: list[int] = rng.choice(j, number, replace=False).tolist() if number else []
        key = np.zeros(GENERATED_ROWS, np.int64)
        for parent in parents:
            key = key * sizes[parent] + codes[:, parent]
        shares = rng.dirichlet(np.full(size, 0.5))
        alike = 10 ** rng.uniform(-0.5, 1.5)
        for one in np.unique(key):
            where = key == one
            own = rng.dirichlet(shares * alike + 1e-3)
            codes[where, j] = rng.choice(size, int(where.sum()), p=own)
    return codes


@click.command(epilog=_EXAMPLE)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=click.Choice((*NAMES, GENERATED)),
    help="A table; may be given several times [all].",
)
@click.option(
    "--epsilon",
    "epsilons",
    multiple=True,
    type=click.FloatRange(0, min_open=True),
    default=(0.3, 1.0, 3.0),
    show_default=True,
    help="May be given several times.",
)
@repeats_option
@click.option(
    "--rows",
    type=click.IntRange(100),
    default=20_000,
    show_default=True,
    help="Of a table at most; nine tenths are synthesised from.",
)
@click.option(
    "--rounds", type=click.IntRange(1), help="So many alike [until the model has settled]."
)
@json_object_option
def likely(
    datasets: tuple[str, ...],
    epsilons: tuple[float, ...],
    repeats: int,
    rows: int,
    rounds: int | None,
    as_json: bool,
) -> None:
    """Measure how many marginals are off by no more than is likely of them, and how many by no more than is proven."""
    with failures(DatasetError, MechanismError):
        found = []
        for dataset in datasets or (*NAMES, GENERATED):
            of_table = measure(dataset, epsilons, rows, repeats, rounds=rounds)
            found += of_table
            if not as_json:
                click.echo("\n".join(map(_line, of_table)))
    if as_json:
        click.echo(json.dumps({"tables": [asdict(one) for one in found]}))


def _line(one: Coverage) -> str:
    kind = "measured" if one.measured else "not measured"
    return (
        f"{one.dataset:<18}{kind:<14}{one.marginals:>6} marginals: {one.below:.1%} below what is likely, which is "
        f"{one.likely:.1f} times the error; {one.held:.1%} in intervals, {one.proven:.1f} times"
    )
