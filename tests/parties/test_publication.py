"""A run on one machine enters a budget when it is published: by rows, by a word, or by no budget in so many words."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from parties.audit.bundle import unpacked_run
from parties.audit.runner import audit_folder
from parties.cli.main import cli
from parties.cli.result import _audited as fetched_audit
from parties.cli.runtime import run_command_line
from parties.config import load_config
from parties.foundation.exit_codes import AuditFailed, Status
from parties.local.publication import is_local_run, local_release
from parties.methods.flaim.settings import flaim_release
from parties.mpc.planning.budget import distaim_release
from parties.report.model import TRIAL_TRUST
from parties.report.public import without_real
from parties.session.study import Study
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import OwnerBudget
from tests.golden.archives import RUNS, SUFFIX, unpack
from tests.parties.test_audit_contents import CARD, PAGE, REPORT, read

COUNTS, FLAIM = "counts", "flaim"


class Publisher:
    """A run's folder, and its maker's budget."""

    def __init__(self, folder: Path, name: str) -> None:
        self.run = unpack(RUNS / f"{name}{SUFFIX}", folder / "run")
        self.folder, self.budget, self.out = folder, folder / "budget", folder / "out.zip"

    def bundle(self, *options: str, run: Path | None = None) -> int:
        arguments = ["bundle", str(run or self.run), "--out", str(self.out), "--overwrite"]
        return run_command_line(cli, [*arguments, "--budget", str(self.budget), *options])

    @property
    def charged(self) -> dict[str, list[str]]:
        found = OwnerBudget(self.budget).datasets() if self.budget.exists() else []
        return {item.name: [run.release.method for run in item.spending] for item in found}

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / REPORT).read_text())
        return found

    def table(self, name: str, *, shift: int = 0) -> Path:
        """A table of many people; another `shift` are other people."""
        path = self.folder / f"{name}.csv"
        lines = [f"{i * 7919 + shift},{(i * 31 + shift) % 997},{i % 89}" for i in range(400)]
        path.write_text("\n".join(["a,b,c", *lines]) + "\n")
        return path


@pytest.fixture(params=[COUNTS, FLAIM])
def publisher(request: pytest.FixtureRequest, tmp_path: Path) -> Publisher:
    return Publisher(tmp_path, request.param)


@pytest.fixture
def counts(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path, COUNTS)


def test_nothing_leaves_without_a_word(
    publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publisher.bundle() == Status.CONFIG
    said = capsys.readouterr().err
    assert "made on one machine" in said
    assert "--uncharged with the reason" in said
    for empty in ("", " "):
        assert publisher.bundle("--uncharged", empty) == Status.CONFIG
    assert not publisher.out.exists()
    assert not publisher.budget.exists()


def test_a_run_is_charged_once_for_all_its_bundles(
    publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in (["--new-population", "stays"], ["--population", "stays"], []):
        assert publisher.bundle(*options) == Status.DONE
        said = capsys.readouterr().err
        assert (" with epsilon " if options else "is charged already") in said
        # The first release sets the limit, and that is said once.
        assert ("sets their lifetime limit at epsilon" in said) == ("--new-population" in options)
        assert publisher.charged == {"stays": [publisher.report["method"]]}
    config = load_config(publisher.run / "config.toml")
    budget = OwnerBudget(publisher.budget)
    ((item,),) = (dataset.spending for dataset in budget.datasets())
    whole = distaim_release(Study.of(config)) if config.flaim is None else flaim_release(config)
    assert (item.release.rho, item.release.epsilon) == (whole.rho, whole.epsilon)
    assert item.state is ChargeState.RELEASED
    assert [word.word.option for word in budget.dataset("stays").words] == ["--new-population"]
    # Another run of the same study has other noise, and is another release.
    (publisher.run / "model" / "model.json").write_text("{}")
    assert publisher.bundle("--population", "stays") == Status.BUDGET


def test_the_people_are_known_by_the_rows_of_the_table(counts: Publisher) -> None:
    first, again, others = (
        counts.table("first"),
        counts.table("again"),
        counts.table("others", shift=10**7),
    )
    assert counts.bundle("--data", str(first)) == Status.DONE
    assert list(counts.charged) == ["first"]
    other_run = counts.folder / "second"
    shutil.copytree(counts.run, other_run)
    shutil.rmtree(other_run / "model")
    assert counts.bundle("--data", str(again), run=other_run) == Status.BUDGET
    OwnerBudget(counts.budget).set_limit("first", 20.0, 1e-5, why="agreed")
    assert counts.bundle("--data", str(again), run=other_run) == Status.DONE
    assert [len(runs) for runs in counts.charged.values()] == [2]
    # Nobody can tell whether other rows in columns of the same names are of the same people.
    table = other_run / "synthetic.csv"
    table.write_text(table.read_text() + table.read_text().splitlines()[-1] + "\n")
    assert counts.bundle("--data", str(others), run=other_run) == Status.STORAGE


def test_over_the_limit_nothing_is_written(
    publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publisher.bundle("--new-population", "stays") == Status.DONE
    OwnerBudget(publisher.budget).set_limit("stays", 0.01, 1e-9)
    publisher.out.unlink()
    (publisher.run / "model" / "model.json").write_text("{}")
    assert publisher.bundle("--population", "stays") == Status.BUDGET
    assert not publisher.out.exists()
    assert "does not cover this release" in capsys.readouterr().err


def test_to_charge_nobody_stands_in_the_bundle_and_in_the_history(
    publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "a published <b>table</b> of 1994"
    for _ in range(2):
        assert publisher.bundle("--uncharged", why, "--by", "ann") == Status.DONE
    assert publisher.charged == {}
    files = read(publisher.out)
    assert json.loads(files[REPORT])["account"] == {"charged": False, "why": why}
    assert "is charged to no budget. The reason" in files[CARD].decode()
    assert b"charged to no budget" in files[PAGE]
    assert b"<b>table</b>" not in files[PAGE]
    assert b"ann" not in files[CARD]
    capsys.readouterr()
    assert run_command_line(cli, ["budget", "--budget", str(publisher.budget)]) == Status.DONE
    shown = capsys.readouterr().out
    assert shown.count("is charged to nobody: ann said so") == 1
    assert why in shown
    # Changed one's mind: the charge wins, in whatever order.
    for options in (["--new-population", "stays"], ["--uncharged", why]):
        assert publisher.bundle(*options) == Status.DONE
        assert json.loads(read(publisher.out)[REPORT])["account"] == {"charged": True}
        assert list(publisher.charged) == ["stays"]


@pytest.mark.parametrize("options", [["--new-population", "stays"], ["--uncharged", "made up"]])
def test_an_audit_names_the_statement_as_its_makers_word(
    publisher: Publisher, options: list[str]
) -> None:
    assert publisher.bundle(*options) == Status.DONE
    with unpacked_run(publisher.out) as run:
        found = audit_folder(run.folder, left_out=run.left_out)
    assert found.ok, [c for c in found.checks if c.status == "fail"]
    assert "account" in found.headline


@pytest.mark.parametrize(
    "account",
    [None, True, {}, {"charged": "yes"}, {"charged": False}, {"charged": False, "why": 3}],
)
def test_an_audit_refuses_another_statement(counts: Publisher, account: object) -> None:
    report = {**counts.report, "account": account}
    (counts.run / REPORT).write_text(json.dumps(report))
    found = audit_folder(counts.run)
    assert [check.name for check in found.checks if check.status == "fail"] == ["contents"]


def test_a_run_without_a_guarantee_costs_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = Publisher(tmp_path, FLAIM)
    report = {**publisher.report, "method": "flaim-oracle"}
    (publisher.run / REPORT).write_text(json.dumps(report))
    word = ("--new-population", "stays")
    assert publisher.bundle(*word) == Status.CONFIG
    assert "--not-private" in capsys.readouterr().err
    release = local_release(load_config(publisher.run / "config.toml"), report)
    assert release.not_private
    assert publisher.bundle(*word, "--not-private") == Status.DONE
    assert OwnerBudget(publisher.budget).dataset("stays").not_private


def test_figures_of_the_real_table_cost_everything(
    publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also after a bundle without them: no epsilon holds for both."""
    assert publisher.bundle("--new-population", "stays") == Status.DONE
    word = ("--population", "stays")
    assert publisher.bundle("--real-figures", *word) == Status.CONFIG
    assert "--not-private" in capsys.readouterr().err
    assert publisher.bundle("--real-figures", "--not-private") == Status.CONFIG
    budget = OwnerBudget(publisher.budget)
    assert len(budget.dataset("stays").spending) == 1
    # It is charged once, like any other.
    for said in (word, ()):
        assert publisher.bundle("--real-figures", "--not-private", *said) == Status.DONE
        spending = budget.dataset("stays").spending
        assert [run.release.not_private for run in spending] == [False, True]


