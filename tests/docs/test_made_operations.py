"""The pages of statuses, metrics and alerts: each has what the program and its rules have, and nothing else."""

import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from parties.foundation.exit_codes import Status
from parties.observability.status import ParticipantState, Phase
from parties.service.metrics import render
from parties.service.study_record import StudyState
from tests.docs.guides import DOCS, ROOT
from tests.docs.made import module, tables
from tests.parties.test_metrics import SERVICE, document, full_board

made = module("made_operations")
STATUSES = tables("\n".join(made.statuses()))
METRICS = tables("\n".join(made.metrics()))
SENTENCE = re.compile(r"[A-Z0-9`].*\.")
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "syncret.rules.yml").read_text())


def test_statuses_have_every_status_with_meaning_and_cure() -> None:
    rows = STATUSES["Exit statuses"]
    assert [(int(number), name) for number, name, *_ in rows] == [(s.value, s.name) for s in Status]
    for row in rows:
        assert len(row) == 4
        assert all(SENTENCE.fullmatch(text) for text in row[2:]), row


def test_statuses_of_the_guide_are_those_of_the_page() -> None:
    guide = tables((ROOT / "parties" / "README.md").read_text(encoding="utf-8"))
    listed = [number for row in guide["Exit statuses"] for number in row[0].split(", ")]
    assert listed == [row[0] for row in STATUSES["Exit statuses"]]


@pytest.mark.parametrize(
    ("title", "states"),
    [
        ("States of a study", StudyState),
        ("Phases of a server's run", Phase),
        ("States of a data owner", ParticipantState),
    ],
)
def test_statuses_have_every_state(title: str, states: type[StudyState]) -> None:
    rows = STATUSES[title]
    assert [row[0] for row in rows] == [state.value for state in states]
    assert all(SENTENCE.fullmatch(row[1]) for row in rows)


def test_metrics_are_those_that_a_service_exports() -> None:
    status = document(full_board())
    status["time"] |= {"closing_s": 60.0}
    failed = {**SERVICE["studies"][1], "state": "failed", "ended_s": 60.0}
    own = {**SERVICE, "studies": [*SERVICE["studies"], failed]}
    exported = {}
    for family in text_string_to_metric_families(render([status], own=own)[0].decode()):
        if family.name.endswith("_created"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        exported[name] = (family.type, labels, family.documentation)
    shown = {
        name: (kind, set(re.findall(r"\w+", labels)), said)
        for name, kind, labels, said in METRICS["Metrics"]
    }
    assert shown == exported
    assert len(shown) == len(METRICS["Metrics"])
    assert all(SENTENCE.fullmatch(said) for _, _, said in shown.values())


def test_alerts_are_those_of_the_rules() -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    shown = [tuple(row[:4]) for row in METRICS["Alerts"]]
    assert shown == [
        (rule["alert"], rule["expr"], rule["for"], rule["labels"]["severity"]) for rule in rules
    ]
    known = {row[0] for row in METRICS["Metrics"]}
    text = (DOCS / "alerts.md").read_text(encoding="utf-8")
    for row, rule in zip(METRICS["Alerts"], rules, strict=True):
        assert row[1].split()[0] in known
        found = re.fullmatch(r"\[(.+)\]\(alerts\.md#([\w-]+)\)", row[5])
        assert found is not None
        assert f"docs/alerts.md#{found[2]}" == rule["annotations"]["runbook_url"]
        section = text.partition(f"\n## {found[1]}\n")[2].partition("\n## ")[0]
        assert f"`{rule['alert']}`" in section
