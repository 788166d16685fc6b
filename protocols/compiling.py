"""How loops are compiled: by Numba, when the module that has them is imported, or taken from its cache.

Provides ``compiled``. Importing this module loads the compiler: so only modules of loops import it, and who needs those
imports them then (``verify``, ``cells``). Nothing here is secret. Known limit: a process needs memory that is both
written to and executed.
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
    """Compile for these types, now; or load that, from where Numba may keep it (NUMBA_CACHE_DIR) if anywhere."""

    def compile_(function: F) -> F:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        try:
            made = njit(list(signatures), cache=True, **options)(function)
        except Exception:  # noqa: BLE001  # Whatever its reader finds in a damaged file.
            # Nowhere may or can anything be kept, or what is cannot be read: compiled in each process.
            made = njit(list(signatures), **options)(function)
        return cast(F, made)

    return compile_
