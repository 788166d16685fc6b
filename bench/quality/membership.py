"""Membership attacks on a synthetic table: who of some candidates was in the table that it was made of.

Each attack knows the synthetic rows and a reference table of the same population, disjoint from all candidates, and
gives every candidate a score, the larger the likelier a member. ``judge`` compares scores of members and of others.
All attacks see a table as ``Features`` has it: numbers on the reference's scale, other values as indicators.

All values here are public, as the benchmark's tables are. Sources: distance to the closest record, Park et al., Data
synthesis based on generative adversarial networks, VLDB 2018; calibrated by a reference, Chen et al., GAN-Leaks, CCS
2020; Monte Carlo volume, Hilprecht et al., PoPETs 2019; density, van Breugel et al., DOMIAS, AISTATS 2023;
neighbourhood, Ward et al., Data plagiarism index, 2024; classifier, as Houssiau et al., TAPAS, 2022. Ward et al.,
Synth-MIA, 2025, has them side by side. Limits: attacks with shadow models, which run the synthesizer again and again,
are left out, and what attacks find is a lower bound on what others may find.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mechanisms.tradeoff import found_at_most, stated_profile

if TYPE_CHECKING:
    from sklearn.decomposition import PCA

Scores = NDArray[np.float64]
"""Scores of candidates (candidates,)."""
FALSE_POSITIVES = (0.01, 0.1)
_MOST_VALUES = 64
"""Largest number of values of a column with an indicator each; further ones share one."""
_DIMENSIONS, _NEIGHBOURS, _GRID = 6, 20, 2000
_LEAST = 1e-6
"""A distance that is as good as none."""


class Features:
    """Coordinates of rows in which the attacks measure distances, by the tables that an attacker has.

    A number is on the scale on which the reference's tenth and ninetieth percentiles are 1 apart, with an indicator of
    cells that are none. Two different values of another column are 1 apart.
    """

    def __init__(self, reference: pd.DataFrame, kinds: Mapping[str, str]) -> None:
        """``kinds`` is `numerical` or `categorical` by column."""
        self._numbers: dict[str, tuple[float, float]] = {}
        self._values: dict[str, list[str]] = {}
        for name, kind in kinds.items():
            if kind == "numerical":
                known = pd.to_numeric(reference[name], errors="coerce").dropna()
                low, middle, high = (
                    np.quantile(known, (0.1, 0.5, 0.9)) if len(known) else (0.0, 0.0, 0.0)
                )
                wide = float(high - low) or float(known.std(ddof=0) or 1.0)
                self._numbers[name] = float(middle), wide
            else:
                counts = reference[name].astype(str).value_counts()
                self._values[name] = [str(value) for value in counts.index[:_MOST_VALUES]]

    def of(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Returns the coordinates of rows (rows, coordinates)."""
        parts: list[NDArray[np.float64]] = []
        for name, (middle, wide) in self._numbers.items():
            numbers = pd.to_numeric(rows[name], errors="coerce").to_numpy(np.float64)
            missing = ~np.isfinite(numbers)
            parts += [np.where(missing, 0.0, (numbers - middle) / wide), missing.astype(float)]
        for name, values in self._values.items():
            cells = rows[name].astype(str).to_numpy()
            found = cells[:, None] == np.array(values, dtype=object)[None, :]
            other = ~found.any(axis=1, keepdims=True)
            parts += list(np.hstack([found, other]).T / math.sqrt(2))
        return np.column_stack(parts)


