"""The auditor's own models of the released measurements, fitted as the lead fits them.

``fits_of`` returns the fits that the lead can have made, depending on the interruptions of its run. All values here are
public. The fits of the last audited run are cached, since two checks need them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from mechanisms.descent import Tables
from mechanisms.errors import MechanismError
from mechanisms.model import Model
from mechanisms.pgm import fit
from mechanisms.refresh import Refresh
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.released import ReleasedMeasurements, released_measurements
from parties.audit.evidence import Evidence
from parties.audit.findings import CheckFailure, NotApplicable
from parties.config import START_FOLDER, Config, earlier_model
from parties.foundation.errors import ConfigError


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
    """Returns the possible pairs of the lead's last models. Raises CheckFailure, EstimationError."""
    opened = released_measurements(evidence, terms)
    refresh = refresh_of(evidence, terms.config)
    rounds = opened.measurements[-1].round
    found: list[ModelFits] = []
    for stages in _sequences(opened, terms):
        whole = _fitted(opened, terms, stages, refresh=refresh)
        found.append(whole)
        if len(opened.begun) == 1:
            continue
        # After a restart a round uses its saved model; the mesh made no other one.
        kept = 2 if terms.plan.adaptive else 1
        for skipped in range(1, min(kept, len(stages)) + 1):
            rest = _fitted(opened, terms, stages[skipped:], refresh=refresh)
            found.append(rest)
            if rounds in stages[:skipped]:
                earlier = [
                    _fitted(opened, terms, other, refresh=refresh)
                    for other in _earlier(opened, terms)
                ]
                found += [
                    ModelFits(rest.final, made.last) for made in (whole, *earlier) if made.last
                ]
    return tuple(found)


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


def _earlier(opened: ReleasedMeasurements, terms: RunTerms) -> Iterator[list[int]]:
    """Yields, for each mesh, the rounds in which it may have made a model, up to the last round."""
    rounds = opened.measurements[-1].round
    for begun in sorted(set(opened.begun)):
        done = opened.measurements[begun - 1].round if begun else 0
        yield [*([done] if terms.plan.adaptive and done else []), *range(done + 1, rounds + 1)]


def _sequences(opened: ReleasedMeasurements, terms: RunTerms) -> Iterator[list[int]]:
    """Yields possible rounds of models of the mesh that made the final model (``mechanisms.aim.run_aim``).

    This mesh is one of those that started from the last measurement or an earlier one. An annealed schedule needs one
    earlier model. A run that ended before its maximum of rounds may have made a model for a round that never came.
    """
    rounds = opened.measurements[-1].round
    last = max(
        n for n, begun in enumerate(opened.begun) if begun < len(opened.measurements) or n == 0
    )
    for begun in sorted(set(opened.begun[last:])):
        done = opened.measurements[begun - 1].round if begun else 0
        stages = [done] if terms.plan.adaptive and done else []
        yield [*stages, *range(done + 1, rounds + 1)]
        if rounds < terms.config.run.rounds:
            yield [*stages, *range(done + 1, rounds + 2)]


def _fitted(
    opened: ReleasedMeasurements,
    terms: RunTerms,
    stages: Sequence[int],
    *,
    refresh: Refresh | None,
) -> ModelFits:
    """Returns the fits in the rounds ``stages``, each started from the one before, and the final fit."""
    run, rounds = terms.config.run, opened.measurements[-1].round
    potentials: Tables = {}
    last: FittedModel | None = None
    for number in stages:
        until = [m for m in opened.measurements if m.round < number]
        model, potentials = fit(
            terms.workload, until, iterations=run.iterations, start=potentials, refresh=refresh
        )
        if number == rounds:
            last = FittedModel(model, potentials)
    final = run.final_iterations
    model, _ = fit(
        terms.workload, opened.measurements, iterations=final, start=potentials, refresh=refresh
    )
    return ModelFits(model, last)
