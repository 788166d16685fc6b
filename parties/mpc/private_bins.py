"""Private bins: round 0 measures fine cells, and its releases decide the cells of later rounds.

Servers, replay and audit compute workload, configuration and measurements from the same released values. All values
here are public. Source: `mechanisms.private_bins`.
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
from parties.session.study import Study


class ReleasedMarginal(Protocol):
    """A noisy marginal as it was opened."""

    @property
    def round(self) -> int:
        """Round of the release."""

    @property
    def candidate(self) -> int:
        """Position among the candidates; for a single column, position among the columns."""

    @property
    def sigma(self) -> float:
        """Deviation that each count was charged for."""

    @property
    def clients(self) -> int:
        """Number of participants counted."""

    @property
    def noisy(self) -> NDArray[np.float64]:
        """Noisy counts (cells,)."""


def first_workload(config: Config) -> Workload | None:
    """Workload of round 0 with private bins: each column by itself, in fine cells; None without private bins."""
    if not unmeasured(config.domain):
        return None
    return Workload(config.domain, tuple((name,) for name in config.domain.names))


def resolved_workload(config: Config, released: Sequence[ReleasedMarginal]) -> Workload:
    """Workload of later rounds, from the releases of round 0. Raises KeyError if a private column is missing."""
    first = {one.candidate: one for one in released if one.round == 0}
    domain = config.domain
    for i in unmeasured(domain):
        deviation = noise_deviation(noise_kind(config), first[i].sigma)
        domain = resolve(domain, {i: first[i].noisy}, deviation)
    return config.resolved(domain).build_workload()


def released_config(study: Study) -> Config:
    """Configuration with the bins of ``workload``, which may have been measured; not the agreed configuration."""
    return (
        study.config.resolved(study.workload.domain)
        if unmeasured(study.config.domain)
        else study.config
    )


def measurements_of(study: Study, released: Sequence[ReleasedMarginal]) -> list[Measurement]:
    """Releases as measurements of ``workload``'s cells: fine counts of round 0 are summed."""
    private = (
        unmeasured(study.config.domain) if study.workload.domain != study.config.domain else ()
    )
    return [
        coarse_measurement(
            study.workload.domain, one.candidate, one.noisy, sigma=one.sigma, clients=one.clients
        )
        if one.round == 0 and one.candidate in private
        else Measurement(one.round, one.candidate, one.noisy, one.sigma, one.clients)
        for one in released
    ]
