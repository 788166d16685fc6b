"""Sums over rows of all products of two one-hots, as counting has them: proved without making the products one by one.

A grid is T = L^T R over rows, for L (a, rows) and R (b, rows) in Z_2^16, of which cells (p, q) are used. With
coefficients rho_p sigma_q of a cell, the sum over the used cells is one of inner products over rows: of the sum of
rho_p L_p over the p whose used q are the same, and the sum of sigma_q R_q over these q. Few sets of q are different:
cells that name no category are those of a column whose digits do not fill it.

Only the prover makes the sums themselves, to say by which multiple of 2^16 they are off. Secret: all but coefficients.
Leaks: none. Source: README section 7; Freivalds (1977) for one coefficient a row and a column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.keystream import Keystream
from protocols.records import Record, Side
from protocols.ring import R16
from protocols.shares import Arranged, Origin, Placed, Scaled, Summed

Words = NDArray[np.uint64]

LIMB_BITS, LIMBS = 16, 3
"""Coefficients, and what is made with them, are modulo 2^48."""
_MASK = np.uint64((1 << LIMB_BITS * LIMBS) - 1)
_CHUNK = 1 << 12


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Grid:
    """The products of one pair of one-hots, in blocks of rows: ``used`` (a, b), and where its cells come in a record.

    ``cells`` are places in the flattened table, one for each of the record's values from ``start`` on, and ``scale`` is
    what sums are multiplied with.
    """

    origins: tuple[Origin, ...]
    shape: tuple[int, int]
    cells: NDArray[np.intp]
    start: int
    scale: int

    @property
    def rows(self) -> int:
        """Rows of all blocks."""
        return sum(origin.left.shape[-1] for origin in self.origins)

    @property
    def combined_rows(self) -> int:
        """Rows of combined one-hots: those of all blocks, for each pattern."""
        return self.rows * len(self.patterns()[0])

    def factors(self, side: Side) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint16]]]:
        """A component of L (a, rows) and R (b, rows), block by block."""
        for origin in self.origins:
            if origin.right is not None:
                left, right = side.of(origin.left), side.of(origin.right)
                yield left.reshape(self.shape[0], -1), right.reshape(self.shape[1], -1)

    def patterns(self) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """The different sets of used columns (g, b), and which one each row has (a,)."""
        used = np.zeros(self.shape[0] * self.shape[1], np.bool_)
        used[self.cells] = True
        found, which = np.unique(used.reshape(self.shape), axis=0, return_inverse=True)
        return found, which.reshape(-1)

    def sums(self) -> Words:
        """L_i (R_i + R_{i+1})^T + L_{i+1} R_i^T of the prover's components, modulo 2^64, in the record's order.

        A block's sums are below 2^53, where float64 is exact.
        """
        table = np.zeros(self.shape, np.uint64)
        for (x, y), (next_x, next_y) in zip(
            self.factors(Side.OWN), self.factors(Side.NEXT), strict=True
        ):
            own = x.astype(np.float64) @ (y.astype(np.float64) + next_y).T
            table += (own + next_x.astype(np.float64) @ y.astype(np.float64).T).astype(np.uint64)
        scaled: Words = table.reshape(-1)[self.cells] * np.uint64(self.scale % (1 << 64))
        return scaled


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Weights:
    """The coefficients of a grid's rows and columns: ``rho`` (g, a) and ``sigma`` (g, b), zero outside of a pattern."""

    rho: Words
    sigma: Words

    @classmethod
    def draw(cls, grid: Grid, stream: Keystream) -> "Weights":
        """The stream's next ones."""
        a, b = grid.shape
        drawn = stream.read(8 * (a + b)).view(np.uint64) & _MASK
        patterns, which = grid.patterns()
        rho = np.where(which == np.arange(len(patterns))[:, None], drawn[:a], np.uint64(0))
        return cls(rho, np.where(patterns, drawn[a:], np.uint64(0)))

    def of_cells(self, grid: Grid) -> Words:
        """The cells' coefficients, in the record's order."""
        rho, sigma = self.rho.sum(axis=0), self.sigma.max(axis=0)
        p, q = np.divmod(grid.cells, grid.shape[1])
        coefficients: Words = (rho[p] * sigma[q]) & _MASK
        return coefficients

    def combined(self, grid: Grid, side: Side) -> "Combined":
        """L's rows and R's rows of a component, combined: (g rows,) each, modulo 2^48; R's with the scale."""
        parts = [(_combined(self.rho, x), _combined(self.sigma, y)) for x, y in grid.factors(side)]
        left, right = (np.concatenate(blocks, axis=1) for blocks in zip(*parts, strict=True))
        scaled = right * np.uint64(grid.scale % (1 << 64)) & _MASK
        return Combined(left.reshape(-1), scaled.reshape(-1))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Combined:
    """Combined rows of a component of L and of R: (n,) each. Secret."""

    left: Words
    right: Words

    @staticmethod
    def joined(parts: "Sequence[Combined]") -> "Combined":
        """Those of several grids, one after the other."""
        return Combined(
            np.concatenate([part.left for part in parts]),
            np.concatenate([part.right for part in parts]),
        )


