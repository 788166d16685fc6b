"""A row more or less at one participant: the exact privacy loss of whole runs of FLAIM, Fed-TDA and MR-MTL.

As in ``test_canary``: a run is made on one of two tables, and beside it is computed how much likelier its openings are
on this table than on the other. The participant with the row has a twin with the other table, which is asked the same.
What a participant draws for itself and never sends (batches, components) is the same for all rows that both have; given
that, losses are those of choices and of Gaussian noise, and bounds hold for every such draw.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom

import mechanisms.flaim_client
import mechanisms.mtl_silo
from mechanisms.accounting import Ledger
from mechanisms.dpsgd import Noise, noisy_sum, poisson_batch
from mechanisms.exact_noise import discrete_gaussian_noise
from mechanisms.fixed_point import encode_rows
from mechanisms.flaim import Participant, SumRequest, Sums, run_flaim
from mechanisms.flaim_client import FlaimClient
from mechanisms.flaim_messages import Brief
from mechanisms.flaim_participants import draw_round
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.model import Model
from mechanisms.mr_mtl import MtlSettings, run_mtl
from mechanisms.mtl_silo import MtlSilo, SiloRows
from mechanisms.pgm import FederatedEstimator
from mechanisms.sampled_loss import SampledGaussian, delta_of, multiplier_on_lattice
from mechanisms.sampling import RandomBytes
from mechanisms.scores import SCORE_BITS
from mechanisms.silos import InProcess, Request, Sum, checked_answer
from mechanisms.tda.layout import Layout, rows_of
from mechanisms.tda.server import run as run_tda
from mechanisms.tda.settings import TdaSettings
from mechanisms.tda.silo import TdaSilo
from mechanisms.units import row_budget, row_guarantee
from tests.mechanisms.tables import random_stream
from tests.mechanisms.test_canary import CANARY, DEVIATIONS, DOMAIN, PERSON, RHO, WORKLOAD, check
from tests.mechanisms.test_tda import DOMAIN as TDA_DOMAIN
from tests.mechanisms.test_tda import table as tda_table

FEW, MANY = 40, 2_500
ROWS = 12


def shifted(noise: NDArray[np.int64], apart: NDArray[np.int64], sigma: float) -> float:
    """The loss of noise that was added to a vector, where the other table has one that is ``apart`` less."""
    there = np.square((noise + apart).astype(float)).sum() - np.square(noise.astype(float)).sum()
    return float(there) / (2 * sigma**2)


# FLAIM


class Twins(FlaimClient):
    """A client, and one with the other table that is asked the same; ``loss`` is that of what the client released."""

    other: FlaimClient
    loss = 0.0

    def begin(self, other: FlaimClient) -> None:
        self.other, self.ranges, self.drawn = other, [0.0], list[NDArray[np.int64]]()

    def _select(
        self,
        brief: Brief,
        candidates: list[int],
        answers: NDArray[np.uint32],
        totals: NDArray[np.int64],
    ) -> int:
        chosen = super()._select(brief, candidates, answers, totals)
        scores = [
            np.array(one._scores(brief, candidates, answers, totals)) / 2**SCORE_BITS
            for one in (self, self.other)
        ]
        apart = scores[0] - scores[1]
        self.ranges.append(float(apart.max() - apart.min()) / brief.epsilon)
        likely = [s[candidates.index(chosen)] - np.logaddexp.reduce(s) for s in scores]
        self.loss += float(likely[0] - likely[1])
        return chosen

    def _update(self, model: Model, candidate: int, brief: Brief) -> Model:
        updated = super()._update(model, candidate, brief)
        own, other = (one._counted().marginal(candidate) for one in (self, self.other))
        self.loss += shifted(self.drawn[-1], own - other, brief.sigma)
        return updated


class Clients:
    """The participants of FLAIM, of which the first has a twin; the server adds the noise."""

    def __init__(
        self,
        clients: Sequence[FlaimClient],
        settings: FlaimSettings,
        stream: RandomBytes,
        share: float,
    ) -> None:
        self.population = tuple(Participant(k, None) for k in range(len(clients)))
        self._clients, self._settings = clients, settings
        self._stream, self._share = stream, share
        self._taken: Counter[int] = Counter()

    async def begin_round(self, round: int) -> Sequence[int]:
        everybody = [one.client for one in self.population]
        drawn = draw_round(
            everybody, self._taken, self._settings, random_bytes=self._stream, number=round
        )
        self._taken.update(drawn)
        return drawn

    async def choices(self, brief: Brief) -> Mapping[int, tuple[int, ...]]:
        received = Brief.decode(brief.encode(), WORKLOAD)
        return {k: client.choose(received) for k, client in enumerate(self._clients)}

    async def aggregate(self, requests: Sequence[SumRequest]) -> Sequence[Sums | None]:
        return [self._sum(request) for request in requests]

    def _sum(self, request: SumRequest) -> Sums:
        layout = request.layout
        sigma = self._share * layout.sigma
        noise = discrete_gaussian_noise(self._stream, sigma, layout.cells(WORKLOAD))
        total = noise.copy()
        for k in request.members:
            client = self._clients[k]
            if isinstance(client, Twins):
                client.other.resume(client.place)
                counts = client.count(layout)
                client.loss += shifted(noise, counts - client.other.count(layout), sigma)
            else:
                counts = client.count(layout)
            total += counts
        return Sums(total.astype(float), tuple(request.members), layout.sigma)


def random_codes(seed: int) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, n - 1, ROWS) for n in DOMAIN.shape]).astype(np.int32)


async def flaim_losses(
    settings: FlaimSettings,
    runs: int,
    patch: pytest.MonkeyPatch,
    *,
    seed: int,
    share: float = 1.0,
    rows: int = 1,
) -> tuple[NDArray[np.float64], float]:
    """Of runs with the row and without it in turns (runs,), and the largest range of a choice's loss by its epsilon.

    A unit may be several ``rows``: the range is then by as many epsilons.
    """
    without = random_codes(seed)
    tables = [np.concatenate([without, *[CANARY] * rows]), without]
    found, widest = [], 0.0
    for number in range(runs):
        stream = random_stream(seed * 100_000 + number)
        own, other = (
            kind(codes, WORKLOAD, settings, random_bytes=stream)
            for kind, codes in zip(
                (Twins, FlaimClient), (tables[number % 2], tables[1 - number % 2]), strict=True
            )
        )
        assert isinstance(own, Twins)
        own.begin(other)

        def local(random_bytes: RandomBytes, sigma: float, count: int) -> NDArray[np.int64]:
            drawn = discrete_gaussian_noise(random_bytes, sigma, count)
            own.drawn.append(drawn)  # noqa: B023
            return drawn

        patch.setattr(mechanisms.flaim_client, "discrete_gaussian_noise", local)
        others = [
            FlaimClient(random_codes(seed + k), WORKLOAD, settings, random_bytes=stream)
            for k in range(1, 3 if settings.turns == settings.rounds else 9)
        ]
        clients = Clients([own, *others], settings, stream, share)
        ledger = Ledger(settings.rho)
        estimator = FederatedEstimator(WORKLOAD, iterations=2, final_iterations=1)
        schedule = settings.schedule(len(settings.common(WORKLOAD)))
        await run_flaim(WORKLOAD, settings, schedule, clients, estimator, ledger)
        assert own.ledger.spent <= settings.rho
        found.append(own.loss)
        widest = max(widest, *(each / rows for each in own.ranges))
    return np.array(found), widest


FLAIM = {
    "private": FlaimSettings.preset("private", rho=RHO, rounds=3),
    "naive": FlaimSettings.preset("naive", rho=RHO, rounds=2, local_rounds=2, iterations=2),
    "random": FlaimSettings.preset("random", rho=RHO, rounds=3),
    "naivebayes": FlaimSettings.preset("naivebayes", rho=RHO, rounds=3),
    "annealed": FlaimSettings.preset("private", rho=RHO, annealed=True),
    "by query": FlaimSettings.preset("private", rho=RHO, rounds=3, grouping="query"),
    "pairs": FlaimSettings.preset("pairs", rho=RHO, rounds=3),
}
FLAIM = {name: replace(each, participation=1.0) for name, each in FLAIM.items()}
FLAIM["pairs in turns"] = replace(FLAIM["pairs"], participation=0.4)


@pytest.mark.parametrize("name", FLAIM)
async def test_a_row_at_a_client_of_flaim_costs_no_more_than_is_charged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(*await flaim_losses(FLAIM[name], FEW, monkeypatch, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAIM)
async def test_a_row_at_a_client_of_flaim_costs_no_more_than_is_charged_in_many_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(*await flaim_losses(FLAIM[name], MANY, monkeypatch, seed=2))


PERSONS = {
    name: replace(FLAIM[name], rho=row_budget(RHO, PERSON))
    for name in ("private", "pairs in turns")
}


@pytest.mark.parametrize("name", PERSONS)
async def test_a_person_at_a_client_of_flaim_costs_no_more_than_is_charged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(*await flaim_losses(PERSONS[name], FEW, monkeypatch, seed=5, rows=PERSON))


@pytest.mark.slow
@pytest.mark.parametrize("name", PERSONS)
async def test_a_person_at_a_client_of_flaim_costs_no_more_than_is_charged_in_many_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(*await flaim_losses(PERSONS[name], MANY, monkeypatch, seed=6, rows=PERSON))


async def test_check_sees_a_person_whose_budget_is_that_of_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A control: the noise of a row, for a person of several."""
    found, widest = await flaim_losses(FLAIM["pairs"], FEW, monkeypatch, seed=7, rows=PERSON)
    with pytest.raises(AssertionError):
        check(found, widest)


