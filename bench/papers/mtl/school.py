"""School: 139 schools, 28 features of a pupil, a score; MR-MTL beside local training, FedAvg and its neighbours.

The table is public; batches and noise are drawn from secret randomness as in a deployment, so that runs differ in them.
"""

import asyncio
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.datasets import published_table
from bench.papers.mtl.neighbours import (
    CHOICE_SHARE,
    DittoSilo,
    FinetuneSilo,
    IfcaSilo,
    clusters_start,
    ifca_multiplier,
    run_ifca,
)
from mechanisms.mr_mtl import MtlSettings, run_mtl
from mechanisms.mtl_silo import MtlSilo, SiloRows
from mechanisms.rdp import least_multiplier, sampled_gaussian
from mechanisms.sampling import public_generator
from mechanisms.silos import InProcess

LARGEST_SCORE = 70
TEST_SHARE = 0.2
DELTA = 1e-3
ROUNDS = 201
FEDAVG, LOCAL, MR_MTL, CHOSEN = "fedavg", "local", "mr-mtl", "mr-mtl, lambda chosen"
FINETUNING, DITTO, IFCA, IFCA_NEAR = "finetuning", "ditto", "ifca", "ifca, near zero"
# Norms of the clusters' random starts: as in the paper's code, and near the start of all other methods.
STARTS = {IFCA: 1.0, IFCA_NEAR: 0.1}
# IFCA's clusters, and the rounds in which silos choose among them: a tenth.
CLUSTERS, CHOOSING = 3, ROUNDS // 10
# Scaling of features: by public bounds, or as the paper's code does by each silo's own mean and deviation, exactly
# and without charge.
SCALINGS = ("public", "silo")


@dataclass(frozen=True, slots=True, eq=False)
class School:
    """All pupils: school (n,), features (n, 28), score from 0 to 1 (n,)."""

    school: NDArray[np.int64]
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Result:
    """Mean squared test error, weighted by test rows, of one run; ``lambda_`` may be the voted one."""

    method: str
    lambda_: float
    epsilon: float
    split: int
    mse: float
    scaling: str = SCALINGS[0]


def load_school() -> School:
    """Returns the whole table. Raises DatasetError if it is missing."""
    frame, _ = published_table("school")
    raw = frame.astype(np.float64).to_numpy()
    return School(raw[:, 0].astype(np.int64), raw[:, 1:-1], raw[:, -1] / LARGEST_SCORE)


def silos_of(
    school: School, split: int, *, scaling: str = "public", held_out: float = 0.0
) -> list[SiloRows]:
    """Returns every school's rows: a fifth tests, ``held_out`` of the rest votes. ``split`` seeds the assignment."""
    draw = public_generator(split)
    # The coding's own ranges, taken as public, as those of a questionnaire are.
    low, high = school.x.min(axis=0), school.x.max(axis=0)
    x = 2 * (school.x - low) / np.where(high > low, high - low, 1.0) - 1
    silos = []
    for number in np.unique(school.school):
        rows = draw.permutation(np.flatnonzero(school.school == number))
        tests = round(TEST_SHARE * len(rows))
        votes = tests + round(held_out * (len(rows) - tests))
        own = _standardised(school.x[rows], tests) if scaling == "silo" else x[rows]
        own = np.column_stack([own, np.ones(len(rows))])
        parts = slice(votes, None), slice(tests, votes), slice(None, tests)
        silos.append(SiloRows(*((own[part], school.y[rows][part]) for part in parts)))
    return silos


def _standardised(x: NDArray[np.float64], tests: int) -> NDArray[np.float64]:
    """Subtracts the mean of the rows that do not test from the features, and divides by their deviation."""
    deviation = x[tests:].std(axis=0)
    scaled: NDArray[np.float64] = (x - x[tests:].mean(axis=0)) / np.where(
        deviation > 0, deviation, 1.0
    )
    return scaled


def method_of(lambda_: float) -> str:
    """Returns the method's name for training with one lambda."""
    if lambda_ == 0:
        return LOCAL
    return FEDAVG if math.isinf(lambda_) else MR_MTL


def measure(
    school: School,
    lambdas: tuple[float, ...],
    epsilon: float,
    split: int,
    *,
    scaling: str = "public",
    rounds: int = ROUNDS,
    tuning_rounds: int = 0,
    held_out: float = 0.0,
) -> Result:
    """Runs once: with one lambda, or with several candidates of which the silos choose one privately.

    Every silo keeps (``epsilon``, 1e-3). Raises ValueError for settings that make no run.
    """
    silos = silos_of(school, split, scaling=scaling, held_out=held_out)
    settings = _settings(silos, lambdas, rounds=rounds, tuning_rounds=tuning_rounds)
    members = [
        MtlSilo(
            settings,
            rows,
            epsilon=epsilon,
            delta=DELTA,
            random_bytes=secrets.token_bytes,
            multiplier=_multiplier(
                settings.sampling_rate(size), settings.total_steps(size), epsilon
            ),
        )
        for rows, size in zip(silos, map(_size, silos), strict=True)
    ]
    result = asyncio.run(run_mtl(settings, InProcess(members)))
    method = CHOSEN if len(lambdas) > 1 else method_of(lambdas[0])
    return Result(method, result.lambda_, epsilon, split, _error(silos, members), scaling)


