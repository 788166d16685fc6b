"""Errors of `import syncret` in Python's terms: arguments where commands' errors name options."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from mechanisms.errors import MechanismError
from parties.foundation.errors import PartyError

_ARGUMENTS = {
    "ignore-extra": "ignore_extra=True",
    "overwrite": "overwrite=True",
    "data": "data=",
    "uncharged": "uncharged=",
    "not-private": "not_private=True",
    "population": "population=",
    "new-population": "new_population=",
    "called": "dataset=",
    "capacity": "capacity=",
    "label": "label=",
    "clients": "clients=",
    "partition": "partition=",
    "state": "state=",
    "rows": "rows=",
    "like": "like=",
    "encoding": "dialect=Dialect(encoding=...) of a TableSource",
    "header-line": "dialect=Dialect(header_line=...) of a TableSource",
    "values-line": "dialect=Dialect(values_line=...) of a TableSource",
    "sheet": "sheet= of a TableSource",
    "as-is": "dialect=Dialect(as_is=True) of a TableSource",
}
"""Arguments by the options of commands that do the same."""
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def in_terms_of_python(call: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorates a function of the API: options in the messages of its errors become arguments."""

    @functools.wraps(call)
    def wrapped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return call(*args, **kwargs)
        except (MechanismError, PartyError) as error:
            error.args = tuple(
                _translated(part) if isinstance(part, str) else part for part in error.args
            )
            raise

    return wrapped


def _translated(message: str) -> str:
    return _OPTION.sub(lambda found: _ARGUMENTS.get(found[1], found[0]), message)
