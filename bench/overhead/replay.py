"""FLAIM's message sizes without any client: a replayed run of the private variant.

``replay`` returns the members, their choices and the model's size, round by round, by the rules of `mechanisms.flaim`
and `mechanisms.pgm.FederatedEstimator` (a target enters the model while the junction tree stays below its share of 80
MB). Choices are drawn by the exponential mechanism on a public score (``Chances``): a client's distance from the model,
which only the client knows, is taken as that of uniform rows. ``payloads`` and ``mean_payload`` are the traffic of the
clients of a round or a run, replayed or real. All values here are public; the randomness comes from a seed. Known
limits: where queries overlap much, the model, and with it the received bytes, differs from seed to seed by a factor of
up to three, as it does from run to run.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.overhead.formula import Payload, round_payload
from mechanisms.accounting import rho, rho_from_epsilon_delta
from mechanisms.domain import Clique
from mechanisms.flaim_client import selectable
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.junction_tree import model_cells
from mechanisms.pgm import CELLS_PER_MB
from mechanisms.workload import Workload
from protocols.sealing import OVERHEAD_BYTES, PUBLIC_BYTES
from secagg import ThreatModel, choose
from secagg.errors import ParameterError
from secagg.parameters import Parameters

LEAST = 3
THREAT = ThreatModel(corrupt=0.05)
"""Threat model of `parties.local.flaim_simulation`, whose dropouts are SecAgg's default."""
_MAX_DRAWS = 10_000
_LEAST_CHANCE = 0.001
"""Smallest chance of a draw to have enough members: a thousand draws for a round are few, a million are not."""
PLAIN_COUNT_BYTES = 4
_HEADER_BYTES, _BRIEF_BYTES, _LAYOUT_BYTES = 10, 39 + PUBLIC_BYTES, 28
_CHOICE_BYTES = 9 + OVERHEAD_BYTES
"""Size in a box, for the key that comes with the brief."""


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """A round: ``choosers`` by candidate, ``model_cells`` of the brief's model; ``one_way`` if columns are summed."""

    members: tuple[int, ...]
    choosers: Mapping[int, tuple[int, ...]]
    model_cells: int
    one_way: bool


def replay(
    workload: Workload,
    settings: FlaimSettings,
    *,
    clients: int,
    rows: int,
    seed: int = 1,
) -> list[ReplayedRound]:
    """Returns rounds 0 to settings.rounds of a run; ``clients`` with ``rows`` each are numbered from 0.

    Raises ValueError if the settings' schedule cannot be made, or as ``check_members``.
    """
    check_members(clients, settings.participation, settings.min_participants)
    generator = np.random.default_rng(seed)
    columns = len(workload.domain.columns)
    schedule = settings.schedule(columns)
    tree, chances = _Tree(workload, settings), Chances(workload, settings, rows).probabilities
    spent = 0.0
    run: list[ReplayedRound] = []
    for number in range(settings.rounds + 1):
        members = _members(generator, clients, settings)
        if number == 0:
            run.append(ReplayedRound(members, {}, 0, True))
            spent += columns * rho(schedule.measurement)
            continue
        tree.grow(min(1.0, spent / settings.rho))
        chosen = np.array([_chosen(generator, chances, tree) for _ in members])
        choosers = {
            int(q): tuple(m for m, mine in zip(members, chosen, strict=True) if mine == q)
            for q in np.unique(chosen)
        }
        tree.measured(list(choosers))
        run.append(ReplayedRound(members, choosers, tree.cells, number > 1))
        spent += rho(schedule.selection) + (1 + columns * (number > 1)) * rho(schedule.measurement)
    return run


def private_settings(
    rounds: int,
    *,
    participation: float,
    max_rows: int,
    grouping: str = "union",
    epsilon: float = 1.0,
    delta: float = 1e-5,
) -> FlaimSettings:
    """Returns the tables' settings: the private variant as in the paper, noise by the server, public sizes."""
    return FlaimSettings.preset(
        "private",
        rho=rho_from_epsilon_delta(epsilon, delta),
        rounds=rounds,
        participation=participation,
        min_participants=LEAST,
        grouping=grouping,
        sizes="public",
        max_client_rows=max_rows,
        iterations=1,
        final_iterations=1,
    )


def check_members(clients: int, participation: float, least: int = LEAST) -> None:
    """Raises ValueError if hardly any draw has ``least`` members, so that drawing again would not end."""
    fewer = math.fsum(
        math.comb(clients, count) * participation**count * (1 - participation) ** (clients - count)
        for count in range(least)
    )
    if 1 - fewer < _LEAST_CHANCE:
        raise ValueError(
            f"participation {participation:g} of {clients} clients: hardly any round would have {least} members; "
            "expected more clients or a larger participation"
        )


