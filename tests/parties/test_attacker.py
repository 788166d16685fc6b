"""Words on privacy: what the best attacker finds, on which condition; and no epsilon without a guarantee."""

import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner

from mechanisms.accounting import ZCDP, rho_from_epsilon_delta
from mechanisms.gaussian_privacy import GAUSSIAN, gaussian_budget
from parties.audit.bundle import CARD
from parties.audit.checks.documents import datapackage, documents
from parties.cli.main import cli
from parties.cli.run_output import budget_line
from parties.cli.runtime import run_command_line
from parties.config import Config
from parties.foundation.errors import ConfigError
from parties.foundation.exit_codes import Status
from parties.methods.distaim import attacker_on
from parties.mpc.planning.budget import make_plan
from parties.report import figures
from parties.report.attacker import (
    DRAWN,
    STATED,
    AttackerBound,
    attacker_of,
    attacker_text,
    delta_text,
    percent,
    two_studies_text,
)
from parties.report.html import render_html
from parties.report.model import ReportFigures
from parties.report.privacy_text import privacy_text
from parties.session.study import Study
from tests.parties.support import make_config
from tests.parties.test_report import example

NORMAL = statistics.NormalDist()


def bound_of(epsilon: float, delta: float = 1e-5) -> AttackerBound:
    return AttackerBound(GAUSSIAN, gaussian_budget(epsilon, delta), epsilon, delta)


def report_of(**parameters: object) -> dict[str, Any]:
    """A report.json with other parameters."""
    document = example().to_dict()
    section = document["parameters"]
    assert isinstance(section, dict)
    return {**document, "parameters": {**section, **parameters}}


def test_attacker_text_says_what_is_found_of_the_present() -> None:
    said = attacker_text(bound_of(1.0), "row")
    assert "knows all other rows" in said
    assert (
        "falsely suspects 1 % of the absent rows, it finds at most 2 % of the present ones" in said
    )
    assert "10 %, at most 15.6 %." in said
    assert said.endswith("Guessing finds 1 % and 10 %.")


