"""Messages between FLAIM's server and clients in a round, apart from the sums themselves.

A ``Brief`` goes down, with the model to score against; choices go up (``encode_choices``, ``decode_choices``); a
``Layout`` goes down, with the parts of one sum.

All values here are public. A brief is made of released measurements; choices are private by the mechanism that made
them; a layout follows from the choices.

Representation: version 1. Integers and floats of the headers are big-endian; marginals are little-endian 32-bit floats,
columns and candidates 16-bit numbers. Every size is checked against the workload before anything is read, and nothing
may follow.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique, Domain
from mechanisms.errors import FlaimError
from mechanisms.flaim_answers import allowed_answers, candidate_totals
from mechanisms.model import Model
from mechanisms.workload import Workload

VERSION = 1

# A client's rows are below MAX_ROWS, and a candidate's answers sum to at most MAX_TOTAL, twice 2^32: so all arithmetic
# of scores fits into 63 bits.
MAX_ROWS = 1 << 29
MAX_TOTAL = 1 << 33

# Larger noise drowns any table, and no session of secure aggregation has room for it.
MAX_DEVIATION = 2.0**31

_BRIEF = struct.Struct(">BIdddQBB")
_TREE = struct.Struct(">H")
_CLIQUE = struct.Struct(">hB")
_CHOICES = struct.Struct(">BIH")
_LAYOUT = struct.Struct(">BIIIdBH")

# Largest deviation of a marginal's sum from 1 after rounding to 32 bits.
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Brief:
    """The data that a participant scores against in one round.

    Attributes:
        epsilon: of each of its choices.
        sigma: of each of its local measurements.
        penalty: the expected deviation of the noise in a sum.
        rows: a client's estimated rows; 0 if every client uses its declared size.
        allowed: bool (candidates,), the candidates that may be chosen.
        model: the model; None if choices do not depend on one.
        one_way: float64 (cells of all columns,), estimated probabilities of each column's values; None if the score
            does not use them.

    Raises ``FlaimError`` if they do not fit the workload or a number is out of range.
    """

    workload: Workload
    round: int
    epsilon: float
    sigma: float
    penalty: float
    rows: int
    allowed: NDArray[np.bool_]
    model: Model | None
    one_way: NDArray[np.float64] | None

    def __post_init__(self) -> None:
        numbers = (self.epsilon, self.sigma, self.penalty)
        if not all(0 <= number < MAX_DEVIATION for number in numbers):
            raise FlaimError("a brief's epsilon and deviations are below 2^31 and not negative")
        if not (0 <= self.rows < MAX_ROWS and 1 <= self.round < 1 << 31):
            raise FlaimError("a brief's round is below 2^31, its rows are below 2^29")
        if self.allowed.shape != (len(self.workload.candidates),) or not self.allowed.any():
            raise FlaimError("a brief allows at least one of the workload's candidates")
        if self.one_way is not None and self.one_way.shape != (one_way_cells(self.workload),):
            raise FlaimError("a brief's one-way estimates have one number for each column's value")

    @cached_property
    def answers(self) -> NDArray[np.uint32]:
        """Model's answers (workload.cells,) in units of 2^-32, 0 where not allowed; computed once."""
        if self.model is None:
            raise FlaimError("a brief without a model has no answers")
        return allowed_answers(self.workload, self.model, self.allowed)

    @cached_property
    def totals(self) -> NDArray[np.int64]:
        """Sums (candidates,) of each candidate's part of ``answers``. Raises ``FlaimError`` if too large."""
        totals = candidate_totals(self.workload, self.answers)
        # Scores are exact in 63 bits as long as this holds, for any message of the server.
        if totals.max() > MAX_TOTAL:
            raise FlaimError("a brief's model does not give probabilities")
        return totals

    @cached_property
    def one_way_q32(self) -> NDArray[np.uint32]:
        """``one_way`` as an expanded vector (workload.cells,) in units of 2^-32, 0 for larger candidates."""
        if self.one_way is None:
            raise FlaimError("a brief without one-way estimates")
        expanded = np.zeros(self.workload.cells, np.uint32)
        rounded = np.clip(np.rint(self.one_way * 2.0**32), 0, 2.0**32 - 1)
        expanded[: rounded.size] = rounded.astype(np.uint32)
        if candidate_totals(self.workload, expanded).max() > MAX_TOTAL:
            raise FlaimError("a brief's one-way estimates are not probabilities")
        return expanded

    def encode(self) -> bytes:
        """Returns the bytes on the wire."""
        header = _BRIEF.pack(
            VERSION,
            self.round,
            self.epsilon,
            self.sigma,
            self.penalty,
            self.rows,
            self.model is not None,
            self.one_way is not None,
        )
        parts = [header, np.packbits(self.allowed).tobytes()]
        if self.model is not None:
            parts.append(_encode_model(self.model))
        if self.one_way is not None:
            parts.append(self.one_way.astype("<f4").tobytes())
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, workload: Workload) -> Brief:
        """Decodes the output of ``encode``, up to rounding to 32-bit floats. Raises ``FlaimError``."""
        reader = _Reader(data, "brief")
        version, number, epsilon, sigma, penalty, rows, has_model, has_one_way = reader.take(_BRIEF)
        if version != VERSION or has_model > 1 or has_one_way > 1:
            raise FlaimError(f"not a brief of version {VERSION}")
        candidates = len(workload.candidates)
        mask = np.frombuffer(reader.bytes((candidates + 7) // 8), np.uint8)
        if np.unpackbits(mask)[candidates:].any():
            raise FlaimError("a brief allows candidates that do not exist")
        allowed = np.unpackbits(mask, count=candidates).astype(np.bool_)
        model = _decode_model(reader, workload.domain) if has_model else None
        one_way = None
        if has_one_way:
            one_way = _probabilities(reader.floats(one_way_cells(workload)))
        reader.end()
        return cls(workload, number, epsilon, sigma, penalty, rows, allowed, model, one_way)


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of one sum: all one-way marginals if ``one_way``, then those of ``chosen``, ascending.

    ``group`` numbers the sums of a round; ``clients`` is the number of clients asked for it; ``sigma`` is the deviation
    that its noise is charged for. A client adds its counts of the one-way marginals and of its own choices, and zeros
    elsewhere.

    Raises ``FlaimError`` if a number is out of range.
    """

    round: int
    group: int
    clients: int
    sigma: float
    one_way: bool
    chosen: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 < self.sigma < MAX_DEVIATION:
            raise FlaimError("a layout's sigma is positive and below 2^31")
        if any(not 0 <= number < 1 << 31 for number in (self.round, self.group)):
            raise FlaimError("a layout's round and group are below 2^31")
        if not 1 <= self.clients < 1 << 31:
            raise FlaimError("a layout has at least one client")
        if not (self.one_way or self.chosen):
            raise FlaimError("a layout has at least one marginal")
        if any(a >= b for a, b in itertools.pairwise(self.chosen)):
            raise FlaimError("a layout's chosen candidates are ascending")

    def marginals(self, workload: Workload) -> tuple[int, ...]:
        """Returns the candidates of the sum, in their order."""
        return (workload.one_way if self.one_way else ()) + self.chosen

    def cells(self, workload: Workload) -> int:
        """Returns the length of the vector."""
        return sum(workload.offsets[i + 1] - workload.offsets[i] for i in self.marginals(workload))

    def encode(self) -> bytes:
        """Returns the bytes on the wire."""
        header = _LAYOUT.pack(
            VERSION,
            self.round,
            self.group,
            self.clients,
            self.sigma,
            self.one_way,
            len(self.chosen),
        )
        return header + np.array(self.chosen, ">u2").tobytes()

    @classmethod
    def decode(cls, data: bytes, workload: Workload) -> Layout:
        """Decodes the output of ``encode``. Raises ``FlaimError``."""
        reader = _Reader(data, "layout")
        version, number, group, clients, sigma, one_way, count = reader.take(_LAYOUT)
        if version != VERSION or one_way > 1:
            raise FlaimError(f"not a layout of version {VERSION}")
        chosen = reader.candidates(count, workload)
        reader.end()
        return cls(number, group, clients, sigma, bool(one_way), chosen)


def encode_choices(round: int, chosen: tuple[int, ...]) -> bytes:
    """Returns a client's choices of a round, in the order they were made, as bytes."""
    return _CHOICES.pack(VERSION, round, len(chosen)) + np.array(chosen, ">u2").tobytes()


def decode_choices(data: bytes, workload: Workload, *, round: int, count: int) -> tuple[int, ...]:
    """The inverse of ``encode_choices``, for up to ``count`` different choices of ``round``. Raises ``FlaimError``."""
    reader = _Reader(data, "choice")
    version, number, length = reader.take(_CHOICES)
    if version != VERSION or number != round:
        raise FlaimError(f"not the choices of round {round} in version {VERSION}")
    if not 1 <= length <= count:
        raise FlaimError(f"{length} choices; expected 1 to {count}")
    chosen = reader.candidates(length, workload)
    reader.end()
    if len(set(chosen)) < length:
        raise FlaimError("a candidate was chosen twice in one round")
    return chosen


def one_way_cells(workload: Workload) -> int:
    """Returns the total number of values of all columns."""
    return sum(workload.domain.shape)


class _Reader:
    """Reads fields off the front of a message; a message that is too short or too long is an error."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._at = 0

    def bytes(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise FlaimError(f"a {self._name} of {len(self._data)} bytes ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.bytes(layout.size))

    def floats(self, count: int) -> NDArray[np.float64]:
        # A NaN may be a signalling one, of which NumPy would warn; the callers refuse every NaN.
        with np.errstate(invalid="ignore"):
            return np.frombuffer(self.bytes(4 * count), "<f4").astype(np.float64)

    def candidates(self, count: int, workload: Workload) -> tuple[int, ...]:
        if count > len(workload.candidates):
            raise FlaimError(f"a {self._name} names more candidates than there are")
        indices = np.frombuffer(self.bytes(2 * count), ">u2")
        if count and int(indices.max()) >= len(workload.candidates):
            raise FlaimError(f"a {self._name} names a candidate that does not exist")
        return tuple(indices.tolist())

    def end(self) -> None:
        if self._at != len(self._data):
            raise FlaimError(f"{len(self._data) - self._at} bytes follow a {self._name}")


def _encode_model(model: Model) -> bytes:
    """Returns the cliques (parent, columns), then their marginals, in the same order."""
    heads, tables = [_TREE.pack(len(model.cliques))], []
    for clique, parent, marginal in zip(model.cliques, model.parents, model.marginals, strict=True):
        columns = [model.domain.index(name) for name in clique]
        heads.append(_CLIQUE.pack(parent, len(columns)) + np.array(columns, ">u2").tobytes())
        tables.append(marginal.astype("<f4").tobytes())
    return b"".join(heads + tables)


def _decode_model(reader: _Reader, domain: Domain) -> Model:
    (count,) = reader.take(_TREE)
    # A junction forest has no more cliques than columns.
    if not 1 <= count <= len(domain.columns):
        raise FlaimError(f"a model of {count} cliques over {len(domain.columns)} columns")
    cliques: list[Clique] = []
    parents: list[int] = []
    for _ in range(count):
        parent, length = reader.take(_CLIQUE)
        columns = np.frombuffer(reader.bytes(2 * length), ">u2").tolist()
        if not columns or columns[-1] >= len(domain.columns):
            raise FlaimError("a clique of a model names a column that does not exist, or none")
        if any(a >= b for a, b in itertools.pairwise(columns)):
            raise FlaimError("a clique's columns are ascending")
        cliques.append(tuple(domain.names[i] for i in columns))
        parents.append(parent)
    marginals = []
    for clique in cliques:
        marginal = _probabilities(reader.floats(domain.size(clique)))
        if abs((total := float(marginal.sum())) - 1) > _SUM_TOLERANCE:
            raise FlaimError(f"a marginal of a model has the sum {total:g} instead of 1")
        marginals.append((marginal / total).reshape(domain.sizes(clique)))
    try:
        return Model(domain, tuple(cliques), tuple(parents), tuple(marginals))
    except ValueError as error:
        raise FlaimError(f"not a model: {error}") from error


def _probabilities(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns ``values`` if each may be a probability. Raises ``FlaimError``."""
    if not np.isfinite(values).all() or (values < 0).any():
        raise FlaimError("a probability is negative or not a number")
    return values
