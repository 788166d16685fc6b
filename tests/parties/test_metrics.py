"""Metrics of running servers, and that the dashboard in the tree asks for what there is."""

import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from parties.observability.events import Progress
from parties.observability.status import (
    BudgetUse,
    ParticipantState,
    ParticipantStatus,
    Phase,
    RunInfo,
    RunStatus,
    StepTotals,
)
from parties.service.admin_listener import AdminListener, admin_thread
from parties.service.metrics import render
from parties.service.run_api import CommandHandlers, run_application
from tests.parties.support import make_config

DASHBOARDS = sorted((Path(__file__).parents[2] / "deploy" / "grafana").glob("*.json"))
AT_ANY_TIME = "5m"


def full_board(study: str = "trial", pid: int = 0) -> RunStatus:
    """Of a server of which everything is known."""
    board = RunStatus(RunInfo.of_server(make_config({"run.id": study}), pid))
    Progress(board).event("listening", "")
    Progress(board).event("connected", "")
    Progress(board).event("round", "", round=2)
    Progress(board).event("round-done", "", done=2)
    Progress(board).event("working", "", left_s=12.5)
    board.rejected("tls", "a stranger")
    board.rejected("tls", "a stranger")
    board.sources.owners = lambda: [
        ParticipantStatus("a", ParticipantState.COUNTED),
        ParticipantStatus("b", ParticipantState.INCOMPLETE, ("party-1",)),
    ]
    board.sources.spent = lambda: BudgetUse(0.03, 0.01, 4)
    board.sources.steps = lambda: {"select": StepTotals(2, 1.5, 1000, 2000, 30)}
    board.sources.round_trip_s = lambda peer: 0.001 * (peer + 1)
    return board


def document(board: RunStatus) -> dict[str, Any]:
    process = {"memory_bytes": 1 << 20, "peak_bytes": 1 << 21, "cpu_s": 3.25}
    return board.status() | {"process": process}


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


SERVICE = {
    "service": "alpha",
    "states": {"running": 1, "finished": 200},
    "studies": [
        {
            "run": "stays",
            "state": "waiting",
            "ended_s": None,
            "process": {"restarts": 3},
            "waits": [{"name": "beta", "cause": "disk-full", "detail": None, "text": "full"}],
        },
        {"run": "visits", "state": "finished", "ended_s": 60.0, "process": None, "waits": []},
    ],
    "peers": [
        {
            "name": "beta",
            "there": True,
            "round_trip_s": 0.02,
            "clock": {"offset_s": -612.0, "within_s": 0.01},
        }
    ],
    "clock": {"off_s": None, "known": True},
    "certificates": [{"kind": "peer", "name": "beta", "left_s": 86_400}],
    "folder": {"free_bytes": 3_000_000_000, "total_bytes": 60_000_000_000, "backup_age_s": None},
    "refused_connections": {"mesh": 1, "ingest": 0},
    "process": {"memory_bytes": 1 << 27, "cpu_s": 12.5},
    "event_counts": {"study.approved": 3},
    "notify": [{"target": "mail mx", "pending": 0, "delivered": 4, "failed": 1, "problem": ""}],
}
"""Part of a service's status that its metrics are made of."""


def rendered(
    *boards: RunStatus, own: dict[str, Any] | None = None
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return samples(render([document(board) for board in boards], own=own)[0].decode())


def test_render_has_what_the_status_has() -> None:
    found = rendered(full_board())
    base = (("party", "party-0"), ("study", "trial"))

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted((*base, *labels.items())))]

    assert value("syncret_phase", phase="computing") == 1
    assert value("syncret_phase", phase="failed") == 0
    assert value("syncret_round_done") == 2
    assert value("syncret_rounds_planned") == 4
    assert value("syncret_owners", state="incomplete") == 1
    assert value("syncret_owners_here") == 2
    assert value("syncret_owners_minimum") == 3
    assert value("syncret_budget_spent_rho") == 0.01
    assert value("syncret_step_seconds_total", step="select") == 1.5
    assert value("syncret_step_sent_bytes_total", step="select") == 1000
    assert value("syncret_rejections_total", reason="tls") == 2
    assert value("syncret_peer_round_trip_seconds", peer="party-2") == 0.003
    assert value("syncret_memory_bytes") == 1 << 20
    assert 11 < value("syncret_left_seconds") <= 12.5
    assert found["syncret_studies", (("phase", "computing"),)] == 1


def test_render_of_several_studies_tells_them_apart() -> None:
    ended = full_board("other", 1)
    ended.enter(Phase.FINISHED)
    found = rendered(full_board(), ended)
    assert found["syncret_studies", (("phase", "finished"),)] == 1
    assert found["syncret_studies", (("phase", "computing"),)] == 1
    names = {dict(labels)["study"] for name, labels in found if name == "syncret_info"}
    assert names == {"trial", "other"}


