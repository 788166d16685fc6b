"""Resource estimate of a run before it begins: bytes, memory, seconds, model size, and noise in a cell.

``estimate_resources`` computes a ``ResourceEstimate``, ``cell_noise`` the noise beside the expected counts. Bytes
follow from formulas (`protocols.costs`): exact for a participant, an upper bound for servers, since the selections are
not known. Memory and seconds are measurements that were made once and are scaled with the number of cells; ``BASIS``
states the method and the possible error.

``usual_growth`` estimates the growth of the model while the selections are unknown. Of the rounds that join columns,
each adds a pair of two parts, drawn at random. Of the following rounds, three of four add a new query, and every
fourth measures one again that is in the model: at epsilon 1, with the columns of drafts, 25 of 27 were new on Adult, 15
of 20 on Census, 22 of 29 on School, 12 of 16 on Body performance, 13 of 19 on Magic, 8 of 11 on Marketing. A query that
would make the model larger than the round permits is not added. Without rounds that join columns, each adds one.

All values here are public; they depend on the configuration, the plan, and assumptions about rows and networks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TypeVar

import numpy as np

from mechanisms.accounting import Schedule
from mechanisms.choosing import joining
from mechanisms.domain import Clique
from mechanisms.events import noise_deviation
from mechanisms.junction_tree import model_cells
from mechanisms.pgm import CELLS_PER_MB
from mechanisms.remaining_error import remaining_error
from mechanisms.resolving import usual_stand_in
from mechanisms.sampling import public_generator
from mechanisms.workload import Workload
from parties.config import CELLS, MALICIOUS, NO_CHECK, Config, RunSection
from parties.mpc.estimation import LEAD, estimate_bytes
from parties.mpc.inputs import form_for
from parties.mpc.inputs.rows import counting_plan
from parties.mpc.planning.budget import security_bits
from parties.mpc.planning.counting_cost import link_cost, link_memory, link_seconds, max_joined_rows
from parties.mpc.planning.upload_size import UploadSize
from parties.mpc.planning.validation import (
    owner_memory,
    selectable_candidates,
    selection_bounds,
    sizes_of,
)
from parties.mpc.steps import CLIENTS_CHECK, CLIENTS_COMPARE, DIGEST_BYTES, BatchFacts, CheckFacts
from parties.mpc.submission.sealed_upload import UploadSizes
from parties.session.study import Study
from protocols.costs import Cost, count_proofs, dearest_counts, with_verifier
from protocols.measure import noise_of
from protocols.steps import (
    MEASURE_NOISE,
    MEASURE_OPEN,
    OF_COUNTING,
    SELECT_CHOOSE,
    SELECT_SCORES,
    Counting,
    Measurement,
    Selection,
    Step,
)
from protocols.supply import lacking

_AGAIN = 4
USUAL_SHARE = 1 / 3
"""Share of the limit at which usual growth ends.

