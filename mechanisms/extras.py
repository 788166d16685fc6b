"""Libraries that not everybody installs, imported when somebody asks for what they do. Public: everything."""

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
    "pandas": "statistics",
    "pyreadstat": "statistics",
    "sqlalchemy": "sql",
}
"""Which extra of this project brings a library."""


def extra_module(name: str, where: object) -> ModuleType:
    """The module of that name. Raises ``DataError`` that says what to install for ``where``, where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise DataError(
            f'{where}: needs {name.partition(".")[0]}, which is not installed; pip install "syncret[{_EXTRAS[name]}]"'
        ) from None