def test_the_picture_is_of_the_reports_own_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page draws the exact bound, from 0 to all of the absent; a report without a guarantee has no picture."""
    drawn: list[Sequence[tuple[float, float]]] = []
    draw = figures.draw_attacker

    def record(points: Sequence[tuple[float, float]]) -> object:
        drawn.append(points)
        return draw(points)

    monkeypatch.setattr(figures, "draw_attacker", record)
    report = example().to_dict()
    assert "What the best attacker finds" in render_html(report, ReportFigures())
    bound = attacker_of(report)
    assert [list(points) for points in drawn] == [[(s, bound.found_at_most(s)) for s in DRAWN]]
    suspected, found = zip(*drawn[0], strict=True)
    assert (suspected[0], suspected[-1], found[-1]) == (0.0, 1.0, 1.0)
    assert all(map(operator.le, suspected, found))
    oracle = render_html({**report, "method": "flaim-oracle"}, ReportFigures())
    assert "What the best attacker finds" not in oracle


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0, 30.0])
def test_percentages_are_never_below_the_gaussians_own(epsilon: float) -> None:
    bound = bound_of(epsilon)
    mu = math.sqrt(2 * bound.cost)
    for share in (0.001, 0.01, 0.1):
        exact = NORMAL.cdf(NORMAL.inv_cdf(share) + mu)
        shown = float(percent(bound.found_at_most(share)).removesuffix(" %")) / 100
        assert exact <= shown + 1e-12
        assert shown <= exact * 1.1 + 1e-3
    # The control: the sentence of before, e^epsilon with a chance of delta, is another figure altogether.
    assert bound.found_at_most(0.01) < 0.01 * math.exp(epsilon) + 1e-5


def test_large_epsilon_has_words() -> None:
    assert "weak" not in attacker_text(bound_of(1.0), "row")
    assert "weak protection for a single person" in attacker_text(bound_of(5.0), "person")
    assert "hardly at all" in attacker_text(bound_of(20.0), "row")


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0197, "2 %"), (0.01978, "2 %"), (0.0011, "0.11 %"), (0.1554, "15.6 %"), (1.0, "100 %")],
)
def test_percent_rounds_up(share: float, text: str) -> None:
    assert percent(share) == text


def test_two_studies_come_to_more_than_one_and_less_than_twice_epsilon() -> None:
    epsilon, delta = bound_of(1.0).of_two()
    assert 1.4 < epsilon < 1.6
    assert delta == 1e-5
    by_rho = AttackerBound(ZCDP.name, rho_from_epsilon_delta(1.0, 1e-5), 1.0, 1e-5)
    assert 1.4 < by_rho.of_two()[0] < 1.6
    assert AttackerBound(STATED, 0.0, 1.0, 1e-5).of_two() == (2.0, 2e-5)
    assert "two studies like this one has epsilon = 1.4" in two_studies_text(bound_of(1.0))


def test_report_of_an_earlier_version_has_a_looser_bound() -> None:
    study = Study.of(make_config())
    rho = make_plan(study).rho
    new = attacker_on(study, rho)
    privacy = {"rho_total": rho, "rho_spent": rho, "ledger": []}
    old = {**report_of(), "privacy": privacy}
    assert new.accountant == GAUSSIAN
    for share in (0.001, 0.01, 0.1):
        assert attacker_of(old).found_at_most(share) >= new.found_at_most(share)
    section = {**old, "attacker": new.to_dict()}
    assert attacker_of(section) == new


def test_bound_of_a_person_counts_all_rows() -> None:
    """A person's rows count squared: the plan's budget is a row's, the bound is the person's."""
    person = make_config({"run.unit": "person", "run.rows_per_person": 3})
    study = Study.of(person)
    rho = make_plan(study).rho
    assert attacker_on(study, rho).cost >= 9 * rho
    row = attacker_on(Study.of(make_config()), make_plan(Study.of(make_config())).rho)
    found = attacker_on(study, rho).found_at_most(0.01)
    assert found == pytest.approx(row.found_at_most(0.01), rel=1e-3)


def test_delta_of_one_in_the_rows_is_called_large() -> None:
    assert delta_text(1e-5, 99_999) == ""
    assert "at least 1 in 100,000, the number of rows" in delta_text(1e-5, 100_000)
    assert delta_text(0.5, None) == ""
    said = " ".join(privacy_text(report_of(delta=1e-3)))
    assert "Delta is large: 0.001 is at least 1 in 6,012" in said


def test_delta_of_one_in_the_root_of_the_rows_needs_a_word() -> None:
    rows = make_config().max_rows
    root = 1 / math.sqrt(rows)
    with pytest.raises(ConfigError, match=r"run\.large_delta = true"):
        make_config({"run.delta": root})
    assert make_config({"run.delta": root * 0.999}).run.large_delta is None
    worded = make_config({"run.delta": root, "run.large_delta": True})
    assert worded.run.large_delta
    with pytest.raises(ConfigError, match=r"run\.large_delta = true"):
        make_config({"run.delta": root, "run.large_delta": False})
    with pytest.raises(ConfigError, match="expected true or false"):
        make_config({"run.large_delta": "yes"})
    # The key is in nobody's digest but of those who use it.
    assert "large_delta" not in make_config().to_dict()["run"]  # type: ignore[operator]


@pytest.mark.parametrize("unit", ["row", "person"])
def test_words_say_the_condition_of_the_unit_and_what_is_promised_to_nobody(unit: str) -> None:
    said = " ".join(privacy_text(report_of(unit=unit, rows_of_unit=2 if unit == "person" else 1)))
    assert "Organisations are not protected" in said
    assert "in two studies like this one" in said
    assert "times as likely" not in said
    if unit == "person":
        assert "for people with at most 2 rows: one who has more is protected less" in said
        assert "everybody else" in said
    else:
        assert "for a single row: a person with several of them is protected less" in said


def test_card_of_a_person_does_not_contradict_itself() -> None:
    """Before, every card said that a person is protected once per row, not once."""
    config = make_config({"run.unit": "person", "run.rows_per_person": 2})
    for report in (report_of(unit="person", rows_of_unit=2), None):
        card = documents(config, report)[CARD].decode()
        assert "once per row" not in card
        assert "for people with at most 2 rows" in card
    card = documents(make_config(), None)[CARD].decode()
    assert "a person with several of them is protected less" in card


def test_card_says_that_a_row_can_equal_a_persons() -> None:
    files = documents(make_config(), report_of())
    card, terms = files[CARD].decode(), files["terms.txt"].decode()
    assert "A row can equal a person's: none was copied from one." in card
    assert "none is a person's" not in card
    assert "no row of it was copied from a person's" in terms


def oracle_config() -> Config:
    return make_config({"party": None, "flaim": {"variant": "oracle"}, "run.noise": "box-muller"})


def epsilons(text: str) -> bool:
    return "epsilon =" in text or "ε" in text


def test_oracle_is_never_shown_with_an_epsilon_and_without_the_words(tmp_path: Path) -> None:
    report: Mapping[str, Any] = {**report_of(), "method": "flaim-oracle"}
    config = oracle_config()
    lines = privacy_text(report)
    assert lines == (
        "Not private: this experiment chose its queries by the pooled table, without noise.",
    )
    page = render_html(report, ReportFigures())
    assert "<b>none</b><span>privacy</span>" in page
    assert "What the best attacker finds" not in page
    assert "Not private" in budget_line(report)[1]
    for said in (report, None):
        card = documents(config, said)[CARD].decode()
        assert "Not private" in card
        assert not epsilons(card.replace("Not private", ""))
    package = datapackage(config, report, [])
    assert b"Not private; see" in package
    assert b"Differentially private" in datapackage(make_config(), report_of(), [])
    # The control: with another variant all of them show it.
    private = {**report_of(), "method": "flaim-private"}
    assert epsilons(" ".join(privacy_text(private)))
    assert epsilons(documents(make_config(), private)[CARD].decode())
    assert "ε 1" in render_html(private, ReportFigures())


def test_plan_says_what_an_attacker_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = make_config().to_dict()
    path = tmp_path / "study.toml"
    path.write_text(tomli_w.dumps(document))
    assert run_command_line(cli, ["plan", str(path)]) == Status.DONE
    assert "falsely suspects 1 % of the absent finds at most" in capsys.readouterr().out
    assert run_command_line(cli, ["plan", str(path), "--json"]) == Status.DONE
    assert '"found_at_most"' in capsys.readouterr().out
    path.write_text(tomli_w.dumps(make_config({"run.delta": 0.02}).to_dict()))
    assert run_command_line(cli, ["plan", str(path)]) == Status.DONE
    assert "WARNING         Delta is large" in capsys.readouterr().out


def test_plan_has_the_words_of_a_report_for_a_large_epsilon(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    said = {}
    for epsilon in (1.0, 6.0, 30.0):
        path.write_text(make_config({"run.epsilon": epsilon}).resolved_toml())
        shown = CliRunner().invoke(cli, ["plan", str(path)])
        assert shown.exit_code == 0, shown.output
        said[epsilon] = " ".join(shown.output.split())
    assert "weak" not in said[1.0]
    assert "That is weak protection for a single row." in said[6.0]
    assert "hardly at all: handle the table like the real one." in said[30.0]
