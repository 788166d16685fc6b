"""Secret random batches of a fixed size: the examples that a training step takes.

The batches are secret: an amplified guarantee holds against an adversary without knowledge of them.

Distribution: every set of that size is equally likely, exactly, and independent of all others. Dealing the examples of
an epoch out, each once, has the same number of steps but another distribution: there each batch depends on the earlier
ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mechanisms.sampling import RandomBytes, uniform_below


def fixed_size_batch(random_bytes: RandomBytes, population: int, size: int) -> NDArray[np.int64]:
    """Returns a uniformly random set of ``size`` of the numbers 0 .. ``population`` - 1, ascending.

    Shapes: (size,). Raises ``ValueError`` unless 0 <= size <= population.
    """
    if not 0 <= size <= population:
        raise ValueError(f"a batch of {size} of {population}; expected 0 to {population}")
    if 2 * size > population:
        outside = fixed_size_batch(random_bytes, population, population - size)
        return np.delete(np.arange(population), outside)
    drawn = np.zeros(0, np.int64)
    while drawn.size < size:
        more = uniform_below(random_bytes, population, size - drawn.size)
        # Repeats are dropped. No step here distinguishes the numbers, so no set is likelier than another.
        drawn = np.unique(np.concatenate([drawn, more]))
    return drawn
