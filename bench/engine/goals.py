"""The goals of the engine on two cores, three processes and TLS, and what the results say about them.

Provides ``judged``. A goal's figure comes from loopback results alone, at the size the goal names; a goal whose
results are missing is left out. MP-SPDZ's figures are those of its C++ replicated ring in the same setting (three
processes, TLS, two cores), measured apart from these runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.engine.measure import Result

Find = Callable[[str, int], Result]

_MILLION = 1_000_000
_SAMPLES = 1 << 15
# Where the cost of a cell has to be flat, and what is called flat.
_FLAT_SIZES = (100_000, _MILLION, 10_000_000)
_FLAT = 2.0


@dataclass(frozen=True, slots=True)
class Goal:
    """``figure`` of the results is to be at most ``limit``, or at least where ``at_least``."""

    what: str
    figure: Callable[[Find], float]
    limit: float
    peer: str
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal with its figure."""

    goal: Goal
    figure: float

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of the limit."""
        if self.goal.at_least:
            return self.figure >= self.goal.limit
        return self.figure <= self.goal.limit


def _spread(find: Find) -> float:
    each = [result.seconds / result.size for result in (find("abs_error", n) for n in _FLAT_SIZES)]
    return max(each) / min(each)


GOALS = (
    Goal("absolute error, 10^6 cells: seconds", lambda f: f("abs_error", _MILLION).seconds, 0.1, "0.118"),
    Goal("absolute error: bytes a cell and party", lambda f: _bytes(f("abs_error", _MILLION)), 15, "18.0"),
    Goal("absolute error: rounds", lambda f: f("abs_error", _MILLION).rounds, 10, "9"),
    Goal(
        "select, 250 candidates: seconds beyond the absolute error",
        lambda f: f("select", _MILLION).seconds - f("abs_error", _MILLION).seconds,
        0.1,
        "0.010",
    ),
    Goal("select: rounds", lambda f: f("select", _MILLION).rounds, 120, "126"),
    Goal(
        "Box-Muller: samples a second",
        lambda f: f("box_muller", _SAMPLES).per_second,
        130_000,
        "132,000",
        at_least=True,
    ),
    Goal("Box-Muller: bytes a sample and party", lambda f: _bytes(f("box_muller", _SAMPLES)), 800, "1,600"),
    Goal(
        "discrete Gaussian, sigma 20.9 within 2^-64: samples a second",
        lambda f: f("discrete_gaussian", _SAMPLES).per_second,
        130_000,
        "",
        at_least=True,
    ),
    Goal(
        "discrete Gaussian: bytes a sample and party",
        lambda f: _bytes(f("discrete_gaussian", _SAMPLES)),
        100,
        "",
    ),
    Goal(
        "discrete Gaussian: seconds over those of Box-Muller",
        lambda f: f("discrete_gaussian", _SAMPLES).seconds / f("box_muller", _SAMPLES).seconds,
        1,
        "",
    ),
    Goal(
        "distributed noise: samples a second",
        lambda f: f("distributed_noise", _SAMPLES).per_second,
        130_000,
        "",
        at_least=True,
    ),
    Goal("absolute error, 10^5 to 10^7: dearest cell over cheapest, in seconds", _spread, _FLAT, ""),
    Goal("absolute error, 10^6: peak bytes a cell and party", lambda f: _peak(f("abs_error", _MILLION)), 60, ""),
    Goal("select, 10^6: peak bytes a cell and party", lambda f: _peak(f("select", _MILLION)), 60, ""),
)  # fmt: skip


def _bytes(result: Result) -> float:
    return result.bytes_per_party / result.size


def _peak(result: Result) -> float:
    return result.peak_bytes_per_party / result.size


def judged(results: Sequence[Result]) -> list[Judged]:
    """Every goal that these results can judge."""
    known = {(r.task, r.size): r for r in results if r.network == "loopback"}
    found = []
    for goal in GOALS:
        try:
            figure = goal.figure(lambda task, size: known[task, size])
        except KeyError:
            continue
        found.append(Judged(goal, figure))
    return found
