"""Box-Muller noise: accuracy, range and distribution."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from protocols import box_muller
from protocols.bitslice import from_planes, to_bits, words_for
from protocols.context import Context
from protocols.ring import R64, Ring
from protocols.shares import Share
from tests.protocols.local import reconstruct, run_parties


@cache
def samples(count: int, seed: int = 1) -> np.ndarray:
    outcome = run_parties(lambda c: box_muller.gaussian(c, count), seed=seed)
    return R64.decode(reconstruct(outcome.results)) / 2**box_muller.SAMPLE_BITS


def worst_radius_error() -> float:
    """Largest distance of the table's polynomials from sqrt(-2 ln u), over a fine grid of every interval."""
    t = np.linspace(-0.5, 0.5, 2001)
    table = np.ldexp(
        np.array(box_muller.radius_table(), np.float64), -box_muller.SAMPLE_BITS
    ).reshape(2, -1, 7)
    worst = 0.0
    for near_one, rows in enumerate(table):
        for e, row in enumerate(rows, start=1):
            v = np.ldexp(1.5 + t, -(e + 1))
            exact = np.sqrt(-2 * (np.log1p(-v) if near_one else np.log(v)))
            worst = max(worst, float(np.abs(np.polyval(row[::-1], t) - exact).max()))
    return worst


def test_radius_table_is_accurate_to_20_bits() -> None:
    assert worst_radius_error() < 2**-20


def test_octant_polynomials_are_accurate_to_24_bits() -> None:
    x = np.linspace(0, 1, 5001)
    cosine, sine = (np.ldexp(np.array(c, np.float64), -26) for c in box_muller.octant_polynomials())
    assert np.abs(np.polyval(cosine[::-1], x) - np.cos(np.pi / 4 * x)).max() < 2**-24
    assert np.abs(np.polyval(sine[::-1], x) - np.sin(np.pi / 4 * x)).max() < 2**-24


def test_largest_sample_bounds_the_reachable_radius() -> None:
    t = np.linspace(-0.5, 0.5, 2001)
    table = np.ldexp(np.array(box_muller.radius_table(), np.float64), -box_muller.SAMPLE_BITS)
    reachable = max(float(np.polyval(row[::-1], t).max()) for row in table)
    assert reachable < box_muller.LARGEST_SAMPLE < reachable + 0.02