Random pairs make larger models than chosen ones do on some tables (48 MB instead of 0.08 on Body performance, and of
2.3 on Magic), and smaller ones on others (33 instead of 69 on Adult). At a third of the default limit the lead's memory
is within a factor of two of the least and of the most.
"""
_STAGES = 12
"""Number of models whose size is computed; between two of them, the size is interpolated linearly."""


@dataclass(frozen=True, slots=True)
class GrowthStage:
    """Model after a round: number of measured sets of columns, and number of cells."""

    targets: int
    cells: float


def usual_growth(
    workload: Workload, plan: Schedule, rounds: int, *, limit_mb: float
) -> list[GrowthStage]:
    """Typical models after rounds 0 to ``rounds``, with a size limit of ``limit_mb``."""
    draw = public_generator(0)
    sizes = model_cells(workload.domain)
    columns = len(workload.domain.names)
    several = [i for i, q in enumerate(workload.candidates) if len(q) > 1 and workload.weights[i]]
    order = [several[index] for index in draw.permutation(len(several))]
    measured = list(workload.one_way)
    cells = [float(sizes([workload.candidates[i] for i in measured]))]
    counts, looked = [columns], [0]
    every = max(1, rounds // _STAGES)
    left = list(order)
    for round in range(1, rounds + 1):
        finer = round - plan.tree_rounds
        again = plan.adaptive and finer > 0 and finer % _AGAIN == 0
        if finer <= 0:
            # A pair of columns that are joined stays so: each round looks only at those after the last one's.
            left = joining(workload, left, measured)
        new = [] if again else order if finer > 0 else left
        if new:
            measured.append(new[0])
            order.remove(new[0])
            left = left[1:]
        if round % every == 0 or round == rounds:
            share = min(plan.spent_after(round) / plan.rho, USUAL_SHARE)
            limit = limit_mb * CELLS_PER_MB * share
            size = float(sizes([workload.candidates[i] for i in measured]))
            while size > limit and len(measured) > counts[looked[-1]]:
                measured.pop()
                size = float(sizes([workload.candidates[i] for i in measured]))
            cells.append(size)
            looked.append(round)
        counts.append(len(measured))
    return [
        GrowthStage(count, _between(looked, cells, round)) for round, count in enumerate(counts)
    ]


def _between(rounds: Sequence[int], cells: Sequence[float], round: int) -> float:
    index = next(i for i, looked in enumerate(rounds) if looked >= round)
    if rounds[index] == round:
        return cells[index]
    share = (round - rounds[index - 1]) / (rounds[index] - rounds[index - 1])
    return cells[index - 1] + share * (cells[index] - cells[index - 1])


Facts = TypeVar("Facts")

_FINER_ROUNDS = 24
"""Typical number of rounds of an annealed run after its tree: 9 to 33 on five tables at epsilon 1."""
_DROWNED_RATIO = 1.5
"""Error above which noise leaves next to nothing visible, of at most 2, the maximum difference of two tables."""

SERVER_BYTES, SERVER_BYTES_A_CELL = 120e6, 45
COUNTING_BYTES, PROVED_COUNTING_BYTES, LEAD_BYTES = 80e6, 800e6, 100e6
"""Additional memory in bytes of servers that count rows, of servers that prove the counting, and of the lead."""
MODEL_TABLES = 10
"""Number of tables of a model's size that a fit holds at once."""
PAYLOAD_BYTES_S = 70e6
ANSWER_S_A_CELL = 130e-9
OWNER_S, OWNER_S_A_CELL = 0.01, 100e-9
ITERATION_S_A_TARGET, ITERATION_S_A_CELL = 25e-6, 1.5e-9
"""Seconds of one step of a fit, for each measured set of columns, and for each cell of the model."""
MODEL_S_A_CELL = 200e-9
"""Seconds a round for each cell of the model: its marginals, and its answers to all queries."""
CANDIDATE_S = 3e-4
"""Seconds a round for each candidate: its size in the model, its answers, and its remaining error."""
STEP_S = 0.055
"""Seconds of a selection and of a measurement beside their messages."""
START_S, WRITE_S, WRITE_S_A_QUERY, WRITE_S_A_CELL = 1.0, 2.5, 0.02, 0.8e-6
"""Seconds of the start, and of what is written at the end: reports on all queries, the model and its rows."""
BATCHES = 25
"""Number of batches if participants come one after the other: 100 of them took 12 to 26 batches."""
BASIS = (
    "Memory was measured with 9 and 30 million cells and is within a fifth. Seconds are those of three servers on two "
    "cores of one machine (70 MB of messages a second and server, 130 ns a cell for a model's answers, 200 ns a cell "
    "of the model and round, 1.5 ns a cell and iteration) and may be twice as long or half, or otherwise where what is "
    "chosen makes the model grow otherwise than most do."
)


