"""The pandemic task from a generated state to figures: methods, neighbourhoods and epsilons side by side.

``trials`` are the published comparisons. All values here are public.

Training uses the last window whose following week is among the first 63 days; the test is the window a week later,
and the week after it. Figures are means over silos, weighted by their persons, of each silo's own model on its own
persons.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from bench.extra import need
from bench.papers.pandemic.disease import spread
from bench.papers.pandemic.features import DAYS, Silo, silos_of
from bench.papers.pandemic.focal import Loss, cross_entropy, focal
from bench.papers.pandemic.graph import make_state
from bench.papers.pandemic.models import model_of
from bench.papers.pandemic.node_accounting import node_cost, published_rdp
from bench.papers.pandemic.train import (
    TESTED,
    TRAINED,
    Settings,
    noise_of,
    sampling_of,
    steps_of,
    train,
)
from bench.processes import forget_peak, memory

LOSSES: dict[str, Loss] = {"focal": focal, "bce": cross_entropy}
RANDOM, FITTED = "random", "fitted"
# Units of each hidden layer of the perceptron.
HIDDEN = 32
# Number of healthy persons for each infected one in the sample of a fitted model.
_WELL = 20
# Share of all persons, those with the highest scores, that could be called.
CALLED = 0.01


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings of training: neighbours K, lambda, epsilon of each silo, the loss, rate and rounds.

    ``hidden``: units of each hidden layer of a perceptron; 0 for a linear model.

    Instead of a loss: random scores, or one model fitted to all silos' examples in one place, with nothing protected.
    """

    neighbours: int
    lam: float
    epsilon: float
    loss: str = "focal"
    rate: float = 0.2
    rounds: int = 2
    hidden: int = 0

    @property
    def method(self) -> str:
        """Name of the method that lambda selects."""
        if self.loss in (RANDOM, FITTED):
            return self.loss
        return "local" if self.lam == 0 else "fedavg" if math.isinf(self.lam) else "mr-mtl"


@dataclass(frozen=True, slots=True)
class Result:
    """A trial on one made-up state: ``auprc`` (average precision), ``recall`` at probability 1/2 and of the CALLED.

    ``infected``: the share with label 1. ``noise``: the silos' mean noise multiplier, and ``published`` the largest
    epsilon that the published bound gives for it. ``memory_mb``: the peak that neighbourhoods and training added.
    """

    trial: Trial
    persons: int
    silos: int
    seed: int
    infected: float
    auprc: float
    recall: float
    recall_called: float
    noise: float
    published: float
    memory_mb: float
    seconds: float


def trials(
    neighbours: Sequence[int],
    epsilons: Sequence[float],
    lambdas: Sequence[float],
    *,
    rate: float = 0.2,
    rounds: int = 2,
) -> list[Trial]:
    """Returns random scores, fits, persons alone, cross-entropy; then K, epsilon, lambda, perceptrons."""
    k, epsilon, lam = neighbours[0], epsilons[0], lambdas[0]
    made = [
        Trial(k, 0.0, math.inf, RANDOM),
        Trial(k, 0.0, math.inf, FITTED),
        Trial(0, 0.0, math.inf, FITTED),
        Trial(0, lam, math.inf),
        Trial(k, lam, math.inf, "bce"),
        *(Trial(k, value, math.inf) for value in lambdas),
        *(Trial(number, lam, epsilon) for number in neighbours),
        *(Trial(k, lam, value) for value in epsilons),
        *(Trial(k, value, epsilon) for value in lambdas),
        *(Trial(number, lam, math.inf, hidden=HIDDEN) for number in (0, k)),
        Trial(k, lam, epsilon, hidden=HIDDEN),
    ]
    return [replace(trial, rate=rate, rounds=rounds) for trial in dict.fromkeys(made)]


