"""Forecast of a population's budget: the cost of a refresh each quarter like its latest release, and its end."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from parties.storage.population_budget import Dataset, ReleaseCharge

A_YEAR = 4
"""Refreshes a year."""
_MOST = 100 * A_YEAR
_MONTHS = 12 // A_YEAR


@dataclass(frozen=True, slots=True)
class Refreshes:
    """Quarterly repetitions of the release of ``run``: ``number`` of them fit, the last one in the month ``last``.

    ``number`` is None if there is no limit within a century. ``last`` is "YYYY-MM", None for no refresh or no end.
    ``in_a_year`` and ``in_five_years`` are epsilon of all releases by then, at the limit's delta; infinite if that
    delta does not cover them.
    """

    run: str
    rho: float
    number: int | None
    last: str | None
    in_a_year: float
    in_five_years: float

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {
            "like": self.run,
            "rho": self.rho,
            "number": self.number,
            "last": self.last,
            "epsilon_in_a_year": self.in_a_year if math.isfinite(self.in_a_year) else None,
            "epsilon_in_five_years": self.in_five_years
            if math.isfinite(self.in_five_years)
            else None,
        }


def forecast_refreshes(dataset: Dataset) -> Refreshes | None:
    """Returns the forecast; None without a release, or after one without a guarantee."""
    if dataset.not_private or not dataset.spending:
        return None
    latest = dataset.spending[-1]
    number = _most(lambda count: _fits(dataset, latest, count))
    return Refreshes(
        run=latest.release.run,
        rho=latest.release.rho,
        number=number,
        last=_quarters_after(latest.at, number) if number else None,
        in_a_year=_with(dataset, latest, A_YEAR - 1).epsilon_with(latest.release),
        in_five_years=_with(dataset, latest, 5 * A_YEAR - 1).epsilon_with(latest.release),
    )


def _with(dataset: Dataset, charge: ReleaseCharge, times: int) -> Dataset:
    return replace(dataset, runs=(*dataset.runs, *[charge] * times))


def _fits(dataset: Dataset, charge: ReleaseCharge, times: int) -> bool:
    return _with(dataset, charge, times - 1).covers(charge.release)


def _most(fits: Callable[[int], bool]) -> int | None:
    """Returns the largest number that fits, None if a century's does."""
    if fits(_MOST):
        return None
    low, high = 0, _MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _quarters_after(at: float, quarters: int) -> str:
    begun = time.gmtime(at)
    years, month = divmod(begun.tm_mon - 1 + quarters * _MONTHS, 12)
    return f"{begun.tm_year + years}-{month + 1:02}"
