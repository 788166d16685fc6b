"""The goals of the engine on two cores, three processes and TLS, judged by the results.

``MP_SPDZ`` has figures of that peer. A goal's figure comes from results on its network (loopback by default) at the
goal's size; a goal without results is left out. MP-SPDZ's figures are those of its C++ replicated rings in the same
setting (three processes, TLS, two cores), measured apart from these runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.engine.measure import Result
from bench.engine.tasks import MALICIOUS, SEMI_HONEST
from bench.networks import LOOPBACK

Find = Callable[[str, int], Result]
Figure = Callable[[Find], float]

_WAN = "wan"
_MILLION = 1_000_000
_SAMPLES = 1 << 15
# Sizes over which the cost of a cell has to be flat, and the largest ratio that counts as flat.
_FLAT_SIZES = (100_000, _MILLION, 10_000_000)
_FLAT = 2.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded figures of MP-SPDZ's replicated ring: seconds, bytes sent per party and unit, rounds where noted."""

    seconds: float
    bytes_a_unit: float
    rounds: int | None = None


MP_SPDZ: Mapping[tuple[str, int, str], Recorded] = {
    ("abs_error", _MILLION, SEMI_HONEST): Recorded(0.118, 18.0, 9),
    # The fastest of its malicious variants: sy-rep-ring, -Z 3 -b 100000.
    ("abs_error", _MILLION, MALICIOUS): Recorded(5.4, 181.0),
    ("box_muller", _SAMPLES, SEMI_HONEST): Recorded(_SAMPLES / 132_000, 1600.0),
}
"""Recorded figures by task, size and mode, on loopback."""


@dataclass(frozen=True, slots=True)
class Goal:
    """An upper limit for ``figure`` of the results, or a lower one with ``at_least``."""

    what: str
    figure: Figure
    limit: float
    peer: str = ""
    at_least: bool = False
    security: str = SEMI_HONEST
    network: str = LOOPBACK


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal with its figure."""

    goal: Goal
    figure: float

    @property
    def met(self) -> bool:
        """True if the figure is on the right side of the limit."""
        if self.goal.at_least:
            return self.figure >= self.goal.limit
        return self.figure <= self.goal.limit


def _spread(find: Find) -> float:
    each = [result.seconds / result.size for result in (find("abs_error", n) for n in _FLAT_SIZES)]
    return max(each) / min(each)


def _bytes(task: str, size: int) -> Figure:
    """Bytes that the mean party sends per cell or sample."""
    return lambda find: find(task, size).bytes_per_party / size


def _peak(task: str, size: int) -> Figure:
    """Growth of memory at the largest party, in bytes per cell or sample."""
    return lambda find: find(task, size).peak_bytes_per_party / size


def _seconds(task: str, size: int) -> Figure:
    return lambda find: find(task, size).seconds


def _rounds(task: str, size: int) -> Figure:
    return lambda find: find(task, size).rounds


def _rate(task: str, size: int) -> Figure:
    return lambda find: find(task, size).per_second


def _choosing(find: Find) -> float:
    return find("select", _MILLION).seconds - find("abs_error", _MILLION).seconds


def _over_floor(task: str, size: int) -> Figure:
    """Seconds divided by the floor's seconds for the same bytes."""
    return lambda find: find(task, size).seconds / find(task, size).floor["seconds"]


def _over_errors(find: Find) -> float:
    over = find("select", _MILLION).over_beside
    if over is None:
        raise KeyError("nothing was measured beside")
    return over


def _over_box_muller(find: Find) -> float:
    return find("discrete_gaussian", _SAMPLES).seconds / find("box_muller", _SAMPLES).seconds


def _row_spread(find: Find) -> float:
    each = [find("count_rows", rows).bytes_per_party / rows for rows in (10_000, 100_000)]
    return max(each) / min(each)


def _in_all(task: str, size: int) -> Figure:
    return lambda find: find(task, size).bytes_per_party


def _peak_in_all(task: str, size: int) -> Figure:
    return lambda find: find(task, size).peak_bytes_per_party


def _microseconds(task: str, size: int) -> Figure:
    return lambda find: find(task, size).seconds / size * 1e6


