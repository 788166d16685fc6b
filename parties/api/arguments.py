"""Checks of the arguments of `import syncret`: a wrong one raises TypeError or ValueError that names what is right."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from operator import index
from pathlib import Path
from typing import SupportsIndex

_SEED_BITS = 64


def check_whole(name: str, value: object, *, least: int) -> int:
    """Returns a whole number of at least ``least``. Raises TypeError for another type, ValueError if it is less."""
    # NumPy's whole numbers are some, too; True and False are none.
    number = index(value) if isinstance(value, SupportsIndex) else None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} = {value!r}; expected a whole number of at least {least}")
    if number < least:
        raise ValueError(f"{name} = {value!r}; expected a whole number of at least {least}")
    return number


def seed_of(seed: int | None, random_state: int | None, *, default: int | None = None) -> int:
    """Returns the given seed, under either of its names; without, the default, or a fresh one without that.

    Raises TypeError, ValueError.
    """
    if seed is not None and random_state is not None:
        raise TypeError("seed and random_state are two names of one argument; expected one of them")
    given = random_state if seed is None else seed
    if given is None:
        return secrets.randbits(_SEED_BITS) if default is None else default
    return check_whole("seed" if random_state is None else "random_state", given, least=0)


def type_name(value: object) -> str:
    """Returns the type of a value in words, without the value: "a list", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def check_path(name: str, value: object) -> Path:
    """Returns a path. Raises TypeError for anything else."""
    if not isinstance(value, str | Path):
        raise TypeError(f"{name} is {type_name(value)}; expected a path")
    if "\0" in str(value):
        raise ValueError(f"{name} has a zero character; expected a path")
    return Path(value)


def check_text(name: str, value: object, *, what: str) -> str:
    """Returns a text, which is ``what`` is expected. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {type_name(value)}; expected {what}")
    return value


def check_number(name: str, value: object, *, zero: bool) -> float:
    """Returns a finite number above 0, or from 0 on if ``zero`` may be. Raises TypeError, ValueError."""
    expected = "expected a number of at least 0" if zero else "expected a number above 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {type_name(value)}; {expected}")
    number = float(value)
    if not (0 < number < math.inf or (zero and number == 0)):
        raise ValueError(f"{name} = {value!r}; {expected}")
    return number


def check_changes(value: object) -> dict[str, object]:
    """Returns the changes of a configuration. Raises TypeError for anything but texts and their values."""
    expected = 'expected other values by dotted key, such as {"run.rounds": 5}'
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"changes is {type_name(value)}; {expected}")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"changes has a key that is {type_name(key)}; {expected}")
    return dict(value)


def names_of(name: str, value: object) -> list[str]:
    """Returns names in their order. Raises TypeError for anything but a list of texts."""
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise TypeError(f"{name} is {type_name(value)}; expected the name of a column, or several")
    return [check_text(name, item, what="names of columns") for item in value]


def check_flag(name: str, value: object) -> bool:
    """Returns a truth value. Raises TypeError for anything else."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {type_name(value)}; expected True or False")
    return value


def optional_path(name: str, value: object) -> Path | None:
    """Returns a path, None for None. Raises TypeError for anything else."""
    return None if value is None else check_path(name, value)


def check_word(name: str, value: object, words: Sequence[str]) -> str:
    """Returns one of ``words``. Raises ValueError for another one, TypeError for no text."""
    expected = f"one of {', '.join(word or repr(word) for word in words)}"
    if check_text(name, value, what=expected) not in words:
        raise ValueError(f"{name} = {value!r}; expected {expected}")
    return str(value)
