"""Epsilon and misfit by packages of others: the same figures for honest runs, and failures for others."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mechanisms.accounting import epsilon_from_rho
from mechanisms.composition import epsilon_of
from mechanisms.descent import Target
from mechanisms.domain import Categorical, Domain
from mechanisms.events import Event, ExponentialEvent, GaussianEvent
from parties.audit.checks import privacy
from parties.audit.checks.independent import (
    accountants,
    answers_of_mbi,
    by_autodp,
    by_dp_accounting,
    estimator,
    noise_multipliers,
    ranges,
)
from parties.audit.findings import CheckFailure
from parties.audit.rules import AuditCase
from parties.audit.runner import FILES, audit_folder
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.foundation.errors import ExtraMissing, StoreError
from parties.foundation.exit_codes import Status
from tests.golden.archives import unpack
from tests.golden.runs import RUNS, SUFFIX
from tests.parties.mesh import uniform_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(RUNS / f"counts{SUFFIX}", tmp_path_factory.mktemp("recorded") / "counts")


@pytest.fixture
def case(run: Path) -> AuditCase[privacy.RunTerms]:
    return AuditCase(run, FILES, run / "certificates", privacy.terms_of)


def schedules() -> Sequence[list[Event]]:
    """Noise and choices of a dozen runs, of a tenth to ten times the budget of epsilon 1."""
    draw = np.random.default_rng(3)
    return [
        [
            *[GaussianEvent(float(draw.uniform(5, 40) / scale))] * int(draw.integers(3, 20)),
            *[ExponentialEvent(float(draw.uniform(0.02, 0.2) * scale))] * int(draw.integers(2, 12)),
        ]
        for scale in (0.3, 1.0, 3.0)
        for _ in range(4)
    ]


@pytest.mark.parametrize(
    "events", schedules(), ids=lambda events: f"{len(events)}-{events[0].sigma:.2g}"
)
def test_accounts_of_others_are_ours(events: list[Event]) -> None:
    noise, choices = noise_multipliers(events), ranges(events)
    numeric = by_dp_accounting(noise, choices, 1e-5)
    assert numeric == pytest.approx(epsilon_of(tuple(events), 1e-5), rel=0.004)
    rho = sum(1 / (2 * sigma**2) for sigma in noise) + sum(epsilon**2 / 8 for epsilon in choices)
    assert by_autodp(noise, choices, 1e-5) == pytest.approx(epsilon_from_rho(rho, 1e-5), rel=0.01)
    # The control: a release more is seen by both.
    more = [*noise, noise[0] / 3]
    assert by_dp_accounting(more, choices, 1e-5) > 1.05 * numeric
    assert by_autodp(more, choices, 1e-5) > 1.05 * by_autodp(noise, choices, 1e-5)


def test_audit_says_what_others_compute(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = audit_folder(run, independent=True)
    said = {check.name: check for check in audit.checks}
    assert {said[name].status for name in ("accountants", "estimator")} == {"pass"}
    assert "epsilon 4.286 at most by dp_accounting" in said["accountants"].detail
    assert "a model that mbi fits to them has 0.24" in said["estimator"].detail
    by_question = {answer.question: answer.checks for answer in audit.answers}
    assert any("accountants" in checks for checks in by_question.values())
    assert "estimator" not in {check.name for check in audit_folder(run).checks}
    status = run_command_line(
        cli, ["audit", str(run), "--independent", "--html", str(run / "p.html")]
    )
    assert status == Status.DONE
    assert "pass  accountants" in capsys.readouterr().out


def test_one_servers_run_has_no_figures_by_others(tmp_path: Path) -> None:
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts" / "server.jsonl").write_text("")
    with pytest.raises(StoreError, match="expected three, or no --independent"):
        audit_folder(tmp_path, independent=True)


def test_charges_above_the_budget_fail(case: AuditCase[privacy.RunTerms]) -> None:
    config = case.terms.config
    less = replace(case.terms, config=replace(config, run=replace(config.run, epsilon=4.0)))
    with pytest.raises(CheckFailure, match=r"by dp_accounting the 7 charges come to epsilon 4.286"):
        accountants(case.evidence, less)


def test_model_of_nothing_fails(
    case: AuditCase[privacy.RunTerms], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = uniform_model(case.terms.workload)
    monkeypatch.setattr(
        "parties.audit.checks.independent.published_model", lambda evidence, config: model
    )
    with pytest.raises(CheckFailure, match="the model's misfit to what was opened is"):
        estimator(case.evidence, case.terms)


def test_mbi_weighs_counts_of_unequal_variance() -> None:
    """As of private values: what two precise counts leave of the total is the third's, whatever it was measured as."""
    domain = Domain((Categorical("a", ("x", "y", "z")),))
    mean = np.array([0.5, 0.3, 0.4])
    weighed = answers_of_mbi(domain, {("a",): Target(mean, np.array([1e4, 1e4, 1.0]))})
    assert weighed["a",] == pytest.approx([0.5, 0.3, 0.2], abs=0.005)
    # The control: with equal weights all give way alike.
    equal = answers_of_mbi(domain, {("a",): Target(mean, 1e4)})
    assert equal["a",] == pytest.approx(mean - 0.2 / 3, abs=0.005)


@pytest.mark.parametrize("missing", ["autodp", "dp_accounting", "mbi"])
def test_missing_package_is_named_before_anything_is_read(
    missing: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        ExtraMissing, match=r"--independent needs \w+, which is an extra: .*\[independent\]"
    ):
        audit_folder(run, independent=True)
