"""Budget of a population: its releases, their total, and what its limit covers.

``Release`` bounds a run's release, ``ReleaseCharge`` is one that was charged, and ``Dataset`` has all of a population's
with its limit. Costs are in rho of zCDP. Releases that are each at most a Gaussian of their rho
(`mechanisms.gaussian_privacy`) together are one Gaussian, with a larger limit, also if later ones were chosen by
results of earlier ones. Releases that have (epsilon, delta) alone are added: their deltas, and their epsilons or rho.
Sums are compared with the limit as exact rationals. Nothing here is secret to the owner. Source: Bun and Steinke,
Concentrated differential privacy, TCC 2016, section 8.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from mechanisms.accounting import ZCDP, epsilon_from_rho, rho_from_epsilon_delta, round_up
from mechanisms.gaussian_privacy import GAUSSIAN, gaussian_budget, gaussian_epsilon
from parties.config import PERSON, Config
from parties.foundation.times import iso_time
from parties.storage.charge_state import ChargeState
from parties.storage.limit_history import LimitChange
from parties.storage.populations import RecordedWord

ROW = "row"
"""Default privacy unit: presence of a row in the table."""
ROW_OF_KNOWN = "row of a table whose size is known"
"""Privacy unit of FLAIM with declared sizes: content of a row, in a table with a public number of rows."""
APPROXIMATE = "approximate"
"""Accountant of a release with (epsilon, delta) and nothing finer."""
WITHDRAWN, REPLACED, UNOPENED = "withdrawn", "replaced", "unopened"
"""Reasons for a refund: servers have signed that nothing was counted, or that nothing of the study was opened; or
another submission of the same run replaces it.
"""


def person_or_row(config: Config) -> str:
    """Returns the privacy unit of a run whose owners have whole rows, for the budgets of participants."""
    if config.run.unit != PERSON:
        return ROW
    rows = config.rows_of_unit
    return PERSON if rows == 1 else f"person with up to {rows} rows"


@dataclass(frozen=True, slots=True)
class Release:
    """Upper bound on the release of one run of configuration ``config`` about one table: ``rho``, for (epsilon, delta).

    Attributes:
        distance: Bound on the statistical distance of the samples from the distribution that rho is for.
        unit: Privacy unit, the difference between neighbouring tables.
        accountant: Name of the accountant of rho; rho is a cost in zCDP in any case.

    A release without a guarantee has infinite rho and epsilon (``not_private``). One that is known to be (epsilon,
    delta)-indistinguishable alone has the accountant APPROXIMATE and rho = epsilon^2 / 2, of zCDP but for an event of
    probability delta (Bun and Steinke 2016, section 8).
    """

    config: str
    run: str
    method: str
    rho: float
    epsilon: float
    delta: float
    distance: float = 0.0
    unit: str = ROW
    accountant: str = ZCDP.name

    @property
    def not_private(self) -> bool:
        """True for a release without a guarantee."""
        return math.isinf(self.rho)


@dataclass(frozen=True, slots=True)
class ReleaseCharge:
    """A charged release, its ``submission``, and its time in seconds since the epoch.

    ``returned`` is the reason of a refund, after which it is not spent: WITHDRAWN, REPLACED or UNOPENED. A charge that
    is ``released`` is never refunded.
    """

    release: Release
    submission: str
    at: float
    returned: str | None = None
    released: bool = False

    @property
    def state(self) -> ChargeState:
        """State of the charge."""
        if self.returned is not None:
            return ChargeState.RETURNED
        return ChargeState.RELEASED if self.released else ChargeState.CHARGED

    @property
    def when(self) -> str:
        """Time of the charge in ISO 8601, UTC."""
        return iso_time(self.at)

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        release = self.release
        return {
            "config": release.config,
            "run": release.run,
            "method": release.method,
            "rho": json_number(release.rho),
            "when": self.when,
            "epsilon": json_number(release.epsilon),
            "delta": release.delta,
            "unit": release.unit,
            "accountant": release.accountant,
            "returned": self.returned,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True)
class Dataset:
    """A population's budget: its lifetime limit, as rho and as (``epsilon``, ``delta``), and all of its charges.

    ``rho_limit`` is in zCDP; see ``limit_with``. ``changes`` are those of the limit, ``words`` what the owner said of
    tables.
    """

    name: str
    rho_limit: float
    epsilon: float
    delta: float
    runs: tuple[ReleaseCharge, ...]
    changes: tuple[LimitChange, ...] = ()
    words: tuple[RecordedWord, ...] = ()

    @property
    def spent(self) -> Fraction:
        """Exact sum of the rho of all spent releases that have a guarantee; see ``not_private``."""
        return _rho_of([run.release for run in self.spending])

    @property
    def not_private(self) -> tuple[ReleaseCharge, ...]:
        """Spent releases without a guarantee; with one of them, all together have none."""
        return tuple(run for run in self.spending if run.release.not_private)

    @property
    def spending(self) -> tuple[ReleaseCharge, ...]:
        """Releases that are not refunded."""
        return tuple(run for run in self.runs if run.returned is None)

    def limit_with(self, *more: Release) -> float:
        """Returns the limit on the rho of all releases and ``more``: ``rho_limit``, or more if all are Gaussians."""
        releases = [*(run.release for run in self.spending), *more]
        if not _are_gaussian(releases) or math.isinf(self.rho_limit):
            return self.rho_limit
        distance = sum(release.distance for release in releases)
        try:
            return max(self.rho_limit, gaussian_budget(self.epsilon, self.delta, distance=distance))
        except ValueError:
            return self.rho_limit

    @property
    def left(self) -> float:
        """Remaining rho."""
        return left_of(self, self.limit_with())

    @property
    def approximate(self) -> bool:
        """True if a spent release has (epsilon, delta) alone, so that rho does not compare with the limit."""
        return any(run.release.accountant == APPROXIMATE for run in self.spending)

    def covers(self, release: Release) -> bool:
        """Returns true if the limit covers ``release`` as well.

        One without a guarantee is covered: who takes part in such a run has asked for it by name.
        """
        limit = self.limit_with(release)
        if release.not_private or math.isinf(limit):
            return True
        if self.not_private:
            return False
        if self.approximate or release.accountant == APPROXIMATE:
            return self.epsilon_with(release) <= self.epsilon
        return self.spent + Fraction(release.rho) <= Fraction(limit)

    def has(self, config: str, submission: str) -> bool:
        """Returns true if this submission to this configuration was charged."""
        key = (config, submission)
        return any((run.release.config, run.submission) == key for run in self.spending)

    def epsilon_with(self, *more: Release) -> float:
        """Returns the total epsilon of all releases and ``more``, at this limit's delta."""
        releases = [*(run.release for run in self.spending), *more]
        if any(release.not_private for release in releases):
            return math.inf
        if any(release.accountant == APPROXIMATE for release in releases):
            return _approximate_epsilon(releases, self.delta)
        rho = _rho_of(releases)
        distance = sum(release.distance for release in releases)
        if _are_gaussian(releases):
            return gaussian_epsilon(round_up(rho), self.delta, distance=distance)
        return epsilon_from_rho(round_up(rho), self.delta, distance=distance)

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {
            "name": self.name,
            "rho_limit": json_number(self.limit_with()),
            "rho_spent": None if self.not_private else float(self.spent),
            "rho_left": json_number(self.left),
            "epsilon_limit": json_number(self.epsilon),
            "epsilon_spent": json_number(self.epsilon_with()),
            "delta": self.delta,
            "private": not self.not_private,
            "runs": [run.to_dict() for run in self.runs],
            "limits": [change.to_dict() for change in self.changes],
            "words": [word.to_dict() for word in self.words],
        }


