"""CTGAN's conditional vectors: a column of a row and the code required there, by noisy frequencies.

Real rows are secret. `noisy_shares` sees all of them once, and is charged for that; `own` takes a row's condition from
that row alone, so that the clipped gradient of a row still depends on no other. Conditions of fakes are drawn by the
noisy shares.

The generator receives such a vector and is taught to obey it, the discriminator sees it beside the row. Without it, a
generator may settle on one code of a column, since the discriminator's noised gradient says little against it.

Source: Xu et al. (NeurIPS 2019), section 4.3, with two deviations: codes are drawn by their frequency, not its
logarithm, and real rows are a Poisson batch as they come, not drawn by the condition, which would charge rare codes'
rows more often. The FLAIM authors' code takes frequencies without a charge.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bench.papers.gan.networks import Layout


def noisy_shares(
    layout: Layout, tables: Sequence[NDArray[np.int32]], rho: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Returns the columns' shares (width,), summing to 1 by column, of the histograms of all rows under `rho`-zCDP.

    A row is in one cell of each column: the histograms together have L2 sensitivity sqrt(columns), for any split of the
    rows among clients; a federated sum is one by SecAgg.
    """
    counts = np.zeros(layout.width)
    starts = np.array(layout.starts[:-1])
    for table in tables:
        np.add.at(counts, (table + starts).ravel(), 1)
    noisy = counts + math.sqrt(len(starts) / (2 * rho)) * rng.standard_normal(layout.width)
    # The values left after cutting at 0 are positive in every column.
    positive = np.maximum(noisy, 1e-6)
    sums = np.add.reduceat(positive, starts)
    shares: NDArray[np.float32] = (positive / np.repeat(sums, layout.sizes)).astype(np.float32)
    return shares


def _columns(layout: Layout) -> Array:
    """Returns the column of each position of a row of one-hots (width,)."""
    return jnp.asarray(np.repeat(np.arange(len(layout.sizes)), layout.sizes))


def drawn(layout: Layout, shares: Array | None, key: Array, count: int) -> Array:
    """Draws conditions (count, width): a column by chance, in it a code by its share; (count, 0) without shares."""
    if shares is None:
        return jnp.zeros((count, 0))
    one, two = jax.random.split(key)
    column = jax.random.randint(one, (count, 1), 0, len(layout.sizes))
    logits = jnp.where(_columns(layout) == column, jnp.log(shares), -jnp.inf)
    return jax.nn.one_hot(jax.random.categorical(two, logits), layout.width)


def own(layout: Layout, rows: Array, shares: Array | None, key: Array) -> Array:
    """Returns, for each real row of one-hots (count, width), its code in a column drawn by chance; see `drawn`."""
    if shares is None:
        return jnp.zeros((len(rows), 0))
    column = jax.random.randint(key, (len(rows), 1), 0, len(layout.sizes))
    return jnp.where(_columns(layout) == column, rows, 0.0)