def measure_finetuning(
    school: School, epsilon: float, split: int, *, scaling: str = "public", rounds: int = ROUNDS
) -> Result:
    """Runs FedAvg for half of the rounds, and local training from its mean in the others."""
    silos = silos_of(school, split, scaling=scaling)
    settings = _settings(silos, (math.inf,), rounds=rounds)
    members = [
        FinetuneSilo(
            settings,
            rows,
            together=rounds // 2,
            epsilon=epsilon,
            delta=DELTA,
            random_bytes=secrets.token_bytes,
            multiplier=_multiplier(
                settings.sampling_rate(size), settings.total_steps(size), epsilon
            ),
        )
        for rows, size in zip(silos, map(_size, silos), strict=True)
    ]
    asyncio.run(run_mtl(settings, InProcess(members)))
    return Result(FINETUNING, math.inf, epsilon, split, _error(silos, members), scaling)


def measure_ditto(
    school: School,
    *,
    pull: float,
    epsilon: float,
    split: int,
    scaling: str = "public",
    rounds: int = ROUNDS,
) -> Result:
    """Runs Ditto, whose personal models are drawn to FedAvg's mean by ``pull``."""
    silos = silos_of(school, split, scaling=scaling)
    settings = _settings(silos, (math.inf,), rounds=rounds)
    members = [
        DittoSilo(
            settings,
            rows,
            pull=pull,
            epsilon=epsilon,
            delta=DELTA,
            random_bytes=secrets.token_bytes,
            multiplier=_multiplier(
                settings.sampling_rate(size),
                DittoSilo.TRAININGS * settings.total_steps(size),
                epsilon,
            ),
        )
        for rows, size in zip(silos, map(_size, silos), strict=True)
    ]
    asyncio.run(run_mtl(settings, InProcess(members)))
    return Result(DITTO, pull, epsilon, split, _error(silos, members), scaling)


def measure_ifca(
    school: School,
    *,
    method: str,
    epsilon: float,
    split: int,
    scaling: str = "public",
    rounds: int = ROUNDS,
) -> Result:
    """Runs IFCA with ``CLUSTERS`` clusters, chosen in a tenth of the rounds. ``method`` is one of ``STARTS``."""
    silos = silos_of(school, split, scaling=scaling)
    settings = _settings(silos, (math.inf,), rounds=rounds)
    choosing, eta = max(1, CHOOSING * rounds // ROUNDS), CHOICE_SHARE * epsilon
    members = [
        IfcaSilo(
            settings,
            rows,
            clusters=CLUSTERS,
            choosing=choosing,
            eta=eta,
            epsilon=epsilon,
            delta=DELTA,
            random_bytes=secrets.token_bytes,
            multiplier=_ifca_multiplier(
                settings.sampling_rate(size),
                settings.total_steps(size),
                choices=choosing,
                epsilon=epsilon,
            ),
        )
        for rows, size in zip(silos, map(_size, silos), strict=True)
    ]
    asyncio.run(
        run_ifca(
            settings,
            InProcess(members),
            clusters_start(settings, CLUSTERS, split, norm=STARTS[method]),
        )
    )
    return Result(method, math.inf, epsilon, split, _error(silos, members), scaling)


def _size(rows: SiloRows) -> int:
    return len(rows.train[1])


def _settings(
    silos: Sequence[SiloRows], lambdas: tuple[float, ...], *, rounds: int, tuning_rounds: int = 0
) -> MtlSettings:
    return MtlSettings(
        max(map(_size, silos)),
        silos[0].train[0].shape[1],
        lambdas,
        rounds=rounds,
        tuning_rounds=tuning_rounds,
    )


def _error(silos: Sequence[SiloRows], members: Sequence[MtlSilo]) -> float:
    """Returns the mean squared test error of the members' own models, weighted by test rows."""
    tests = np.array([len(rows.test[1]) for rows in silos])
    errors = np.array([member.error_of(member.model) for member in members])
    return float((tests * errors).sum() / tests.sum())


# The account by Renyi curves, as in the paper: a silo needs less noise for the same epsilon.
@lru_cache(maxsize=4096)
def _multiplier(q: float, steps: int, epsilon: float) -> float:
    return least_multiplier(lambda z: steps * sampled_gaussian(q, z), epsilon, DELTA)


@lru_cache(maxsize=4096)
def _ifca_multiplier(q: float, steps: int, *, choices: int, epsilon: float) -> float:
    eta = CHOICE_SHARE * epsilon
    return ifca_multiplier(q, steps=steps, choices=choices, eta=eta, epsilon=epsilon, delta=DELTA)
