"""What a configuration cannot do as a run of FLAIM, and the noise of its sums beside the counts expected.

Provides ``check_flaim``, which server, clients and trials begin with, before anything is sent, charged or computed, and
``flaim_noise``. Public: everything.

For which neighbouring tables FLAIM's epsilon holds, in words that stand wherever it is printed.

Provides ``neighbours_text`` (who is told apart from whom) and ``ReplacementCost`` (what was released costs a row that
is replaced by another, where sizes are public: then tables of one size are the neighbours). All public. Source:
`mechanisms` README.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mechanisms.accounting import epsilon_from_rho, rho
from mechanisms.events import Event
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.replacement import rho_of_replacing
from mechanisms.scores import MAX_CANDIDATES
from mechanisms.workload import Workload
from parties.config import PERSON, Config, FlaimSection
from parties.federation.flaim_parameters import settings_of
from parties.foundation.errors import ConfigError
from parties.mpc.planning.resources import CellNoise, cell_noise
from parties.mpc.planning.validation import FEWER_CELLS
from secagg.parameters import MAX_LENGTH


def check_whole_rows(config: Config) -> None:
    """Raises ConfigError for what no run of FLAIM can protect, whatever its settings."""
    if config.sources or config.run.unit == PERSON:
        raise ConfigError(
            config.source,
            "source" if config.sources else "run.unit",
            "is DistAIM's and central AIM's alone: FLAIM's clients have whole rows, and its budget is for a row; "
            'expected no [[source]] tables and unit = "row"',
        )


def check_flaim(config: Config, workload: Workload) -> FlaimSettings:
    """The run's settings, once nothing stands against it. Raises ConfigError, by key."""
    check_whole_rows(config)
    settings = settings_of(config)
    if len(workload.candidates) > MAX_CANDIDATES:
        raise ConfigError(
            config.source,
            "workload",
            f"has {len(workload.candidates)} sets of columns to choose from; expected at most {MAX_CANDIDATES}: fewer "
            "queries (workload.count), or of fewer columns (workload.degree)",
        )
    query = max(workload.candidates, key=workload.domain.size)
    cells = sum(workload.domain.shape) + workload.domain.size(query)
    if cells > MAX_LENGTH:
        raise ConfigError(
            config.source,
            "workload",
            f"has a query ({', '.join(query)}) with which a sum has {cells} cells; expected at most {MAX_LENGTH}: "
            f"{FEWER_CELLS}",
        )
    return settings


def flaim_noise(config: Config, workload: Workload, rows: float) -> tuple[int, list[CellNoise]]:
    """How many clients a sum is expected to be over, and the noise in its cells if all of them chose its query.

    ``rows`` are those of all clients; a sum has those of a round's participants.
    """
    settings, clients = settings_of(config), config.clients.expected
    schedule = settings.schedule(len(config.domain.columns))
    members = max(settings.min_participants, round(settings.participation * clients))
    sigma = settings.sum_noise(schedule.sigma).deviation(members)
    return members, list(cell_noise(workload, rows * members / clients, sigma))


PUBLIC_SIZES = "public"


def neighbours_text(section: FlaimSection) -> str:
    """The guarantee's neighbours."""
    of_row = "one row added to or removed from one client's table"
    if section.sizes != PUBLIC_SIZES:
        return of_row
    return f"{of_row}, its declared number of rows, which is public, being the same"


@dataclass(frozen=True, slots=True)
class ReplacementCost:
    """``rho`` and, at the run's delta, ``epsilon`` for one row replaced by another; ``times`` the charged rho."""

    rho: float
    epsilon: float
    times: float

    @classmethod
    def of(
        cls, section: FlaimSection, events: Iterable[Event], *, delta: float
    ) -> "ReplacementCost | None":
        """What the charged ``events`` come to; None where sizes are not public, or nothing was charged."""
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
