"""Choice of compiled loops over cells for this process: ``cell_kernels``, with NumPy's results to the bit.

A compiler takes half a second and 60 MB, and seconds where Numba's cache has nothing yet, so that it is loaded where a
selection has many cells. Nothing here is secret.
"""

from types import ModuleType

from protocols.errors import ConfigurationError

MANY = 1 << 18

_kernels: ModuleType | None = None


def load_for(cells: int) -> None:
    """Loads the compiled loops if selections have ``MANY`` cells and this process may run compiled code."""
    global _kernels
    if cells < MANY or _kernels is not None:
        return
    try:
        import protocols.cell_kernels
    except ConfigurationError:
        return  # NumPy's loops do the same, and take longer.
    _kernels = protocols.cell_kernels


def kernels() -> ModuleType | None:
    """Returns the compiled loops, where they have been loaded."""
    return _kernels
