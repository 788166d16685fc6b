"""An audit knows every pair of last models that a lead can have made, wherever its run was interrupted.

Fits are symbols here, which tell their measurements and what they started from. Random runs are played as
``mechanisms.aim.run_aim`` and ``LeadEstimator`` do: a mesh needs models of its first rounds, makes those that no
earlier mesh has saved, and ends somewhere.
"""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from mechanisms.descent import Descent, Tables
from parties.audit.checks import model_fit
from parties.audit.checks.released import ReleasedMeasurements

RUNS, ROUNDS = 400, 5


class Lead:
    """A lead of a run of ``rounds`` rounds; ``saved`` has the models that outlive a mesh, ``begun`` the meshes."""

    def __init__(self, draw: random.Random, *, rounds: int, adaptive: bool) -> None:
        self.draw, self.rounds, self.adaptive = draw, rounds, adaptive
        self.measured, self.begun = 0, list[int]()
        self.saved: dict[int, object] = {}
        self.ends: tuple[object, object] | None = None

    def run_mesh(self) -> None:
        """Goes on from what was measured until a crash or the end; ``ends`` are the final and the last model then."""
        self.begun.append(self.measured + 1)
        left = self.draw.choice([*range(1, 2 * self.rounds + 3), 99])
        start: object = ()
        last = None
        first = self.measured or 1 if self.adaptive else self.measured + 1
        for number in range(first, self.rounds + 1):
            made = self.saved.get(number)
            if made is None:
                made = start = fitted(number, start)
                if self.draw.random() < 0.8:
                    self.saved[number] = made
            if (left := left - 1) == 0:
                return
            if number > self.measured:
                self.measured, last = number, made
                if (left := left - 1) == 0:
                    return
        self.ends = fitted(self.rounds + 1, start), last


class Terms:
    """The parts of a run's terms that are asked for."""

    workload = None

    def __init__(self, lead: Lead) -> None:
        self.plan = SimpleNamespace(adaptive=lead.adaptive)
        run = SimpleNamespace(estimator="", iterations=1, final_iterations=1, rounds=lead.rounds)
        self.config = SimpleNamespace(run=run)


def fitted(before: int, start: object) -> object:
    """The model of all measurements before a round, which is its own start of another fit."""
    return before, start


def fit(
    workload: object,
    until: list[Any],
    *,
    iterations: int,
    start: Tables,
    descent: Descent,
    refresh: None,
) -> tuple[object, object]:
    made = fitted(until[-1].round + 1, start or ())
    return made, made


@pytest.mark.parametrize("adaptive", [False, True])
def test_every_pair_of_models_that_a_lead_can_have_made_is_known(
    adaptive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_fit, "fit", fit)
    monkeypatch.setattr(model_fit, "refresh_of", lambda evidence, config: None)
    draw, meshes = random.Random(5), set()
    for _ in range(RUNS):
        lead = Lead(draw, rounds=draw.randint(1, ROUNDS), adaptive=adaptive)
        while lead.ends is None:
            lead.run_mesh()
        measurements = tuple(SimpleNamespace(round=n) for n in range(lead.rounds + 1))
        opened = ReleasedMeasurements(measurements, tuple(lead.begun))  # type: ignore[arg-type]
        monkeypatch.setattr(model_fit, "released_measurements", lambda *_, opened=opened: opened)
        model_fit.fits_of.cache_clear()
        evidence: Any = object()
        pairs = [
            (fits.final, None if fits.last is None else fits.last.model)
            for fits in model_fit.fits_of(evidence, Terms(lead))  # type: ignore[arg-type]
        ]
        final, last = lead.ends
        assert any(final == one and last in (None, other) for one, other in pairs), lead.begun
        meshes.add(len(lead.begun))
    assert meshes >= {1, 2, 3, 4}
