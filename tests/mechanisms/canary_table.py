"""Table of the canaries: what each method charges, the losses that its runs have, and what an attacker shows by them.

    python -m tests.mechanisms.canary_table --runs 200

The attacker knows both tables and the exact loss of each run, which no better statistic exists for, and says "with the
row" above a threshold. The threshold is chosen on half of the runs; on the other half Clopper-Pearson bounds of both
error rates, at 97.5 % each, give a lower bound on epsilon at delta, at 95 % for each line of the table.
"""

import argparse
import asyncio
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta

from mechanisms.accounting import epsilon_from_rho
from mechanisms.gaussian_privacy import GAUSSIAN, gaussian_epsilon
from tests.mechanisms import test_canary, test_canary_federated
from tests.mechanisms.test_canary import RHO
from tests.mechanisms.test_canary_federated import DELTA, EPSILON

Losses = NDArray[np.float64]
ERROR = 0.05
_THRESHOLDS = 33
_HEAD = "| method | runs | charged | mean loss | epsilon at least | epsilon charged |"


def lower_bound(found: Losses, delta: float = DELTA) -> float:
    """Returns the lower bound on epsilon by ``found``, the losses of runs with the row and without it in turns."""
    likelier = found * np.where(np.arange(len(found)) % 2 == 0, 1.0, -1.0)
    with_row, without = likelier[::2], likelier[1::2]
    choosing, judging = ((with_row[half::2], without[half::2]) for half in (0, 1))
    thresholds = np.quantile(np.concatenate(choosing), np.linspace(0, 1, _THRESHOLDS))
    best = max(thresholds, key=lambda at: _bound(*choosing, at, delta=delta))
    return _bound(*judging, best, delta=delta)


def _bound(with_row: Losses, without: Losses, threshold: float, *, delta: float) -> float:
    """Returns the larger bound of both tests: whether the row is there, and whether it is not."""
    present, absent = int((with_row > threshold).sum()), int((without > threshold).sum())
    m, n = len(with_row), len(without)
    found = [0.0]
    for hits, runs, alarms, others in ((present, m, absent, n), (n - absent, n, m - present, m)):
        right = beta.ppf(ERROR / 2, hits, runs - hits + 1) if hits else 0.0
        wrong = beta.ppf(1 - ERROR / 2, alarms + 1, others - alarms) if alarms < others else 1.0
        if right > delta:
            found.append(math.log((right - delta) / wrong))
    return float(max(found))


def rows(runs: int) -> Iterator[tuple[str, str, float, Losses]]:
    """Yields each method with its charge in words, the epsilon of that at ``DELTA``, and the losses of so many runs."""
    zcdp, gaussian = epsilon_from_rho(RHO, DELTA), gaussian_epsilon(RHO, DELTA)
    charge = f"rho {RHO:g}"
    for kind in test_canary.KINDS:
        found, _ = asyncio.run(test_canary.losses(kind, runs, seed=12))
        yield f"central AIM, {kind}", charge, gaussian if kind.endswith(GAUSSIAN) else zcdp, found
    for name, settings in test_canary_federated.FLAIM.items():
        with pytest.MonkeyPatch.context() as patch:
            played = test_canary_federated.flaim_losses(settings, runs, patch, seed=12)
            yield f"FLAIM, {name}", charge, zcdp, asyncio.run(played)[0]
    for changes, name in zip(test_canary_federated.TDA, ("latent", "scores"), strict=True):
        found = asyncio.run(test_canary_federated.tda_losses(runs, changes, seed=12))
        yield f"Fed-TDA, {name}", charge, zcdp, found
    for lambda_ in test_canary_federated.LAMBDAS:
        found, _ = asyncio.run(test_canary_federated.mtl_losses(lambda_, runs, seed=12))
        yield f"MR-MTL, lambda {lambda_:g}", f"epsilon {EPSILON:g}", EPSILON, found


def lines(runs: int) -> Iterator[str]:
    """Yields the table's lines, in Markdown."""
    yield _HEAD
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, charge, epsilon, found in rows(runs):
        yield (
            f"| {name} | {len(found)} | {charge} | {found.mean():.3f} | {lower_bound(found):.2f} | {epsilon:.2f} |"
        )


def main() -> None:
    """Writes the table, line by line as it is made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="runs of each method, 8 at least")
    parser.add_argument("--out", type=Path, default=None, help="file, beside the terminal")
    given = parser.parse_args()
    started, made = time.monotonic(), []
    for line in lines(given.runs):
        made.append(line)
        print(line, flush=True)
    print(f"\nepsilon at delta = {DELTA:g}; {time.monotonic() - started:.0f} s")
    if given.out is not None:
        given.out.write_text("\n".join(made) + "\n")


if __name__ == "__main__":
    main()
