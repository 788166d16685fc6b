"""Packages of the bench extra: a check that they are installed before long work begins."""

import importlib.util


def need(module: str, what: str) -> None:
    """Raises ImportError, with the command to install, unless `module` can be imported for `what`."""
    if importlib.util.find_spec(module) is None:
        raise ImportError(
            f"{what} needs {module}, which the bench extra has: pip install -c constraints.txt -e '.[bench]'"
        )
