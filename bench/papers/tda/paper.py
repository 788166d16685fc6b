"""The Fed-TDA paper's tables as printed, by our names of tables and methods.

The paper prints no deviations. Source: Fed-TDA paper, its tables of ROCAUC or accuracy, of similarity, and Table 5;
Tuberculosis, its fifth table, is not available.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from bench.experiment.verdicts import judged
from bench.papers.tda.settings import DP_FED_GAN, FED_GAN

_COLUMNS = ("fedavg", "fedprox", "fedmix", "DP-FedAvg-GAN", "Fed-TGAN", "tda+fedavg", "tda+fedprox")
GANS: Mapping[str, str] = {"DP-FedAvg-GAN": DP_FED_GAN, "Fed-TGAN": FED_GAN}
"""Our method for each of the paper's GANs."""


def _rows(
    dataset: str, *rows: tuple[float, Sequence[float]]
) -> dict[tuple[str, float, str], float]:
    return {
        (dataset, beta, method): score
        for beta, scores in rows
        for method, score in zip(_COLUMNS, scores, strict=True)
    }


SCORES: Mapping[tuple[str, float, str], float] = {
    **_rows(
        "clinical",
        (0.05, (0.605, 0.620, 0.635, 0.713, 0.897, 0.983, 0.947)),
        (0.1, (0.653, 0.661, 0.634, 0.831, 0.913, 0.984, 0.941)),
        (0.5, (0.773, 0.764, 0.739, 0.85, 0.894, 0.986, 0.966)),
    ),
    **_rows(
        "covtype",
        (0.01, (0.364, 0.484, 0.364, 0.485, 0.367, 0.529, 0.612)),
        (0.05, (0.364, 0.358, 0.607, 0.487, 0.366, 0.589, 0.620)),
        (0.1, (0.491, 0.512, 0.492, 0.570, 0.488, 0.600, 0.620)),
    ),
    **_rows(
        "intrusion",
        (0.01, (0.590, 0.856, 0.575, 0.900, 0.783, 0.956, 0.950)),
        (0.05, (0.762, 0.970, 0.765, 0.967, 0.826, 0.970, 0.983)),
        (0.1, (0.978, 0.987, 0.975, 0.986, 0.988, 0.980, 0.985)),
    ),
    **_rows(
        "body",
        (0.01, (0.271, 0.297, 0.27, 0.252, 0.335, 0.633, 0.605)),
        (0.05, (0.308, 0.291, 0.272, 0.330, 0.411, 0.614, 0.594)),
        (0.1, (0.459, 0.457, 0.455, 0.459, 0.454, 0.613, 0.605)),
    ),
}
"""Area under the ROC curve (clinical) or accuracy, by table, beta and method."""

UPPER: Mapping[str, float] = {
    "clinical": 0.975,
    "covtype": 0.649,
    "intrusion": 0.989,
    "body": 0.734,
}
"""The same figures for independent and identical silos."""

SIMILARITIES: Mapping[tuple[str, float], tuple[float, float]] = {
    ("clinical", 0.05): (0.082, 0.091),
    ("clinical", 0.1): (0.081, 0.081),
    ("clinical", 0.5): (0.086, 0.095),
    **{
        (dataset, beta): pair
        for dataset, pair in {
            "covtype": (0.102, 0.099),
            "intrusion": (0.064, 0.093),
            "body": (0.066, 0.068),
        }.items()
        for beta in (0.01, 0.05, 0.1)
    },
}
"""Mean Jensen-Shannon divergence and mean Wasserstein distance of Fed-TDA's rows, by table and beta."""

UPLOADS: Mapping[str, Mapping[str, float]] = {
    "clinical": {
        "fedavg": 367.18,
        "fedmix": 0.0039,
        "DP-FedAvg-GAN": 178.45,
        "Fed-TGAN": 662,
        "tda": 0.4358,
    },
    "covtype": {
        "fedavg": 436.55,
        "fedmix": 3.3525,
        "DP-FedAvg-GAN": 342.51,
        "Fed-TGAN": 1510,
        "tda": 0.6951,
    },
    "intrusion": {
        "fedavg": 450.59,
        "fedmix": 8.03,
        "DP-FedAvg-GAN": 291.73,
        "Fed-TGAN": 2290,
        "tda": 2.4446,
    },
    "body": {
        "fedavg": 354.15,
        "fedmix": 0.2292,
        "DP-FedAvg-GAN": 174.54,
        "Fed-TGAN": 1010,
        "tda": 0.6204,
    },
}
"""Table 5: MB sent by five silos, 100 rounds, beta 0.05; FedProx as FedAvg, Fedmix's beyond FedAvg's."""

EPSILONS: Mapping[str, tuple[float, float]] = {
    "intrusion": (0.908, 0.97),
    "covtype": (0.517, 0.589),
}
"""Accuracy of Fed-TDA with FedAvg at epsilon 1 and without privacy, as read from the figure over epsilon."""


def verdict(printed: float, values: Sequence[float]) -> str:
    """Returns the verdict on `values` beside `printed`, by the rule of `bench.experiment.verdicts`; more is better."""
    return judged(printed, values).word(lower="worse", higher="better")


def gap(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Returns the mean of `values` less that of `others`; None if either is empty."""
    return fmean(values) - fmean(others) if values and others else None
