"""SynthFS: a table whose owners differ in their features, by one parameter.

All values here are public; the data are drawn from a seed.

Source: FLAIM paper, Appendix B.1.1, in the constants of its authors' generator: 100 clients with 500 rows of 10
features each. For every client and feature a mean is drawn from a Zipf law on 1 .. 40 with exponent `skew`, every row
is normal around it with deviation 1, and values are cut at 40 points spread evenly over 0 .. 40. A small exponent
spreads the means, so that clients differ much; a large one puts nearly all means at 1. The authors' draws cannot be
repeated (no seed), only their law. Limits: no target column, so no classifier can be tested on it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Domain, Integer


@dataclass(frozen=True, slots=True)
class SynthFs:
    """Sizes of the table and `skew`, the exponent of the Zipf law. Raises ValueError for a number out of range."""

    skew: float = 3.0
    clients: int = 100
    rows_per_client: int = 500
    features: int = 10
    values: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.skew) and self.skew > 0):
            raise ValueError(f"the skew is {self.skew}; expected a positive number")
        if min(self.clients, self.rows_per_client, self.features) < 1 or self.values < 2:
            raise ValueError("SynthFS has at least one client, row and feature, and two values")


def generate(settings: SynthFs) -> tuple[Domain, NDArray[np.int32], NDArray[np.int32]]:
    """Returns the domain, the codes (rows, features) and each row's owner (rows,)."""
    rng = np.random.default_rng([settings.seed, round(1000 * settings.skew)])
    ranks = np.arange(1, settings.values + 1)
    chance = ranks**-settings.skew
    shape = (settings.clients, settings.features)
    means = rng.choice(ranks, size=shape, p=chance / chance.sum())
    owners = np.repeat(np.arange(settings.clients), settings.rows_per_client)
    drawn = rng.normal(means[owners], 1.0)
    edges = np.linspace(0, settings.values, settings.values)
    codes = np.digitize(drawn, edges)
    columns = tuple(
        Integer(f"feature{i}", 0, settings.values, settings.values + 1)
        for i in range(settings.features)
    )
    return Domain(columns), codes.astype(np.int32), owners.astype(np.int32)