def sampled_with_exact(pairs: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Samples, and what floats make of the same random bits, which are put together again here. Both (2, pairs)."""
    drawn: dict[int, list[Share]] = {}
    original = box_muller.noise

    def recording(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> Share:
        share = original(ctx, ring, shape)
        drawn.setdefault(shape[0], []).append(share)
        return share

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box_muller, "noise", recording)
        outcome = run_parties(lambda c: box_muller.box_muller(c, pairs), seed=seed)
    z = R64.decode(reconstruct(outcome.results)) / 2**box_muller.SAMPLE_BITS
    planes = {rows: reconstruct(shares) for rows, shares in drawn.items()}
    run, near_one = to_bits(planes[40], pairs), to_bits(planes[1], pairs)[0]
    words = words_for(pairs)
    fraction = from_planes(planes[26], 2 * words * 64).reshape(2, -1)[:, :pairs] / 2**26
    swap, *signs = to_bits(planes[3], pairs)
    e = np.where(run.any(axis=0), run.argmax(axis=0), 39) + 1
    v = np.ldexp(1 + fraction[0], -(e + 1))
    radius = np.sqrt(-2 * np.where(near_one, np.log1p(-v), np.log(v)))
    angle = np.pi / 4 * fraction[1]
    first, second = np.where(swap, (np.sin(angle), np.cos(angle)), (np.cos(angle), np.sin(angle)))
    return z, radius * np.array([first, second]) * (1 - 2.0 * np.array(signs))


def test_box_muller_is_accurate_on_its_own_bits() -> None:
    """20,000 samples against floats computed from the same random bits."""
    z, exact = sampled_with_exact(10_000)
    assert np.abs(z - exact).max() < 2**-18


def reject_normal(z: np.ndarray) -> list[str]:
    """The tests that a sample fails at a false-alarm rate of 10^-5 each: mean, variance, fourth moment, KS, tails."""
    n, failed = z.size, []
    if abs(z.mean()) > 4.42 / math.sqrt(n):
        failed.append("mean")
    if abs((z**2).mean() - 1) > 4.42 * math.sqrt(2 / n):
        failed.append("variance")
    if abs((z**4).mean() - 3) > 4.42 * math.sqrt(96 / n):
        failed.append("fourth moment")
    if stats.kstest(z, "norm").pvalue < 1e-5:
        failed.append("kolmogorov-smirnov")
    for bound in (2.0, 3.0, 3.5, 4.5):
        tail = stats.binomtest(int((np.abs(z) > bound).sum()), n, 2 * stats.norm.sf(bound))
        if tail.pvalue < 1e-5:
            failed.append(f"tail beyond {bound}")
    return failed


def test_gaussian_is_standard_normal() -> None:
    """60,000 samples; a shift of 0.02 or a scale off by 1.5 % is caught."""
    assert reject_normal(samples(60_000)) == []


def figures(z: np.ndarray) -> dict[str, float]:
    """Figures of standard normal samples."""
    tails = {
        f"beyond {t}: seen / expected": float(
            (np.abs(z) > t).sum() / (2 * stats.norm.sf(t) * z.size)
        )
        for t in (2.0, 3.0, 4.0, 4.5, 5.0)
    }
    moments = {f"moment {k}": float((z**k).mean()) for k in (1, 2, 3, 4, 6)}
    distance = stats.kstest(z, "norm")
    return {
        "largest": float(np.abs(z).max()),
        **moments,
        **tails,
        "KS distance": float(distance.statistic),
        "KS p-value": float(distance.pvalue),
    }


@pytest.mark.slow
def test_gaussian_is_standard_normal_on_ten_million_samples() -> None:
    """A shift or a scale off by 0.2 %, or a tail cut at 4.5, is caught: the controls. The figures are printed."""
    batches, worst = [], 0.0
    for seed in range(100):
        z, exact = sampled_with_exact(50_000, seed)
        worst = max(worst, float(np.abs(z - exact).max()))
        batches.append(z.ravel())
    z = np.concatenate(batches)
    print({"samples": z.size, "largest error": worst, **figures(z)})
    assert worst < 2**-18
    assert np.abs(z).max() < box_muller.LARGEST_SAMPLE
    assert reject_normal(z) == []
    for biased in (z + 0.002, z * 1.002, np.clip(z, -4.5, 4.5)):
        assert reject_normal(biased) != []


@pytest.mark.parametrize(
    "bias",
    [
        lambda z: z + 0.03,
        lambda z: z * 1.03,
        lambda z: np.clip(z, -3, 3),
        lambda z: np.sign(z) * np.abs(z) ** 1.05,
    ],
    ids=["shifted", "scaled", "cut", "bent"],
)
def test_reject_normal_rejects_a_biased_sampler(bias: object) -> None:
    """The control: what the tests above would not notice is not tested by them."""
    assert reject_normal(bias(samples(60_000))) != []  # type: ignore[operator]


def test_gaussian_pairs_and_neighbours_are_uncorrelated() -> None:
    z = samples(60_000)
    for lag in (1, 64, 16_384, 30_000):
        assert abs(np.corrcoef(z[:-lag], z[lag:])[0, 1]) < 4.42 / math.sqrt(z.size - lag)
    squares = z**2
    assert abs(np.corrcoef(squares[:-16_384], squares[16_384:])[0, 1]) < 4.42 / math.sqrt(
        z.size - 16_384
    )


@pytest.mark.parametrize("count", [0, 1, 2, 7, 129])
def test_gaussian_has_the_asked_number_of_samples(count: int) -> None:
    assert samples(count).shape == (count,)