@dataclass(frozen=True, slots=True)
class NetworkAssumptions:
    """Assumed network between servers: ``bytes_s`` of a connection, and one-way ``latency_s`` of a message."""

    bytes_s: float = 125e6
    latency_s: float = 0.0002


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Size limit of PGM's model; a round may use the share of it that equals the share of the budget spent by then.

    ``least_mb`` is a model of single columns. Of the queries of several columns, ``fit_first`` may be measured in the
    first round and ``fit_ever`` at all, each by itself; ``largest_mb`` is the model with the ``largest`` query in it.
    """

    limit_mb: float
    least_mb: float
    queries: int
    fit_first: int
    fit_ever: int
    largest: Clique
    largest_mb: float


@dataclass(frozen=True, slots=True)
class ResourceEstimate:
    """Resource estimate; see the module. Participants' bytes are by form, servers' maximum bytes and memory by server.

    ``passed_on_bytes`` are the forwarded uploads of all three servers together. ``seconds`` are by phase, with a model
    of usual growth, as ``usual_model_bytes`` (additional, at the lead); ``estimate_most_s`` and ``model_memory_bytes``
    are for a model that grows up to its limit.
    """

    owner_sent_bytes: Mapping[str, int]
    owner_form: str
    owner_memory_bytes: int
    server_sent_bytes: tuple[int, int, int]
    passed_on_bytes: int
    server_memory_bytes: tuple[int, int, int]
    usual_model_bytes: int
    model_memory_bytes: int
    server_disk_bytes: int
    rounds_of_messages: int
    seconds: Mapping[str, float]
    estimate_most_s: float
    model: ModelSize


def server_memory(study: Study, pid: int) -> int:
    """Peak memory of compute server ``pid`` in bytes, with a small model."""
    size = SERVER_BYTES + SERVER_BYTES_A_CELL * study.workload.cells
    proved = study.config.run.security == MALICIOUS
    counting = 0.0
    if _max_counted_rows(study) is not None:
        counting = PROVED_COUNTING_BYTES if proved else COUNTING_BYTES
    # Sources are joined before anything is counted: the larger of the two is the peak.
    return int(size + max(counting, link_memory(study.config)) + (LEAD_BYTES if pid == LEAD else 0))


def rounds_expected(plan: Schedule) -> int:
    """Number of rounds of a run; a typical number if the model decides."""
    if not plan.adaptive:
        return plan.rounds
    return min(plan.rounds, plan.tree_rounds + _FINER_ROUNDS)


def usual_workload(study: Study, plan: Schedule, rows: int) -> Workload:
    """Workload on the cells that round 0 usually leaves of columns with private values, for a table of ``rows``."""
    deviation = noise_deviation(plan.noise, plan.initial_sigma)
    domain = usual_stand_in(study.config.domain, rows=rows, deviation=deviation)
    return Workload(domain, study.workload.queries, study.config.workload.target)


def estimate_resources(
    study: Study,
    plan: Schedule,
    *,
    usual: Workload | None = None,
    network: NetworkAssumptions | None = None,
) -> ResourceEstimate:
    """Estimate for a run with all its rounds; for an annealed run, with the typical number of rounds.

    ``usual`` is the workload of the model, if round 0 makes it smaller than it may be (``usual_workload``).
    """
    offer, costs = UploadSize.of(study), _costs(study, plan)
    total = reduce(Cost.__add__, costs.values())
    first, second, third = total.sent
    echoes = 2 * DIGEST_BYTES * (rounds_expected(plan) + 1)
    lead = 2 * estimate_bytes(study.workload) * (rounds_expected(plan) + 1)
    memory = [server_memory(study, pid) for pid in range(3)]
    form = form_for(study, offer.capacity)
    sizes = UploadSizes.of(form, offer.capacity)
    # The server that takes an upload forwards two of its three parts.
    passed_on = 2 * sum(map(sizes.passed_on, range(3))) // 3
    network = network or NetworkAssumptions()
    usual = usual or study.workload
    growth = usual_growth(
        usual, plan, rounds_expected(plan), limit_mb=study.config.run.max_model_mb
    )
    most_s, seconds = _seconds(
        study, plan, costs=costs, growth=growth, network=network, usual=usual
    )
    return ResourceEstimate(
        owner_sent_bytes=offer.sent_bytes,
        owner_form=offer.form,
        owner_memory_bytes=owner_memory(study),
        server_sent_bytes=(first + lead + echoes, second + echoes, third + echoes),
        passed_on_bytes=study.config.clients.expected * passed_on,
        server_memory_bytes=(memory[0], memory[1], memory[2]),
        usual_model_bytes=int(8 * MODEL_TABLES * growth[-1].cells),
        model_memory_bytes=int(
            8 * MODEL_TABLES * _model_cells(study.workload, study.config.run.max_model_mb)
        ),
        # An upload is stored whole until all servers have it, and then as a body; of totals, the last two are stored.
        server_disk_bytes=2 * offer.sent_bytes[offer.form] * study.config.clients.expected
        + 2 * 8 * study.workload.maximal_cells,
        rounds_of_messages=total.rounds + 2 * (rounds_expected(plan) + 1),
        seconds=seconds,
        estimate_most_s=most_s,
        model=model_size(study, plan),
    )


def model_size(study: Study, plan: Schedule) -> ModelSize:
    """Size limit of the model, beside the sizes of the queries that it may contain."""
    limit = study.config.run.max_model_mb
    queries = [query for query in study.workload.queries if len(query) > 1]
    sizes = {query: _with_query(study.workload, query) / CELLS_PER_MB for query in queries}
    largest = max(study.workload.queries, key=study.workload.domain.size)
    first, last = (limit * plan.spent_after(n) / plan.rho for n in (1, rounds_expected(plan)))
    return ModelSize(
        limit_mb=limit,
        least_mb=sum(study.workload.domain.shape) / CELLS_PER_MB,
        queries=len(queries),
        fit_first=sum(size <= first for size in sizes.values()),
        fit_ever=sum(size <= last for size in sizes.values()),
        largest=largest,
        largest_mb=_with_query(study.workload, largest) / CELLS_PER_MB,
    )


def _with_query(workload: Workload, query: Clique) -> int:
    """Cells of a model of one query and of the other columns, each by itself."""
    domain = workload.domain
    return domain.size(query) + sum(domain.shape) - sum(domain.sizes(query))


def _model_cells(workload: Workload, limit_mb: float) -> float:
    """Cells of the largest model below a limit: at most those of all queries together."""
    return min(limit_mb * CELLS_PER_MB, float(model_cells(workload.domain)(workload.maximal)))


def _cost(step: Step[Facts], facts: Facts) -> Cost:
    return Cost() if step.cost is None else step.cost(facts)


def _most_expensive(step: Step[Facts], facts: Sequence[Facts]) -> Cost:
    """Cost of the facts with which the most bytes are sent."""
    return max((_cost(step, some) for some in facts), key=lambda cost: sum(cost.sent))


def _costs(study: Study, plan: Schedule) -> Mapping[str, Cost]:
    """Maximum costs of servers by phase, without names, the model's answers, and proofs except those of counting."""
    with with_verifier(study.config.run.security == MALICIOUS):
        return _costs_of_phases(study, plan)


