"""Tables of text, column by column, without pandas: the form in which an owner's table is read.

The table is secret, at its owner; its ``repr`` has no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mechanisms.text_format import PLAIN_FORMAT, TextFormat

if TYPE_CHECKING:
    import pandas as pd


SHOWN_CELLS = 10
"""Most wrong cells that an error shows."""
_CUT = 40


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TextTable:
    """Columns of strings by name, each with one value per row.

    ``places`` are the numbers that messages use for the rows; ``unit`` is their unit, lines of a file or rows.
    ``notes`` describe the parts of a file that were left out, and ``form`` is the format of a text file. Raises
    ``ValueError`` for columns of different lengths.
    """

    columns: Mapping[str, Sequence[str]]
    places: Sequence[int]
    unit: str = "line"
    notes: tuple[str, ...] = ()
    form: TextFormat = PLAIN_FORMAT

    def __post_init__(self) -> None:
        if any(len(values) != len(self.places) for values in self.columns.values()):
            raise ValueError("the columns of a table are of one length")

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        return f"TextTable({len(self)} rows, {len(self.columns)} columns)"

    @classmethod
    def of(cls, frame: TextTable | pd.DataFrame) -> TextTable:
        """Converts a DataFrame of strings, whose index has the places and, as its name, a unit other than lines."""
        if isinstance(frame, TextTable):
            return frame
        columns = {name: frame[name].tolist() for name in frame.columns}
        unit = "line" if frame.index.name is None else str(frame.index.name)
        return cls(columns, frame.index.tolist(), unit)

    def frame(self) -> pd.DataFrame:
        """Returns the table as a DataFrame of strings; see ``of``."""
        # Data owners do without pandas.
        import pandas as pd

        index = pd.Index(self.places, name=None if self.unit == "line" else self.unit)
        columns = {name: list(values) for name, values in self.columns.items()}
        return pd.DataFrame(columns, index=index, columns=list(columns), dtype=object)


def named(name: str) -> str:
    """Returns a column's name in one line."""
    return name if name.isprintable() else repr(name)


def and_list(names: Iterable[str]) -> str:
    """Returns names in a sentence: "a", "a and b", "a, b and c"."""
    *before, last = [*names] or [""]
    return f"{', '.join(before)} and {last}" if before else last


def shown(value: str) -> str:
    """Returns a value for a message: quoted, and cut to 40 characters."""
    return repr(value if len(value) <= _CUT else value[: _CUT - 3] + "...")


def or_missing(allowed: str, missing: Sequence[str]) -> str:
    """Returns the allowed values in words, and the spellings of a missing value beside them."""
    spellings = " or ".join(repr(value) for value in missing)
    return f"{allowed}, or {spellings} for a missing value" if missing else allowed


def wrong_cells_message(
    source: object, count: int, lines: Sequence[str], allowed: Mapping[str, str]
) -> str:
    """Returns the message of an error about ``count`` wrong cells.

    ``lines`` describe the first of them; ``allowed`` has the allowed values of their columns, in words.
    """
    if count == 1:
        rules = (f" is not allowed; it has to be {text}" for text in allowed.values())
        return f"{source}, {lines[0]}" + "".join(rules)
    some = f"the first {len(lines)}" if count > len(lines) else "they are"
    head = f"{source}: {count} values are not allowed; {some}:"
    rules = (f"{name!r} has to be {text}" for name, text in allowed.items())
    return "\n".join([head, *(f"  {line}" for line in lines), *rules])