async def test_check_sees_a_client_that_chooses_more_sharply_than_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A control: scores twice as large, with the charge of before."""

    plain = FlaimClient._scores
    monkeypatch.setattr(
        FlaimClient, "_scores", lambda self, *them: [2 * score for score in plain(self, *them)]
    )
    found, widest = await flaim_losses(FLAIM["naive"], 10, monkeypatch, seed=3)
    with pytest.raises(AssertionError, match="varies by"):
        check(found, widest)


@pytest.mark.parametrize("name", ["private", "pairs in turns"])
async def test_check_sees_a_server_of_flaim_with_less_noise_than_it_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control: a third of the deviation, with the charge of before."""
    found, widest = await flaim_losses(FLAIM[name], FEW, monkeypatch, seed=4, share=1 / 3)
    with pytest.raises(AssertionError):
        check(found, widest)


# Fed-TDA


def by_call(seed: int) -> RandomBytes:
    """Random bytes of which the first of each call are the same, however many a call before took."""
    calls = 0

    def draw(count: int) -> bytes:
        nonlocal calls
        calls += 1
        return random_stream(seed * 1_000 + calls)(count)

    return draw


class TwinSilos(InProcess):
    """Silos of which the first has a twin; the server adds ``share`` of the noise that it says."""

    def __init__(
        self, silos: Sequence[TdaSilo], twin: TdaSilo, stream: RandomBytes, share: float
    ) -> None:
        super().__init__(silos)
        self.loss = 0.0
        self._all, self._twin, self._stream, self._share = silos, twin, stream, share

    async def sum(self, request: Request) -> Sum:
        assert request.noise is not None
        sigma = self._share * math.nextafter(math.sqrt(request.noise.variance), math.inf)
        answers = [checked_answer(silo, request) for silo in self._all]
        noise = discrete_gaussian_noise(self._stream, sigma, request.length)
        self.loss += shifted(noise, answers[0] - checked_answer(self._twin, request), sigma)
        return Sum(sum(answers, noise), tuple(range(len(answers))))


