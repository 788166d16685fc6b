"""Checks ``accountants`` and ``estimator``: epsilon and the model's misfit, computed anew by packages of others.

`autodp` composes the charges in the transcript as Renyi curves, `dp_accounting` as privacy loss distributions; `mbi`
fits a model of its own to what was opened. Both checks are asked for (``syncret audit --independent``): they need these
packages, and minutes where columns are many. All values here are public. Known limits: noise is given to the packages
as Gaussian of its deviation, a choice by its zCDP, range^2 / 8 (Cesar, Rogers 2021), and by its curve (Dong, Durfee,
Rogers 2020; see `mechanisms.composition`); openings and charges are those that the other checks have verified.
"""

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import ZCDP, LedgerEntry
from mechanisms.composition import epsilon_of
from mechanisms.descent import Target
from mechanisms.domain import Clique, Domain
from mechanisms.errors import EstimationError
from mechanisms.events import (
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    SumOfDiscreteGaussiansEvent,
)
from mechanisms.mbi_fit import fit_by_mbi, import_quietly, mbi_in_doubles
from mechanisms.pgm import measured_targets, misfit, misfit_to
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.publication import published_model
from parties.audit.checks.released import released_measurements
from parties.audit.checks.report import charges_of
from parties.audit.evidence import Evidence
from parties.audit.findings import CheckFailure, NotApplicable, require
from parties.foundation.errors import ExtraMissing

EPSILON_TOLERANCE = 1.02
"""Factor up to which another accountant's epsilon may exceed the configured one, for the grids on which it computes."""
MISFIT_TOLERANCE, MISFIT_OF_TRUTH = 0.25, 1.0
"""Excess of the published model's misfit over that of mbi's model, which is fitted to the optimum; misfit of the truth.

Runs of few iterations were worse by up to 0.32, and below the truth; a model of another run's openings of the same data
by 0.35 or more. The check ``model``, whose fit takes the run's own iterations, is stricter.
"""
MOST_RANGE = 50.0
"""Largest range of a choice, far above any that a budget allows: the grid of its losses has to fit into memory."""
_LOSS_STEP = 1e-4
MBI_ITERATIONS = 5000
EXTRA = "independent"
NAMES = ("autodp", "dp_accounting", "jax", "mbi")


def require_packages() -> None:
    """Raises ExtraMissing unless the packages are installed."""
    for name in NAMES:
        _package(name)


def _package(name: str) -> ModuleType:
    try:
        return import_quietly(name)
    except ImportError as error:
        raise ExtraMissing(
            "syncret audit --independent", error.name or name, extra=EXTRA
        ) from error