def _combined(weights: Words, values: NDArray[np.uint16]) -> Words:
    """weights (g, a) times values (a, n) modulo 2^48, limb by limb of the weights."""
    g, n = weights.shape[0], values.shape[1]
    limbs = weights[:, :, None] >> np.arange(0, LIMB_BITS * LIMBS, LIMB_BITS, dtype=np.uint64)
    rows = (limbs & np.uint64((1 << LIMB_BITS) - 1)).transpose(2, 0, 1).reshape(LIMBS * g, -1)
    matrix = rows.astype(np.float64)
    found = np.empty((g, n), np.uint64)
    for start in range(0, n, _CHUNK):
        part = values[:, start : start + _CHUNK].astype(np.float64)
        low, middle, high = (matrix @ part).astype(np.uint64).reshape(LIMBS, g, -1)
        total = low + (middle << np.uint64(LIMB_BITS)) + (high << np.uint64(2 * LIMB_BITS))
        found[:, start : start + _CHUNK] = total & _MASK
    return found


def is_grid(origin: Origin) -> bool:
    """Whether an origin is the products of two one-hots, summed over rows, and then scaled, arranged and placed."""
    if origin.right is None or origin.left.ring is not R16 or not origin.maps:
        return False
    left, right, first = origin.left.shape, origin.right.shape, origin.maps[0]
    if not isinstance(first, Summed) or first.axis not in (-1, 2) or len(left) != 3:
        return False
    same = len(right) == 3 and left[1] == right[0] == 1 and left[2] == right[2]
    rest = [type(step) for step in origin.maps[1:]]
    return same and rest in ([Scaled, Arranged, Placed], [Arranged, Placed], [Arranged])


def grids_of(record: Record) -> list[Grid]:
    """A record's grids: the origins that have the same cells are blocks of rows of one grid.

    Raises ValueError where a grid does not use each of its cells at most once.
    """
    blocks: dict[tuple[object, ...], list[Origin]] = {}
    for origin in record.origins:
        if is_grid(origin):
            blocks.setdefault(_key(origin), []).append(origin)
    return [_grid(origins) for origins in blocks.values()]


def _key(origin: Origin) -> tuple[object, ...]:
    """What blocks of one grid have in common. A grid's blocks are arranged by the same function."""
    right = () if origin.right is None else origin.right.shape[:2]
    key: list[object] = [origin.left.shape[:2], right]
    for step in origin.maps[1:]:
        match step:
            case Scaled():
                key.append(step.factor)
            case Arranged():
                key.append(step.arrange)
            case Placed():
                key.append((step.start, step.size))
    return tuple(key)


def _grid(origins: Sequence[Origin]) -> Grid:
    first = origins[0]
    if first.right is None:
        raise ValueError("a grid has two factors")
    shape = first.left.shape[0], first.right.shape[1]
    scale, start, cells = 1, 0, np.arange(shape[0] * shape[1])
    for step in first.maps[1:]:
        match step:
            case Scaled():
                scale = step.factor
            case Arranged():
                cells = np.asarray(step.arrange(cells.reshape(shape))).reshape(-1)
            case Placed():
                start = step.start
    if np.unique(cells).size != cells.size:
        raise ValueError("a grid whose cells count several times cannot be proved")
    return Grid(tuple(origins), shape, cells, start, scale)
