"""Measures of the utility tables beyond `mechanisms.metrics`: errors on the closure, and a classifier's test AUC.

The given real rows are secret; the results are not private.

Source: FLAIM paper, section 5, and its authors' code. scikit-learn is imported at the first AUC.
"""

import warnings

import numpy as np
from numpy.typing import NDArray

from mechanisms.workload import Workload

TREES = 100
DEPTH = 4
TRAINING_ROWS = 50_000
"""Largest number of training rows: with more, and several classes, trees take longer than the model."""


def closure_error(
    workload: Workload, real: NDArray[np.generic], synthetic: NDArray[np.generic]
) -> float:
    """Returns the average L1 distance, 0 to 2, of normalised marginals over the queries and all their subsets.

    The FLAIM authors' code calls this the average error; `mechanisms.metrics.workload_error` averages over the
    queries themselves, as the paper's text has it. Shapes: real, synthetic (workload.cells,), of any scale.
    Raises ValueError for a marginal without a positive sum.
    """
    errors = []
    for i, weight in enumerate(workload.weights):
        if weight:
            left, right = (values[workload.slice(i)].astype(float) for values in (real, synthetic))
            if not (left.sum() > 0 and right.sum() > 0):
                raise ValueError("a marginal has no positive sum and cannot be normalised")
            errors.append(np.abs(left / left.sum() - right / right.sum()).sum())
    return float(np.mean(errors))


def auc_on_held_out(
    synthetic: NDArray[np.int32], held_out: NDArray[np.int32], label: int, *, seed: int = 0
) -> float:
    """Returns the area under the ROC curve on `held_out` rows of gradient-boosted trees trained on `synthetic` ones.

    100 trees of depth 4 (scikit-learn's histogram implementation) on the codes as numbers, trained on at most
    `TRAINING_ROWS` of the synthetic rows, drawn by `seed`. With more than two classes, the mean over the classes that
    occur in the held-out rows of one against the rest. 0.5 if the synthetic rows have one class only, since nothing
    can be learnt. Raises ValueError if the held-out rows have one class only.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from threadpoolctl import threadpool_limits

    if len(synthetic) > TRAINING_ROWS:
        rows = np.random.default_rng(seed).choice(len(synthetic), TRAINING_ROWS, replace=False)
        synthetic = synthetic[rows]
    features = [i for i in range(synthetic.shape[1]) if i != label]
    truth = held_out[:, label]
    occurring = np.unique(truth)
    if len(occurring) < 2:
        raise ValueError("the held-out rows have one class; their ROC curve is not defined")
    if len(np.unique(synthetic[:, label])) < 2:
        return 0.5
    trees = HistGradientBoostingClassifier(
        max_iter=TREES, max_depth=DEPTH, early_stopping=False, random_state=seed
    )
    # One thread: sweeps run side by side, and OpenMP's threads wait for one another at every node of a tree.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        trees.fit(synthetic[:, features], synthetic[:, label])
        chance = trees.predict_proba(held_out[:, features])
    known = {int(value): chance[:, i] for i, value in enumerate(trees.classes_)}
    nothing = np.zeros(len(truth))
    classes = occurring if len(occurring) > 2 else occurring[1:]
    each = [roc_auc_score(truth == value, known.get(int(value), nothing)) for value in classes]
    return float(np.mean(each))
