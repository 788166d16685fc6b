"""Compilation of loops by Numba, when the module that has them is imported, or loading from Numba's cache.

Importing this module loads the compiler. So only modules of loops import it, and their users import those modules when
they need them (``verify``, ``cells``). Nothing here is secret. Known limit: a process needs memory that is both written
to and executed.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from protocols.errors import ConfigurationError

try:
    from numba import njit
except OSError as refused:
    raise ConfigurationError(
        "proofs of malicious mode are compiled when they are needed, and this process may not run what it has compiled"
        f" ({refused}): allow it (systemd: MemoryDenyWriteExecute=no; SELinux: execmem), or run semi-honest"
    ) from refused

F = TypeVar("F", bound=Callable[..., object])


def compiled(*signatures: object) -> Callable[[F], F]:
    """Compiles for these types, now; or loads the compiled form from Numba's cache (NUMBA_CACHE_DIR), if any."""

    def compile_(function: F) -> F:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        try:
            made = njit(list(signatures), cache=True, **options)(function)
        except Exception:  # noqa: BLE001  # Whatever its reader finds in a damaged file.
            # The cache cannot be written or read: each process compiles for itself.
            made = njit(list(signatures), **options)(function)
        return cast(F, made)

    return compile_
