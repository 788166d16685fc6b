"""Checks of the arguments of `import syncret`: a wrong one raises TypeError or ValueError that names what is right."""

from __future__ import annotations

import secrets
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
    return Path(value)
