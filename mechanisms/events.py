"""Privacy events: frozen records of releases, independent of how they were sampled and of their cost.

``event_to_dict`` and ``event_from_dict`` are exact over JSON; ``measurement_event`` gives the event of a noisy marginal
for each kind of noise.

All values here are public. Neighbouring tables differ by one row, which changes one cell of each marginal by 1: hence
the defaults of ``sensitivity`` and ``cells``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import ClassVar, Literal, TypeAlias, get_args

NoiseKind: TypeAlias = Literal["discrete-gaussian", "box-muller", "distributed"]
NOISE_KINDS: tuple[NoiseKind, ...] = get_args(NoiseKind)

# Least deviation of a part in the theorem on sums of discrete Gaussians.
SMALLEST_PART = 0.5

# Charge of a choice by 64 random bits (``scores.select_index``) beyond its epsilon; the derivation is there.
GRID_SLACK = 2.0**-21


@dataclass(frozen=True, slots=True)
class GaussianEvent:
    """Counts released under Gaussian noise of deviation ``sigma``, in rows.

    ``sensitivity`` is the largest change of the counts by one row, in Euclidean norm. Raises ``ValueError`` unless both
    are positive and finite.
    """

    kind: ClassVar[str] = "gaussian"
    sigma: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_positive("sensitivity", self.sensitivity)


@dataclass(frozen=True, slots=True)
class DiscreteGaussianEvent:
    """Whole counts released under discrete Gaussian noise: P(z) proportional to exp(-z^2/2 sigma^2).

    ``sensitivity`` is the largest change of the counts by one row, in whole numbers, in Euclidean norm. Raises
    ``ValueError`` unless both are positive and finite.
    """

    kind: ClassVar[str] = "discrete-gaussian"
    sigma: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_positive("sensitivity", self.sensitivity)


@dataclass(frozen=True, slots=True)
class SumOfDiscreteGaussiansEvent:
    """Whole counts released under the sum of ``parts`` discrete Gaussians, each of deviation ``sigma``.

    The parts are those that the adversary does not know. One row changes at most ``cells`` counts, by whole numbers,
    ``sensitivity`` in Euclidean norm. Raises ``ValueError`` for a sigma below 1/2, where no bound is known to us, or
    another number out of range.
    """

    kind: ClassVar[str] = "sum-of-discrete-gaussians"
    sigma: float
    parts: int
    sensitivity: float = 1.0
    cells: int = 1

    def __post_init__(self) -> None:
        for name in ("sigma", "parts", "sensitivity", "cells"):
            check_positive(name, getattr(self, name))
        if self.sigma < SMALLEST_PART:
            raise ValueError(f"sigma = {self.sigma}; it has to be {SMALLEST_PART} or more a part")


@dataclass(frozen=True, slots=True)
class ExponentialEvent:
    """A choice by an ``epsilon``-differentially private exponential mechanism.

    Raises ``ValueError`` unless ``epsilon`` is positive and finite.
    """

    kind: ClassVar[str] = "exponential"
    epsilon: float

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)


@dataclass(frozen=True, slots=True)
class DiscreteLaplaceEvent:
    """Whole counts released under discrete Laplace noise: P(z) proportional to exp(-|z| / scale).

    ``sensitivity`` is the largest change of the counts by one row, in whole numbers, in L1 norm. Raises ``ValueError``
    unless both are positive and finite.
    """

    kind: ClassVar[str] = "discrete-laplace"
    scale: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("sensitivity", self.sensitivity)


Event: TypeAlias = (
    GaussianEvent
    | DiscreteGaussianEvent
    | SumOfDiscreteGaussiansEvent
    | ExponentialEvent
    | DiscreteLaplaceEvent
)
_CLASSES: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        GaussianEvent,
        DiscreteGaussianEvent,
        SumOfDiscreteGaussiansEvent,
        ExponentialEvent,
        DiscreteLaplaceEvent,
    )
}


def event_to_dict(event: Event) -> dict[str, str | float]:
    """Returns an event as ledgers and transcripts write it: its kind and its fields. Exact over JSON."""
    return {"kind": event.kind, **asdict(event)}


def event_from_dict(value: Mapping[str, object]) -> Event:
    """Reads the output of ``event_to_dict``. Raises ``ValueError`` on anything else."""
    cls = _CLASSES.get(str(value.get("kind")))
    if cls is None:
        raise ValueError(f"an event is one of {', '.join(_CLASSES)}")
    numbers = {name: number for name, number in value.items() if name != "kind"}
    if set(numbers) != {field.name for field in fields(cls)}:
        raise ValueError(f"the event {cls.kind} has the fields {[f.name for f in fields(cls)]}")
    whole = {"parts", "cells"}
    for name, number in numbers.items():
        wanted = (int,) if name in whole else (int, float)
        if isinstance(number, bool) or not isinstance(number, wanted):
            raise ValueError(f"{name} of the event {cls.kind} is not a number that fits")
    # The fields were checked above; the class checks their ranges.
    return cls(**numbers)  # type: ignore[arg-type]


def measurement_event(noise: NoiseKind, sigma: float) -> Event:
    """Returns the event of a marginal with noise of deviation ``sigma``, as seen by one corrupt server.

    With ``distributed`` noise that server does not know two parts of variance sigma^2 / 2. Raises ``ValueError`` for
    another kind, or a sigma that the kind does not reach.
    """
    if noise == "box-muller":
        return GaussianEvent(sigma)
    if noise == "discrete-gaussian":
        return DiscreteGaussianEvent(sigma)
    if noise == "distributed":
        return SumOfDiscreteGaussiansEvent(distributed_part(sigma), 2)
    raise ValueError(f"noise = {noise!r}; it is one of {', '.join(NOISE_KINDS)}")


def distributed_part(sigma: float) -> float:
    """Returns the deviation of each server's own noise: sigma / sqrt(2)."""
    return sigma / math.sqrt(2)


def noise_deviation(noise: NoiseKind, sigma: float) -> float:
    """Returns the deviation of the noise on the counts, known and unknown: ``distributed`` has three parts."""
    return sigma * math.sqrt(1.5) if noise == "distributed" else sigma


def check_positive(name: str, value: float) -> None:
    """Raises ``ValueError`` unless ``value`` is positive and finite."""
    # A whole number may exceed the range of a double.
    if not 0 < value <= sys.float_info.max:
        raise ValueError(f"{name} = {value}; it has to be positive and finite")
