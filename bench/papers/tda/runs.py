"""One run of one method on one table of the Fed-TDA evaluation, and the quality of its classifier.

Nothing here is secret; the tables are public. Everything is drawn from the number of the repeat, so that all methods of
a repeat have the same split among silos; noise that protects somebody is never drawn so.

Source: Fed-TDA paper, its evaluation: area under the ROC curve for two classes, else accuracy, of the model after the
last round, on held-out rows.
"""

import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.extra import need
from bench.papers.tda.classifier import PLAIN, Model, Objective, probabilities
from bench.papers.tda.costs import mixed_mb, model_mb
from bench.papers.tda.federated import Silo, Training, train_federated
from bench.papers.tda.settings import CENTRAL, FEDMIX, FEDPROX, IID, Settings
from bench.papers.tda.similarity import similarity
from bench.papers.tda.store import Result
from bench.papers.tda.synthesis import synthesise
from bench.papers.tda.tables import Rows, Table, load
from parties.local.partition import iid, label_skew

MU = 0.05
MIX = 0.05
OBJECTIVES = {FEDPROX: Objective(mu=MU), FEDMIX: Objective(mix=MIX)}


def measure(
    settings: Settings, repeat: int, *, progress: Callable[[str], None] = lambda line: None
) -> Result:
    """Runs once and measures.

    Raises DatasetError if the table is not available, ImportError without the bench extra, MechanismError if there are
    no synthetic rows, ValueError for a split that the table does not have.
    """
    need("jax", "the classifier")
    need("sklearn", "the area under the ROC curve")
    settings = settings.relevant()
    table = _table(settings.dataset, settings.train_rows)
    started = time.perf_counter()
    owned = _owned(settings, table, repeat)
    silos = [table.train.take(rows) for rows in owned]
    synthetic = similar = None
    if settings.source is not None:
        progress("synthetic rows")
        synthetic = synthesise(settings, table, owned, repeat)
        similar = similarity(table, synthetic.rows)
        silos = [synthetic.rows] if settings.alone else [s.joined(synthetic.rows) for s in silos]
    model = train_federated(
        [_silo(table, rows) for rows in silos],
        len(table.classes),
        Training(settings.rounds, settings.epochs, OBJECTIVES.get(settings.training, PLAIN)),
        seed=repeat,
        on_round=lambda done: progress(f"round {done} of {settings.rounds}"),
    )
    auc, accuracy = judged(table, model)
    seconds = time.perf_counter() - started
    sent, formula = _training_mb(settings, table, silos)
    if synthetic is None or similar is None:
        return Result(auc, accuracy, sent, formula, sent, seconds, len(table.train))
    moved = synthetic.sent_mb, synthetic.formula_mb
    return Result(auc, accuracy, *moved, sent, seconds, len(table.train), *similar)


@lru_cache(maxsize=2)
def _table(name: str, rows: int | None) -> Table:
    return load(name, rows=rows)


def _owned(settings: Settings, table: Table, repeat: int) -> list[NDArray[np.int64]]:
    """Returns the row numbers of each silo."""
    if settings.method == CENTRAL:
        return [np.arange(len(table.train))]
    if settings.method == IID or settings.beta is None:
        split = iid(len(table.train), clients=settings.clients, seed=repeat)
    else:
        split = label_skew(
            table.train.labels, clients=settings.clients, seed=repeat, beta=settings.beta
        )
    return [split.rows_of(silo) for silo in range(settings.clients)]


def _silo(table: Table, rows: Rows) -> Silo:
    return table.inputs(rows), rows.labels


def judged(table: Table, model: Model) -> tuple[float | None, float]:
    """Returns the area under the ROC curve, for two classes, and the accuracy on the held-out rows."""
    from sklearn.metrics import roc_auc_score

    chance = probabilities(model, table.inputs(table.test))
    truth = table.test.labels
    auc = float(roc_auc_score(truth, chance[:, 1])) if table.binary else None
    return auc, float((chance.argmax(axis=1) == truth).mean())


def _training_mb(settings: Settings, table: Table, silos: list[Rows]) -> tuple[float, float]:
    """Returns the MB of models by SecAgg, and by the paper's counting; both add Fedmix's shared rows, in the clear."""
    if settings.method == CENTRAL or settings.alone:
        return 0.0, 0.0
    shape = table.width, len(table.classes)
    sent, formula = model_mb(*shape, clients=settings.clients, rounds=settings.rounds)
    if settings.training == FEDMIX:
        size = Training().mixed_rows
        mixed = sum(mixed_mb(*shape, rows=len(rows), size=size) for rows in silos)
        return sent + mixed, formula + mixed
    return sent, formula
