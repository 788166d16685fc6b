"""One client of FLAIM: scores against a plain calculation, how far a row moves them, counts, its own ledger."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.accounting import DiscreteGaussianEvent, ExponentialEvent
from mechanisms.descent import Target
from mechanisms.errors import BudgetExceeded, FlaimError
from mechanisms.events import GRID_SLACK
from mechanisms.flaim_answers import candidate_totals
from mechanisms.flaim_client import FlaimClient, true_answers
from mechanisms.flaim_messages import Brief, Layout
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.metrics import table_answers
from mechanisms.model import Model
from mechanisms.pgm import fit_targets
from mechanisms.scores import SCORE_BITS
from mechanisms.workload import draw_workload
from tests.mechanisms.tables import domain_of, random_codes, random_stream

DOMAIN = domain_of(3, 4, 2, 5)
WORKLOAD = draw_workload(DOMAIN, 3, None)
CODES = random_codes(DOMAIN, 60, 1)
POOLED = true_answers(WORKLOAD, random_codes(DOMAIN, 500, 2))
EVERYTHING = list(range(len(WORKLOAD.candidates)))
RNG = np.random.default_rng(3)
ONE_WAY = np.concatenate([RNG.dirichlet(np.ones(n)) for n in DOMAIN.shape])
MODEL = fit_targets(
    DOMAIN,
    {
        ("c0", "c1"): Target(RNG.dirichlet(np.ones(12)).reshape(3, 4), 1.0),
        ("c2", "c3"): Target(RNG.dirichlet(np.ones(10)).reshape(2, 5), 1.0),
    },
    iterations=30,
)[0]
EPSILON = 0.4


def settings_of(tau: str = "none", **changes: object) -> FlaimSettings:
    return FlaimSettings.preset("naive", rho=5.0, tau=tau, **{"sizes": "public", **changes})


def client(codes: NDArray[np.int32], chosen: FlaimSettings, seed: int = 0) -> FlaimClient:
    oracle = POOLED if chosen.tau == "oracle" else None
    return FlaimClient(codes, WORKLOAD, chosen, random_bytes=random_stream(seed), oracle=oracle)


def brief(rows: int = 0, round: int = 1, model: Model = MODEL, penalty: float = 1.5) -> Brief:
    allowed = np.ones(len(EVERYTHING), np.bool_)
    return Brief(WORKLOAD, round, EPSILON, 2.0, penalty, rows, allowed, model, ONE_WAY)


def scores(owner: FlaimClient, asked: Brief) -> list[float]:
    """In nats."""
    totals = candidate_totals(WORKLOAD, asked.answers)
    found = owner._scores(asked, EVERYTHING, asked.answers, totals)
    return [score / 2**SCORE_BITS for score in found]


@pytest.mark.parametrize("tau", ["none", "oracle", "proxy"])
@pytest.mark.parametrize("rows", [0, 47])
def test_scores_are_those_of_the_paper(tau: str, rows: int) -> None:
    chosen = settings_of(tau, sizes="estimated" if rows else "public")
    size = rows or len(CODES)
    counts = table_answers(WORKLOAD, CODES)
    model = np.concatenate([a.reshape(-1) for a in MODEL.answers(WORKLOAD.candidates)])
    truth = POOLED / 2**32

    def distance(q: int, answers: NDArray[np.float64]) -> float:
        cells = WORKLOAD.slice(q)
        return float(np.abs(counts[cells] - size * answers[cells]).sum())

    columns = np.array(
        [distance(j, np.append(ONE_WAY, np.zeros(WORKLOAD.cells))) for j in range(4)]
    )
    delta = max(WORKLOAD.weights) * (1 if tau == "none" else 2)
    for q, found in enumerate(scores(client(CODES, chosen), brief(rows))):
        clique = WORKLOAD.candidates[q]
        taus = {
            "none": 0.0,
            "oracle": distance(q, truth),
            "proxy": float(columns[[DOMAIN.index(n) for n in clique]].mean()),
        }
        noise = math.sqrt(2 / math.pi) * 1.5 * DOMAIN.size(clique)
        exact = WORKLOAD.weights[q] * (distance(q, model) - noise - taus[tau])
        # Cut to 1/64 of a row.
        assert found == pytest.approx(EPSILON * exact / (2 * delta), abs=EPSILON / 60)


@pytest.mark.parametrize("tau", ["none", "proxy"])
@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(*(st.integers(0, n - 1) for n in DOMAIN.shape)), min_size=1, max_size=40
    ),
    size=st.integers(1, 60),
)
def test_one_row_moves_a_score_by_no_more_than_half_epsilon(
    tau: str, rows: list[tuple[int, ...]], size: int
) -> None:
    # The size is public or estimated: it is the same for both neighbours.
    chosen = settings_of(tau, sizes="estimated")
    table = np.array(rows, np.int32)
    more = scores(client(table, chosen), brief(size))
    less = scores(client(table[1:], chosen), brief(size))
    for a, b in zip(more, less, strict=True):
        assert abs(Fraction(a) - Fraction(b)) <= Fraction(EPSILON) / 2


def test_one_row_moves_a_score_with_tau_by_more_than_a_quarter_of_epsilon() -> None:
    # The control: with Delta = max w instead of 2 max w, the bound above would be broken.
    chosen = settings_of("proxy", sizes="estimated")
    moved = 0.0
    for seed in range(40):
        table = random_codes(DOMAIN, 20, seed)
        more = scores(client(table, chosen), brief(20))
        less = scores(client(table[1:], chosen), brief(20))
        moved = max(moved, *(abs(a - b) for a, b in zip(more, less, strict=True)))
    assert moved > EPSILON / 4 * 1.2


def test_scores_do_not_depend_on_a_private_size() -> None:
    owner = client(CODES, settings_of(sizes="estimated"))
    assert owner.declared_rows is None
    with pytest.raises(FlaimError, match="sizes"):
        owner.choose(brief(0))
    assert client(CODES, settings_of()).declared_rows == len(CODES)
    with pytest.raises(FlaimError, match="sizes"):
        client(CODES, settings_of()).choose(brief(47))


def test_choose_charges_each_choice_and_each_local_measurement() -> None:
    owner = client(CODES, settings_of(local_rounds=3))
    chosen = owner.choose(brief())
    assert len(set(chosen)) == 3
    assert [e.event for e in owner.ledger.entries] == (
        [ExponentialEvent(EPSILON + GRID_SLACK)] * 3 + [DiscreteGaussianEvent(2.0)] * 2
    )
    with pytest.raises(FlaimError, match="after one"):
        owner.choose(brief())


def test_choose_looks_at_its_own_model_after_a_local_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[NDArray[np.uint32]] = []
    plain = FlaimClient._select

    def select(
        self: FlaimClient,
        asked: Brief,
        candidates: list[int],
        answers: NDArray[np.uint32],
        totals: NDArray[np.int64],
    ) -> int:
        seen.append(answers)
        assert (totals == candidate_totals(WORKLOAD, answers)).all()
        return plain(self, asked, candidates, answers, totals)

    monkeypatch.setattr(FlaimClient, "_select", select)
    codes = random_codes(DOMAIN, 5000, 4)
    first, _ = client(codes, settings_of(local_rounds=2, iterations=300)).choose(brief())
    cells = WORKLOAD.slice(first)
    truth = table_answers(WORKLOAD, codes)[cells] / len(codes)
    before, after = (np.abs(answers[cells] / 2**32 - truth).sum() for answers in seen)
    # 5,000 rows under noise of 2: the client's model is brought to what it measured.
    assert after < before / 10


def test_choose_refuses_what_its_budget_does_not_cover() -> None:
    owner = FlaimClient(
        CODES,
        WORKLOAD,
        FlaimSettings.preset("naive", rho=0.03, sizes="public"),
        random_bytes=random_stream(0),
    )
    owner.choose(brief())
    with pytest.raises(BudgetExceeded, match="round 2, select"):
        owner.choose(brief(round=2))
    assert len(owner.ledger.entries) == 1


def test_choose_is_uniform_and_free_in_variant_random() -> None:
    owner = client(CODES, FlaimSettings.preset("random", rho=5.0, sizes="public"))
    allowed = np.zeros(len(EVERYTHING), np.bool_)
    allowed[[2, 5, 7]] = True
    picks = []
    for round in range(1, 601):
        picks += owner.choose(Brief(WORKLOAD, round, 0.0, 2.0, 1.5, 0, allowed, None, None))
    assert owner.ledger.entries == []
    assert set(picks) == {2, 5, 7}
    # 600 draws: each 200, deviation 11.5; beyond 60 once in 10^6 runs.
    assert all(abs(picks.count(i) - 200) < 60 for i in (2, 5, 7))


def test_count_gives_what_was_chosen_and_zeros_elsewhere() -> None:
    owner = client(CODES, settings_of())
    (mine,) = owner.choose(brief())
    other = next(i for i in EVERYTHING if i not in (mine, *WORKLOAD.one_way))
    layout = Layout(1, 0, 3, 2.0, True, tuple(sorted({mine, other})))
    counts = table_answers(WORKLOAD, CODES)
    vector = owner.count(layout)
    expected = [counts[WORKLOAD.slice(j)] for j in WORKLOAD.one_way]
    for i in layout.chosen:
        expected.append(counts[WORKLOAD.slice(i)] * (i == mine))
    assert (vector == np.concatenate(expected)).all()
    charged = [e.event for e in owner.ledger.entries if e.step == "measure"]
    assert charged == [DiscreteGaussianEvent(2.0)] * 5
    # A second sum of the round has none of it again.
    assert not owner.count(Layout(1, 1, 3, 2.0, False, (mine,))).any()


def test_count_gives_all_columns_and_pairs_in_as_many_rounds_as_are_paid_for() -> None:
    pairs = FlaimSettings.preset("pairs", rho=0.5, rounds=4, participation=0.5)
    owner, common = client(CODES, pairs), pairs.common(WORKLOAD)
    sigma, more = pairs.schedule(len(common)).sigma, common[len(WORKLOAD.one_way) :]
    counts = table_answers(WORKLOAD, CODES)
    for round in (0, 3):
        layout = Layout(round, 0, 3, sigma, True, more)
        assert owner.chose_of(layout)
        expected = np.concatenate([counts[WORKLOAD.slice(i)] for i in common])
        assert (owner.count(layout) == expected).all()
    charged = [entry.event for entry in owner.ledger.entries]
    assert charged == [DiscreteGaussianEvent(sigma)] * (2 * len(common))
    with pytest.raises(BudgetExceeded, match="round 4"):
        owner.count(Layout(4, 0, 3, sigma, True, more))
    # Another noise, or a sum of something else, is not what was agreed.
    fresh = client(CODES, pairs)
    with pytest.raises(BudgetExceeded):
        fresh.count(Layout(0, 0, 3, sigma / 2, True, more))
    for one_way, chosen in ((True, more[1:]), (False, more), (True, ())):
        with pytest.raises(FlaimError, match="as agreed"):
            fresh.count(Layout(0, 0, 3, sigma, one_way, chosen))
    with pytest.raises(FlaimError, match="makes no choices"):
        fresh.choose(brief())
    assert fresh.ledger.entries == []


@pytest.mark.parametrize("grouping", ["union", "query"])
def test_count_refuses_other_rounds_and_sums_over_too_few(grouping: str) -> None:
    owner = client(CODES, settings_of(min_participants=5, grouping=grouping))
    owner.choose(brief(round=4))
    with pytest.raises(FlaimError, match="round 3"):
        owner.count(Layout(3, 0, 5, 2.0, True, ()))
    with pytest.raises(FlaimError, match="4 clients"):
        owner.count(Layout(4, 0, 4, 2.0, True, ()))


@pytest.mark.parametrize(
    ("codes", "named"),
    [
        (CODES[:, :3], "4 columns"),
        (np.array([[0, 0, 0, 5]], np.int32), "outside the domain"),
        (np.array([[0, 0, -1, 0]], np.int32), "outside the domain"),
        (CODES.astype(np.float64), "integers"),
        (CODES[0], "4 columns"),
        (np.repeat(CODES, 20, axis=0), "max_client_rows"),
    ],
)
def test_client_refuses_a_table_that_does_not_fit(codes: NDArray[np.int32], named: str) -> None:
    with pytest.raises(FlaimError, match=named):
        client(codes, settings_of(max_client_rows=1000))


def test_client_takes_an_empty_table() -> None:
    empty = np.zeros((0, 4), np.int32)
    owner = client(empty, settings_of())
    (mine,) = owner.choose(brief())
    assert not owner.count(Layout(1, 0, 3, 2.0, True, (mine,))).any()


def test_client_wants_the_oracle_for_tau_oracle_alone() -> None:
    with pytest.raises(FlaimError, match="oracle"):
        FlaimClient(CODES, WORKLOAD, settings_of("oracle"), random_bytes=random_stream(0))
    with pytest.raises(FlaimError, match="oracle"):
        FlaimClient(CODES, WORKLOAD, settings_of(), random_bytes=random_stream(0), oracle=POOLED)


def test_repr_shows_no_rows() -> None:
    assert repr(client(CODES, settings_of())) == "FlaimClient(spent=0 of 5)"
