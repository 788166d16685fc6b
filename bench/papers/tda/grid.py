"""The runs behind the page on Fed-TDA, thinned out from the paper's.

Source: Fed-TDA paper, its experimental settings. Thinned out: 20 rounds of training instead of 100, but for Clinical
without synthetic rows; at most 3,000 training rows of the larger tables, and half as many synthetic rows there. Runs
are done in this order, so that an interrupted sweep has the most important ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from bench.papers.tda.settings import (
    DISTAIM,
    DP_FED_GAN,
    FED_GAN,
    FEDAVG,
    FEDMIX,
    FEDPROX,
    FLAIM,
    IID,
    PAPER,
    TDA,
    Settings,
)
from bench.papers.tda.tables import NAMES

THINNED: Mapping[str, Mapping[str, Any]] = {
    "clinical": {"rounds": 20},
    "covtype": {"rounds": 20, "train_rows": 3_000, "synthetic_rows": 500},
    "intrusion": {"rounds": 20, "train_rows": 3_000, "synthetic_rows": 500},
    "body": {"rounds": 20, "train_rows": 2_000, "synthetic_rows": 500},
}
PAGE = "tda.md"
BASELINES = (FEDAVG, FEDPROX, FEDMIX)
PAPER_BETA = 0.05
BETAS: Mapping[str, Sequence[float]] = {
    "clinical": (0.05, 0.1, 0.5),
    "covtype": (0.01, 0.05, 0.1),
    "intrusion": (0.01, 0.05, 0.1),
    "body": (0.01, 0.05, 0.1),
}
EXACT = (f"{TDA}+{FEDAVG}", f"{TDA}+{FEDPROX}", f"{PAPER}+{FEDAVG}")
PRIVATE = (TDA, DISTAIM, FLAIM, DP_FED_GAN)
GANS: Mapping[str, float | None] = {DP_FED_GAN: 1.0, FED_GAN: None}
"""Private and exact GANs, with the epsilon beside the paper's figures; the paper does not say which it took."""
EPSILONS = (1.0, 2.0, 5.0)
FIGURE_ROWS = 200
EPOCHS = (1, 3, 10)
CLIENTS = (5, 20, 60)


def run_of(dataset: str, method: str, **changed: Any) -> Settings:
    """Returns a run with the thinned-out settings. Raises as `Settings`."""
    return Settings(dataset=dataset, method=method, **{**THINNED[dataset], **changed})


def main() -> Iterator[Settings]:
    """Yields every method at beta = 0.05."""
    for dataset in NAMES:
        for method in (IID, *BASELINES, *EXACT, TDA):
            yield run_of(dataset, method)


def choice() -> Iterator[Settings]:
    """Yields private synthetic rows by each method, alone and beside a silo's own, beta = 0.05, epsilon = 1."""
    for together, dataset, source in product((False, True), NAMES, PRIVATE):
        yield run_of(dataset, f"{source}+{FEDAVG}" if together else source, epsilon=1.0)


def whole() -> Iterator[Settings]:
    """Yields Clinical without synthetic rows as in the paper: 100 rounds."""
    for method in (IID, *BASELINES):
        yield Settings(dataset="clinical", method=method)
    for beta, method in product((0.1, 0.5), BASELINES):
        yield Settings(dataset="clinical", method=method, beta=beta)


def betas() -> Iterator[Settings]:
    """Yields the other betas of the paper's table."""
    for dataset in NAMES:
        others = [beta for beta in BETAS[dataset] if beta != PAPER_BETA]
        for beta, method in product(others, (*BASELINES, *EXACT[:2])):
            yield run_of(dataset, method, beta=beta)


def gans() -> Iterator[Settings]:
    """Yields federated GANs, alone and beside a silo's own rows, at beta = 0.05; then the other betas."""
    for dataset, (source, epsilon) in product(NAMES, GANS.items()):
        for method in (source, f"{source}+{FEDAVG}"):
            yield run_of(dataset, method, epsilon=epsilon)
    for dataset in NAMES:
        others = [beta for beta in BETAS[dataset] if beta != PAPER_BETA]
        for beta, (source, epsilon) in product(others, GANS.items()):
            yield run_of(dataset, f"{source}+{FEDAVG}", beta=beta, epsilon=epsilon)


def epsilons() -> Iterator[Settings]:
    """Yields Fed-TDA by epsilon, and the other methods at a larger epsilon."""
    for dataset, epsilon in product(NAMES, EPSILONS):
        yield run_of(dataset, f"{TDA}+{FEDAVG}", epsilon=epsilon)
    for dataset, source in product(NAMES, PRIVATE):
        yield run_of(dataset, source, epsilon=5.0)


def figures() -> Iterator[Settings]:
    """Yields Clinical by local epochs and by silos, with 200 synthetic rows each."""
    for epochs, method in product(EPOCHS, (FEDAVG, f"{TDA}+{FEDAVG}")):
        yield run_of("clinical", method, epochs=epochs, synthetic_rows=FIGURE_ROWS)
    for clients, method in product(CLIENTS, (FEDAVG, f"{TDA}+{FEDAVG}")):
        yield run_of("clinical", method, clients=clients, synthetic_rows=FIGURE_ROWS)


SWEEPS = {
    "main": main,
    "choice": choice,
    "whole": whole,
    "epsilons": epsilons,
    "figures": figures,
    "betas": betas,
    "gans": gans,
}
"""The runs by name."""
