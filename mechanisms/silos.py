"""Rounds of exact sums: the interface of algorithms that run between a server and its silos.

A ``Request`` asks for a ``Sum``; ``Silos`` and ``Silo`` are the two sides; ``Noise`` is that of a sum. ``InProcess``
runs all silos in one process.

An algorithm is a coroutine of the server that awaits sums and reads like its paper, and a silo that answers:

    async def run(settings, silos):                     class MySilo:
        means = await silos.sum(Request(MEANS, ...))        def answer(self, request): ...
        ...                                                 def finish(self, payload): ...

Every answer is a vector of whole numbers between bounds that all sides know (`mechanisms.fixed_point` encodes real
numbers so). The transport of the requests (`parties.federation`) shows the server the sum over the survivors and
nothing else. Requests are public, and a silo does not trust them: it compares each with its own settings and charges
its own ledger before it uses its rows.

Answers, and sums before their noise, are secret. Known limits: ``InProcess`` holds everything in one process; its noise
has deviations below 2^20 units.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger
from mechanisms.errors import RequestRefused, RoundLost
from mechanisms.events import DiscreteGaussianEvent, Event, SumOfDiscreteGaussiansEvent
from mechanisms.exact_noise import discrete_gaussian_noise
from mechanisms.sampling import RandomBytes

MAX_STEP_BYTES = 64
MAX_PAYLOAD_BYTES = 1 << 26
MAX_LENGTH = 1 << 24
MAX_VALUE = 1 << 52
# Below it a sum of discrete Gaussians is far from a single one, and sessions of secure aggregation refuse it.
LEAST_PART_VARIANCE = Fraction(9, 4)

NoiseMaker: TypeAlias = Literal["server", "distributed"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Discrete Gaussian noise, in units of the whole numbers that are summed.

    With ``maker`` server, the server adds one sample of ``variance`` to the sum, which it sees without noise. With
    distributed, every silo adds one of ``variance`` to its answer, before masking. Raises ``ValueError`` for noise that
    cannot be sampled.
    """

    maker: NoiseMaker
    variance: Fraction

    def __post_init__(self) -> None:
        if self.maker not in get_args(NoiseMaker):
            raise ValueError(f"noise by {self.maker!r}; it is one of {get_args(NoiseMaker)}")
        least = LEAST_PART_VARIANCE if self.maker == "distributed" else Fraction(0)
        if self.variance <= 0 or self.variance < least:
            raise ValueError(
                f"{self.maker} noise of variance {float(self.variance):.3g}; expected a positive one, and "
                f"{float(LEAST_PART_VARIANCE)} at least of each silo: a finer grid, or more noise"
            )

    def deviation(self, survivors: int) -> float:
        """Returns the deviation of the noise in a sum over ``survivors``, in units."""
        parts = survivors if self.maker == "distributed" else 1
        return math.sqrt(parts * self.variance)


def sum_noise(
    maker: NoiseMaker, sigma: float, *, sensitivity: float, cells: int, honest: int
) -> tuple[Noise, Event]:
    """Returns noise of deviation ``sigma`` in a sum, and the event that it is charged as; everything in units.

    One row moves at most ``cells`` numbers of the sum, by ``sensitivity`` in Euclidean norm. ``honest`` is the number
    of survivors that certainly do not collude with the server; if each silo adds its part, theirs alone reach
    ``sigma``. Raises ``ValueError`` for numbers out of range.
    """
    if not (sigma > 0 and math.isfinite(sigma)) or honest < 1:
        raise ValueError(f"sigma = {sigma}, {honest} honest silos; expected both positive")
    parts = honest if maker == "distributed" else 1
    # A short fraction keeps exact sampling fast; rounding up only adds noise.
    variance = Fraction(math.ceil(Fraction(sigma) ** 2 / parts * 1024), 1024)
    noise = Noise(maker, variance)
    if maker == "server":
        return noise, DiscreteGaussianEvent(sigma, sensitivity)
    # The account's deviation is below the sampler's.
    part = math.nextafter(math.sqrt(variance), 0.0)
    return noise, SumOfDiscreteGaussiansEvent(part, honest, sensitivity, cells)


