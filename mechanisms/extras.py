"""Optional libraries, imported when their functions are needed. All values here are public."""

from __future__ import annotations

import importlib
from types import ModuleType

from mechanisms.errors import DataError

_EXTRAS = {
    "jax": "bench",
    "jax.numpy": "bench",
    "pyarrow": "tables",
    "pyarrow.feather": "tables",
    "pyarrow.parquet": "tables",
    "openpyxl": "tables",
    "python_calamine": "tables",
    "pandas": "statistics",
    "pyreadstat": "statistics",
    "sqlalchemy": "sql",
}
"""Name of the project's extra that installs each library."""


def extra_module(name: str, where: object) -> ModuleType:
    """Imports an optional module. Raises ``DataError`` with the extra to install for ``where`` if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise DataError(
            f'{where}: needs {name.partition(".")[0]}, which is not installed; pip install "syncret[{_EXTRAS[name]}]"'
        ) from None
