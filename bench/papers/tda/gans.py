"""Synthetic codes by federated GANs, with DP-CTGAN's networks and steps, and the silos' traffic.

Nothing here is secret; the tables are public, and noise is seeded.

`fed-gan` stands for Fed-TGAN: silos train both networks on their own rows, without noise, and SecAgg averages them.
**It is not private.** `dp-fed-gan` stands for DP-FedAvg-GAN: every round each silo clips and noises the discriminator's
gradient on a batch of its rows, SecAgg sums, and the server trains the generator. The noise is each silo's own, so that
a silo's rows are protected whatever the others do; an epsilon is of one row, at settings' delta.

Deviations from the papers' GANs: numbers in equal bins and no conditional vectors (`bench.papers.gan.conditions`),
silos count by their rows and not by how near their columns are. Rounds are the 100 of the Fed-TDA paper's Table 5;
rates CTGAN's own (Xu et al., NeurIPS 2019), with noise those of the FLAIM paper's baseline, which has 500 rounds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.papers.gan.networks import Layout, parameters
from bench.papers.gan.training import Averaged, Federated, train
from bench.papers.tda.costs import values_mb
from bench.papers.tda.settings import FED_GAN, GAN_EPOCHS, GAN_ROUNDS, Settings

AVERAGED = Averaged(GAN_ROUNDS, GAN_EPOCHS)
NOISED = Federated(epochs=GAN_ROUNDS, participation=1.0)


class Made(NamedTuple):
    """Synthetic `codes` (rows, columns), MB sent in sessions of SecAgg, and MB by 4 bytes a number."""

    codes: NDArray[np.int32]
    sent_mb: float
    formula_mb: float


def make(
    settings: Settings,
    tables: Sequence[NDArray[np.int32]],
    sizes: Sequence[int],
    seed: int,
) -> Made:
    """Makes codes by `settings.source`, of silos with `tables` (rows, columns) of codes below `sizes`.

    Raises ValueError if no silo has a row.
    """
    averaged = settings.source == FED_GAN
    codes = train(
        AVERAGED if averaged else NOISED,
        tables,
        sizes,
        epsilon=settings.epsilon,
        delta=settings.delta,
        rows=settings.synthetic_rows,
        seed=seed,
    )
    judge, maker = parameters(Layout(tuple(sizes)))
    values = judge + maker if averaged else judge
    return Made(codes, *values_mb(values, clients=settings.clients, rounds=GAN_ROUNDS))
