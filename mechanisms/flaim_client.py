"""FLAIM's client: it chooses queries by its rows, and counts the marginals of a requested sum.

``FlaimClient`` is used alike by a simulation and by a deployed process; ``true_answers`` is for experiments.

The table, its counts, scores and random bytes are secret. Choices are released and, through an aggregation that adds
noise, count vectors. Both are charged to the client's own ledger before they are computed, so that no server can ask
for more than the client agreed to.

Representation: scores are integers, as in ``mechanisms.scores``. With r the client's size (declared or estimated, never
counted) and p an answer in units of 2^-32, a count x is compared with r p exactly: a_q = sum |2^32 x - r p| = r sum p +
sum over the cells with x > 0 of (|2^32 x - r p| - r p). One row moves a_q by at most 2^32, and a_q - tau_q by at most
2^33; cutting that to units of 2^-6 of a row keeps both bounds exact.

Source: FLAIM paper, Algorithm 1, lines 5 to 12, and section 4.2 (tau).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import LOCAL, MEASURE, SELECT, Ledger
from mechanisms.descent import Target
from mechanisms.errors import BudgetExceeded, FlaimError
from mechanisms.events import GRID_SLACK, DiscreteGaussianEvent, Event, ExponentialEvent
from mechanisms.exact_noise import MAX_SIGMA, discrete_gaussian_noise
from mechanisms.flaim_answers import candidate_totals, moved_answers
from mechanisms.flaim_messages import Brief, Layout
from mechanisms.flaim_settings import FlaimSettings, SumNoise
from mechanisms.junction_tree import model_cells
from mechanisms.model import Model
from mechanisms.pgm import CELLS_PER_MB, tilt
from mechanisms.sampling import RandomBytes, random_uint64
from mechanisms.scores import ANSWER_BITS, FRACTION_BITS, score_gain, score_offset, select_index
from mechanisms.workload import Workload, count_marginals


class FlaimClient:
    """Client with coded rows (rows, columns) int32 and its own ledger, charged before anything is released.

    ``oracle`` uint32 (workload.cells,) is ``true_answers`` of the pooled table, for tau oracle alone, which is no
    private mechanism.

    Raises ``FlaimError`` if the table does not fit the domain or the settings.
    """

    def __init__(
        self,
        codes: NDArray[np.int32],
        workload: Workload,
        settings: FlaimSettings,
        *,
        random_bytes: RandomBytes,
        oracle: NDArray[np.uint32] | None = None,
    ) -> None:
        check_table(codes, workload, settings)
        if (oracle is None) != (settings.tau != "oracle"):
            raise FlaimError(
                "the pooled table's answers are needed for tau = oracle, and only there"
            )
        self.ledger = Ledger(settings.rho)
        self._rows = len(codes)
        self._codes = codes
        self._workload = workload
        self._settings = settings
        self._random_bytes = random_bytes
        self._oracle = oracle
        self._counts: _Counts | None = None
        # The latest round of a brief on this connection, and the round of the choices.
        self._latest = 0
        self._round = 0
        self._chosen: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"FlaimClient(spent={self.ledger.spent:.4g} of {self.ledger.budget:.4g})"

    @property
    def declared_rows(self) -> int | None:
        """Size that this client declares to the server; None if sizes are estimated."""
        return self._rows if self._settings.sizes == "public" else None

    def rejoin(self) -> None:
        """Prepares for a new connection: a restarted server may count its rounds from 0. Charges stay."""
        self._latest = 0

    @property
    def place(self) -> tuple[int, int, tuple[int, ...]]:
        """State of this client in the run, for ``resume`` in another process: rounds, and its choices."""
        return self._latest, self._round, self._chosen

    def resume(self, place: tuple[int, int, tuple[int, ...]]) -> None:
        """Continues from the ``place`` of an earlier process."""
        self._latest, self._round, self._chosen = place

    def chose_of(self, layout: Layout) -> bool:
        """Returns whether a sum has any choice of this client in its round that is not counted yet.

        With ``pairs`` every client counts everything.
        """
        if self._settings.variant == "pairs":
            return True
        return layout.round == self._round and not set(layout.chosen).isdisjoint(self._chosen)

    def choose(self, brief: Brief) -> tuple[int, ...]:
        """Makes this round's choices and returns candidates in the order chosen; ``encode_choices`` packs them.

        Raises ``BudgetExceeded`` if the client's own ledger does not cover them, ``FlaimError`` on a brief that does
        not fit the settings or comes out of order.
        """
        settings = self._settings
        if brief.round <= self._latest:
            raise FlaimError(f"a brief for round {brief.round} after one for {self._latest}")
        candidates = self._check_brief(brief)
        count = min(settings.local_rounds, len(candidates))
        if settings.selects:
            local = DiscreteGaussianEvent(brief.sigma)
            self._charge(
                brief.round,
                [(SELECT, ExponentialEvent(brief.epsilon + GRID_SLACK))] * count
                + [(LOCAL, local)] * (count - 1),
            )
        self._latest, self._round, self._chosen = brief.round, brief.round, ()
        choose = self._choose_privately if settings.selects else self._choose_uniformly
        self._chosen = choose(brief, candidates, count)
        return self._chosen

    def count(self, layout: Layout) -> NDArray[np.int64]:
        """Returns the count vector (layout.cells,) for a sum: one-way marginals and this client's choices, else zeros.

        Each count lies in 0 .. max_client_rows. Noise as given by ``noise_of`` has to be added before the sum is
        opened. Raises as ``choose``.
        """
        if layout.round < self._latest:
            raise FlaimError(f"a layout for round {layout.round} after a brief for {self._latest}")
        mine = set(self._chosen) if layout.round == self._round else set()
        if self._settings.variant == "pairs":
            mine = set(self._settings.common(self._workload))
        filled = [i for i in layout.chosen if i in mine]
        self._check_layout(layout)
        marginals = len(filled) + (len(self._workload.one_way) if layout.one_way else 0)
        self._charge(layout.round, [(MEASURE, self.noise_of(layout).event)] * marginals)
        counts = self._counted()
        vector = np.zeros(layout.cells(self._workload), np.int64)
        start = 0
        for position, candidate in enumerate(layout.marginals(self._workload)):
            cells = self._workload.slice(candidate)
            end = start + cells.stop - cells.start
            if candidate in mine or (layout.one_way and position < len(self._workload.one_way)):
                vector[start:end] = counts.marginal(candidate)
            start = end
        self._chosen = tuple(i for i in self._chosen if i not in filled)
        return vector

    def noise_of(self, layout: Layout) -> SumNoise:
        """Returns the noise that this client requires of a secure aggregation."""
        return self._settings.sum_noise(layout.sigma)

    def _check_brief(self, brief: Brief) -> list[int]:
        """Checks a brief and returns the candidates that may be chosen."""
        settings, workload = self._settings, self._workload
        if not settings.chosen:
            raise FlaimError(f"a brief, but variant {settings.variant} makes no choices")
        if settings.selects and not (brief.epsilon > 0 and brief.sigma > 0):
            raise FlaimError("a brief without epsilon or sigma")
        if settings.local_measurements and not brief.sigma < MAX_SIGMA:
            raise FlaimError(f"a brief with sigma = {brief.sigma}; expected less than {MAX_SIGMA}")
        if settings.selects and brief.model is None:
            raise FlaimError("a brief without a model to score against")
        if settings.tau == "proxy" and brief.one_way is None:
            raise FlaimError("a brief without the one-way estimates that the score needs")
        if (settings.sizes == "public") != (brief.rows == 0):
            raise FlaimError("a brief whose size of clients does not fit the setting of sizes")
        candidates: list[int] = np.flatnonzero(
            selectable(workload, settings, brief.allowed)
        ).tolist()
        if not candidates:
            raise FlaimError("a brief that allows no candidate with a weight")
        return candidates

    def _check_layout(self, layout: Layout) -> None:
        by_query = self._settings.grouping == "query"
        if by_query and layout.one_way + len(layout.chosen) != 1:
            raise FlaimError("a sum over several queries; this run takes each by itself")
        if self._settings.variant == "pairs" and layout.marginals(
            self._workload
        ) != self._settings.common(self._workload):
            raise FlaimError("a sum of other marginals than all columns and pairs, as agreed")
        least = 1 if by_query and not layout.one_way else self._settings.min_participants
        if layout.clients < least:
            raise FlaimError(f"a sum over {layout.clients} clients; {least} were agreed on")

    def _charge(self, round: int, charges: Sequence[tuple[str, Event]]) -> None:
        """Charges before anything is computed from the rows, so that no later failure can undo the charge."""
        try:
            self.ledger.charge_all(round, charges)
        except BudgetExceeded as error:
            steps = ", ".join(dict.fromkeys(step for step, _ in charges))
            raise BudgetExceeded(f"round {round}, {steps}: {error}") from None

    def _counted(self) -> _Counts:
        if self._counts is None:
            self._counts = _Counts(self._codes, self._workload)
        return self._counts

    def _choose_uniformly(self, brief: Brief, candidates: list[int], count: int) -> tuple[int, ...]:
        left = list(candidates)
        return tuple(left.pop(_below(len(left), self._random_bytes)) for _ in range(count))

    def _choose_privately(self, brief: Brief, candidates: list[int], count: int) -> tuple[int, ...]:
        """Algorithm 1, lines 6 to 11: chooses, and between two choices measures and updates a local model."""
        model, answers, totals = brief.model, brief.answers, brief.totals
        chosen: list[int] = []
        while model is not None:
            left = [i for i in candidates if i not in chosen]
            chosen.append(self._select(brief, left, answers, totals))
            if len(chosen) == count:
                break
            moved = self._update(model, chosen[-1], brief)
            if moved is not model:
                clique = self._workload.candidates[chosen[-1]]
                answers, totals = moved_answers(
                    self._workload, (answers, totals), moved, clique, brief.allowed
                )
            model = moved
        return tuple(chosen)

    def _select(
        self,
        brief: Brief,
        candidates: list[int],
        answers: NDArray[np.uint32],
        totals: NDArray[np.int64],
    ) -> int:
        scores = self._scores(brief, candidates, answers, totals)
        return candidates[select_index(scores, random_uint64(self._random_bytes))]

    def _scores(
        self,
        brief: Brief,
        candidates: list[int],
        answers: NDArray[np.uint32],
        totals: NDArray[np.int64],
    ) -> list[int]:
        """epsilon u(q) / (2 Delta) with u(q) = w_q (||M_q(D_k) - M_q||_1 - sqrt(2/pi) sigma n_q - tau(q)).

        In units of 2^-28 nats; a row changes each by no more than epsilon / 2, exactly.
        """
        workload, counts = self._workload, self._counted()
        rows = brief.rows or self._rows
        distances = counts.distances(answers, totals, rows)
        if self._settings.tau != "none":
            distances = distances - self._tau(brief, rows)
        units = distances >> (ANSWER_BITS - FRACTION_BITS)
        # Delta = max w_q, twice that with tau: a row then changes two distances.
        delta = max(workload.weights[i] for i in candidates) * (1 + (self._settings.tau != "none"))
        scores = []
        for i in candidates:
            gain = score_gain(brief.epsilon, workload.weights[i], delta)
            size = workload.offsets[i + 1] - workload.offsets[i]
            scores.append(gain * int(units[i]) - score_offset(gain, brief.penalty, size))
        return scores

    def _tau(self, brief: Brief, rows: int) -> NDArray[np.int64]:
        """Returns the heterogeneity tau(q) of every candidate, in units of 2^-32 of a row."""
        workload, counts = self._workload, self._counted()
        if self._settings.tau == "oracle" and self._oracle is not None:
            return counts.distances(self._oracle, candidate_totals(workload, self._oracle), rows)
        proxy = brief.one_way_q32
        distances = counts.distances(proxy, candidate_totals(workload, proxy), rows)
        # Proxy: the mean over a candidate's columns of the distance from the noisy one-way marginals.
        column = {name: int(distances[i]) for i, name in enumerate(workload.domain.names)}
        return np.array(
            [sum(column[name] for name in q) // len(q) for q in workload.candidates], np.int64
        )

    def _update(self, model: Model, candidate: int, brief: Brief) -> Model:
        """Measures a candidate locally and returns the server's model updated to it.

        The model stays unchanged if it would grow too large.
        """
        clique = self._workload.candidates[candidate]
        sizes = self._workload.domain.sizes(clique)
        counts = self._counted().marginal(candidate)
        noisy = counts + discrete_gaussian_noise(self._random_bytes, brief.sigma, counts.size)
        rows = brief.rows or self._rows
        cells = model_cells(self._workload.domain)([*model.cliques, clique])
        if not rows or cells > self._settings.max_model_mb * CELLS_PER_MB:
            return model
        target = Target(noisy.reshape(sizes) / rows, (rows / brief.sigma) ** 2)
        return tilt(model, clique, target, iterations=self._settings.iterations)


class _Counts:
    """Marginals of all candidates of one table, as their nonempty cells.

    ``cells`` (nonzero,) are positions in the expanded vector, ascending; ``counts`` (nonzero,) are their counts.
    """

    def __init__(self, codes: NDArray[np.int32], workload: Workload) -> None:
        self._workload = workload
        rows = len(codes)
        places: list[NDArray[np.int64]] = []
        counted: list[NDArray[np.int64]] = []
        for i, clique in enumerate(workload.candidates):
            flat = np.zeros(rows, np.int64)
            for name in clique:
                column = workload.domain.index(name)
                flat = flat * workload.domain.columns[column].size + codes[:, column]
            cells, counts = _count(flat, workload.offsets[i + 1] - workload.offsets[i])
            places.append(cells + workload.offsets[i])
            counted.append(counts)
        self._cells = np.concatenate(places)
        self._counts = np.concatenate(counted)
        self._ends = np.searchsorted(self._cells, np.array(workload.offsets))

    def marginal(self, candidate: int) -> NDArray[np.int64]:
        """Returns the counts (n_q,) of one candidate."""
        cells = self._workload.slice(candidate)
        filled = slice(self._ends[candidate], self._ends[candidate + 1])
        dense = np.zeros(cells.stop - cells.start, np.int64)
        dense[self._cells[filled] - cells.start] = self._counts[filled]
        return dense

    def distances(
        self, answers: NDArray[np.uint32], totals: NDArray[np.int64], rows: int
    ) -> NDArray[np.int64]:
        """Returns ||2^32 x - rows p||_1 (candidates,) for ``answers`` p (workload.cells,), in 2^-32 of a row.

        ``totals`` are the candidates' sums of ``answers``. Exact: every partial sum is below 2^63.
        """
        # If every cell were empty, a candidate's distance would be rows times the sum of its p. A nonempty cell has
        # |2^32 x - rows p| in place of rows p; the corrections of one candidate are a difference of prefix sums.
        expected = answers[self._cells].astype(np.int64) * rows
        beyond = np.abs((self._counts << ANSWER_BITS) - expected) - expected
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(beyond)])[self._ends]
        return totals * rows + np.diff(sums)


def check_table(codes: NDArray[np.int32], workload: Workload, settings: FlaimSettings) -> None:
    """Raises ``FlaimError`` unless a client's table fits the domain and the agreed size."""
    shape = np.array(workload.domain.shape)
    if codes.ndim != 2 or codes.shape[1] != len(shape):
        raise FlaimError(
            f"a table of shape {codes.shape}; the domain has {len(shape)} columns: is it another one's?"
        )
    if not np.issubdtype(codes.dtype, np.integer):
        raise FlaimError(f"a table of {codes.dtype}; codes are integers")
    if codes.size and (codes.min() < 0 or (codes.max(axis=0) >= shape).any()):
        raise FlaimError("a table has codes outside the domain: is it another domain's?")
    if len(codes) > settings.max_client_rows:
        raise FlaimError(
            f"a table of more than max_client_rows = {settings.max_client_rows} rows; raise it on all sides"
        )