async def tda_losses(
    runs: int, changes: Mapping[str, object], *, seed: int, share: float = 1.0, rows: int = 1
) -> NDArray[np.float64]:
    """Of runs with the row, or a person's ``rows``, and without it in turns (runs,)."""
    budget = row_budget(RHO, rows)
    settings = TdaSettings.private(
        budget, components=3, iterations=2, noise="server", max_silo_rows=100, **changes
    )
    layout = Layout.of(TDA_DOMAIN, settings)
    without = tda_table(ROWS, seed)
    # The oldest of all, with a dose of the other end: beyond what everybody else adds.
    row = without.iloc[[0]].assign(age="100", dose="100", ward="north", seen="2020-12-31")
    tables = [pd.concat([without, *[row] * rows], ignore_index=True), without]
    found = []
    for number in range(runs):
        own, twin = (
            TdaSilo(rows_of(layout, tables[one]), layout, settings, random_bytes=by_call(number))
            for one in (number % 2, 1 - number % 2)
        )
        other = TdaSilo(
            rows_of(layout, tda_table(ROWS, seed + 1)),
            layout,
            settings,
            random_bytes=random_stream(number),
        )
        silos = TwinSilos([own, other], twin, random_stream(seed * 100_000 + number), share)
        await run_tda(layout, settings, silos)
        assert own.ledger is not None
        assert own.ledger.spent <= budget
        found.append(silos.loss)
    return np.array(found)


TDA: list[Mapping[str, object]] = [{}, {"correlations": "scores"}]


