"""Settings of FLAIM by a configuration, its sums and their noise, and the guarantee's neighbouring tables in words.

``layout_sum`` is a sum as the server announces it and as each client demands it (`parties.federation.sum_parameters`).
Server, clients and trials begin with ``check_flaim``, before anything is sent, charged or computed. ``neighbours_text``
stands wherever FLAIM's epsilon is printed. ``ReplacementCost`` is the cost of one row replaced by another, if sizes are
public: tables of one size are then the neighbours. All values here are public. Source: `mechanisms` README.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mechanisms.accounting import epsilon_from_rho, rho, rho_from_epsilon_delta
from mechanisms.events import Event
from mechanisms.flaim_messages import Layout
from mechanisms.flaim_settings import FlaimSettings, SumNoise
from mechanisms.replacement import rho_of_replacing
from mechanisms.units import row_budget, unit_cost
from mechanisms.workload import Workload
from parties.config import ANNEALED, PERSON, Config, FlaimSection
from parties.federation.sum_parameters import (
    SumSpec,
    check_sums,
    corrupt_among,
    selectable_clients,
)
from parties.foundation.errors import ConfigError
from parties.mpc.planning.resources import CellNoise, cell_noise
from parties.mpc.planning.validation import FEWER_CELLS
from parties.report.privacy_text import unit_text
from parties.session.study import Study
from parties.storage.population_budget import ROW_OF_KNOWN, Release, person_or_row
from secagg.noise import NoiseKind, SessionNoise, server_noise
from secagg.parameters import MAX_LENGTH

SMALLEST_SESSION = 3
"""Minimum number of clients. With two, each client learns the other's vector from the sum."""


def flaim_section(config: Config) -> FlaimSection:
    """The section [flaim], or its defaults."""
    return config.flaim or FlaimSection()


def settings_of(config: Config) -> FlaimSettings:
    """Returns the settings of the run of ``config``. Raises ConfigError if the run cannot be carried out."""
    run, section = config.run, flaim_section(config)
    config.check_bins()
    check_sums(config, section)
    try:
        settings = FlaimSettings.preset(
            section.variant,
            rho=row_budget(rho_from_epsilon_delta(run.epsilon, run.delta), config.rows_of_unit),
            rounds=_rounds(config),
            local_rounds=section.local_rounds,
            participation=config.clients.participation,
            min_participants=section.minimum,
            annealed=run.schedule == ANNEALED and section.variant != PAIRS,
            measure_share=run.measure_share,
            grouping=section.grouping,
            noise=section.noise,
            corrupt=corrupt_among(section, section.minimum, selectable_clients(config)),
            sizes=section.sizes,
            max_client_rows=config.clients.rows_per_client,
            iterations=run.iterations,
            final_iterations=run.final_iterations,
            max_model_mb=run.max_model_mb,
        )
        settings.schedule(len(config.domain.columns))
    except ValueError as problem:
        raise ConfigError(config.source, "flaim", f"cannot be carried out: {problem}") from problem
    return settings


def _rounds(config: Config) -> int:
    """Returns the rounds of a run: with the variant pairs and no fixed number, as many as hear every client.

    At least two, so that a lost one leaves half of the budget.
    """
    if flaim_section(config).variant == PAIRS and config.run.schedule == ANNEALED:
        return max(2, math.ceil(1 / config.clients.participation))
    return config.run.rounds


def flaim_release(config: Config) -> Release:
    """Returns the maximum release of a table by participation: the whole run. Raises as ``settings_of``."""
    known = flaim_section(config).sizes == "public"
    return Release(
        config=config.digest(),
        run=config.run.id,
        method="flaim",
        rho=unit_cost(settings_of(config).rho, config.rows_of_unit),
        epsilon=config.run.epsilon,
        delta=config.run.delta,
        unit=ROW_OF_KNOWN if known else person_or_row(config),
    )


def smallest_sum(section: FlaimSection, *, one_way: bool) -> int:
    """Minimum number of clients for a sum by SecAgg. For a single query, any three clients that chose it are enough."""
    return SMALLEST_SESSION if section.grouping == "query" and not one_way else section.minimum


def flaim_sum(study: Study, layout: Layout, noise: SumNoise) -> SumSpec:
    """Returns the sum of ``layout`` over ``layout.clients``."""
    config = study.config
    return layout_sum(
        flaim_section(config),
        study.workload,
        layout,
        noise,
        high=config.clients.rows_per_client,
        everybody=selectable_clients(config),
    )


def layout_sum(
    section: FlaimSection,
    workload: Workload,
    layout: Layout,
    noise: SumNoise,
    *,
    high: int,
    everybody: int | None = None,
) -> SumSpec:
    """Does the work of ``flaim_sum``, from [flaim], the largest count and the run's clients."""
    return SumSpec(
        section,
        layout.clients,
        smallest_sum(section, one_way=layout.one_way),
        layout.cells(workload),
        0,
        high,
        secagg_noise(noise),
        noise.scale,
        everybody,
    )


def secagg_noise(noise: SumNoise) -> SessionNoise:
    """Returns the noise in SecAgg's terms."""
    if noise.variance:
        return SessionNoise(NoiseKind.DISTRIBUTED, noise.variance)
    return server_noise(noise.sigma)


def check_whole_rows(config: Config) -> None:
    """Raises ConfigError for configurations that no run of FLAIM can protect, whatever its settings."""
    if config.sources:
        raise ConfigError(
            config.source,
            "source",
            "is DistAIM's and central AIM's alone: FLAIM's clients have whole rows; expected no [[source]] tables",
        )
    if config.run.unit == PERSON and flaim_section(config).sizes == PUBLIC_SIZES:
        raise ConfigError(
            config.source,
            "flaim.sizes",
            f"is {PUBLIC_SIZES!r} beside run.unit = {PERSON!r}: a client's number of rows tells of persons with "
            'several; expected "estimated"',
        )


def check_flaim(study: Study) -> FlaimSettings:
    """Returns the run's settings after all checks. Raises ConfigError, by key."""
    check_whole_rows(study.config)
    settings = settings_of(study.config)
    query = max(study.workload.candidates, key=study.workload.domain.size)
    cells = sum(study.workload.domain.shape) + study.workload.domain.size(query)
    if settings.variant == PAIRS:
        sizes = study.workload.domain
        cells = sum(
            sizes.size(study.workload.candidates[i]) for i in settings.common(study.workload)
        )
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
    schedule = settings.schedule(len(settings.common(study.workload)))
    members = max(settings.min_participants, round(settings.participation * clients))
    sigma = settings.sum_noise(schedule.sigma).deviation(members)
    return members, list(cell_noise(study.workload, rows * members / clients, sigma))


PUBLIC_SIZES = "public"


def neighbours_text(config: Config) -> str:
    """Returns the guarantee's neighbouring tables in words."""
    if config.run.unit == PERSON:
        return unit_text(config)
    of_row = "one row added to or removed from one client's table"
    if flaim_section(config).sizes != PUBLIC_SIZES:
        return of_row
    return f"{of_row}, its declared number of rows, which is public, being the same"


PAIRS = "pairs"
"""Variant that measures all columns and pairs of all participants, and chooses among what was released."""

ORACLE = "oracle"
"""Variant whose choices look at everybody's rows: an experiment, not private."""


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
