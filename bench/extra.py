"""Packages of the bench's extras: a check that they are installed before long work begins."""

import importlib.util

_OF_PAPERS = ("distributed", "joblib")


def need(module: str, what: str) -> None:
    """Raises ImportError, with the command to install, unless `module` can be imported for `what`."""
    if importlib.util.find_spec(module) is None:
        extra = "papers" if module in _OF_PAPERS else "bench"
        raise ImportError(
            f"{what} needs {module}, which the {extra} extra has: pip install -c constraints.txt -e '.[{extra}]'"
        )