def _costs_of_phases(study: Study, plan: Schedule) -> Mapping[str, Cost]:
    sizes = sizes_of(study.workload, selectable_candidates(study.workload))
    bits = selection_bounds(study, plan)

    def select(samples: int) -> Cost:
        among = [sorted(sizes)[-count:] for count in dearest_counts(len(sizes))]
        facts = [Selection(some, *bits, samples) for some in among]
        return sum(
            (_most_expensive(step, facts) for step in (SELECT_SCORES, SELECT_CHOOSE)), Cost()
        )

    noise = noise_of(study.config.run.noise, security_bits(study))

    def measured(cells: int, sigma: float) -> Cost:
        facts = Measurement(cells, lambda count: noise.cost(count, sigma))
        return _cost(MEASURE_NOISE, facts) + _cost(MEASURE_OPEN, facts)

    # The agreed domain has the fine cells of private bins and values, which round 0 measures.
    measure = measured(sum(study.config.domain.shape), plan.initial_sigma)
    largest = measured(_most_measured(study), plan.sigma)
    return {
        "share": _share_cost(study),
        "select": reduce(
            Cost.__add__,
            (
                _times(select(samples), times)
                for samples, times in _samples_made(len(sizes), rounds_expected(plan)).items()
            ),
            Cost(),
        ),
        "measure": measure + _times(largest, rounds_expected(plan)),
    }


def _samples_made(count: int, selections: int) -> Counter[int]:
    """Numbers of noise samples that the selections make, each with the number of selections that make as many."""
    made, left = Counter[int](), 0
    for still in range(selections, 0, -1):
        samples = lacking(left, count, count, still)
        made[samples] += 1
        left += samples - count
    return made


