"""Events of a service: names that the guide explains, one line of JSON each, and what others cannot put into them."""

import ast
import asyncio
import io
import json
import logging
import re
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from parties.config import Address, CertificateFiles
from parties.identity.tls import server_context
from parties.local.children import free_ports
from parties.network.port_sharing import PassedSocketQueue, PassedSocketServer
from parties.network.remote_address import remote_address, serve_tls
from parties.observability.events import WORKING
from parties.observability.logs import JsonLog
from parties.service.events import (
    NOTICES,
    WARNINGS,
    Actor,
    EventCounts,
    EventName,
    event_words,
    relayed,
    service_events,
)
from parties.service.metrics import render
from parties.service.settings import NotifySection
from parties.service.studies import StudyEvent, event_of, utc_now
from parties.service.study_record import StudyState
from tests.parties.test_metrics import SERVICE, document, full_board

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
OF_SERVERS = ("mpc", "federation", "methods")
OF_PARTICIPANTS = (
    *("mpc/submission/", "federation/client", "federation/channel.py"),
    *("federation/flower_members.py", "methods/flaim/flower"),
)
"""Files of those rooms whose events are an owner's."""


def table(heading: str, number: int = 0) -> set[str]:
    """The names in the first column of a table below a heading of the guide."""
    section = GUIDE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = tables[number].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def events_of(path: Path) -> set[str]:
    """The names of events that a file emits."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first = node.args[0]
            if node.func.attr == "event" and isinstance(first, ast.Constant):
                found.add(str(first.value))
    return found


def test_guide_has_every_event_of_a_service() -> None:
    assert table("Events") == {name.value for name in EventName}


def test_guide_has_every_event_of_a_run() -> None:
    known, found = table("Events", 1), set[str]()
    for room in OF_SERVERS:
        for path in (ROOT / "parties" / room).rglob("*.py"):
            name = path.relative_to(ROOT / "parties").as_posix()
            if not name.startswith(OF_PARTICIPANTS):
                found |= events_of(path)
    assert found - known == set()
    besides = {"rejected", "failed", "stopped", "report", WORKING, "log", "warning"}
    assert known - found <= besides


def test_guide_has_every_series() -> None:
    text = render([document(full_board())], own=SERVICE)[0].decode()
    found = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert table("Metrics") == {name for name in found if not name.endswith("_created")}


def test_guide_has_every_setting_and_notice() -> None:
    section = GUIDE.split("[notify]\n")[1].split("```")[0]
    assert set(re.findall(r"^(\w+) =", section, re.MULTILINE)) == {
        item.name for item in fields(NotifySection)
    }
    assert table("Notifications") == {name.value for name in NOTICES}
    settings = (ROOT / "parties" / "README.md").read_text(encoding="utf-8")
    assert "`[notify]`" in settings


def test_every_state_of_a_study_has_an_event_with_the_states_word() -> None:
    for state in StudyState:
        assert event_words(event_of(state)) == state.value
    assert {name for name in WARNINGS if "." in name} <= {name.value for name in EventName}


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_are_lines_of_their_names_and_fields() -> None:
    stream, counts = io.StringIO(), EventCounts()
    log = JsonLog(stream)
    log.serves("alpha")
    events = service_events(counts)
    with log.installed():
        events.event(EventName.STUDY_FAILED, "stays is failed", study="stays", digest="d1")
        events.event(EventName.PEER_THERE, "beta is there", peer="beta")
        found = relayed({"event": "rejected", "text": "x", "remote": "::1"}, "stays", 7)
        assert found is not None
        events.take(found)
    first, second, third = logged(stream)
    assert {
        "party": "alpha",
        "study": "stays",
        "event": "study.failed",
        "level": "warning",
    }.items() <= first.items()
    assert (second["study"], second["peer"], second["level"]) == (None, "beta", "info")
    assert (third["event"], third["study"], third["remote"]) == ("rejected", "stays", "::1")
    assert counts.counts == {"study.failed": 1, "peer.there": 1}


def test_log_of_json_has_no_line_of_another_handler(capfd: pytest.CaptureFixture[str]) -> None:
    """Such as that of `logging.basicConfig`, which MPyC's import leaves behind without its lent handler."""
    root, stream = logging.getLogger(), io.StringIO()
    console = logging.StreamHandler(sys.stderr)
    root.addHandler(console)
    try:
        with JsonLog(stream).installed():
            service_events().event(EventName.PEER_AWAY, "beta: no answer", peer="beta")
            logging.getLogger("aiohttp").warning("a library's line")
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                warnings.warn("a library's warning", stacklevel=1)
        assert console in root.handlers
    finally:
        root.removeHandler(console)
    assert capfd.readouterr().err == ""
    assert [line["event"] for line in logged(stream)] == ["peer.away", "log", "log"]