def test_a_run_is_charged_by_its_own_configuration(
    publisher: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    cheap = publisher.folder / "cheap.toml"
    own = load_config(publisher.run / "config.toml")
    cheap.write_text(own.override({"run.epsilon": 0.01}).resolved_toml())
    word = ("--new-population", "stays")
    assert publisher.bundle("--config", str(cheap), *word) == Status.CONFIG
    assert "is not the configuration of this run" in capsys.readouterr().err
    assert not publisher.budget.exists()
    cheap.write_text((publisher.run / "config.toml").read_text())
    assert publisher.bundle("--config", str(cheap), *word) == Status.DONE


def test_a_run_between_machines_is_its_owners(
    counts: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have charged it when they took part."""
    report: Mapping[str, Any] = without_real(counts.report)
    trust = [line for line in report["trust"] if "trial" not in line]
    (counts.run / REPORT).write_text(json.dumps({**report, "trust": trust}))
    (counts.run / "run.json").unlink(missing_ok=True)
    assert not is_local_run(
        counts.run, load_config(counts.run / "config.toml"), {**report, "trust": trust}
    )
    assert counts.bundle("--new-population", "stays") == Status.CONFIG
    assert "that of the run's data owners" in capsys.readouterr().err
    assert counts.bundle() == Status.DONE
    assert not counts.budget.exists()
    assert "account" not in json.loads(read(counts.out)[REPORT])


@pytest.mark.parametrize("false", [{"not_private": []}, {"trust": [TRIAL_TRUST]}])
def test_what_servers_gave_is_audited_whatever_its_report_says(
    counts: Publisher, false: Mapping[str, object]
) -> None:
    """A lying lead could keep all owners from an audit, and have them look for a budget that pays once more."""
    (counts.run / REPORT).write_text(json.dumps({**without_real(counts.report), **false}))
    (counts.run / "run.json").unlink(missing_ok=True)
    found = fetched_audit(counts.run / "config.toml", counts.run, counts.out)
    assert found.audit.checks
    assert "account" not in json.loads(read(counts.out)[REPORT])


@pytest.mark.parametrize("privacy", [{"rho_spent": None, "rho_total": []}, {"rho_spent": "\ud800"}])
def test_a_report_of_nonsense_is_an_audit_that_fails(
    counts: Publisher, privacy: Mapping[str, object]
) -> None:
    report = without_real(counts.report)
    report["privacy"] = {**counts.report["privacy"], **privacy}
    (counts.run / REPORT).write_text(json.dumps(report))
    with pytest.raises(AuditFailed, match="as a server gave them"):
        fetched_audit(counts.run / "config.toml", counts.run, counts.out)


def test_a_population_of_a_word_alone_is_asked_about_later(counts: Publisher) -> None:
    """It has no table to compare with, so nobody can say that a new table is not of its people."""
    assert counts.bundle("--new-population", "stays") == Status.DONE
    other = counts.folder / "second"
    shutil.copytree(counts.run, other)
    shutil.rmtree(other / "model")
    assert counts.bundle("--data", str(counts.table("visits")), run=other) == Status.STORAGE
