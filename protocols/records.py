"""Records of a verifier, place by place: each sent value, its mask, and the terms that it is the sum of.

Secret: everything. A record keeps references to its shares, and copies nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from protocols.ring import Ring, RingArray, is_blank
from protocols.shares import (
    Grouped,
    LinearMap,
    Origin,
    Origins,
    Placed,
    Reshaped,
    Scaled,
    Share,
    Summed,
)


class Side(Enum):
    """Choice of one of a party's two components."""

    OWN = "own"
    NEXT = "next"

    def of(self, x_sh: Share) -> RingArray:
        """Returns the component."""
        return x_sh.own if self is Side.OWN else x_sh.next


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Record:
    """A reshared value: ``z_sh`` is the sum of the origins, masked by the difference of ``masks_sh``'s components."""

    origins: Origins
    masks_sh: Share
    z_sh: Share


@dataclass(frozen=True, slots=True)
class ValueStructure:
    """Public facts of a value: whether a party has anything to prove of it, and which factors meet.

    ``against`` says for each origin whether left's x and right's y are both non-zero by the protocol, and left's y and
    right's x.
    """

    active: bool
    against: tuple[tuple[bool, bool], ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """Public facts of the values of one ring, of which one party has to prove its part."""

    values: tuple[ValueStructure, ...]

    @classmethod
    def of(
        cls, records: Sequence[Record], left: NDArray[np.bool_], right: NDArray[np.bool_]
    ) -> "Structure":
        """Returns the structure from ``flags`` of a party's component and of the next one."""
        values, at = [], 0
        for record in records:
            count = 2 + 2 * len(record.origins)
            values.append(_structure(record, left[at : at + count], right[at : at + count]))
            at += count
        return cls(tuple(values))


def flags(records: Sequence[Record], side: Side) -> NDArray[np.bool_]:
    """Returns flags of a component, which its holders know, in the order of the records: public, since protocols are.

    For each value: the sent bytes are the mask alone, and there is a mask. For each of its origins: each factor is not
    blank.
    """
    found = []
    for record in records:
        sent, mask = side.of(record.z_sh), side.of(record.masks_sh)
        found += [sent is mask or (is_blank(sent) and is_blank(mask)), not is_blank(mask)]
        for origin in record.origins:
            right = origin.right is not None and not is_blank(side.of(origin.right))
            found += [not is_blank(side.of(origin.left)), right]
    return np.array(found, np.bool_)


def _structure(record: Record, left: NDArray[np.bool_], right: NDArray[np.bool_]) -> ValueStructure:
    against, active = [], not left[0] or bool(right[1])
    for number, origin in enumerate(record.origins, start=1):
        x, y = left[2 * number : 2 * number + 2]
        other_x, other_y = right[2 * number : 2 * number + 2]
        against.append((bool(x and other_y), bool(y and other_x)))
        active |= any(against[-1]) or bool(x and (y or origin.right is None))
    return ValueStructure(active, tuple(against))


def operands(record: Record, side: Side) -> tuple[RingArray, RingArray, RingArray | None]:
    """Returns a component of the factors of each gate of a record of bits, and the terms added to the products, if any.

    Shapes: those of the record's value. Raises ValueError where several products went into one bit.
    """
    shape, products = record.z_sh.shape, [o for o in record.origins if o.right is not None]
    plain = [origin for origin in record.origins if origin.right is None]
    if len(products) == 1 and not products[0].maps:
        x, y = (_as_wide(part, shape) for part in _factors(products[0], side))
    else:
        x, y = _placed_factors(record, products, side)
    if not plain:
        return x, y, None
    terms = [_mapped(origin, record, side.of(origin.left)) for origin in plain]
    return x, y, reduce(np.bitwise_xor, terms)


def _as_wide(term: RingArray, shape: tuple[int, ...]) -> RingArray:
    """Returns ``term``, or a view of it that has the ``shape``."""
    return term if term.shape == shape else np.broadcast_to(term, shape)


def _factors(origin: Origin, side: Side) -> tuple[RingArray, RingArray]:
    if origin.right is None:
        raise ValueError("a linear origin has one factor")
    return side.of(origin.left), side.of(origin.right)


def _mapped(origin: Origin, record: Record, term: RingArray) -> RingArray:
    for step in origin.maps:
        term = step(record.z_sh.ring, term)
    return _as_wide(term, record.z_sh.shape)


def _placed_factors(
    record: Record, products: list[Origin], side: Side
) -> tuple[RingArray, RingArray]:
    """Returns the factors of several products that went to different rows."""
    ring, shape = record.z_sh.ring, record.z_sh.shape
    x, y, taken = ring.zeros(shape), ring.zeros(shape), np.zeros(shape[:1], np.bool_)
    for origin in products:
        if len(origin.maps) != 1 or not isinstance(origin.maps[0], Placed):
            raise ValueError(
                "of bits, one product to a place can be checked, and no sum of products"
            )
        left, right = _factors(origin, side)
        rows = np.broadcast_shapes(left.shape, right.shape)
        here = slice(origin.maps[0].start, origin.maps[0].start + rows[0])
        if taken[here].any():
            raise ValueError("two products of bits went to one place, and only one can be checked")
        taken[here] = True
        x[here], y[here] = left, right
    return x, y


def shapes_of(origin: Origin) -> list[tuple[LinearMap, tuple[int, ...]]]:
    """Returns an origin's maps, each with the shape of its argument."""
    shape = origin.left.shape
    if origin.right is not None:
        shape = np.broadcast_shapes(shape, origin.right.shape)
    steps = []
    for step in origin.maps:
        steps.append((step, shape))
        shape = _shape_after(step, shape)
    return steps


def _shape_after(step: LinearMap, shape: tuple[int, ...]) -> tuple[int, ...]:
    match step:
        case Summed():
            axis = step.axis % len(shape)
            return shape[:axis] + shape[axis + 1 :]
        case Grouped():
            return (*shape[:-1], step.starts.size)
        case Placed():
            return (step.size, *shape[1:])
        case Scaled():
            return shape
        case Reshaped():
            return step.shape


def adjoint(
    step: LinearMap, ring: Ring, shape: tuple[int, ...], coefficients: RingArray
) -> RingArray:
    """Returns the coefficients of a map's terms, of this ``shape``, in a sum of its results with ``coefficients``."""
    match step:
        case Summed():
            return np.broadcast_to(np.expand_dims(coefficients, step.axis), shape)
        case Grouped():
            sizes = np.diff(np.append(step.starts, shape[-1]))
            return np.repeat(coefficients, sizes, axis=-1)
        case Placed():
            return coefficients[step.start : step.start + shape[0]]
        case Scaled():
            return ring.mul(coefficients, ring.encode(step.factor))
        case Reshaped():
            return coefficients.reshape(shape)
