"""Paths of this user's files that outlive every run: the budget of its data, the registry of its releases.

``budget_path`` and ``registry_path`` return an explicit path, the one in the environment (SYNCRET_BUDGET,
SYNCRET_REGISTER), or one in the XDG base directories. Both files record releases, so that neither belongs in a run's
folder, neither may be deleted, and both belong in backups. Source:
https://specifications.freedesktop.org/basedir-spec/latest/.
"""

import os
from pathlib import Path

from parties.foundation.errors import ConfigError

BUDGET_VARIABLE, REGISTRY_VARIABLE = "SYNCRET_BUDGET", "SYNCRET_REGISTER"
_FOLDER = "syncret"


def budget_path(named: Path | None = None) -> Path:
    """Returns the path of the budgets of a data owner's tables. Raises ConfigError if this user has no home."""
    return _data_path(
        named, BUDGET_VARIABLE, "XDG_DATA_HOME", Path(".local") / "share", "budget.sqlite"
    )


def registry_path(named: Path | None = None) -> Path:
    """Returns the path of a server's release registry. Raises ConfigError if this user has no home."""
    return _data_path(
        named, REGISTRY_VARIABLE, "XDG_STATE_HOME", Path(".local") / "state", "register.sqlite"
    )


def _data_path(named: Path | None, variable: str, base: str, below_home: Path, name: str) -> Path:
    """Returns the path; relative paths in XDG's variables are ignored, as the specification demands."""
    chosen = named or (Path(value) if (value := os.environ.get(variable)) else None)
    if chosen is not None:
        return chosen.absolute()
    given = Path(os.environ.get(base, ""))
    return (given if given.is_absolute() else _home(variable) / below_home) / _FOLDER / name


def _home(variable: str) -> Path:
    """Returns this user's home, which must be absolute: a relative one would begin a budget in every folder.

    Raises ConfigError.
    """
    cause = None
    try:
        home = Path.home()
        if home.is_absolute():
            return home
    except RuntimeError as error:
        cause = error
    text = "is not set, and this user has no home; expected a file to keep"
    raise ConfigError("environment", variable, text) from cause
