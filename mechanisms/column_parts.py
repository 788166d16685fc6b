"""Common parts of the kinds of columns: checks of their keys, their configuration tables, names of their cells.

All values here are public. Raises ``DomainError``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mechanisms.cells import Cells
from mechanisms.errors import DomainError

DEFAULT_BINS = 32
MOST_BINS = 1_000_000
"""Most bins of a column, far more than noise leaves of use."""
PRIVATE = "private"
"""Value of ``bins`` or ``values`` of a column whose bins, or all of whose values, are chosen from noisy counts."""
SCALES = LINEAR, LOG, SYMLOG = "linear", "log", "symlog"


def check_name(name: str) -> None:
    """Raises ``DomainError`` for a column without a name."""
    if not name:
        raise DomainError("a column has an empty name; give it the name of the table's header")


def duplicates(values: Iterable[str]) -> list[str]:
    """Returns the values that occur more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def numbers_dict(
    name: str,
    kind: str,
    *,
    bounds: tuple[object, object, int],
    missing: bool,
    edges: Sequence[object],
    scale: str,
    atoms: Sequence[object],
    marks: Sequence[str] = (),
    private: Mapping[str, object] | None = None,
    within: Sequence[object] = (),
) -> dict[str, object]:
    """Returns the ``[[column]]`` table of a column of numbers.

    ``bounds`` are low, high and bins; ``private`` has further keys, or with ``values`` stands instead of bounds. Keys
    with default values are left out, so that a column with only bounds and bins is written as in older versions.
    """
    low, high, bins = bounds
    binned: dict[str, object] = (
        {"edges": list(edges)} if edges else {"low": low, "high": high, "bins": bins}
    )
    binned = dict(private) if private and "values" in private else binned | dict(private or {})
    document = {"name": name, "kind": kind, **binned, "missing": missing}
    if scale != LINEAR:
        document["scale"] = scale
    if within:
        document["within"] = list(within)
    document |= {"atoms": list(atoms)} if atoms else {}
    return document | ({"marks": list(marks)} if marks else {})


def check_bins(name: str, bins: int) -> None:
    """Raises ``DomainError`` unless there is at least one bin, and ``MOST_BINS`` at most."""
    if bins < 1:
        raise DomainError(f"column {name!r}: bins = {bins}; at least 1 is needed")
    if bins > MOST_BINS:
        raise DomainError(f"column {name!r}: bins is too large; at most {MOST_BINS:,} are possible")


def check_edges(name: str, edges: Sequence[float]) -> None:
    """Raises ``DomainError`` unless there are two or more edges, ascending."""
    if len(edges) < 2 or any(before >= after for before, after in pairwise(edges)):
        raise DomainError(f"column {name!r}: edges are two or more, each above the one before")


def check_within(name: str, edges: Sequence[float], within: Sequence[float]) -> None:
    """Raises ``DomainError`` unless ``within`` is ascending and lies between the edges, on none of them."""
    if not within:
        return
    ascending = all(before < after for before, after in pairwise(within))
    if not edges or not ascending or within[0] <= edges[0] or within[-1] >= edges[-1]:
        raise DomainError(
            f"column {name!r}: within are numbers between the edges, each above the one before"
        )
    if twice := set(within) & set(edges):
        raise DomainError(f"column {name!r}: {min(twice)} is an edge and stands in within, too")


def check_atoms(name: str, atoms: Sequence[object]) -> None:
    """Raises ``DomainError`` for an atom that is listed twice."""
    if twice := [str(atom) for atom, count in Counter(atoms).items() if count > 1]:
        raise DomainError(f"column {name!r}: the atom {twice[0]} is listed more than once")


def check_marks(name: str, marks: Sequence[str], plain: Callable[[str], object | None]) -> None:
    """Raises ``DomainError`` for a mark that is listed twice, empty, or a number according to ``plain``."""
    if twice := duplicates(marks):
        raise DomainError(f"column {name!r}: the mark {twice[0]!r} is listed more than once")
    for mark in marks:
        if not mark.strip() or plain(mark) is not None:
            raise DomainError(
                f"column {name!r}: the mark {mark!r} can be read as a value, or is empty; marks stand among"
                ' values and are none, such as "refused" or "<5"'
            )


def mark_labels(marks: Sequence[str]) -> tuple[str, ...]:
    """Returns the labels of the codes of marks."""
    return tuple(f"= {mark}" for mark in marks)


def write_marked(
    marks: Sequence[str],
    present: int,
    codes: NDArray[np.int32],
    write: Callable[[NDArray[np.int32]], NDArray[np.object_]],
) -> NDArray[np.object_]:
    """Returns texts (rows,) for codes: ``write`` writes the first ``present`` codes; the marks follow them."""
    if not marks:
        return write(codes)
    texts = write(np.minimum(codes, present - 1))
    for code, mark in enumerate(marks, start=present):
        texts[codes == code] = mark
    return texts


def or_atoms(atoms: Sequence[object]) -> str:
    """Returns the values outside the bins, for an error message."""
    return f" or {', '.join(map(str, atoms))}" if atoms else ""


def up_to(last: str) -> str:
    """Returns the label of a bin without a lower end; ``last`` is its largest value."""
    return f"up to {last}"


def cell_labels(cells: Cells, firsts: Sequence[str]) -> tuple[str, ...]:
    """Returns the labels of all codes; ``firsts`` are the smallest values of their cells."""
    apart = set(cells.atoms.values())
    return tuple(f"= {first}" if code in apart else first for code, first in enumerate(firsts))