def _members(
    generator: np.random.Generator, clients: int, settings: FlaimSettings
) -> tuple[int, ...]:
    while True:
        drawn = np.flatnonzero(generator.random(clients) < settings.participation)
        if len(drawn) >= settings.min_participants:
            return tuple(drawn.tolist())


class Chances:
    """Chances of a client's choices, if its ``rows`` rows were drawn from a model with equally likely values.

    The exponential mechanism on w_q (d_q - tau_q - sqrt(2/pi) sigma n_q): d_q the mean distance of such rows from the
    model, tau_q the mean of that of q's columns. ``probabilities`` (candidates,) do without the model's size limit.
    """

    def __init__(self, workload: Workload, settings: FlaimSettings, rows: int) -> None:
        schedule = settings.schedule(len(workload.domain.columns))
        weights = np.array(workload.weights, float)
        sizes = np.diff(workload.offsets)
        away = dict(zip(workload.candidates, _mean_distances(sizes, rows), strict=True))
        beyond = np.array(
            [far - statistics.fmean(away[name,] for name in clique) for clique, far in away.items()]
        )
        scores = weights * (beyond - math.sqrt(2 / math.pi) * schedule.sigma * sizes)
        may = selectable(workload, settings, np.ones(len(weights), np.bool_))
        # With tau, a row moves two distances.
        exponents = schedule.epsilon * scores / (4 * weights[may].max())
        chances = np.where(may, np.exp(exponents - exponents[may].max()), 0.0)
        self.probabilities: NDArray[np.float64] = chances / chances.sum()


def _mean_distances(sizes: NDArray[np.int64], rows: int) -> list[float]:
    """Mean L1 distance of ``rows`` uniform draws over ``sizes`` cells from their expectation (Poisson's)."""
    distances = []
    for size in sizes.tolist():
        mean = rows / size
        # E|X - m| = 2 e^-m m^(k+1) / k! with k = floor(m), by logarithms.
        whole = math.floor(mean)
        log_term = (whole + 1) * math.log(mean) - mean - math.lgamma(whole + 1)
        distances.append(2 * size * math.exp(log_term))
    return distances


def _chosen(generator: np.random.Generator, chances: NDArray[np.float64], tree: "_Tree") -> int:
    """Draws a choice that fits into the model: others are drawn again."""
    for _ in range(_MAX_DRAWS):
        candidate = int(generator.choice(len(chances), p=chances))
        if tree.allows(candidate):
            return candidate
    raise ValueError("the size limit of the model leaves hardly any candidate")


class _Tree:
    """The sizes of the model as more is measured."""

    def __init__(self, workload: Workload, settings: FlaimSettings) -> None:
        self.cells = 0
        self._workload = workload
        self._max_model_mb = settings.max_model_mb
        self._size: Callable[[Sequence[Clique]], int] = model_cells(workload.domain)
        self._fitting: list[Clique] = [(name,) for name in workload.domain.names]
        self._limit = 0.0
        self._waiting: dict[int, None] = {}
        self._allowed: dict[int, bool] = {}

    def measured(self, candidates: Sequence[int]) -> None:
        """Notes more measured queries."""
        self._waiting |= dict.fromkeys(candidates)

    def grow(self, spent: float) -> None:
        """Takes in what fits when a share ``spent`` of the budget is used."""
        self._limit = self._max_model_mb * spent * CELLS_PER_MB
        before = len(self._fitting)
        for number in list(self._waiting):
            clique = self._workload.candidates[number]
            if self.allows(number):
                if clique not in self._fitting:
                    self._fitting.append(clique)
                    self._allowed = {}
                del self._waiting[number]
        if not self.cells or len(self._fitting) > before:
            self.cells = self._size(self._fitting)
        # A candidate that fitted still fits under a higher limit.
        self._allowed = {q: fits for q, fits in self._allowed.items() if fits}

    def allows(self, candidate: int) -> bool:
        """Returns True if the model stays below the limit with a candidate."""
        if candidate not in self._allowed:
            clique = self._workload.candidates[candidate]
            known = clique in self._fitting
            self._allowed[candidate] = known or self._size([*self._fitting, clique]) <= self._limit
        return self._allowed[candidate]


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a SecAgg session besides its sum: bound on a client's rows, threat model of the graph."""

    max_rows: int
    threat: ThreatModel

    def session(self, clients: int, length: int) -> Parameters:
        """Returns the session's parameters: noise by the server; its room in the ring, at most a bit, is left out."""
        try:
            neighbours, threshold = choose(clients, self.threat)
        except ParameterError:
            # Too few for a graph that withstands the dropouts: the complete graph.
            neighbours, threshold = clients - 1, self.threat.corrupt_clients(clients) + 1
        return Parameters(
            bytes(32),
            clients,
            neighbours,
            threshold,
            threshold + 1,
            length,
            0,
            self.max_rows,
            graph_seed=bytes(32),
        )


