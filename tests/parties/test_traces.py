"""Traces of steps: what a collector receives of a run, and that a run is none the worse without one."""

import asyncio
import contextlib
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import parties.mpc.server
from parties.config import CertificateFiles
from parties.foundation.errors import ExtraMissing
from parties.local.children import free_ports
from parties.mpc.server import run_mpc_server
from parties.observability.clocks import Clocks
from parties.observability.events import Progress, no_tracing
from parties.observability.status import RunInfo, RunStatus
from parties.observability.traces import trace_steps
from parties.service import workers
from parties.service.database import database_url
from parties.service.events import service_events
from parties.service.exposed_run import with_admin_api
from parties.service.identity import ServiceIdentity
from parties.service.main import ServeOptions, serve_studies
from parties.service.run_api import CommandHandlers
from parties.service.study_record import DISTAIM
from tests.parties import serving
from tests.parties.mesh import EVERYONE, Cluster, make_uniform
from tests.parties.support import make_config
from tests.until import until


class Collector:
    """A collector of OTLP over HTTP."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture
def board() -> RunStatus:
    return RunStatus(RunInfo.of_server(make_config(), 1))


def attributes(span: Span) -> dict[str, object]:
    return {one.key: one.value.int_value or one.value.string_value for one in span.attributes}


def test_steps_are_spans_within_one_another_with_their_costs(
    collector: Collector, board: RunStatus
) -> None:
    with trace_steps(board, collector.endpoint) as tracer:
        with (
            tracer("select", 2, lambda: {"sent_bytes": 30}),
            tracer("select.choose", 2, lambda: {"sent_bytes": 7}),
        ):
            time.sleep(0.02)  # Sleeps: lasts.
        with tracer("finish", None, dict):
            pass
    by_name = {span.name: span for span in collector.spans}
    run, select, choose = (by_name[name] for name in ("run trial", "select", "select.choose"))
    assert choose.parent_span_id == select.span_id
    assert select.parent_span_id == by_name["finish"].parent_span_id == run.span_id
    assert {span.trace_id for span in collector.spans} == {run.trace_id}
    assert choose.end_time_unix_nano - choose.start_time_unix_nano >= 20_000_000
    assert attributes(choose) == {"syncret.round": 2, "syncret.sent_bytes": 7}
    resource = {
        one.key: one.value.string_value
        for one in collector.requests[0].resource_spans[0].resource.attributes
    }
    assert resource["syncret.study"] == "trial"
    assert resource["service.instance.id"] == "party-1"


async def test_steps_side_by_side_keep_their_own_parents(
    collector: Collector, board: RunStatus
) -> None:
    async def one(name: str) -> None:
        with tracer(name, 1, dict):
            await asyncio.sleep(0.01)  # Sleeps: lasts.
            with tracer(f"{name}.inner", 1, dict):
                await asyncio.sleep(0.01)  # Sleeps: lasts.

    with trace_steps(board, collector.endpoint) as tracer:
        await asyncio.gather(one("a"), one("b"))
    by_name = {span.name: span for span in collector.spans}
    for name in "ab":
        assert by_name[f"{name}.inner"].parent_span_id == by_name[name].span_id


def test_a_step_that_fails_says_its_errors_class_and_no_more(
    collector: Collector, board: RunStatus
) -> None:
    with (
        contextlib.suppress(ValueError),
        trace_steps(board, collector.endpoint) as tracer,
        tracer("select", 2, dict),
    ):
        raise ValueError("a secret")
    (select,) = [span for span in collector.spans if span.name == "select"]
    assert select.status.code == Status.STATUS_CODE_ERROR
    assert select.status.message == "ValueError"
    assert b"a secret" not in b"".join(r.SerializeToString() for r in collector.requests)


def test_a_collector_that_is_away_costs_little(
    board: RunStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parties.observability.traces._TIMEOUT_S", 0.3)
    began = time.monotonic()
    with (
        trace_steps(board, f"http://127.0.0.1:{free_ports(1)[0]}/v1/traces") as tracer,
        tracer("select", 1, dict),
    ):
        pass
    assert time.monotonic() - began < 3


def test_nothing_is_traced_without_an_endpoint(board: RunStatus) -> None:
    with trace_steps(board, None) as tracer:
        assert tracer is no_tracing


def test_without_opentelemetry_it_is_said_what_to_install(
    board: RunStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with (
        pytest.raises(
            ExtraMissing, match=r"traces.endpoint needs opentelemetry.*syncret\[traces\]"
        ),
        trace_steps(board, "http://127.0.0.1:4318"),
    ):
        pass


async def test_a_run_is_traced_step_by_step_and_sends_what_it_sent(
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    monkeypatch: pytest.MonkeyPatch,
    collector: Collector,
) -> None:
    """One of three servers traces its run: the others neither know nor differ, and its bytes are those of its costs."""
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    cluster = Cluster(make_config(), tmp_path, certificates)
    configs = cluster.with_own_certificates()
    boards = [RunStatus(RunInfo.of_server(config, pid)) for pid, config in enumerate(configs)]

    async def serve(pid: int) -> None:
        folder = cluster.directory(pid)
        folder.mkdir()
        if pid == 1:
            (folder / "settings.toml").write_text(f'[traces]\nendpoint = "{collector.endpoint}"')
        register = cluster.register(pid)
        async with with_admin_api(boards[pid], folder, CommandHandlers()) as tracer:
            await run_mpc_server(
                configs[pid], pid, folder, progress=Progress(tracer=tracer), closed=asyncio.Event(),
                register=register, status=boards[pid],
            )  # fmt: skip

    async with asyncio.timeout(60):
        await asyncio.gather(cluster.submit(EVERYONE), *(serve(pid) for pid in range(3)))
    steps = boards[1].status()["steps"]
    spans = [span for span in collector.spans if not span.name.startswith("run ")]
    assert {span.name for span in spans} == set(steps)
    for name, cost in steps.items():
        own = [attributes(span) for span in spans if span.name == name]
        assert len(own) == cost["count"]
        assert sum(one.get("syncret.sent_bytes") or 0 for one in own) == cost["sent_bytes"]
    (run,) = [span for span in collector.spans if span.name.startswith("run ")]
    assert attributes(run) == {"syncret.phase": "finished"}


def settings(folder: Path, endpoint: str) -> None:
    (folder / "settings.toml").write_text(f'[traces]\nendpoint = "{endpoint}"\n')


async def test_a_studys_process_has_the_endpoint_of_its_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Sequence[str]] = []

    def start(name: str, arguments: Sequence[str], **_: object) -> None:
        commands.append(arguments)
        raise OSError("no process")

    monkeypatch.setattr(workers.Child, "start", start)
    folder: Any = Namespace(log=tmp_path / "log", config=tmp_path / "c.toml", work=tmp_path / "run")
    study: Any = Namespace(run="stays", kind=DISTAIM, digest="d" * 64)
    fronts: Any = (Namespace(routes={}), Namespace(routes={}))
    worker = workers.Worker(
        study,
        folder,
        name="stays.study.invalid",
        pid=0,
        register=None,
        routers=fronts,
        clocks=lambda: Clocks(0, {}, known=True),
        on_change=lambda: None,
        events=service_events(),
        traces="http://[::1]:4318/v1/traces",
    )
    async with asyncio.timeout(20):
        while not commands:  # noqa: ASYNC110  # What it waits for sets no event.
            await asyncio.sleep(0.01)
    await worker.stop()
    assert list(commands[0][-2:]) == ["--traces", "http://[::1]:4318/v1/traces"]


async def test_a_service_whose_traces_could_not_be_sent_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    folder = serving.make_identities(tmp_path)[0]
    settings(folder, "http://127.0.0.1:4318/v1/traces")
    options = ServeOptions(database_url(folder), 1, tmp_path / "register.sqlite")
    with pytest.raises(ExtraMissing, match=r"traces.endpoint needs opentelemetry.*traces\]"):
        await asyncio.wait_for(serve_studies(ServiceIdentity.load(folder), options, Progress()), 20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_studies_of_a_service_are_traced_as_its_settings_say(
    tmp_path: Path, collector: Collector
) -> None:
    """One of three services has [traces]: that of beta."""
    with serving.cluster(tmp_path) as three:
        beta = three.serves[1]
        beta.end()
        settings(beta.folder, collector.endpoint)
        beta.start()
        beta.until(lambda status: all(peer["there"] for peer in status["peers"]), "all there")
        three.approve(three.propose("traced"))
        three.submit_when_running("traced")
        names = lambda: {span.name for span in collector.spans}  # noqa: E731
        until(lambda: "run traced" in names(), f"the trace's end in {names()}")
    assert {"select", "measure"} <= names()
    resources = [one.resource for request in collector.requests for one in request.resource_spans]
    instances = {
        one.value.string_value
        for resource in resources
        for one in resource.attributes
        if one.key == "service.instance.id"
    }
    assert len(instances) == 1
