"""Whether loops over cells are compiled in this process: ``cell_kernels``, with NumPy's results to the bit.

Provides ``load_for`` and ``kernels``. A compiler takes half a second and 60 MB, and seconds where Numba's cache has
nothing yet, so that it is loaded where a selection has many cells. Nothing here is secret.
"""

from types import ModuleType

from protocols.errors import ConfigurationError

MANY = 1 << 18

_kernels: ModuleType | None = None


def load_for(cells: int) -> None:
    """Have loops compiled from now on, if selections have ``MANY`` cells and this process may run what it compiles."""
    global _kernels
    if cells < MANY or _kernels is not None:
        return
    try:
        import protocols.cell_kernels
    except ConfigurationError:
        return  # NumPy's loops do the same, and take longer.
    _kernels = protocols.cell_kernels


def kernels() -> ModuleType | None:
    """The compiled loops, where they have been loaded."""
    return _kernels
