"""What a data owner's installation leaves out: the packages of the extra ``server``.

Provides ``SERVER`` and ``need_server``, which asks for them before work begins rather than when it is half done.
"""

import importlib.util

from parties.errors import ExtraMissing

SERVER = (
    "alembic",
    "jinja2",
    "matplotlib",
    "mpyc",
    "numba",
    "pandas",
    "prometheus_client",
    "rich",
    "sqlalchemy",
    "threadpoolctl",
)
"""Of servers and of whole runs on one machine: the service's database, console, pictures, party runtime, DataFrames,
metrics, progress, threads of products, loops of proofs and of large selections."""


def need_server(what: str) -> None:
    """Raises ExtraMissing, with what to install, unless all packages of ``SERVER`` are there for ``what``."""
    for module in SERVER:
        if importlib.util.find_spec(module) is None:
            raise ExtraMissing(what, module)
