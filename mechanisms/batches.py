"""Which examples a step of training takes: sets of a fixed size, drawn in secret, each step's anew.

Provides ``fixed_size_batch``. Secret: the batches; an amplified guarantee holds against who does not know them.

Distribution: every set of that size is equally likely, exactly, and independent of all others. An epoch that deals the
examples out, each once, has the same number of steps and is not this: there a step's batch depends on those before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mechanisms.sampling import RandomBytes, uniform_below


def fixed_size_batch(random_bytes: RandomBytes, population: int, size: int) -> NDArray[np.int64]:
    """A uniformly random set of ``size`` of the numbers 0 .. ``population`` - 1, ascending.

    Shapes: (size,). Raises: ``ValueError`` unless 0 <= size <= population.
    """
    if not 0 <= size <= population:
        raise ValueError(f"a batch of {size} of {population}; expected 0 to {population}")
    if 2 * size > population:
        outside = fixed_size_batch(random_bytes, population, population - size)
        return np.delete(np.arange(population), outside)
    drawn = np.zeros(0, np.int64)
    while drawn.size < size:
        more = uniform_below(random_bytes, population, size - drawn.size)
        # Repeats are passed over. Nothing here tells numbers apart, so that no set is likelier than another.
        drawn = np.unique(np.concatenate([drawn, more]))
    return drawn