@pytest.mark.parametrize("changes", TDA, ids=["latent", "scores"])
async def test_a_row_at_a_silo_of_fed_tda_costs_no_more_than_is_charged(
    changes: Mapping[str, object],
) -> None:
    check(await tda_losses(FEW, changes, seed=1), 0.0, least=RHO / 10)


@pytest.mark.slow
@pytest.mark.parametrize("changes", TDA, ids=["latent", "scores"])
async def test_a_row_at_a_silo_of_fed_tda_costs_no_more_than_is_charged_in_many_runs(
    changes: Mapping[str, object],
) -> None:
    check(await tda_losses(MANY, changes, seed=2), 0.0, least=RHO / 10)


async def test_a_person_at_a_silo_of_fed_tda_costs_no_more_than_is_charged() -> None:
    check(await tda_losses(FEW // 2, {}, seed=4, rows=PERSON), 0.0, least=RHO / 10)


@pytest.mark.slow
async def test_a_person_at_a_silo_of_fed_tda_costs_no_more_than_is_charged_in_many_runs() -> None:
    check(await tda_losses(MANY, {}, seed=5, rows=PERSON), 0.0, least=RHO / 10)


async def test_check_sees_a_server_of_fed_tda_with_less_noise_than_it_says() -> None:
    """A control: a third of the deviation, with the charge of before."""
    found = await tda_losses(FEW // 2, {}, seed=3, share=1 / 3)
    with pytest.raises(AssertionError):
        check(found, 0.0)


# MR-MTL


class WatchedSilo(MtlSilo):
    """A silo whose last ``copies`` examples, of one person and equal, are never drawn if they are not ``there``.

    ``loss`` is that of its noisy gradients. For a batch with the sum S of the others and the examples' gradient g, the
    noisy sum x is N(S + k g, sigma^2) with them, k of which are drawn (binomial), and N(S, sigma^2) without them.
    """

    there = True
    copies = 1
    loss = 0.0
    share = 1.0

    def _descend(self, candidate: int, mean: NDArray[np.float64], steps: int) -> None:
        settings, (x, y) = self._settings, self._rows.train
        inner, first = self._objective, len(y) - self.copies
        lambda_ = settings.lambdas[candidate]
        pull = 0.0 if math.isinf(lambda_) else lambda_
        batch, own = np.empty(0, np.int64), np.empty(0)

        class Objective:
            losses = staticmethod(inner.losses)

            @staticmethod
            def gradients(
                w: NDArray[np.float64], x_: NDArray[np.float64], y_: NDArray[np.float64]
            ) -> NDArray[np.float64]:
                nonlocal own
                own = inner.gradients(w, x[-1:], y[-1:]) + pull * (w - mean)
                return inner.gradients(w, x_, y_)

        def drawn(rows: int, q: float, random_bytes: RandomBytes) -> NDArray[np.int64]:
            nonlocal batch
            batch = poisson_batch(rows, q, random_bytes)
            if not self.there:
                batch = batch[batch < first]
            return batch

        def watched(
            gradients: NDArray[np.float64], noise: Noise, *, clip: float, scale_bits: int
        ) -> NDArray[np.float64]:
            def less(count: int) -> NDArray[np.int64]:
                drawn: NDArray[np.int64] = np.rint(self.share * noise(count)).astype(np.int64)
                return drawn

            total = noisy_sum(gradients, less, clip=clip, scale_bits=scale_bits)
            of = gradients[batch < first]
            rest = encode_rows(of, scale_bits=scale_bits, norm=clip).sum(axis=0)
            g = encode_rows(own, scale_bits=scale_bits, norm=clip)[0].astype(float)
            x = np.rint(np.ldexp(total, scale_bits)) - rest
            unit = math.ldexp(clip, scale_bits)
            sigma = self.share * multiplier_on_lattice(self._step.z, unit) * unit
            taken = np.arange(self.copies + 1)
            there = logsumexp(
                binom.logpmf(taken, self.copies, self._q)
                + (2 * taken * (x @ g) - taken**2 * (g @ g)) / (2 * sigma**2)
            )
            self.loss += float(there if self.there else -there)
            return total

        with pytest.MonkeyPatch.context() as patch:
            self._objective = Objective()  # type: ignore[assignment]
            patch.setattr(mechanisms.mtl_silo, "poisson_batch", drawn)
            patch.setattr(mechanisms.mtl_silo, "noisy_sum", watched)
            super()._descend(candidate, mean, steps)
        self._objective = inner


EPSILON, DELTA = 3.0, 1e-2


async def mtl_losses(
    lambda_: float, runs: int, *, seed: int, share: float = 1.0, copies: int = 1, bound: int = 1
) -> tuple[NDArray[np.float64], Mapping[SampledGaussian, int]]:
    """Of runs with a person's examples and without them in turns (runs,), and what was charged for a row.

    The person has ``copies`` examples, of ``bound`` that the silo's noise is for.
    """
    settings = MtlSettings(40, 2, (lambda_,), rounds=3, batch=10, rate=0.5)
    draw = np.random.default_rng(seed)
    x, y = draw.uniform(-0.2, 0.2, (30, 2)), draw.uniform(-0.2, 0.2, 30)
    # Examples whose gradients are clipped, whatever the weights are.
    x[-copies:], y[-copies:] = (3.0, 3.0), 40.0
    nobody = (np.empty((0, 2)), np.empty(0))
    rows = SiloRows((x, y), nobody, nobody)
    epsilon, delta = row_guarantee(EPSILON, DELTA, bound)
    found, charged = [], dict[SampledGaussian, int]()
    for number in range(runs):
        silo, other = (
            kind(
                settings,
                rows,
                epsilon=epsilon,
                delta=delta,
                random_bytes=random_stream(seed * 100_000 + 2 * number + place),
            )
            for place, kind in enumerate((WatchedSilo, MtlSilo))
        )
        assert isinstance(silo, WatchedSilo)
        silo.there, silo.share, silo.copies = number % 2 == 0, share, copies
        await run_mtl(settings, InProcess([silo, other]))
        charged = {silo._step: settings.total_steps(30)}
        found.append(silo.loss)
    return np.array(found), charged


def check_sampled(found: NDArray[np.float64], charged: Mapping[SampledGaussian, int]) -> None:
    """That losses are those of the charged steps, as far as so many runs show."""
    assert delta_of(charged, EPSILON) <= DELTA
    for epsilon in (0.25, 0.5, 1.0, EPSILON):
        beyond = np.maximum(0, 1 - np.exp(epsilon - found))
        allowed = delta_of(charged, epsilon)
        room = DEVIATIONS / math.sqrt(len(found)) * max(beyond.std(), math.sqrt(allowed / 10))
        assert beyond.mean() <= allowed + room, epsilon
    # A silo that released nothing of the example would pass all of that.
    assert found.std() > 0.2


LAMBDAS = [0.0, 1.0, math.inf]


@pytest.mark.parametrize("lambda_", LAMBDAS)
async def test_an_example_of_mr_mtl_costs_no_more_than_is_charged(lambda_: float) -> None:
    check_sampled(*await mtl_losses(lambda_, 3 * FEW, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("lambda_", LAMBDAS)
async def test_an_example_of_mr_mtl_costs_no_more_than_is_charged_in_many_runs(
    lambda_: float,
) -> None:
    check_sampled(*await mtl_losses(lambda_, 4 * MANY, seed=2))


async def test_check_sees_a_silo_of_mr_mtl_with_less_noise_than_it_says() -> None:
    """A control: a third of the deviation, with the charge of before."""
    found, charged = await mtl_losses(0.0, FEW, seed=3, share=1 / 3)
    with pytest.raises(AssertionError):
        check_sampled(found, charged)


def check_person(found: NDArray[np.float64]) -> None:
    """That losses of a person are within the (epsilon, delta) of the run, as far as so many runs show."""
    beyond = np.maximum(0, 1 - np.exp(EPSILON - found))
    room = DEVIATIONS / math.sqrt(len(found)) * max(beyond.std(), math.sqrt(DELTA / 10))
    assert beyond.mean() <= DELTA + room
    assert found.std() > 0.2


async def test_a_person_of_mr_mtl_has_the_guarantee_of_a_person() -> None:
    check_person((await mtl_losses(1.0, 2 * FEW, seed=4, copies=3, bound=3))[0])


@pytest.mark.slow
@pytest.mark.parametrize("lambda_", LAMBDAS)
async def test_a_person_of_mr_mtl_has_the_guarantee_of_a_person_in_many_runs(
    lambda_: float,
) -> None:
    check_person((await mtl_losses(lambda_, 4 * MANY, seed=5, copies=3, bound=3))[0])


async def test_check_sees_a_person_of_mr_mtl_with_a_rows_noise() -> None:
    """A control: three examples of a person, and the noise for one."""
    found, _ = await mtl_losses(0.0, FEW, seed=6, copies=3)
    with pytest.raises(AssertionError):
        check_person(found)