@dataclass(frozen=True, eq=False)
class Attacker:
    """Knowledge of an attacker, as coordinates (rows, coordinates): ``synthetic`` and ``reference`` rows."""

    synthetic: NDArray[np.float64]
    reference: NDArray[np.float64]

    @cached_property
    def _axes(self) -> "PCA":
        """The directions in which the rows that it has vary most; densities of many coordinates say nothing."""
        from sklearn.decomposition import PCA

        known = np.vstack([self.synthetic, self.reference])
        return PCA(min(_DIMENSIONS, *known.shape), random_state=0).fit(known)

    def distance(self, candidates: NDArray[np.float64]) -> Scores:
        """Closeness to the closest synthetic row."""
        return -_closest(self.synthetic, candidates)

    def calibrated_distance(self, candidates: NDArray[np.float64]) -> Scores:
        """Closeness to the closest synthetic row in proportion to that to the closest reference row."""
        near, far = _closest(self.synthetic, candidates), _closest(self.reference, candidates)
        ratio: Scores = np.log(far + _LEAST) - np.log(near + _LEAST)
        return ratio

    def volume(self, candidates: NDArray[np.float64]) -> Scores:
        """Number of synthetic rows within the median of all candidates' smallest distances; ties by distance."""
        from sklearn.neighbors import NearestNeighbors

        closest = _closest(self.synthetic, candidates)
        found = NearestNeighbors(radius=max(float(np.median(closest)), 1e-9)).fit(self.synthetic)
        within = found.radius_neighbors(candidates, return_distance=False)
        counts = np.array([len(rows) for rows in within], np.float64)
        return counts - closest / (1 + closest)

    def density(self, candidates: NDArray[np.float64]) -> Scores:
        """Logarithm of the synthetic rows' density by that of the reference rows, by Gaussian kernels."""
        at = self._axes.transform(candidates)
        ratio: Scores = self._log_density(self.synthetic, at) - self._log_density(
            self.reference, at
        )
        return ratio

    def _log_density(self, rows: NDArray[np.float64], at: NDArray[np.float64]) -> Scores:
        from sklearn.neighbors import KernelDensity

        known = self._axes.transform(rows)
        size, dimensions = known.shape
        # Scott's rule, on coordinates of unit deviation.
        spread = np.maximum(known.std(axis=0), 1e-9)
        kernel = KernelDensity(bandwidth=size ** (-1 / (dimensions + 4)))
        found: Scores = kernel.fit(known / spread).score_samples(at / spread) - math.log(
            float(np.prod(spread))
        )
        return found

    def neighbourhood(self, candidates: NDArray[np.float64]) -> Scores:
        """Share of synthetic rows among the nearest of both tables, the nearer ones first."""
        from sklearn.neighbors import NearestNeighbors

        known = np.vstack([self.synthetic, self.reference])
        count = min(_NEIGHBOURS, len(known))
        nearest = NearestNeighbors(n_neighbors=count).fit(known)
        synthetic = nearest.kneighbors(candidates, return_distance=False) < len(self.synthetic)
        weights = 1 / np.arange(1, count + 1)
        shares: Scores = synthetic @ weights / weights.sum()
        return shares

    def classifier(self, candidates: NDArray[np.float64]) -> Scores:
        """Log odds of being a synthetic row rather than a reference row, by boosted trees."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        known = np.vstack([self.synthetic, self.reference])
        labels = np.repeat([1, 0], [len(self.synthetic), len(self.reference)])
        trees = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(known, labels)
        scores: Scores = trees.decision_function(candidates)
        return scores


ATTACKS: Mapping[str, Callable[[Attacker, NDArray[np.float64]], Scores]] = {
    "distance": Attacker.distance,
    "calibrated distance": Attacker.calibrated_distance,
    "volume": Attacker.volume,
    "density": Attacker.density,
    "neighbourhood": Attacker.neighbourhood,
    "classifier": Attacker.classifier,
}


def _closest(rows: NDArray[np.float64], candidates: NDArray[np.float64]) -> Scores:
    from sklearn.neighbors import NearestNeighbors

    found: Scores = NearestNeighbors(n_neighbors=1).fit(rows).kneighbors(candidates)[0][:, 0]
    return found


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Success of one attack: ``auc`` with its standard ``error``, and the share of members ``found``.

    ``found`` is by share of the others that are falsely suspected, in the order of ``FALSE_POSITIVES``.
    """

    attack: str
    auc: float
    error: float
    found: tuple[float, ...]


def judge(attack: str, members: Scores, others: Scores) -> AttackResult:
    """Returns how well scores tell members from others; equal scores are decided by a coin."""
    auc = _auc(members, others)
    return AttackResult(
        attack,
        round(auc, 4),
        round(_deviation(auc, len(members), len(others)), 4),
        tuple(round(_found(members, others, share), 4) for share in FALSE_POSITIVES),
    )


def _auc(members: Scores, others: Scores) -> float:
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members, "left")
    upto = np.searchsorted(ordered, members, "right")
    return float((below + upto).mean() / 2 / len(others))


def _deviation(auc: float, members: int, others: int) -> float:
    """Standard error of an AUC. Source: Hanley and McNeil, Radiology 1982."""
    first, second = auc / (2 - auc), 2 * auc * auc / (1 + auc)
    own = auc * (1 - auc)
    return math.sqrt(
        (own + (members - 1) * (first - auc * auc) + (others - 1) * (second - auc * auc))
        / (members * others)
    )


def _found(members: Scores, others: Scores, share: float) -> float:
    """Returns the share of members at this share of false positives, on the ROC curve with straight lines."""
    values = np.unique(np.concatenate([members, others]))
    beyond = [
        1 - np.searchsorted(np.sort(scores), values, "right") / len(scores)
        for scores in (others, members)
    ]
    false, true = (np.concatenate([[1.0], shares])[::-1] for shares in beyond)
    # Of several points with one share of false positives, the best one.
    best = {float(x): float(y) for x, y in zip(false, true, strict=True)}
    return float(np.interp(share, list(best), list(best.values())))


def attack_all(
    synthetic: pd.DataFrame,
    reference: pd.DataFrame,
    kinds: Mapping[str, str],
    *,
    members: pd.DataFrame,
    others: pd.DataFrame,
) -> Sequence[AttackResult]:
    """Returns the success of all attacks against ``members`` of the table that ``synthetic`` was made of."""
    features = Features(reference, kinds)
    attacker = Attacker(features.of(synthetic), features.of(reference))
    candidates = features.of(pd.concat([members, others], ignore_index=True))
    return [
        judge(name, *np.split(attack(attacker, candidates), [len(members)]))
        for name, attack in ATTACKS.items()
    ]


def allowed(epsilon: float, delta: float) -> AttackResult:
    """Returns the most that any attack on one row can find under (``epsilon``, ``delta``), whatever it knows besides.

    The area is that under the bound on the ROC curve, from above.
    """
    profile = stated_profile(epsilon, delta)

    def most(share: float) -> float:
        return found_at_most(profile, share, stated=epsilon)

    area = sum(most((i + 1) / _GRID) for i in range(_GRID)) / _GRID
    return AttackResult(
        "any attack",
        min(1.0, math.ceil(area * 1e4) / 1e4),
        0.0,
        tuple(math.ceil(most(share) * 1e4) / 1e4 for share in FALSE_POSITIVES),
    )