def test_render_of_a_service_has_its_studies_and_the_others() -> None:
    found = rendered(own=SERVICE)
    assert found["syncret_service_studies", (("party", "alpha"), ("state", "running"))] == 1
    assert found["syncret_service_studies", (("party", "alpha"), ("state", "finished"))] == 200
    assert found["syncret_service_peer_there", (("party", "alpha"), ("peer", "beta"))] == 1
    assert found["syncret_service_memory_bytes", (("party", "alpha"),)] == 1 << 27
    name = "syncret_service_refused_connections_total"
    assert found[name, (("party", "alpha"), ("port", "mesh"))] == 1
    restarts = {key: value for key, value in found.items() if "restarts" in key[0]}
    study = (("party", "alpha"), ("study", "stays"))
    assert restarts == {("syncret_study_restarts_total", study): 3}
    offset = "syncret_service_peer_clock_offset_seconds"
    assert found[offset, (("party", "alpha"), ("peer", "beta"))] == -612
    assert found["syncret_service_clock_off_seconds", (("party", "alpha"),)] == 0
    waits = (("cause", "disk-full"), *study[:1], ("server", "beta"), *study[1:])
    assert found["syncret_study_waits", waits] == 1
    end = (("kind", "peer"), ("name", "beta"), ("party", "alpha"), ("study", ""))
    assert found["syncret_certificate_expiry_seconds", end] == 86_400


def test_render_of_nothing_has_no_study() -> None:
    assert sum(value for (name, _), value in rendered().items() if name == "syncret_studies") == 0


def test_what_is_unknown_is_left_out() -> None:
    board = RunStatus(RunInfo.of_server(make_config(), 0))
    text = render([board.status()])[0].decode()
    for name in ("syncret_round_done", "syncret_memory_bytes", "syncret_peer_round_trip_seconds"):
        assert f"{name}{{" not in text


def test_openmetrics_is_given_to_who_asks_for_it() -> None:
    body, content_type = render([document(full_board())], "application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert {family.name for family in openmetrics_families(body.decode())} > {"syncret_phase"}


def test_names_of_others_cannot_forge_a_metric() -> None:
    evil = 'x"} 1\nsyncret_forged{a="'
    board = full_board()
    board.rejected(evil, "")
    board.sources.steps = lambda: {evil: StepTotals()}
    found = rendered(board)
    assert "syncret_forged" not in {name for name, _ in found}
    assert any(dict(labels).get("reason") == evil for _, labels in found)


def test_metrics_are_scraped_over_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with (
            admin_thread(
                lambda: run_application(full_board(), CommandHandlers()), [AdminListener(listening)]
            ),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer,
        ):
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert ("syncret_memory_bytes", (("party", "party-0"), ("study", "trial"))) in samples(text)


def expressions() -> Iterator[tuple[str, str]]:
    """Every query of the dashboards, with the panel that it stands in."""
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield panel["title"], target["expr"]


def selected(node: Any) -> Iterator[Any]:
    """The selectors in a parsed query."""
    match node:
        case promql_parser.VectorSelector():
            yield node
        case promql_parser.MatrixSelector():
            yield node.vector_selector
        case promql_parser.BinaryExpr():
            yield from selected(node.lhs)
            yield from selected(node.rhs)
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr():
            yield from selected(node.expr)
        case promql_parser.Call():
            for argument in node.args:
                yield from selected(argument)


@pytest.mark.parametrize(("panel", "query"), list(expressions()))
def test_the_dashboard_asks_for_metrics_that_there_are(panel: str, query: str) -> None:
    there: dict[str, set[str]] = {}
    for name, labels in rendered(full_board(), own=SERVICE):
        there.setdefault(name, set()).update(dict(labels))
    parsed = promql_parser.parse(query.replace("$__rate_interval", AT_ANY_TIME))
    found = list(selected(parsed))
    assert found, panel
    for selector in found:
        assert selector.name in there, f"{panel}: {selector.name}"
        assert {m.name for m in selector.matchers.matchers} <= there[selector.name], panel
    by = re.findall(r"by \(([^)]*)\)", query)
    assert {label.strip() for one in by for label in one.split(",")} <= there[found[0].name]


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    assert DASHBOARDS
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        assert board["uid"]
        assert board["schemaVersion"] >= 30
        places = [panel["gridPos"] for panel in board["panels"]]
        assert all(place["x"] + place["w"] <= 24 for place in places)
        for variable in board["templating"]["list"]:
            for name in re.findall(r"syncret_\w+", json.dumps(variable)):
                assert name in {metric for metric, _ in rendered(full_board(), own=SERVICE)}


def test_a_query_for_a_metric_that_is_none_is_noticed() -> None:
    with pytest.raises(AssertionError, match="syncret_nothing"):
        test_the_dashboard_asks_for_metrics_that_there_are("x", "sum(syncret_nothing)")
    with pytest.raises(ValueError, match=r"paren|end of input|unexpected"):
        test_the_dashboard_asks_for_metrics_that_there_are("x", "sum(syncret_info")
