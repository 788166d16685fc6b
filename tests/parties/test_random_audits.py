"""Honest runs of random configurations pass the audit, whatever was drawn: an auditor that cries wolf is not believed.

A run draws its noise and its choices anew each time, so that every seed is another run. Few iterations leave models far
from the optimum, where the auditor's own fit has to be the lead's, step by step.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.mpc.estimation import make_estimator
from tests.parties.audit_runs import make_run

NOISE = ("discrete-gaussian", "box-muller")


def overrides_of(draw: random.Random) -> dict[str, object]:
    """Settings of a run, by which its models, its noise or its course differ."""
    malicious = draw.random() < 0.25
    found: dict[str, object] = {
        "run.noise": draw.choice(NOISE if malicious else (*NOISE, "distributed")),
        "run.security": "malicious" if malicious else "semi-honest",
        "run.epsilon": draw.choice([0.3, 1.0, 4.0, 10.0]),
        "run.iterations": draw.choice([3, 30, 100]),
        "run.final_iterations": draw.choice([5, 50, 300]),
        "run.rounds": draw.choice([1, 2, 4]),
    }
    if draw.random() < 0.3:
        found |= {"run.schedule": "annealed", "run.rounds": None}
    if draw.random() < 0.3:
        found["run.rule"] = "remaining-error"
    if draw.random() < 0.3:
        found["run.fallback"] = "columns"
    if draw.random() < 0.2:
        found["run.estimator"] = "mbi"
    return found


def failures_of(seed: int, folder: Path, certificates: dict[str, CertificateFiles]) -> list[Any]:
    """Makes the run of a seed and returns the checks that fail."""
    draw = random.Random(seed)
    overrides = overrides_of(draw)
    kill = (draw.randrange(3), "round", 1) if draw.random() < 0.25 else None
    run = make_run(
        folder,
        certificates,
        overrides,
        kill=kill,
        estimator=make_estimator,
        rows=draw.choice([3, 20, 60]),
    )
    return [check for check in audit_folder(run).checks if check.status == "fail"]


@pytest.mark.parametrize("seed", range(4))
def test_an_honest_run_of_any_configuration_passes_the_audit(
    seed: int, tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    assert not failures_of(seed, tmp_path, certificates)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 100))
def test_a_hundred_honest_runs_of_any_configuration_pass_the_audit(
    seed: int, tmp_path: Path, certificates: dict[str, CertificateFiles]
) -> None:
    assert not failures_of(seed, tmp_path, certificates)
