"""Layout of rows in bits: an owner's coded table to the bytes that it shares, and the servers' bytes to planes.

A row is a presence bit and, column after column in the domain's order, its code in ceil(log2 size) bits, the least
significant first; a column of one category has none. Rows lie one after the other without gaps, bit i of a body in byte
i // 8 at 2^(i % 8), and the last byte is filled up. An owner of a public *capacity* sends that many rows: those that it
does not have are zeros, so that nothing tells their number. ``Recoding`` leads from one layout to another one with
fewer codes.

XOR-shares of these bytes are shares of the rows, for any bytes. Secret: codes, bodies, planes. Public: sizes,
capacities, lengths. No messages here. Source: own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from protocols.bitslice import from_bits

_MAX_SIZE = 1 << 31


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Bits of a row whose columns have ``sizes`` categories.

    ``widths`` are the columns' bits, ``starts`` their first places in a row; bit 0 is presence. Raises ValueError for a
    size outside 1 to 2^31.
    """

    sizes: tuple[int, ...]
    widths: tuple[int, ...] = field(init=False)
    starts: tuple[int, ...] = field(init=False)
    bits: int = field(init=False)

    def __post_init__(self) -> None:
        for column, size in enumerate(self.sizes):
            if not 1 <= size <= _MAX_SIZE:
                raise ValueError(
                    f"column {column} has {size} categories; expected 1 to {_MAX_SIZE}"
                )
        widths = tuple((size - 1).bit_length() for size in self.sizes)
        starts = tuple(1 + sum(widths[:column]) for column in range(len(widths)))
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "bits", 1 + sum(widths))

    def body_size(self, capacity: int) -> int:
        """Returns the bytes of so many rows. Raises ValueError for a negative capacity."""
        if capacity < 0:
            raise ValueError(f"a capacity of {capacity} rows; expected 0 or more")
        return -(-capacity * self.bits // 8)

    def pack(self, codes: NDArray[np.int32], capacity: int) -> NDArray[np.uint8]:
        """Packs a table's rows, and absent ones up to ``capacity``.

        Shapes: codes (rows, columns) -> (body_size(capacity),).
        Raises: ValueError for more rows than that, another number of columns, or a code outside its column.
        """
        if codes.ndim != 2 or codes.shape[1] != len(self.sizes) or codes.shape[0] > capacity:
            raise ValueError(
                f"codes of shape {codes.shape}; expected {len(self.sizes)} columns and at most {capacity} rows"
            )
        if codes.size and (codes.min() < 0 or (codes.max(axis=0) >= np.array(self.sizes)).any()):
            raise ValueError("a code lies outside its column's 0 .. size-1")
        rows = np.zeros((capacity, self.bits), np.uint8)
        rows[: len(codes), 0] = 1
        for column, (start, width) in enumerate(zip(self.starts, self.widths, strict=True)):
            for bit in range(width):
                rows[: len(codes), start + bit] = codes[:, column] >> bit & 1
        return np.packbits(rows.reshape(-1), bitorder="little")

    def unpack(
        self, body: NDArray[np.uint8], capacity: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Reads the bits of a body: the codes (capacity, columns), of categories or not, and each row's presence.

        Raises ValueError for another length.
        """
        rows = self._rows([(capacity, body)])
        codes = np.zeros((capacity, len(self.sizes)), np.int64)
        for column, (start, width) in enumerate(zip(self.starts, self.widths, strict=True)):
            for bit in range(width):
                codes[:, column] |= rows[:, start + bit].astype(np.int64) << bit
        return codes, rows[:, 0] == 1

    def planes(self, bodies: Sequence[tuple[int, NDArray[np.uint8]]]) -> NDArray[np.uint64]:
        """Returns the rows of many bodies, each with its capacity, bit by bit.

        Shapes: capacities and (body_size(capacity),) -> (bits, words_for(sum of capacities)); owners' rows follow one
            another in the order given, and cells beyond the last are zeros. Raises: ValueError for another length.
        """
        return from_bits(np.ascontiguousarray(self._rows(bodies).T))

    def _rows(self, bodies: Sequence[tuple[int, NDArray[np.uint8]]]) -> NDArray[np.uint8]:
        """Returns zeros and ones (rows, bits) of all bodies."""
        parts = [np.zeros((0, self.bits), np.uint8)]
        # Bodies of one capacity that follow one another are one matrix: ten thousand small owners are as fast as a
        # large one.
        for capacity, group in groupby(bodies, key=lambda body: body[0]):
            same = [body for _, body in group]
            size = self.body_size(capacity)
            if wrong := [body.size for body in same if body.size != size]:
                raise ValueError(f"{capacity} rows have {size} bytes, not {wrong[0]}")
            octets = np.concatenate(same).reshape(len(same), size)
            used = np.unpackbits(octets, axis=1, count=capacity * self.bits, bitorder="little")
            parts.append(used.reshape(len(same) * capacity, self.bits))
        return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Recoding:
    """``tables`` by column: the code in ``coarse`` of each code of ``fine``; other columns stay.

    Raises ValueError for a table of another length than its column's codes, or with codes that ``coarse`` does not
    have.
    """

    fine: RowLayout
    coarse: RowLayout
    tables: Mapping[int, tuple[int, ...]] = field(hash=False)

    def __post_init__(self) -> None:
        for column, (size, after) in enumerate(
            zip(self.fine.sizes, self.coarse.sizes, strict=True)
        ):
            table = self.tables.get(column, tuple(range(size)))
            if len(table) != size or not all(0 <= code < after for code in table):
                raise ValueError(f"column {column} has no table from {size} codes to {after}")

    @property
    def columns(self) -> tuple[int, ...]:
        """Columns with other codes that have any bits, ascending."""
        return tuple(sorted(c for c in self.tables if self.fine.widths[c]))

    def is_partial(self, column: int) -> bool:
        """Returns True if a column has codes that name no category."""
        return self.fine.sizes[column] < 1 << self.fine.widths[column]
