"""A selection's public numbers: its format in fixed point, its specification and the bits that it needs.

Public: everything. ``select`` computes with it on shares, ``costs`` and an auditor without them.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# Units of the public specification; ``mechanisms.scores`` uses the same.
FRACTION_BITS = 6
WEIGHT_BITS = 48
# log2(e) with 20 bits, rounded down: the same mechanism at an epsilon smaller by a factor of at most 1 - 2^-20.
LOG2E_SCALED = 1512775
# What the relative error of the probabilities adds to epsilon, generously: README section 3.
SELECTION_SLACK = 2.0**-17
LOG2E_BITS = 20
UNIFORM_BITS = 64
MAX_CANDIDATES = (1 << 13) - 1
# Candidates compared pairwise at one level of the tournament: more bytes and fewer rounds than a binary one.
GROUP = 16


class SelectSpec(Protocol):
    """The public integers of one selection: t_q = gain_q a_q - offset_q, in units of 2^-28 nats.

    ``sizes`` (G,) cells per candidate; ``answers`` (cells,) in units of 2^-6 counts; ``gains`` and ``offsets`` (G,);
    ``max_rows`` bounds the table's rows.
    """

    @property
    def sizes(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def answers(self) -> NDArray[np.uint32]: ...  # noqa: D102
    @property
    def gains(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def offsets(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def max_rows(self) -> int: ...  # noqa: D102


def bounds(spec: SelectSpec) -> tuple[int, int]:
    """Bits that are kept of the errors a_q, with a sign, and of a signed difference of two scores.

    A candidate's error is at most its counts and answers; its answers may be rounded up by one unit a cell. That
    is below 2^(error bits - 1), and so is, modulo 2^(error bits), the error of counts that are no table's.
    Raises ValueError where an error could reach 2^31, a score 2^62 or a prefix sum of weights 2^127.
    """
    if not len(spec.sizes):
        raise ValueError(f"0 candidates; a selection takes 1 to {MAX_CANDIDATES}")
    largest = max(spec.max_rows << FRACTION_BITS, int(spec.answers.max(initial=0)))
    starts = np.cumsum(spec.sizes) - spec.sizes
    answered = np.add.reduceat(spec.answers, starts, dtype=np.int64)
    if (over := answered > largest + spec.sizes).any():
        raise ValueError(
            f"a candidate's answers add up to {answered[over][0]}; at most {largest} + {spec.sizes[over][0]} fit "
            f"max_rows = {spec.max_rows}"
        )
    return widths(spec.sizes, largest, spec.gains, spec.offsets)


def integer_bits(error_bits: int) -> int:
    """Bits of the counts that decide the signs of errors of so many bits: those that are no fraction."""
    return error_bits - FRACTION_BITS


def widths(
    sizes: NDArray[np.int64], largest: int, gains: Sequence[int], offsets: Sequence[int]
) -> tuple[int, int]:
    """As ``bounds``, whatever the answers are: no sum of a candidate's counts or answers is above ``largest``.

    ``largest`` is in units of 2^-6 counts, and answers may be rounded up. Raises as ``bounds``.
    """
    if not 1 <= len(sizes) <= MAX_CANDIDATES:
        raise ValueError(f"{len(sizes)} candidates; a selection takes 1 to {MAX_CANDIDATES}")
    a_max = 2 * largest + int(sizes.max())
    if a_max >= 1 << 31:
        raise ValueError(
            f"max_rows = {largest >> FRACTION_BITS} is too large: 2 * {largest} + {sizes.max()} has to stay below 2^31"
        )
    error_bits = a_max.bit_length() + 1
    reach = 1 << (error_bits - 1)
    highest = max(gain * reach - offset for gain, offset in zip(gains, offsets, strict=True))
    score_bits = (highest + max(offsets)).bit_length() + 1
    if score_bits > 63:
        raise ValueError(
            f"scores of {score_bits} bits: epsilon or max_rows is too large, 63 bits are supported"
        )
    return error_bits, score_bits