def _share_cost(study: Study) -> Cost:
    """Cost of comparing participants' components, and of verifying or counting their inputs."""
    clients = study.config.clients
    capacities, batches = [clients.rows_per_client] * clients.expected, _batches(study.config)
    share = _cost(CLIENTS_COMPARE, BatchFacts(capacities, batches))
    if (rows := _max_counted_rows(study)) is not None:
        if study.config.run.security == MALICIOUS:
            share += count_proofs(rows.plan, rows.rows)
        return reduce(
            Cost.__add__,
            (_cost(step, rows) for step in OF_COUNTING),
            share + link_cost(study.config),
        )
    if study.config.run.check != NO_CHECK:
        cells = study.workload.maximal_cells if study.config.run.check == CELLS else 0
        checked = CheckFacts(-(-clients.expected // batches), len(study.workload.maximal), cells)
        share += _times(_cost(CLIENTS_CHECK, checked), batches)
    return share


def _batches(config: Config) -> int:
    return min(config.clients.expected, BATCHES)


def _max_counted_rows(study: Study) -> Counting | None:
    """Maximum number of rows that servers count; None if participants count themselves."""
    if not form_for(study, study.config.clients.rows_per_client).by_capacity:
        return None
    rows = max_joined_rows(study.config) if study.config.sources else study.config.max_rows
    return Counting(counting_plan(study.workload), rows)


def _times(cost: Cost, count: int) -> Cost:
    first, second, third = (count * size for size in cost.sent)
    return Cost(count * cost.rounds, (first, second, third))


def _most_measured(study: Study) -> int:
    """Cells of the largest candidate that the model may contain."""
    limit = study.config.run.max_model_mb * CELLS_PER_MB
    fitting = [q for q in study.workload.candidates if _with_query(study.workload, q) <= limit]
    return max(map(study.workload.domain.size, fitting), default=max(study.workload.domain.shape))


def _seconds(
    study: Study,
    plan: Schedule,
    *,
    costs: Mapping[str, Cost],
    growth: Sequence[GrowthStage],
    network: NetworkAssumptions,
    usual: Workload,
) -> tuple[float, Mapping[str, float]]:
    """Maximum seconds of the estimates, and seconds of all phases with a model of usual growth."""
    rate = min(PAYLOAD_BYTES_S, network.bytes_s)
    seconds = {
        phase: max(cost.sent) / rate + cost.rounds * network.latency_s
        for phase, cost in costs.items()
    }
    owners, counted = study.config.clients.expected, _max_counted_rows(study)
    seconds["share"] += owners * OWNER_S
    if counted is None:
        seconds["share"] += owners * OWNER_S_A_CELL * study.workload.maximal_cells
    else:
        # Three servers share two cores.
        seconds["share"] += 3 * counted.plan.seconds(counted.rows, cores=2) + link_seconds(
            study.config
        )
        if study.config.run.security == MALICIOUS:
            seconds["share"] += 3 * counted.plan.proof_seconds(counted.rows) / 2
    answers = usual.cells * ANSWER_S_A_CELL + estimate_bytes(usual) / rate
    run, rounds = study.config.run, range(1, rounds_expected(plan) + 1)
    shares = [plan.spent_after(number) / plan.rho for number in rounds]
    whole = _model_cells(study.workload, run.max_model_mb)
    grown = [min(run.max_model_mb * share * CELLS_PER_MB, whole) for share in shares]
    answers += len(study.workload.candidates) * CANDIDATE_S
    steps = run.iterations * sum(stage.targets for stage in growth[:-1])
    steps += run.final_iterations * growth[-1].targets
    each = (rounds_expected(plan) + 1) * answers + steps * ITERATION_S_A_TARGET
    visits = _visits_s(run, [stage.cells for stage in growth])
    seconds["estimate"] = each + visits
    most_s = each + max(visits, _visits_s(run, [*grown, grown[-1]]))
    for phase in ("select", "measure"):
        seconds[phase] += rounds_expected(plan) * STEP_S
    queries = len(study.workload.queries)
    seconds["write"] = WRITE_S + queries * WRITE_S_A_QUERY + growth[-1].cells * WRITE_S_A_CELL
    return most_s, {"setup": START_S, **seconds}


def _visits_s(run: RunSection, cells: Sequence[float]) -> float:
    """Seconds that fits spend on ``cells`` of the model, in each round and at the end."""
    visited = run.iterations * sum(cells[:-1]) + run.final_iterations * cells[-1]
    return visited * ITERATION_S_A_CELL + sum(cells) * MODEL_S_A_CELL


@dataclass(frozen=True, slots=True)
class CellNoise:
    """Noise in a measured cell of ``query``, in rows, beside the ``average`` count of its ``cells``.

    ``left`` is the remaining error, 0 to 2, if all counts are the average; for other counts it is smaller.
    """

    query: Clique
    cells: int
    average: float
    sigma: float
    left: float

    @property
    def drowned(self) -> bool:
        """True if the noise leaves little of the marginal visible."""
        return self.left > _DROWNED_RATIO


def cell_noise(
    workload: Workload, rows: float, sigma: float, *, initial_sigma: float | None = None
) -> tuple[CellNoise, ...]:
    """Noise for every column, and for every query of several columns, if its cells share ``rows``.

    Columns are measured with ``initial_sigma``, if it is given.
    """
    first = sigma if initial_sigma is None else initial_sigma
    columns: Sequence[Clique] = [(name,) for name in workload.domain.names]
    queries = [*columns, *(query for query in workload.queries if len(query) > 1)]
    sizes = {query: workload.domain.size(query) for query in queries}
    return tuple(
        _noise(q, size, rows, first if len(q) == 1 else sigma) for q, size in sizes.items()
    )


def _noise(query: Clique, cells: int, rows: float, sigma: float) -> CellNoise:
    return CellNoise(query, cells, rows / cells, sigma, _left(cells, rows, sigma))


@lru_cache(maxsize=4096)
def _left(cells: int, rows: float, sigma: float) -> float:
    # A million cells or more have the same remaining error as a million with their average.
    shown = min(cells, 1_000_000)
    return remaining_error(np.full(shown, rows / cells), sigma)
