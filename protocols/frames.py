"""Messages on a connection: frames of at most ``PART_BYTES``, and as many of them as a message needs.

A frame is a label (8 bytes, the program counter), the size of the whole message (8 bytes), and the next part of it:
``PART_BYTES``, or the rest. Parts of one message come in order; frames of other messages may stand between them, so
that a large message holds up no small one, and a party that fails in the middle of one can still send the reason. Label
0 is reserved for the farewell. Sizes are public, payloads secret. Known limits: none on a message's size but memory;
the receiver knows beforehand how large it may be (``exchanger``).
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("<qQ")
PART_BYTES = 1 << 22


def frame_bytes(size: int) -> int:
    """Returns the bytes that a message of ``size`` bytes takes on a connection, headers included."""
    return HEADER.size * max(1, -(-size // PART_BYTES)) + size


@dataclass(slots=True, eq=False, repr=False)
class Message:
    """A message on its way out or in: ``payload`` (size,) uint8, of which ``done`` bytes have been through."""

    label: int
    payload: NDArray[np.uint8]
    done: int = 0

    @property
    def whole(self) -> bool:
        """True when no part is left."""
        return self.done == self.payload.size

    @property
    def header(self) -> bytes:
        """Header of each of its parts."""
        return HEADER.pack(self.label, self.payload.size)

    def next_part(self) -> NDArray[np.uint8]:
        """Returns the next part, counted as done."""
        part = self.payload[self.done : self.done + PART_BYTES]
        self.done += part.size
        return part