def measure(
    wanted: Iterable[Trial],
    *,
    persons: int,
    silos: int,
    seed: int,
    progress: Callable[[str], None] = lambda line: None,
) -> Iterator[Result]:
    """Runs all trials on one state, smallest neighbourhoods first. Raises as ``make_state`` and ``noise_of``."""
    need("sklearn", "the pandemic task")
    progress(f"a state of {persons:,} persons from seed {seed}")
    state = make_state(persons, silos, seed)
    states = spread(state, DAYS, seed)
    before = memory("VmRSS")
    for k, same in groupby(sorted(wanted, key=_neighbours), key=_neighbours):
        parts = silos_of(state, states, silos, k)
        for trial in same:
            progress(f"K = {k}, {trial.method}, {trial.loss}, epsilon {trial.epsilon:g}")
            forget_peak()
            began = time.perf_counter()
            settings = settings_of(trial)
            noise = [noise_of(silo, settings) for silo in parts]
            if trial.loss == FITTED:
                models = np.tile(_fitted(parts, seed), (len(parts), 1))
            else:
                models = train(parts, settings, noise, progress=progress)
            seconds = time.perf_counter() - began
            peak = max(memory("VmHWM") - before, 0)
            infected, auprc, recall, called = _tested(parts, models, trial, seed)
            yield Result(
                trial,
                persons,
                silos,
                seed,
                infected,
                auprc,
                recall,
                called,
                fmean(noise),
                max(
                    _published(silo, settings, one) for silo, one in zip(parts, noise, strict=True)
                ),
                peak / 1e6,
                seconds,
            )


def settings_of(trial: Trial) -> Settings:
    """Returns the training settings of a trial; no rounds for random scores and fits."""
    if trial.loss in (RANDOM, FITTED):
        return Settings(rounds=0)
    loss = LOSSES[trial.loss]
    return Settings(
        trial.lam,
        trial.epsilon,
        loss,
        rate=trial.rate,
        rounds=trial.rounds,
        hidden=trial.hidden,
    )


def _fitted(silos: Sequence[Silo], seed: int) -> NDArray[np.float64]:
    """Fits a ridge logistic regression (d,) to all silos' examples in one place: the best linear model."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(seed)
    features, labels = [], []
    for silo in silos:
        examples = silo.examples(TRAINED)
        ill, well = np.flatnonzero(examples.labels), np.flatnonzero(~examples.labels)
        rows = np.concatenate([ill, rng.permutation(well)[: _WELL * len(ill)]])
        features.append(examples.rows(rows).astype(np.float64))
        labels.append(examples.labels[rows])
    if not np.concatenate(labels).any():
        return np.zeros(silos[0].features)
    fit = LogisticRegression(C=0.02, fit_intercept=False, max_iter=1000)
    fit.fit(np.concatenate(features), np.concatenate(labels))
    return np.asarray(fit.coef_[0], np.float64)


def _neighbours(trial: Trial) -> int:
    return trial.neighbours


def _published(silo: Silo, settings: Settings, noise: float) -> float:
    """Returns epsilon of a silo's noise by the published bound with its gaps closed."""
    if noise == 0:
        return math.inf
    return node_cost(
        sampling_of(silo, settings),
        noise,
        steps=steps_of(silo, settings),
        delta=1 / silo.persons,
        rdp=published_rdp,
    ).epsilon


def _tested(
    silos: Sequence[Silo], models: NDArray[np.float64], trial: Trial, seed: int
) -> tuple[float, float, float, float]:
    """Returns infected, AUPRC and both recalls: means over silos by their persons, of the models (s, d)."""
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(seed)
    figures = []
    for silo, model in zip(silos, models.astype(np.float32), strict=True):
        examples = silo.examples(TESTED)
        ill = examples.labels
        if trial.loss == RANDOM:
            score = rng.random(silo.persons) - 0.5
        else:
            kind = model_of(silo.features, trial.hidden)
            score = np.concatenate([kind.margins(model, part) for part in examples.chunks()])
        called = np.argsort(-score, kind="stable")[: math.ceil(CALLED * len(score))]
        cases = max(int(ill.sum()), 1)
        precision = float(average_precision_score(ill, score)) if ill.any() else 0.0
        recalls = float((ill & (score > 0)).sum()) / cases, float(ill[called].sum()) / cases
        figures.append((float(ill.mean()), precision, *recalls))
    means = np.average(figures, axis=0, weights=[silo.persons for silo in silos]).tolist()
    return means[0], means[1], means[2], means[3]