def payloads(
    workload: Workload, done: ReplayedRound, grouping: str, terms: Terms
) -> dict[int, Payload]:
    """Returns the traffic of each member of a round, without dropouts."""
    one_way = sum(workload.domain.shape) if done.one_way else 0
    chosen = {client: q for q, clients in done.choosers.items() for client in clients}
    size = {q: workload.offsets[q + 1] - workload.offsets[q] for q in done.choosers}
    base = _brief_and_answer(workload, done) if done.choosers else Payload(0, 0, 0, 0)
    if grouping == "union":
        together = one_way + sum(size.values())
        every = base + _sum(terms, len(done.members), together, len(done.choosers))
        return dict.fromkeys(done.members, every)
    if one_way:
        base += _sum(terms, len(done.members), one_way, 0)
    by_query = {
        q: base + _sum(terms, len(clients), size[q], 1) for q, clients in done.choosers.items()
    }
    return {client: by_query[chosen[client]] if chosen else base for client in done.members}


def brief_bytes(workload: Workload, model_cells: int) -> int:
    """Returns the bytes of a brief with a model of ``model_cells``, exact to a few bytes a column.

    A clique's head is 3 bytes and 2 for each of its columns: as many cliques as columns, of two columns each.
    """
    mask, heads = -(-len(workload.candidates) // 8), 2 + 7 * len(workload.domain.columns)
    return _BRIEF_BYTES + mask + heads + 4 * (model_cells + sum(workload.domain.shape))


def _brief_and_answer(workload: Workload, done: ReplayedRound) -> Payload:
    """Returns the traffic of the brief and of the answer to it."""
    brief = brief_bytes(workload, done.model_cells)
    return Payload(_HEADER_BYTES + _CHOICE_BYTES, _HEADER_BYTES + brief, 1, 1)


def _sum(terms: Terms, clients: int, cells: int, chosen: int) -> Payload:
    """Returns the traffic of a sum over ``clients``: layout and session; below three clients, the counts themselves."""
    layout = Payload(0, _HEADER_BYTES + _LAYOUT_BYTES + 2 * chosen, 0, 1)
    if clients < LEAST:
        box = OVERHEAD_BYTES + PLAIN_COUNT_BYTES * cells
        return layout + Payload(_HEADER_BYTES + box, PUBLIC_BYTES, 1, 0)
    return layout + round_payload(terms.session(clients, cells))


@dataclass(frozen=True, slots=True)
class Mean:
    """Means per client that takes part at all: bytes, rounds, cells of its answered marginals and received models."""

    sent: float
    received: float
    rounds: float
    cells: float
    model_cells: float


def mean_payload(
    workload: Workload, run: Sequence[ReplayedRound], grouping: str, terms: Terms
) -> Mean:
    """Computes the mean over the clients of ``run``."""
    none = Payload(0, 0, 0, 0)
    moved: dict[int, Payload] = {}
    rounds: Counter[int] = Counter()
    cells: Counter[int] = Counter()
    models: Counter[int] = Counter()
    for done in run:
        for client, payload in payloads(workload, done, grouping, terms).items():
            moved[client] = moved.get(client, none) + payload
        rounds.update(done.members)
        for client, answered in answered_cells(workload, done).items():
            cells[client] += answered
            models[client] += done.model_cells
    return Mean(
        statistics.fmean(payload.sent for payload in moved.values()),
        statistics.fmean(payload.received for payload in moved.values()),
        statistics.fmean(rounds.values()),
        statistics.fmean(cells.values()),
        statistics.fmean(models.values()),
    )


def answered_cells(workload: Workload, done: ReplayedRound) -> dict[int, int]:
    """Returns the cells of the marginals that each member answers: its choices, and the columns if they are summed."""
    cells = dict.fromkeys(done.members, sum(workload.domain.shape) if done.one_way else 0)
    for q, clients in done.choosers.items():
        for client in clients:
            cells[client] += workload.offsets[q + 1] - workload.offsets[q]
    return cells
