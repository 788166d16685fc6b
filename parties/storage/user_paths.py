"""Where this user's own records lie that outlive every run: the budget of its data, the register of its studies.

Provides ``budget_path`` and ``registry_path``: a file that was named, or the one that the environment names
(SYNCRET_BUDGET, SYNCRET_REGISTER), or one in the places of the XDG base directories. Both say what was released, so
that neither belongs in a run's folder, and neither may be deleted: a copy of them belongs in the backup. Public: paths.
Source: https://specifications.freedesktop.org/basedir-spec/latest/.
"""

import os
from pathlib import Path

from parties.foundation.errors import ConfigError

BUDGET_VARIABLE, REGISTRY_VARIABLE = "SYNCRET_BUDGET", "SYNCRET_REGISTER"
_FOLDER = "syncret"


def budget_path(named: Path | None = None) -> Path:
    """The budgets of a data owner's tables. Raises ConfigError where this user has no home."""
    return _data_path(
        named, BUDGET_VARIABLE, "XDG_DATA_HOME", Path(".local") / "share", "budget.sqlite"
    )


def registry_path(named: Path | None = None) -> Path:
    """The register of a server's studies. Raises ConfigError where this user has no home."""
    return _data_path(
        named, REGISTRY_VARIABLE, "XDG_STATE_HOME", Path(".local") / "state", "register.sqlite"
    )


def _data_path(named: Path | None, variable: str, base: str, below_home: Path, name: str) -> Path:
    """Relative paths in XDG's variables are to be ignored, the specification says."""
    chosen = named or (Path(value) if (value := os.environ.get(variable)) else None)
    if chosen is not None:
        return chosen.absolute()
    given = Path(os.environ.get(base, ""))
    return (given if given.is_absolute() else _home(variable) / below_home) / _FOLDER / name


def _home(variable: str) -> Path:
    """This user's. One that depends on where a command is called would begin a budget in every folder."""
    cause = None
    try:
        home = Path.home()
        if home.is_absolute():
            return home
    except RuntimeError as error:
        cause = error
    text = "is not set, and this user has no home; expected a file to keep"
    raise ConfigError("environment", variable, text) from cause