@dataclass(frozen=True, slots=True)
class Request:
    """A sum that the server requests: public, and the same for every silo.

    ``step`` is a named constant of the algorithm, ``payload`` its data (JSON, or ``fixed_point.pack_arrays``), the
    answer ``length`` whole numbers in [``low``, ``high``], before ``noise``. ``event`` is charged per row before any
    silo is asked; None if answers are private by themselves, or nothing is private. Raises ``ValueError`` out of range.
    """

    step: str
    payload: bytes
    length: int
    low: int
    high: int
    noise: Noise | None = None
    event: Event | None = None

    def __post_init__(self) -> None:
        size = len(self.step.encode())
        if not (1 <= size <= MAX_STEP_BYTES and self.step.isprintable()):
            raise ValueError(f"a step's name of {size} bytes; expected 1 to {MAX_STEP_BYTES}")
        if len(self.payload) > MAX_PAYLOAD_BYTES or not 1 <= self.length <= MAX_LENGTH:
            raise ValueError(
                f"a payload of {len(self.payload)} bytes for {self.length} values; expected at most "
                f"{MAX_PAYLOAD_BYTES}, and 1 to {MAX_LENGTH} values"
            )
        if not -MAX_VALUE <= self.low < self.high <= MAX_VALUE:
            raise ValueError(
                f"values in [{self.low}, {self.high}]; expected low < high, both within 2^52"
            )

    def check(self, expected: Request) -> None:
        """Checks, at a silo, that this request is the one its own settings expect, apart from the payload.

        Raises ``RequestRefused``.
        """
        for what in ("step", "length", "low", "high", "noise", "event"):
            theirs, ours = getattr(self, what), getattr(expected, what)
            if theirs != ours:
                raise RequestRefused(
                    f"{self.step!r}: {what} is {theirs!r}; expected {ours!r}, by this silo's settings"
                )


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """The sum int64 (length,) of the answers of ``survivors`` (numbers of silos, ascending), with its noise."""

    values: NDArray[np.int64]
    survivors: tuple[int, ...]


class Silos(Protocol):
    """The silos as the server's algorithm sees them."""

    @property
    def count(self) -> int:
        """Number of silos of the run, present or not; they are numbered 0 to ``count`` - 1."""

    async def sum(self, request: Request) -> Sum:
        """Returns the sum over the silos that stay to its end.

        Raises ``RoundLost``, with nothing opened, if they are too few.
        """

    async def finish(self, payload: bytes) -> None:
        """Sends the run's public result to all present silos, as the last message."""


class Silo(Protocol):
    """One silo's side. Called from one thread at a time."""

    @property
    def own_charges(self) -> int:
        """Number that grows with each new answer which the silo charges to an account of its own.

        Answers that are charged to the ledger that the silo was given are not counted here.
        """
        return 0

    def answer(self, request: Request) -> NDArray[np.int64]:
        """Returns the silo's numbers, int64 (request.length,), within the request's bounds, without its noise.

        Raises ``RequestRefused`` if its settings do not expect this request now; ``BudgetExceeded`` if it cannot be
        paid for. The silo then leaves the run.
        """

    def finish(self, payload: bytes) -> None:
        """Takes the run's result. Raises ``RequestRefused`` if it is invalid."""


def checked_answer(silo: Silo, request: Request) -> NDArray[np.int64]:
    """Returns ``silo.answer`` after checking its form. Raises ``ValueError``, without a value, for a wrong answer."""
    values = silo.answer(request)
    if values.shape != (request.length,) or values.dtype != np.int64:
        raise ValueError(
            f"{request.step!r}: an answer of {values.dtype} {values.shape}; expected int64 ({request.length},)"
        )
    if int(values.min()) < request.low or int(values.max()) > request.high:
        raise ValueError(f"{request.step!r}: an answer outside of [{request.low}, {request.high}]")
    return values


class InProcess:
    """``Silos`` in this process, for tests and measurements: exact sums, and the noise of the deployed ones.

    ``drops`` has the silos missing from each sum, by the sum's number, 0 first. With fewer than ``min_survivors`` a sum
    is lost. ``sums`` counts the sums. Each is charged to ``ledger``, if there is one, as a deployed server does.
    """

    def __init__(
        self,
        silos: Sequence[Silo],
        *,
        min_survivors: int = 1,
        drops: Mapping[int, Collection[int]] | None = None,
        ledger: Ledger | None = None,
        random_bytes: RandomBytes = secrets.token_bytes,
    ) -> None:
        self.sums = 0
        self._ledger = ledger
        self._silos = tuple(silos)
        self._min_survivors = min_survivors
        self._drops = drops or {}
        self._random_bytes = random_bytes

    @property
    def count(self) -> int:
        """See ``Silos``."""
        return len(self._silos)

    async def sum(self, request: Request) -> Sum:
        """See ``Silos``."""
        missing, number = self._drops.get(self.sums, ()), self.sums
        self.sums += 1
        if self._ledger is not None and request.event is not None:
            self._ledger.charge(number, request.step, request.event)
        survivors = tuple(i for i in range(self.count) if i not in missing)
        if len(survivors) < self._min_survivors:
            raise RoundLost(
                f"{request.step!r}: {len(survivors)} silos are left; expected {self._min_survivors} at least"
            )
        total = np.zeros(request.length, np.int64)
        for i in survivors:
            total += await asyncio.to_thread(checked_answer, self._silos[i], request)
        if (noise := request.noise) is not None:
            sigma = math.nextafter(math.sqrt(noise.variance), math.inf)
            for _ in survivors if noise.maker == "distributed" else range(1):
                total += discrete_gaussian_noise(self._random_bytes, sigma, request.length)
        return Sum(total, survivors)

    async def finish(self, payload: bytes) -> None:
        """See ``Silos``."""
        for silo in self._silos:
            await asyncio.to_thread(silo.finish, payload)
