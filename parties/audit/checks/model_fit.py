"""The auditor's own models of what was opened, made as the lead makes them.

Provides ``fits_of``: the fits that the lead can have made, by where its run was interrupted. Public: everything. The
last run's are kept, since two checks need them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mechanisms.descent import Tables
from mechanisms.model import Model
from mechanisms.pgm import fit
from parties.audit.checks.privacy import RunTerms
from parties.audit.checks.released import ReleasedMeasurements, released_measurements
from parties.audit.evidence import Evidence


@dataclass(frozen=True, slots=True, eq=False)
class FittedModel:
    """The model that a round chose with, and its potentials, by the cliques measured before."""

    model: Model
    potentials: Tables


@dataclass(frozen=True, slots=True, eq=False)
class ModelFits:
    """The final model, and the one of the last round that was finished; None where another mesh had made that."""

    final: Model
    last: FittedModel | None


@lru_cache(maxsize=1)
def fits_of(evidence: Evidence, terms: RunTerms) -> tuple[ModelFits, ...]:
    """One for each way in which the lead may have come to its last model. Raises Failed, EstimationError."""
    opened = released_measurements(evidence, terms)
    rounds = opened.measurements[-1].round
    found: list[ModelFits] = []
    for stages in _sequences(opened, terms):
        whole = _fitted(opened, terms, stages)
        found.append(whole)
        if len(opened.begun) == 1:
            continue
        # After a restart a round goes by the model that was kept of it: the mesh made no other one.
        kept = 2 if terms.plan.adaptive else 1
        for skipped in range(1, min(kept, len(stages)) + 1):
            rest = _fitted(opened, terms, stages[skipped:])
            found.append(rest)
            if rounds in stages[:skipped]:
                earlier = [_fitted(opened, terms, other) for other in _earlier(opened, terms)]
                found += [
                    ModelFits(rest.final, made.last) for made in (whole, *earlier) if made.last
                ]
    return tuple(found)


def _earlier(opened: ReleasedMeasurements, terms: RunTerms) -> Iterator[list[int]]:
    """In which rounds each mesh may have made a model, up to that of the last round."""
    rounds = opened.measurements[-1].round
    for begun in sorted(set(opened.begun)):
        done = opened.measurements[begun - 1].round if begun else 0
        yield [*([done] if terms.plan.adaptive and done else []), *range(done + 1, rounds + 1)]


def _sequences(opened: ReleasedMeasurements, terms: RunTerms) -> Iterator[list[int]]:
    """In which rounds the mesh that made the model may have made one before (``mechanisms.aim.run_aim``).

    It is one of those that went on from the last measurement or earlier. An annealed schedule looks back by one model;
    a run that ended before its last round may have made a model for one that never came.
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


def _fitted(opened: ReleasedMeasurements, terms: RunTerms, stages: Sequence[int]) -> ModelFits:
    """A fit in each round of ``stages``, each starting from the one before, and a last one."""
    run, rounds = terms.config.run, opened.measurements[-1].round
    potentials: Tables = {}
    last: FittedModel | None = None
    for number in stages:
        until = [m for m in opened.measurements if m.round < number]
        model, potentials = fit(terms.workload, until, iterations=run.iterations, start=potentials)
        if number == rounds:
            last = FittedModel(model, potentials)
    final = run.final_iterations
    model, _ = fit(terms.workload, opened.measurements, iterations=final, start=potentials)
    return ModelFits(model, last)
