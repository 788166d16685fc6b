"""The FLAIM paper's tables as printed, and the grids of its figures.

Table 7's figures are in ``bench.overhead.client_tables``. Source: Maddock, Cormode, Maple, KDD 2024, Tables 1 to 6;
grids from its authors' configurations.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

TABLE1: Mapping[tuple[str, str], float] = {
    ("adult", "naivebayes"): 25.33,
    ("adult", "random"): 83.9,
    ("adult", "naive"): 29.4,
    ("adult", "private"): 20.87,
    ("adult", "aim"): 19.2,
    ("credit", "naivebayes"): 18.02,
    ("credit", "random"): 47.7,
    ("credit", "naive"): 18.0,
    ("credit", "private"): 16.2,
    ("credit", "aim"): 15.57,
    ("covtype", "naivebayes"): 44.9,
    ("covtype", "random"): 58.4,
    ("covtype", "naive"): 45.4,
    ("covtype", "private"): 41.6,
    ("covtype", "aim"): 40.92,
}
"""Negative log-likelihood at epsilon = 5, by table and method; its two GANs are in ``TABLE1_GANS``."""

TABLE1_GANS: Mapping[tuple[str, str], float] = {
    ("adult", "federated DP-CTGAN"): 37.1,
    ("adult", "central DP-CTGAN"): 28.6,
    ("credit", "federated DP-CTGAN"): 83.8,
    ("credit", "central DP-CTGAN"): 27.6,
    ("covtype", "federated DP-CTGAN"): 62.7,
    ("covtype", "central DP-CTGAN"): 45.9,
}


class Cell(NamedTuple):
    """Workload error and negative log-likelihood."""

    error: float
    nll: float


def _row(dataset: str, *cells: tuple[float, float]) -> dict[tuple[str, str], Cell]:
    methods = ("naive", "oracle", "private", "distaim", "aim")
    return {(dataset, m): Cell(*cell) for m, cell in zip(methods, cells, strict=True)}


TABLE2: Mapping[tuple[str, str], Cell] = {
    **_row("adult", (0.8, 29.28), (0.62, 23.91), (0.43, 21.74), (0.42, 21.41), (0.2, 19.3)),
    **_row("magic", (1.64, 2587.5), (1.18, 62.84), (1.07, 28.9), (1.08, 35.04), (0.85, 23.7)),
    **_row("census", (0.72, 322.29), (0.61, 44.5), (0.48, 41.87), (0.54, 55.19), (0.28, 34.26)),
    **_row("covtype", (0.3, 47.44), (0.26, 45.11), (0.17, 42.61), (0.2, 45.94), (0.06, 41.06)),
    **_row("credit", (0.42, 20.22), (0.21, 16.84), (0.14, 16.33), (0.18, 16.9), (0.07, 15.62)),
    **_row("intrusion", (0.7, 27.92), (0.48, 17.92), (0.32, 15.05), (0.32, 13.19), (0.12, 9.96)),
    **_row("marketing", (1.05, 186.44), (0.87, 38.27), (0.64, 30.17), (0.66, 40.57), (0.24, 20.87)),
}
"""Workload error and negative log-likelihood at epsilon = 1, T = 10, by table and method."""


class Best(NamedTuple):
    """DistAIM beside private FLAIM, each at its best T: T and bytes as ratios, DistAIM's gains as shares."""

    rounds: float
    throughput: float
    distaim_mb: float
    flaim_mb: float
    error: float
    nll: float


TABLE3: Mapping[str, Best] = {
    "adult": Best(2.0, 1300, 80, 0.06, 0.58, 0.11),
    "magic": Best(3.2, 1643, 80, 0.04, 0.20, 0.14),
    "census": Best(1.5, 64, 29.6, 0.46, 0.79, 0.33),
    "intrusion": Best(2.5, 366, 101, 0.28, 0.82, 0.52),
    "marketing": Best(2.0, 97, 18, 0.19, 0.77, 0.35),
    "credit": Best(1.0, 167, 93, 0.55, 0.45, 0.06),
    "covtype": Best(1.25, 10, 7.6, 0.76, 0.64, 0.03),
}
"""The 80 MB of Adult are a misprint: its appendix has 140, and the formula gives 137.8."""


class Size(NamedTuple):
    """Training samples, features, classes."""

    samples: int
    features: int
    classes: int | None


TABLE4: Mapping[str, Size] = {
    "adult": Size(43_598, 14, 2),
    "credit": Size(284_807, 30, 2),
    "covtype": Size(116_203, 55, 7),
    "census": Size(89_786, 41, 2),
    "intrusion": Size(197_608, 40, 5),
    "marketing": Size(41_188, 21, 2),
    "magic": Size(17_118, 11, 2),
    "synthfs": Size(45_000, 10, None),
}

TABLE6_EPSILONS = (1.0, 2.0, 3.0, 5.0)
TABLE6: Mapping[str, Sequence[tuple[float, float]]] = {
    "naive": ((4.65, 4.75), (4.875, 4.9), (4.975, 4.95), (5.0, 5.0)),
    "oracle": ((3.6, 3.3), (3.85, 3.525), (3.9, 3.775), (3.925, 3.6)),
    "private": ((3.75, 3.45), (3.25, 3.15), (3.125, 3.125), (3.05, 3.25)),
    "distaim": ((2.0, 2.5), (2.025, 2.425), (2.0, 2.15), (2.025, 2.15)),
    "aim": ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
}
"""Mean rank by error and by likelihood with an annealed T, at each of ``TABLE6_EPSILONS``."""

TABLE5: Mapping[tuple[str, str], float] = {
    ("adult", "iid"): 0.241,
    ("adult", "clustering"): 0.525,
    ("adult", "label-skew 0.1"): 0.531,
    ("adult", "label-skew 0.8"): 0.332,
    ("magic", "iid"): 0.538,
    ("magic", "clustering"): 0.792,
    ("magic", "label-skew 0.1"): 0.767,
    ("magic", "label-skew 0.8"): 0.603,
}
"""Half the L1 distance of a client's marginals, of all sets of one to three columns, from everybody's."""

GRIDS: Mapping[str, str] = {
    "epsilon": "0.5, 1, 2, 4, ..., 64, 100",
    "rounds": "2, 4, 8, 10, 16, 32, 64, 100 and annealed",
    "participation": "0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5",
    "beta": "0.01, 0.025, 0.05, 0.1 to 0.4 by 0.05, 0.5 to 0.9 by 0.1, 0.99",
    "local_rounds": "s of 1, 2, 4 by T of 1, 5, 10, 20, 30",
}
"""The values of each axis in the authors' configurations, ten runs of each on seven tables."""
