"""A run with private bins: round 0 measures fine cells, and what it releases says what later rounds count.

Provides ``first_workload``, ``resolved_workload``, ``released_config`` and ``measurements_of``. Servers, replay and
audit compute them from the same released values. Public: everything. Source: `mechanisms.private_bins`.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.aim import Measurement
from mechanisms.events import noise_deviation
from mechanisms.resolving import coarse_measurement, resolve, unmeasured
from mechanisms.workload import Workload
from parties.config import Config
from parties.mpc.planning.budget import noise_kind


class ReleasedMarginal(Protocol):
    """A noisy marginal as it was opened."""

    @property
    def round(self) -> int:
        """Its round."""

    @property
    def candidate(self) -> int:
        """Its position among the candidates; of a column by itself, among the columns."""

    @property
    def sigma(self) -> float:
        """What each count was charged for."""

    @property
    def clients(self) -> int:
        """How many owners were counted."""

    @property
    def noisy(self) -> NDArray[np.float64]:
        """The counts (cells,)."""


def first_workload(config: Config) -> Workload | None:
    """What round 0 counts and measures where there are private bins: each column by itself, by its fine cells."""
    if not unmeasured(config.domain):
        return None
    return Workload(config.domain, tuple((name,) for name in config.domain.names))


def resolved_workload(config: Config, released: Sequence[ReleasedMarginal]) -> Workload:
    """What later rounds count, by what round 0 ``released``. Raises KeyError where a private column is not in it."""
    first = {one.candidate: one for one in released if one.round == 0}
    domain = config.domain
    for i in unmeasured(domain):
        deviation = noise_deviation(noise_kind(config), first[i].sigma)
        domain = resolve(domain, {i: first[i].noisy}, deviation)
    return config.resolved(domain).build_workload()


def released_config(config: Config, workload: Workload) -> Config:
    """The configuration with the bins of the workload, which may have been measured; not what was agreed on."""
    return config.resolved(workload.domain) if unmeasured(config.domain) else config


def measurements_of(
    config: Config, workload: Workload, released: Sequence[ReleasedMarginal]
) -> list[Measurement]:
    """What was released as measurements of ``workload``'s cells: fine counts of round 0 are added up."""
    private = unmeasured(config.domain) if workload.domain != config.domain else ()
    return [
        coarse_measurement(
            workload.domain, one.candidate, one.noisy, sigma=one.sigma, clients=one.clients
        )
        if one.round == 0 and one.candidate in private
        else Measurement(one.round, one.candidate, one.noisy, one.sigma, one.clients)
        for one in released
    ]
