"""The server of Fed-TDA: mixtures, frequencies, second moments, each from sums over the silos.

The server sees sums and nothing of any one silo. All values that it sends are public. Rounds: one sum for each
iteration of the mixtures, and two more. Source: Fed-TDA, with the package README's deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import RoundLost
from mechanisms.fixed_point import pack_arrays
from mechanisms.silos import Silos, Sum
from mechanisms.tda.covariance import DIAGONAL, MomentSum, correlation, positive
from mechanisms.tda.icdm import Scores
from mechanisms.tda.latent import latent_correlation
from mechanisms.tda.layout import Layout
from mechanisms.tda.mixture import Mixture, Prior, initial, moved, update
from mechanisms.tda.model import TdaModel, column_scores
from mechanisms.tda.settings import TdaSettings
from mechanisms.tda.steps import Steps, cost, mixture_unit, moment_scale

Floats = NDArray[np.float64]


@dataclass(slots=True)
class TdaResult:
    """Result of a run.

    Attributes:
        model: the released model.
        iterations: iterations of its mixtures.
        lost: iterations that were lost besides.
        rho: cost per row, 0 for a run that is not private.
        survivors: numbers of the silos in each sum.
    """

    model: TdaModel
    iterations: int
    lost: int
    rho: float
    survivors: list[tuple[int, ...]] = field(default_factory=list)


async def run(
    layout: Layout,
    settings: TdaSettings,
    silos: Silos,
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> TdaResult:
    """Runs Fed-TDA and sends the model to all silos.

    An iteration that loses too many silos is left out: nothing of it was opened, its charge is spent. Raises
    ``RoundLost`` if that happens to the frequencies or the second moments, ``ValueError`` for too small a budget.
    """
    steps = Steps.of(layout, settings)
    survivors: list[tuple[int, ...]] = []
    mixture = initial(Prior.of(settings.components), len(layout.continuous), layout.components)
    done = lost = 0
    for number in range(1, steps.iterations + 1):
        try:
            total = await silos.sum(steps.mixture.request(_mixture_payload(mixture, number)))
        except RoundLost as error:
            lost += 1
            progress(f"mixtures, {number} of {steps.iterations}: lost, {error}")
            continue
        done += 1
        survivors.append(total.survivors)
        sums = steps.mixture.real(total).reshape(-1, 3, layout.components)
        noise = steps.mixture.deviation(total)
        after = update(mixture, sums, mixture_unit(mixture, settings), noise=noise)
        change, mixture = moved(mixture, after), after
        progress(f"mixtures, {number} of {steps.iterations}: moved by {change:.2g}")
        # With noise parameters never stop, and every iteration is paid for.
        if not settings.private_run and change < settings.tolerance:
            break

    total = await silos.sum(steps.frequencies.request(_mixture_payload(mixture)))
    survivors.append(total.survivors)
    shares = category_shares(layout, total, noisy=settings.private_run)
    progress(f"frequencies of {len(shares)} columns")

    ranked = column_scores(layout, settings.order, mixture, shares)
    payload = _mixture_payload(mixture) + pack_arrays(*shares)
    total = await silos.sum(steps.moments.request(payload))
    survivors.append(total.survivors)
    diagonal = DIAGONAL if settings.private_run else 1.0
    square = moment_scale(layout, settings, ranked) ** 2
    triangle = steps.moments.real(total) / square
    moments = MomentSum.of(triangle, layout.width, diagonal=diagonal)
    noise = steps.moments.deviation(total) / square / moments.rows
    covariance = copula(moments, settings, ranked, noise=noise)
    model = TdaModel(
        layout, settings.privacy, settings.order, moments.rows, mixture, tuple(shares), covariance
    )
    progress(f"second moments of {layout.width} columns")
    await silos.finish(model.to_json().encode())
    spent = cost([*[steps.mixture] * (done + lost), steps.frequencies, steps.moments])
    return TdaResult(model, done, lost, spent, survivors)


def copula(
    moments: MomentSum, settings: TdaSettings, ranked: Sequence[Scores], *, noise: float
) -> Floats:
    """Returns the matrix (l, l) that rows are drawn with, from second moments with entries of noise ``noise``."""
    covariance = moments.covariance
    if settings.correlations == "latent":
        places = len(covariance) - len(ranked)
        latent = latent_correlation(covariance, places, ranked, rows=moments.rows, noise=noise)
        # Categories that exclude one another have correlations that no normal variables have all at once. The
        # projection preserves the most visible ones: rare categories' correlations matter little.
        shows = np.array([1.0] * places + [max(scores.variance, 1e-3) for scores in ranked])
        nearest = positive(latent, weights=shows)
        # Drawn rows are standard normal in every column.
        return positive(correlation(nearest, error=0.0))
    return positive(correlation(covariance, error=noise) if noise else covariance)


def category_shares(layout: Layout, total: Sum, *, noisy: bool) -> list[Floats]:
    """Returns the shares of every column's categories from their counts; uniform in a column without rows.

    With noise all columns are projected to the same number of rows, estimated from all totals, and to non-negative
    counts.
    """
    counts = [part.astype(np.float64) for part in layout.split(total.values)]
    if noisy:
        # A total of n noisy counts has n times the variance of one.
        totals = [float(part.sum()) for part in counts]
        rows = np.average(totals, weights=[1 / part.size for part in counts])
        counts = [nearest_counts(part, max(1.0, float(rows))) for part in counts]
    return [
        part / part.sum() if part.sum() else np.full(part.size, 1 / part.size) for part in counts
    ]


def nearest_counts(counts: Floats, total: float) -> Floats:
    """Returns the nearest non-negative vector (n,) to ``counts``, in Euclidean norm, with the sum ``total`` > 0."""
    # All positive counts are lowered by the same amount, the least for which the others, at 0, fit.
    ordered = np.sort(counts)[::-1]
    lowered = (np.cumsum(ordered) - total) / np.arange(1, counts.size + 1)
    return np.asarray(np.maximum(counts - lowered[np.flatnonzero(ordered > lowered)[-1]], 0.0))


def _mixture_payload(mixture: Mixture, number: int | None = None) -> bytes:
    """Returns the three arrays, behind the number of the iteration if there is one."""
    head = [] if number is None else [np.array([number], np.float64)]
    return pack_arrays(*head, mixture.counts, mixture.mean, mixture.scatter)