def _proved(what: str, figure: Figure, limit: float, peer: str = "") -> Goal:
    return Goal(f"malicious: {what}", figure, limit, peer, security=MALICIOUS)


_ERROR, _SELECT = ("abs_error", _MILLION), ("select", _MILLION)
_BOX_MULLER, _DISCRETE = ("box_muller", _SAMPLES), ("discrete_gaussian", _SAMPLES)
_DISTRIBUTED = ("distributed_noise", _SAMPLES)
_COUNT = ("count_rows", 48_842)
_COUNTING = "counting Adult's 48,842 rows into 2.74 million cells"
_EXACT = "discrete Gaussian, sigma 20.9 within 2^-64"
GOALS = (
    Goal("absolute error, 10^6 cells: seconds", _seconds(*_ERROR), 0.1, "0.118"),
    Goal("absolute error, 10^6 cells: seconds over the floor's", _over_floor(*_ERROR), 1.6),
    Goal("select, 250 candidates: seconds over the absolute error's", _over_errors, 1.5),
    Goal("absolute error: bytes a cell and party", _bytes(*_ERROR), 15, "18.0"),
    Goal("absolute error: rounds", _rounds(*_ERROR), 10, "9"),
    Goal("select, 250 candidates: seconds beyond the absolute error", _choosing, 0.1, "0.010"),
    Goal("select: rounds", _rounds(*_SELECT), 30, "126"),
    Goal("select, 250 candidates, 10^6 cells: seconds", _seconds(*_SELECT), 1.5, network=_WAN),
    Goal("Box-Muller: samples a second", _rate(*_BOX_MULLER), 130_000, "132,000", at_least=True),
    Goal("Box-Muller: bytes a sample and party", _bytes(*_BOX_MULLER), 800, "1,600"),
    Goal(f"{_EXACT}: samples a second", _rate(*_DISCRETE), 130_000, at_least=True),
    Goal("discrete Gaussian: bytes a sample and party", _bytes(*_DISCRETE), 100),
    Goal("discrete Gaussian: seconds over those of Box-Muller", _over_box_muller, 1),
    Goal("distributed noise: samples a second", _rate(*_DISTRIBUTED), 130_000, at_least=True),
    Goal(f"{_COUNTING}: seconds", _seconds(*_COUNT), 60),
    Goal(f"{_COUNTING}: bytes a party", _in_all(*_COUNT), 1.3e9),
    Goal(f"{_COUNTING}: peak bytes a party", _peak_in_all(*_COUNT), 2e9),
    Goal("counting, 10^4 to 10^5 rows: bytes a row, dearest over cheapest", _row_spread, _FLAT),
    Goal("absolute error, 10^5 to 10^7: dearest cell over cheapest, in seconds", _spread, _FLAT),
    Goal("absolute error, 10^6: peak bytes a cell and party", _peak(*_ERROR), 60),
    Goal("select, 10^6: peak bytes a cell and party", _peak(*_SELECT), 60),
    _proved("absolute error, 10^6 cells: seconds", _seconds(*_ERROR), 1.0, "5.4"),
    _proved("absolute error: bytes a cell and party", _bytes(*_ERROR), 120, "181"),
    _proved("select, 250 candidates, 10^6 cells: seconds", _seconds(*_SELECT), 1.3),
    _proved("discrete Gaussian: microseconds a sample", _microseconds(*_DISCRETE), 1e6 / 30_000),
    _proved("discrete Gaussian: bytes a sample and party", _bytes(*_DISCRETE), 1024),
)


def _found(
    known: Mapping[tuple[str, str, int, str], Result], goal: Goal, task: str, size: int
) -> Result:
    return known[goal.network, task, size, goal.security]


def judged(results: Sequence[Result]) -> list[Judged]:
    """Returns every goal for which there are results, with its figure."""
    known = {(r.network, r.task, r.size, r.security): r for r in results}
    verdicts = []
    for goal in GOALS:
        try:
            figure = goal.figure(partial(_found, known, goal))
        except KeyError:
            continue
        verdicts.append(Judged(goal, figure))
    return verdicts
