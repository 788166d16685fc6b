"""The auditor's own models of the released measurements, fitted as the lead fits them.

``fits_of`` returns the fits that the lead can have made, depending on the interruptions of its run. All values here are
public. The fits of the last audited run are cached, since two checks need them.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial

from mechanisms.descent import Descent, Tables
from mechanisms.errors import MechanismError
from mechanisms.model import Model
from mechanisms.pgm import fit
from mechanisms.refresh import Refresh
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.released import ReleasedMeasurements, released_measurements
from parties.audit.evidence import Evidence
from parties.audit.findings import CheckFailure, NotApplicable
from parties.config import START_FOLDER, Config, earlier_model
from parties.config.schema import RunSection
from parties.foundation.errors import ConfigError, ExtraMissing
from parties.mpc.estimation import descent_of


@dataclass(frozen=True, slots=True, eq=False)
class FittedModel:
    """The model that a round used for its choice, and its potentials, by the cliques measured before."""

    model: Model
    potentials: Tables


@dataclass(frozen=True, slots=True, eq=False)
class ModelFits:
    """The final model, and that of the last finished round; None if another mesh made the latter."""

    final: Model
    last: FittedModel | None


@lru_cache(maxsize=1)
def fits_of(evidence: Evidence, terms: RunTerms) -> tuple[ModelFits, ...]:
    """Returns the possible pairs of the lead's last models. Raises CheckFailure, EstimationError, NotApplicable."""
    opened = released_measurements(evidence, terms)
    fit_as_the_lead = partial(
        fit,
        terms.workload,
        descent=_descent(terms.config),
        refresh=refresh_of(evidence, terms.config),
    )
    rounds = opened.measurements[-1].round

    @cache
    def fitted(*stages: int) -> ModelFits:
        return _fitted(opened, terms.config.run, stages, refit=fit_as_the_lead)

    found: list[ModelFits] = []
    for stages in _sequences(opened, terms):
        for made in _made(stages, terms) if len(opened.begun) > 1 else [stages]:
            fits = fitted(*made)
            found.append(fits)
            if rounds in stages and rounds not in made:
                found += [
                    ModelFits(fits.final, fitted(*other).last) for other in _earlier(opened, terms)
                ]
    return tuple(found)


def _descent(config: Config) -> Descent:
    """Returns the run's optimiser. Raises NotApplicable if it is of a package that is not installed."""
    try:
        return descent_of(config)
    except ExtraMissing as error:
        raise NotApplicable(f"The lead's models cannot be fitted again here: {error}.") from error


def refresh_of(evidence: Evidence, config: Config) -> Refresh | None:
    """Returns the earlier model that a run started from, verified; None if it started from nothing.

    Raises NotApplicable if it is not in the folder, CheckFailure if it is another one.
    """
    if config.refresh is None:
        return None
    folder = evidence.directory / START_FOLDER
    if not folder.is_dir():
        raise NotApplicable(
            f"There is no {START_FOLDER}/, with the model that the run started from."
        )
    try:
        earlier = earlier_model(replace(config, base=evidence.directory))
        return None if earlier is None else Refresh(earlier.model())
    except (ConfigError, MechanismError) as error:
        raise CheckFailure(
            f"{START_FOLDER}/ is not the model that the run started from: {error}"
        ) from error


def _made(stages: list[int], terms: RunTerms) -> Iterator[list[int]]:
    """Yields the rounds whose model a mesh made: after a restart an earlier mesh may have saved its first ones."""
    first = 2 if terms.plan.adaptive else 1
    for kept in itertools.product((False, True), repeat=min(first, len(stages))):
        began = [stage for stage, saved in zip(stages, kept, strict=False) if not saved]
        yield [*began, *stages[len(kept) :]]


def _earlier(opened: ReleasedMeasurements, terms: RunTerms) -> Iterator[list[int]]:
    """Yields the rounds of models of each mesh that can have made that of the last round, which a later one may use."""
    rounds = opened.measurements[-1].round
    before = sum(m.round < rounds for m in opened.measurements)
    ends = [*opened.begun[1:], len(opened.measurements)]
    for begun in {begun for begun, end in zip(opened.begun, ends, strict=True) if end >= before}:
        done = opened.measurements[begun - 1].round if begun else 0
        stages = _stages(done, rounds, terms)
        for made in _made(stages, terms) if begun else [stages]:
            if rounds in made:
                yield made


def _stages(done: int, rounds: int, terms: RunTerms) -> list[int]:
    """Returns the rounds of models after ``done`` ones; an annealed schedule needs one earlier model."""
    return [*([done] if terms.plan.adaptive and done else []), *range(done + 1, rounds + 1)]


def _sequences(opened: ReleasedMeasurements, terms: RunTerms) -> Iterator[list[int]]:
    """Yields possible rounds of models of the mesh that made the final model (``mechanisms.aim.run_aim``).

    This mesh is one of those that started from the last measurement or an earlier one. A run that ended before its
    maximum of rounds may have made a model for a round that never came.
    """
    rounds = opened.measurements[-1].round
    last = max(
        n for n, begun in enumerate(opened.begun) if begun < len(opened.measurements) or n == 0
    )
    for begun in sorted(set(opened.begun[last:])):
        done = opened.measurements[begun - 1].round if begun else 0
        yield _stages(done, rounds, terms)
        if rounds < terms.config.run.rounds:
            yield _stages(done, rounds + 1, terms)


def _fitted(
    opened: ReleasedMeasurements,
    run: RunSection,
    stages: Sequence[int],
    *,
    refit: Callable[..., tuple[Model, Tables]],
) -> ModelFits:
    """Returns the fits in the rounds ``stages``, each started from the one before, and the final fit."""
    rounds = opened.measurements[-1].round
    potentials: Tables = {}
    last: FittedModel | None = None
    for number in stages:
        until = [m for m in opened.measurements if m.round < number]
        model, potentials = refit(until, iterations=run.iterations, start=potentials)
        if number == rounds:
            last = FittedModel(model, potentials)
    model, _ = refit(opened.measurements, iterations=run.final_iterations, start=potentials)
    return ModelFits(model, last)
