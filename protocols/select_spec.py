"""Public numbers of a selection: its format in fixed point, its specification and its widths in bits.

All values here are public. ``select`` computes with them on shares, ``costs`` and an auditor without them.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# Units of the public specification; ``mechanisms.scores`` uses the same.
FRACTION_BITS = 6
SCORE_BITS = 28
# Noise is in whole nats from the lowest to the highest, and beyond that a geometric number of them, below 2^7.
NOISE_LOWEST, NOISE_HIGHEST = -3, 20
NOISE_REACH = (NOISE_HIGHEST + 1 + (1 << 7) - NOISE_LOWEST) << SCORE_BITS
"""Largest distance between two samples of noise, in units of scores."""
# Epsilon for the relative error of the probabilities, rounded up generously: README section 3.
SELECTION_SLACK = 2.0**-17
SAMPLE_DISTANCE = 2.0**-141
"""Largest statistical distance of a sample of noise from one of probabilities within that error."""
_USUAL_CANDIDATES = (1 << 13) - 1
MAX_CANDIDATES = 1 << 16
# Largest number of candidates compared all at once; more are compared in groups of 16 first.
ALL_PAIRS = 256
GROUP = 16


class SelectSpec(Protocol):
    """Public integers of one selection: t_q = gain_q a_q - offset_q, in units of 2^-28 nats.

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
    """Returns the bits kept of the errors a_q, with a sign, and of a signed difference of two noisy scores.

    A candidate's error is at most its counts and answers; its answers may be rounded up by one unit a cell. That is
    below 2^(error bits - 1), and so is, modulo 2^(error bits), the error of counts that are no table's. Raises
    ValueError where an error could reach 2^31, or a noisy score 2^62.
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


def selection_distance(candidates: int) -> float:
    """Returns the largest statistical distance of a choice among so many from one of probabilities within the slack.

    It is 2^-128 for up to 8,191 candidates.
    """
    return SAMPLE_DISTANCE * (1 << max(candidates, _USUAL_CANDIDATES).bit_length())


def integer_bits(error_bits: int) -> int:
    """Returns the bits of the counts that decide the signs of errors of so many bits: all but the fraction."""
    return error_bits - FRACTION_BITS


def widths(
    sizes: NDArray[np.int64], largest: int, gains: Sequence[int], offsets: Sequence[int]
) -> tuple[int, int]:
    """Returns ``bounds`` for any answers: no sum of a candidate's counts or answers is above ``largest``.

    ``largest`` is in units of 2^-6 counts, and answers may be rounded up. Only offsets above a gain times an error
    count, so that bits do not depend on answers where offsets do. Raises as ``bounds``.
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
    highest = max(gains) * reach
    score_bits = (highest + max(highest, *offsets) + NOISE_REACH).bit_length() + 1
    if score_bits > 63:
        raise ValueError(
            f"scores of {score_bits} bits: epsilon or max_rows is too large, 63 bits are supported"
        )
    return error_bits, score_bits


def chosen_index(words: NDArray[np.uint64]) -> int:
    """Returns the chosen candidate, from the words (G,) that a selection opened: the chosen one's alone is 0.

    Raises ValueError where it is not so.
    """
    found = np.flatnonzero(words == 0)
    if found.size != 1:
        raise ValueError(
            f"{found.size} of {words.size} candidates have a word that is 0, one was due"
        )
    return int(found[0])
