"""Checks of a configuration for FLAIM, the noise of its sums, and the guarantee's neighbouring tables in words.

Server, clients and trials begin with ``check_flaim``, before anything is sent, charged or computed. ``neighbours_text``
stands wherever FLAIM's epsilon is printed. ``ReplacementCost`` is the cost of one row replaced by another, if sizes are
public: tables of one size are then the neighbours. All values here are public. Source: `mechanisms` README.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mechanisms.accounting import epsilon_from_rho, rho
from mechanisms.events import Event
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.replacement import rho_of_replacing
from mechanisms.scores import MAX_CANDIDATES
from parties.config import PERSON, Config, FlaimSection
from parties.federation.flaim_parameters import settings_of
from parties.foundation.errors import ConfigError
from parties.mpc.planning.resources import CellNoise, cell_noise
from parties.mpc.planning.validation import FEWER_CELLS
from parties.session.study import Study
from secagg.parameters import MAX_LENGTH


def check_whole_rows(config: Config) -> None:
    """Raises ConfigError for configurations that no run of FLAIM can protect, whatever its settings."""
    if config.sources or config.run.unit == PERSON:
        raise ConfigError(
            config.source,
            "source" if config.sources else "run.unit",
            "is DistAIM's and central AIM's alone: FLAIM's clients have whole rows, and its budget is for a row; "
            'expected no [[source]] tables and unit = "row"',
        )


def check_flaim(study: Study) -> FlaimSettings:
    """Returns the run's settings after all checks. Raises ConfigError, by key."""
    check_whole_rows(study.config)
    settings = settings_of(study.config)
    if len(study.workload.candidates) > MAX_CANDIDATES:
        raise ConfigError(
            study.config.source,
            "workload",
            f"has {len(study.workload.candidates)} sets of columns to choose from; expected at most "
            f"{MAX_CANDIDATES}: fewer queries (workload.count), or of fewer columns (workload.degree)",
        )
    query = max(study.workload.candidates, key=study.workload.domain.size)
    cells = sum(study.workload.domain.shape) + study.workload.domain.size(query)
    if cells > MAX_LENGTH:
        raise ConfigError(
            study.config.source,
            "workload",
            f"has a query ({', '.join(query)}) with which a sum has {cells} cells; expected at most {MAX_LENGTH}: "
            f"{FEWER_CELLS}",
        )
    return settings


def flaim_noise(study: Study, rows: float) -> tuple[int, list[CellNoise]]:
    """Returns the expected number of clients in a sum, and the noise in its cells if all of them chose its query.

    ``rows`` are those of all clients; a sum covers the rows of a round's participants.
    """
    settings, clients = settings_of(study.config), study.config.clients.expected
    schedule = settings.schedule(len(study.config.domain.columns))
    members = max(settings.min_participants, round(settings.participation * clients))
    sigma = settings.sum_noise(schedule.sigma).deviation(members)
    return members, list(cell_noise(study.workload, rows * members / clients, sigma))


PUBLIC_SIZES = "public"


def neighbours_text(section: FlaimSection) -> str:
    """Returns the guarantee's neighbouring tables in words."""
    of_row = "one row added to or removed from one client's table"
    if section.sizes != PUBLIC_SIZES:
        return of_row
    return f"{of_row}, its declared number of rows, which is public, being the same"


@dataclass(frozen=True, slots=True)
class ReplacementCost:
    """Cost of one row replaced by another: ``rho``, ``epsilon`` at the run's delta, ``times`` the charged rho."""

    rho: float
    epsilon: float
    times: float

    @classmethod
    def of(
        cls, section: FlaimSection, events: Iterable[Event], *, delta: float
    ) -> "ReplacementCost | None":
        """Returns the cost of the charged ``events``; None if sizes are not public, or nothing was charged."""
        events = list(events)
        if section.sizes != PUBLIC_SIZES or not events:
            return None
        cost = rho_of_replacing(events)
        return cls(cost, epsilon_from_rho(cost, delta), cost / sum(map(rho, events)))

    def __str__(self) -> str:
        return (
            f"for one row replaced by another: rho {self.rho:.4g}, {self.times:.3g} times as much, epsilon = "
            f"{self.epsilon:.3g} at the same delta"
        )