def selectable(
    workload: Workload, settings: FlaimSettings, allowed: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Returns the candidates that may be chosen: allowed, with a weight, and not measured of all clients anyway."""
    weighted = np.array(workload.weights) > 0
    if settings.combine:
        weighted[list(workload.one_way)] = False
    return allowed & weighted


def true_answers(workload: Workload, codes: NDArray[np.int32]) -> NDArray[np.uint32]:
    """Returns a table's own probabilities (cells,) in units of 2^-32: the oracle of experiments.

    Raises ``ValueError`` without rows.
    """
    if not len(codes):
        raise ValueError("a table without rows has no probabilities")
    shares = workload.expand(count_marginals(codes, workload)) / len(codes)
    return np.minimum(np.rint(shares * 2.0**ANSWER_BITS), 2.0**ANSWER_BITS - 1).astype(np.uint32)


def _count(flat: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the values below ``size`` that occur, ascending, and their counts: by a table or by sorting."""
    if size <= 4 * flat.size:
        counts = np.bincount(flat, minlength=size)
        cells = np.flatnonzero(counts)
        return cells, counts[cells].astype(np.int64)
    cells, counts = np.unique(flat, return_counts=True)
    return cells, counts.astype(np.int64)


def _below(bound: int, random_bytes: RandomBytes) -> int:
    """Returns a number uniform on 0 .. bound - 1, by rejection."""
    limit = 2**64 - 2**64 % bound
    while (value := random_uint64(random_bytes)) >= limit:
        pass
    return value % bound