def accountants(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that the charges of the run come to no more than its epsilon, by autodp and by dp_accounting.

    Budgets that are divided by zCDP have to hold by both; others by dp_accounting's numeric account.
    """
    run = terms.config.run
    events = [entry.event for entry in _charged(charges_of(evidence.transcripts[0]))]
    if not events:
        raise NotApplicable("Nothing was charged.")
    noise, choices = noise_multipliers(events), ranges(events)
    renyi, numeric = (
        by_autodp(noise, choices, run.delta),
        by_dp_accounting(noise, choices, run.delta),
    )
    judged = {"dp_accounting": numeric} | ({"autodp": renyi} if run.accountant == ZCDP.name else {})
    for name, epsilon in judged.items():
        require(
            epsilon <= run.epsilon * EPSILON_TOLERANCE,
            f"by {name} the {len(events)} charges come to epsilon {epsilon:.4g} at delta {run.delta:g}; the "
            f"configuration has {run.epsilon:g}",
        )
    ours = epsilon_of(tuple(events), run.delta)
    return (
        f"At delta {run.delta:g} the {len(events)} charges come to epsilon {numeric:.4g} at most by dp_accounting's "
        f"numeric account, {renyi:.4g} by autodp's Renyi curves and {ours:.4g} by Syncret's numeric account; the "
        f"configuration has {run.epsilon:g}. All are upper bounds. Numeric accounts round up, here by "
        f"{EPSILON_TOLERANCE - 1:.0%} at most; Renyi curves are looser."
    )


def _charged(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Returns the charges, each opening's once: after a restart the transcript may repeat one."""
    named: dict[object, LedgerEntry] = {}
    for number, entry in enumerate(entries):
        named.setdefault(entry.opening or number, entry)
    return list(named.values())


def noise_multipliers(events: Sequence[Event]) -> list[float]:
    """Returns the deviation over the sensitivity of each noisy release. Raises CheckFailure for another event."""
    found = []
    for event in events:
        match event:
            case GaussianEvent() | DiscreteGaussianEvent():
                found.append(event.sigma / event.sensitivity)
            case SumOfDiscreteGaussiansEvent():
                found.append(event.sigma * math.sqrt(event.parts) / event.sensitivity)
            case ExponentialEvent() if event.epsilon <= MOST_RANGE:
                continue
            case _:
                raise CheckFailure(f"a charge is for {event}, which no package can compose")
    return found


def ranges(events: Sequence[Event]) -> list[float]:
    """Returns the range of each choice's loss."""
    return [event.epsilon for event in events if isinstance(event, ExponentialEvent)]


def by_autodp(noise: Sequence[float], choices: Sequence[float], delta: float) -> float:
    """Returns epsilon by autodp, of Gaussian mechanisms and zCDP mechanisms composed as Renyi curves."""
    zoo, transformers = _package("autodp.mechanism_zoo"), _package("autodp.transformer_zoo")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mechanisms = [
            zoo.GaussianMechanism(sigma, RDP_off=False, approxDP_off=True) for sigma in noise
        ]
        mechanisms += [zoo.zCDP_Mechanism(epsilon**2 / 8, 0) for epsilon in choices]
        composed = transformers.Composition()(mechanisms, [1] * len(mechanisms))
        return float(composed.get_approxDP(delta))


def by_dp_accounting(noise: Sequence[float], choices: Sequence[float], delta: float) -> float:
    """Returns epsilon by dp_accounting, of privacy loss distributions that are composed numerically."""
    library = _package("dp_accounting.pld.privacy_loss_distribution")
    parts = [
        library.from_gaussian_mechanism(
            sigma, value_discretization_interval=_LOSS_STEP
        ).self_compose(times)
        for sigma, times in Counter(noise).items()
    ]
    parts += [_choice(epsilon).self_compose(times) for epsilon, times in Counter(choices).items()]
    return float(
        reduce(lambda left, right: left.compose(right), parts).get_epsilon_for_delta(delta)
    )


def _choice(epsilon: float) -> Any:
    """Returns dp_accounting's distribution of the worst choice of a range."""
    library = _package("dp_accounting.pld.privacy_loss_distribution")
    most = math.ceil(epsilon / _LOSS_STEP)
    grid = np.arange(-most, most + 1)
    losses = np.clip(grid * _LOSS_STEP, -epsilon, epsilon)
    deltas = (1 - np.exp((losses - epsilon) / 2)) ** 2 / -np.expm1(-epsilon)
    deltas[0] = -np.expm1(-most * _LOSS_STEP)
    return library.PrivacyLossDistribution(
        _package("dp_accounting.pld.pld_pmf").create_pmf_pessimistic_connect_dots(
            _LOSS_STEP, grid, deltas
        )
    )


def estimator(evidence: Evidence, terms: RunTerms) -> str:
    """Verifies that the published model fits what was opened as well as a model that mbi fits to it."""
    if terms.config.refresh is not None:
        raise NotApplicable("The run started from an earlier model, which mbi's fit does not know.")
    given = published_model(evidence, terms.released)
    measurements = released_measurements(evidence, terms).measurements
    targets = measured_targets(terms.workload, measurements)
    theirs = misfit_to(targets, answers_of_mbi(given.domain, targets))
    said = misfit(terms.workload, measurements, given)
    require(
        said <= max(theirs + MISFIT_TOLERANCE, MISFIT_OF_TRUTH),
        f"the model's misfit to what was opened is {said:.3g} times that of noise, that of mbi's model {theirs:.3g}",
    )
    return (
        f"The model's misfit to the {len(measurements)} noisy marginals that were opened is {said:.3g} times that of "
        f"noise; a model that mbi fits to them has {theirs:.3g}."
    )


def answers_of_mbi(
    domain: Domain, targets: Mapping[Clique, Target]
) -> dict[Clique, NDArray[np.float64]]:
    """Returns the answers, with the total 1, of mbi's model of the targets."""
    with mbi_in_doubles() as mbi:
        try:
            model = fit_by_mbi(mbi, domain, targets, iterations=MBI_ITERATIONS)
        except EstimationError as error:
            raise CheckFailure(str(error)) from error
        return {clique: np.asarray(model.project(clique).values) for clique in targets}
