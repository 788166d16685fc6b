"""Normal scores of categories, second moments and their noise, and what the paper's formula says of costs."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.fixed_point import encode_rows
from mechanisms.tda.costs import paper_mib
from mechanisms.tda.covariance import DIAGONAL, MomentSum, correlation, moments, positive
from mechanisms.tda.icdm import END, Scores, normal_quantile
from mechanisms.tda.server import nearest_counts

RNG = np.random.default_rng(1)


def test_normal_quantile_is_scipys_between_its_ends() -> None:
    u = np.concatenate([np.linspace(END, 1 - END, 20_001), [0.0, 1.0]])
    expected = scipy.stats.norm.ppf(np.clip(u, END, 1 - END))
    assert float(abs(normal_quantile(u) - expected).max()) < 1e-6


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=9).filter(any),
    st.booleans(),
    st.floats(0, 1, exclude_max=True),
)
def test_scores_lead_back_to_their_categories(counts: list[int], listed: bool, u: float) -> None:
    shares = np.array(counts) / sum(counts)
    scores = Scores.as_listed(shares) if listed else Scores.by_frequency(shares)
    # A category below the part that is cut off at an end has no scores of its own there.
    codes = np.flatnonzero(shares > 2 * END)
    back = scores.inverse(scores.forward(codes, np.clip(np.full(codes.size, u), 1e-9, 1 - 1e-9)))
    np.testing.assert_array_equal(back, codes)


def test_scores_are_standard_normal_and_read_as_their_shares() -> None:
    shares = np.array([0.1, 0.6, 0.0, 0.3])
    scores = Scores.by_frequency(shares)
    codes = RNG.choice(4, 100_000, p=shares)
    drawn = scores.forward(codes, RNG.random(codes.size))
    # Kolmogorov and Smirnov's statistic of 1e5 rows is beyond 0.0065 once in 2,000 runs; seeded here.
    assert scipy.stats.kstest(drawn, "norm").statistic < 0.0065
    read = np.bincount(scores.inverse(RNG.standard_normal(100_000)), minlength=4) / 100_000
    assert read[2] == 0
    np.testing.assert_allclose(read, shares, atol=0.01)


def test_scores_of_the_rarest_category_come_first_by_frequency() -> None:
    scores = Scores.by_frequency(np.array([0.5, 0.2, 0.3]))
    assert scores.inverse(np.array([-9.0, -0.1, 9.0])).tolist() == [1, 2, 0]


@pytest.mark.parametrize("shares", [[0.5, 0.4], [1.5, -0.5], [np.nan, 1.0]])
def test_scores_refuse_what_are_no_shares(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="shares"):
        Scores.as_listed(np.array(shares))


def test_moments_of_parts_give_mean_and_covariance_of_all_rows() -> None:
    x = RNG.normal(1, 2, (500, 4)) @ RNG.normal(0, 1, (4, 4))
    parts = [np.column_stack([np.ones(len(part)), part]) for part in np.array_split(x, 3)]
    said = MomentSum.of(np.sum([moments(part, whole=False) for part in parts], axis=0), 4)
    assert said.rows == 500
    np.testing.assert_allclose(said.mean, x.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(said.covariance, np.cov(x.T, bias=True), rtol=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 8), st.floats(0.01, 100))
def test_moments_of_one_row_have_the_norm_that_they_are_charged_for(
    seed: int, columns: int, bits: int, size: float
) -> None:
    norm = (1 + columns) ** 0.5
    row = np.random.default_rng(seed).normal(0, size, (1, columns + 1))
    whole = moments(encode_rows(row, scale_bits=bits, norm=norm).astype(np.float64), whole=True)
    square = sum(int(number) ** 2 for number in whole)
    assert 2 * square <= (norm * 2**bits) ** 4 * (1 + 1e-12)
    # The control: with all of the diagonal, it may be more.
    axis = np.eye(columns + 1)[:1] * norm * 2**bits
    assert (moments(axis, whole=False) ** 2).sum() * 2 > (norm * 2**bits) ** 4 * 1.5


def test_moments_of_whole_rows_have_their_diagonal_back() -> None:
    whole = np.rint(RNG.normal(0, 100, (1000, 4)))
    whole[:, 0] = 100
    said = MomentSum.of(moments(whole, whole=True), 3, diagonal=DIAGONAL)
    exact = MomentSum.of(moments(whole, whole=False), 3)
    np.testing.assert_allclose(
        said.covariance / said.covariance[0, 0],
        exact.covariance / exact.covariance[0, 0],
        atol=1e-3,
    )


def test_positive_is_the_nearest_matrix_to_draw_with() -> None:
    noisy = np.eye(6) + RNG.normal(0, 0.6, (6, 6))
    symmetric = (noisy + noisy.T) / 2
    assert np.linalg.eigvalsh(symmetric).min() < 0
    nearest = positive(symmetric)
    np.linalg.cholesky(nearest)
    np.testing.assert_array_equal(nearest, nearest.T)
    assert np.linalg.eigvalsh(nearest).min() > 0.9e-6
    # Every eigenvalue below the floor is moved up to it, and that is all of the distance.
    values = np.linalg.eigvalsh(symmetric)
    moved = np.linalg.norm(np.minimum(values - 1e-6, 0))
    assert abs(np.linalg.norm(nearest - symmetric) - moved) < 1e-9


def test_correlation_keeps_what_is_no_noise_and_drops_what_is() -> None:
    truth = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.0], [0.1, 0.0, 1.0]])
    np.testing.assert_allclose(correlation(3 * truth, error=0.0), truth)
    assert abs(correlation(truth, error=0.01) - truth).max() < 0.01
    np.testing.assert_array_equal(correlation(truth, error=2.0), np.eye(3))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(1, 1e6))
def test_nearest_counts_are_not_negative_and_have_their_total(
    counts: list[float], total: float
) -> None:
    nearest = nearest_counts(np.array(counts), total)
    assert (nearest >= 0).all()
    assert abs(nearest.sum() - total) <= 1e-8 * (total + sum(map(abs, counts)))


def test_nearest_counts_leave_counts_of_their_total_as_they_are() -> None:
    np.testing.assert_allclose(nearest_counts(np.array([3.0, 0.0, 7.0]), 10.0), [3.0, 0.0, 7.0])


@pytest.mark.parametrize(
    ("continuous", "categories", "printed", "digits"),
    [
        (7, [2] * 6, 0.4355, 4),
        (10, [2] * 44 + [7], 0.694, 3),
        (38, [3, 66, 11, 10], 2.445, 3),
        (10, [2, 4], 0.620, 3),
    ],
    ids=["Clinical", "CovType", "Intrusion", "Body"],
)
def test_paper_mib_is_what_the_paper_prints(
    continuous: int, categories: list[int], printed: float, digits: int
) -> None:
    assert round(paper_mib(continuous, categories), digits) == printed