def json_number(value: float) -> float | None:
    """Returns a number as JSON has it: None for an infinite one."""
    return value if math.isfinite(value) else None


def _rho_of(releases: Sequence[Release]) -> Fraction:
    """Returns the exact sum of the rho of those that have a guarantee."""
    return sum(
        (Fraction(release.rho) for release in releases if not release.not_private), Fraction(0)
    )


def _approximate_epsilon(releases: Sequence[Release], delta: float) -> float:
    """Returns the total epsilon at ``delta`` where some releases have (epsilon, delta) alone; infinite if none holds.

    Their deltas add up. The rest of delta is for the others, whose epsilon is added to theirs, or for all of them as
    zCDP, whichever is less.
    """
    alone = [release for release in releases if release.accountant == APPROXIMATE]
    others = [release for release in releases if release.accountant != APPROXIMATE]
    distance = sum(release.distance for release in others)
    rest = Fraction(delta) - sum(Fraction(release.delta) for release in alone)
    if rest < 0 or (others and not rest):
        return math.inf
    added = sum((Fraction(release.epsilon) for release in alone), Fraction(0))
    least = -round_up(-rest)
    own = epsilon_from_rho(round_up(_rho_of(others)), least, distance=distance) if others else 0.0
    together = math.inf
    if rest:
        together = epsilon_from_rho(round_up(_rho_of(releases)), least, distance=distance)
    return min(round_up(added + Fraction(own)) if math.isfinite(own) else math.inf, together)


def left_of(dataset: Dataset, limit: float) -> float:
    """Returns what is left of a limit: nothing after a release without a guarantee, unless there is no limit."""
    if math.isinf(limit):
        return math.inf
    if dataset.not_private:
        return 0.0
    if dataset.approximate:
        return _left_beside(dataset)
    return max(0.0, float(Fraction(limit) - dataset.spent))


def _left_beside(dataset: Dataset) -> float:
    """Returns rho that would be covered beside releases with (epsilon, delta) alone."""
    alone = [run.release for run in dataset.spending if run.release.accountant == APPROXIMATE]
    epsilon = dataset.epsilon - sum(release.epsilon for release in alone)
    delta = dataset.delta - sum(release.delta for release in alone)
    if epsilon <= 0 or delta <= 0:
        return 0.0
    others = [r.release for r in dataset.spending if r.release.accountant != APPROXIMATE]
    return max(0.0, rho_from_epsilon_delta(epsilon, delta) - float(_rho_of(others)))


def _are_gaussian(releases: Sequence[Release]) -> bool:
    return all(release.accountant == GAUSSIAN for release in releases)


def first_limit(release: Release) -> float:
    """Returns the limit (zCDP) that a population's first release sets: its cost, or what its (epsilon, delta) allow."""
    if release.accountant == ZCDP.name or release.not_private:
        return release.rho
    allowed = rho_from_epsilon_delta(release.epsilon, release.delta, distance=release.distance)
    return min(allowed, release.rho)
