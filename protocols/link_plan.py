"""Public facts of a join: the layout of its rows in bits, the main source, the distance that values travel.

The join and its cost formulas go by ``Linking``. All values here are public. Source: README section 8.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from protocols.bitslice import words_for

MAX_SOURCES = 5


@dataclass(frozen=True, slots=True)
class Linking:
    """Sources of so many ``rows``, of columns of so many ``widths`` bits together, linked by keys of ``key_bits``.

    ``per_person`` is the number of rows that a key may have in each source; a key that has more counts nowhere. Raises
    ValueError for sources that cannot be joined.
    """

    rows: tuple[int, ...]
    widths: tuple[int, ...]
    per_person: tuple[int, ...]
    key_bits: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.rows) <= MAX_SOURCES:
            raise ValueError(f"{len(self.rows)} sources; 1 to {MAX_SOURCES} can be joined")
        if self.key_bits < 1:
            raise ValueError(f"a key of {self.key_bits} bits; expected 1 or more")
        for number, (rows, width, most) in enumerate(
            zip(self.rows, self.widths, self.per_person, strict=True)
        ):
            if rows < 0 or width < 0:
                raise ValueError(f"source {number} has {rows} rows of {width} bits")
            if most < 1:
                raise ValueError(f"source {number} allows {most} rows of a key; expected 1 or more")
        if sum(most > 1 for most in self.per_person) > 1:
            raise ValueError(
                "two sources allow several rows of a key; of one alone can several be joined"
            )

    @property
    def main(self) -> int:
        """Source of the joined rows: that of several rows of a key, or the one of fewest rows."""
        several = [s for s, most in enumerate(self.per_person) if most > 1]
        return several[0] if several else self.rows.index(min(self.rows))

    @property
    def order(self) -> tuple[int, ...]:
        """Sources in the order of their rows in the list, and in a run of equal keys: the main one last."""
        others = tuple(s for s in range(len(self.rows)) if s != self.main)
        return (*others, self.main)

    @property
    def others(self) -> tuple[int, ...]:
        """Sources whose columns come to the main one's rows."""
        return self.order[:-1]

    @property
    def total(self) -> int:
        """Number of rows of all sources, absent ones included."""
        return sum(self.rows)

    @property
    def candidates(self) -> int:
        """Number of joined rows, absent ones included."""
        return self.rows[self.main]

    # A row of the list, from its lowest bit: number, key, presence; a flag for each source; columns.

    @property
    def number_bits(self) -> int:
        """Bits of a row's number, which makes equal keys differ and has its source above."""
        return self.index_bits + self.source_bits

    @property
    def index_bits(self) -> int:
        """Bits of a row's place in its source."""
        return max(0, (max(self.rows) - 1).bit_length())

    @property
    def source_bits(self) -> int:
        """Bits of the place of a row's source in ``order``."""
        return (len(self.rows) - 1).bit_length()

    @property
    def sort_bits(self) -> int:
        """Bits of the sort key."""
        return self.number_bits + self.key_bits + 1

    @property
    def flags(self) -> int:
        """Flags of a row, one for each source in ``order``: 1 if the row is present and of that source."""
        return len(self.rows)

    @property
    def row_bits(self) -> int:
        """Bits of a row of the list. Columns of all sources but the main one lie in the same place."""
        return self.sort_bits + self.flags + max([0, *(self.widths[s] for s in self.others)])

    @property
    def back_bits(self) -> int:
        """Bits of a row that goes back: presence, and the other sources' columns."""
        return 1 + sum(self.widths[s] for s in self.others)

    @property
    def row_words(self) -> int:
        """Words of a row of the list."""
        return words_for(self.row_bits)

    @property
    def back_words(self) -> int:
        """Words of a row that goes back."""
        return words_for(self.back_bits)

    # How a key's rows are put together.

    @property
    def limits(self) -> tuple[int, ...]:
        """Distinct numbers of rows that a key may have in a source."""
        return tuple(sorted(set(self.per_person)))

    def jumps(self) -> Iterator[int]:
        """Yields 1, 2, 4, ...: the distances of steps in which values travel to any row of the main source in a run.

        A run that counts has a row of each source but the main one, and up to ``per_person`` of that.
        """
        reach = len(self.others) - 1 + self.per_person[self.main] if self.others else 0
        return (1 << step for step in range(reach.bit_length()))


def doublings(size: int) -> Iterator[int]:
    """Yields the distances of windows of rows that are combined, two at a time, into one of ``size`` rows."""
    have = 1
    while have < size:
        step = min(have, size - have)
        yield step
        have += step
