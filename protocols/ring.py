"""The rings of shares: Z_2^16, Z_2^32 and Z_2^64 on machine words, Z_2^128 on Python integers, and bits.

One class serves all of them, so that sharing, resharing and opening are written once. Wrap-around is the arithmetic of
the ring and intended; conversions from and to signed values happen in ``encode`` and ``decode`` only. ``R128`` is for
the few hundred values of a selection, not for cells. Nothing here is secret or public by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# An array of ring elements: uint16, uint32, uint64, or object (Python integers reduced mod 2^128).
RingArray: TypeAlias = NDArray[Any]

_LOW_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Ring:
    """Z_2^bits with + and *, or words of 64 bits with XOR as + and AND as * if ``boolean`` is set.

    ``wide`` rings keep Python integers in object arrays. ``itemsize`` is the number of bytes of an element on the wire,
    ``dtype`` the NumPy type of an array of elements.
    """

    name: str
    bits: int
    boolean: bool = False
    wide: bool = field(init=False)
    itemsize: int = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        if self.bits not in (16, 32, 64, 128):
            raise ValueError(f"ring of {self.bits} bits: 16, 32, 64 and 128 are supported")
        wide, itemsize = self.bits > 64, self.bits // 8
        # Looked up for every operation, hence not properties.
        object.__setattr__(self, "wide", wide)
        object.__setattr__(self, "itemsize", itemsize)
        object.__setattr__(self, "dtype", np.dtype(object if wide else f"<u{itemsize}"))

    def reduce(self, x: RingArray) -> RingArray:
        """Brings wide elements back into [0, 2^bits); machine words do it by themselves."""
        # NumPy turns results without dimensions into scalars; asarray turns them back.
        array = np.asarray(x, dtype=self.dtype)
        if self.wide:
            return np.asarray(np.bitwise_and(array, (1 << self.bits) - 1), dtype=self.dtype)
        return array

    def add(self, x: RingArray, y: RingArray, *, out: RingArray | None = None) -> RingArray:
        """Returns x + y in the ring (XOR for bits); ``out`` may be overwritten with it."""
        return self.reduce((np.bitwise_xor if self.boolean else np.add)(x, y, out=out))

    def sub(self, x: RingArray, y: RingArray, *, out: RingArray | None = None) -> RingArray:
        """Returns x - y in the ring (XOR for bits); ``out`` may be overwritten with it."""
        return self.reduce((np.bitwise_xor if self.boolean else np.subtract)(x, y, out=out))

    def mul(self, x: RingArray, y: RingArray, *, out: RingArray | None = None) -> RingArray:
        """Returns x * y in the ring (AND for bits); ``out`` may be overwritten with it."""
        return self.reduce((np.bitwise_and if self.boolean else np.multiply)(x, y, out=out))

    def zeros(self, shape: tuple[int, ...]) -> RingArray:
        """Returns zeros of the given shape."""
        return np.zeros(shape, dtype=self.dtype)

    def blank(self, shape: tuple[int, ...]) -> RingArray:
        """Returns read-only zeros of the given shape that take no memory; ``is_blank`` recognises them."""
        return np.broadcast_to(self.zeros(()), shape)

    def encode(self, values: RingArray | Sequence[int] | int) -> RingArray:
        """Returns signed integers as ring elements, two's complement; words are taken as they are for bits."""
        if self.wide:
            return self.reduce(np.asarray(values, dtype=object))
        array = np.asarray(values)
        if array.dtype == object:
            # NumPy turns a result without dimensions into an integer; asarray turns it back.
            array = np.asarray(np.bitwise_and(array, (1 << self.bits) - 1), dtype=object)
        return array.astype(self.dtype, copy=False)

    def decode(self, x: RingArray) -> RingArray:
        """Returns ring elements as signed integers in [-2^(bits-1), 2^(bits-1))."""
        if self.wide:
            half = 1 << (self.bits - 1)
            signed: RingArray = np.bitwise_and(x + half, (1 << self.bits) - 1) - half
            return signed
        return x.view(np.dtype(f"<i{self.itemsize}"))

    def to_wire(self, x: RingArray) -> NDArray[np.uint8]:
        """Returns the bytes of an array, little-endian, C order; a view where the array allows it."""
        if self.wide:
            words = np.empty((x.size, 2), dtype="<u8")
            words[:, 0] = np.bitwise_and(x.ravel(), _LOW_64)
            words[:, 1] = np.right_shift(x.ravel(), 64)
            return words.reshape(-1).view(np.uint8)
        return np.ascontiguousarray(x).reshape(-1).view(np.uint8)

    def from_wire(self, raw: NDArray[np.uint8], shape: tuple[int, ...]) -> RingArray:
        """Returns an array of its bytes: the inverse of ``to_wire``; the caller has checked the length."""
        if self.wide:
            words = raw.view("<u8").reshape(-1, 2).astype(object)
            joined: RingArray = words[:, 0] + (words[:, 1] << 64)
            return joined.reshape(shape)
        return raw.view(self.dtype).reshape(shape)


def is_blank(x: RingArray) -> bool:
    """Returns True for ``Ring.blank`` and parts of it: zeros known to all parties, by the protocol alone."""
    if x.ndim == 0 or any(x.strides) or x.flags.writeable:
        return False
    return x.size == 0 or not x[(0,) * x.ndim]


R16 = Ring("Z_2^16", 16)
R32 = Ring("Z_2^32", 32)
R64 = Ring("Z_2^64", 64)
R128 = Ring("Z_2^128", 128)
BITS = Ring("bits", 64, boolean=True)
