"""Pages of the site for operators that are made from the code: statuses and states, metrics and alerts."""

import enum
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from made_strings import explained  # MkDocs puts the folder of a hook on the path.

from parties.foundation.exit_codes import Status
from parties.observability.status import ParticipantState, Phase
from parties.service.metrics import families
from parties.service.study_record import StudyState

_ROOT = Path(__file__).resolve().parent.parent
RULES = _ROOT / "deploy" / "prometheus" / "syncret.rules.yml"
_STATES: dict[type[enum.StrEnum], str] = {
    StudyState: "States of a study",
    Phase: "Phases of a server's run",
    ParticipantState: "States of a data owner",
}


def statuses() -> Iterator[str]:
    """Yields every exit status of the command, and the states of studies, runs and data owners."""
    yield "# Exit statuses and states\n\nEvery failure prints one message on standard error, and ends with a status."
    yield "\n## Exit statuses\n\n| status | name | meaning | what to do |\n| --- | --- | --- | --- |"
    said = explained(Status)
    for status in Status:
        meaning, _, cure = said[status.name].partition("\n\n")
        yield f"| {status.value} | `{status.name}` | {meaning} | {cure} |"
    for states, title in _STATES.items():
        said = explained(states)
        yield f"\n## {title}\n\n{(states.__doc__ or '').strip()}\n\n| state | meaning |\n| --- | --- |"
        for state in states:
            yield f"| `{state.value}` | {said[state.name]} |"


def metrics() -> Iterator[str]:
    """Yields every metric that a service exports, and every alert of the rules that come with it."""
    yield (
        "# Metrics and alerts\n\n[Metrics, logs, traces](monitoring.md) says how Prometheus reaches a server. Metrics "
        "with the label `study` are of each study, the others of the service."
    )
    yield "\n## Metrics\n\n| metric | type | labels | what it is |\n| --- | --- | --- | --- |"
    for family in sorted(families(), key=lambda each: each.name):
        # The text format has the suffix, which the library keeps from the name.
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in family._labelnames)
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"
    yield (
        "\n## Alerts\n\nThe [rules](../deploy/prometheus/syncret.rules.yml) fire once an expression has held for the "
        "time.\n\n| alert | expression | for | severity | what it says | what to do |\n"
        "| --- | --- | --- | --- | --- | --- |"
    )
    titles = _sections(_ROOT / "docs" / "alerts.md")
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook_url"].removeprefix("docs/").partition("#")
        said = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"`\1`", rule["annotations"]["summary"])
        yield (
            f"| `{rule['alert']}` | `{rule['expr']}` | {rule['for']} | {rule['labels']['severity']} | {said} | "
            f"[{titles[anchor]}]({page}#{anchor}) |"
        )


def rules() -> list[dict]:
    """Returns the alerts of the rules, in their order."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _sections(path: Path) -> dict[str, str]:
    """Returns the headings of a page by their anchors."""
    titles = re.findall(r"^## (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-"): title for title in titles}