def test_import_of_the_engine_leaves_the_root_logger_as_it_was() -> None:
    code = "import logging, protocols._mpyc; print(logging.getLogger().handlers)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


RELAYED: dict[str, tuple[Mapping[str, object], str, Mapping[str, object]]] = {
    "a service's name": ({"event": "study.approved", "text": "x"}, "log", {}),
    "no name": ({"event": 7, "text": "x"}, "log", {}),
    "another study": ({"event": "round", "study": "other", "process": 1}, "round", {}),
    "an actor": ({"event": "round", "actor": "operator anna", "subject": "CN=anna"}, "round", {}),
    "values of another kind": (
        {"event": "round", "a": [1], "b": {}, "round": 3},
        "round",
        {"round": 3},
    ),
    "a long value": ({"event": "round", "a": "x" * 999}, "round", {"a": "x" * 200 + "..."}),
    "a terminal's signs": ({"event": "round", "a": "\x1b[2J"}, "round", {"a": "?[2J"}),
    "a long key": ({"event": "round", "a" * 60: 1, "A b": 2}, "round", {}),
}


@pytest.mark.parametrize("what", RELAYED)
def test_relayed_event_has_nothing_that_is_the_services(what: str) -> None:
    said, name, extra = RELAYED[what]
    found = relayed(said, "stays", 7)
    assert found is not None
    assert found.name == name
    assert found.fields == {"study": "stays", "process": 7, **extra}
    assert relayed({"event": WORKING, "text": "at work"}, "stays", 7) is None
    many = relayed({"event": "round", **{f"f{'x' * i}": i for i in range(30)}}, "stays", 7)
    assert many is not None
    assert len(many.fields) == 2 + 24


def test_event_of_a_history_has_the_subject_and_leaves_out_what_is_unknown() -> None:
    anna = Actor("operator anna", "CN=anna,O=Clinic")
    entry = StudyEvent(utc_now(), "d1", anna, EventName.STUDY_COMMANDED, "revoke west")
    assert entry.logged("stays", "running") == {
        **{"study": "stays", "digest": "d1", "state": "running"},
        **{"actor": "operator anna", "subject": "CN=anna,O=Clinic", "reason": "revoke west"},
    }
    assert entry.logged(None, None).keys() == {"actor", "subject", "reason"}
    document = entry.to_dict()
    assert (document["event"], document["what"]) == ("study.commanded", "asked to revoke west")
    # One of a former version has words alone.
    before = StudyEvent(utc_now(), "d1", "alpha", "approved", "here").to_dict()
    assert (before["what"], "event" in before) == ("approved", False)


async def fail_handshake(port: int) -> None:
    """Connects without TLS."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await reader.read()
    writer.close()


async def test_handshake_that_fails_has_its_address_at_a_port_and_where_it_is_passed(
    certificates: Mapping[str, CertificateFiles],
) -> None:
    """Each its own, of connections at the same time."""
    found, before = list[str](), remote_address()

    def failed(error: ssl.SSLError) -> None:
        found.append(remote_address())

    files = next(iter(certificates.values()))
    context, (port,) = server_context(files, failed), free_ports(1)
    listening = await serve_tls(
        asyncio.Protocol, Address("localhost", port), context, handshake_s=5.0
    )
    assert {each.getsockname()[1] for each in listening.sockets} == {port}
    await asyncio.gather(fail_handshake(port), fail_handshake(port))
    assert found == ["127.0.0.1"] * 2
    listening.close()
    await listening.wait_closed()
    queue = PassedSocketQueue()
    passed = PassedSocketServer(queue, asyncio.Protocol, context, 5.0)
    with socket.create_server(("127.0.0.1", 0)) as front:
        found.clear()
        client = asyncio.create_task(fail_handshake(front.getsockname()[1]))
        connection, _ = await asyncio.to_thread(front.accept)
        connection.setblocking(False)
        queue.put(connection)
        await client
    passed.close()
    await passed.wait_closed()
    assert found == ["127.0.0.1"]
    assert remote_address() == before
