"""The admin APIs and their OpenAPI documents: routes, forms, former paths, and the command that prints them.

Answers of real services are held against the documents in `test_service` and `test_serve`, through `openapi`.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from parties.cli.main import cli
from parties.observability.status import RunInfo, RunStatus
from parties.service.admin_listener import SOCKET_NAME, AdminListener, admin_thread, listen_unix
from parties.service.api import service_application, service_document
from parties.service.run_api import CommandHandlers, run_application, run_document
from parties.service.service import Service
from parties.service.status_client import UNVERSIONED, get_document, request_document
from tests.parties.openapi import check_answer, closed
from tests.parties.support import make_config

Document = Mapping[str, Any]
APIS: Mapping[str, tuple[Callable[[], web.Application], Callable[[], Document]]] = {
    "service": (lambda: service_application(Mock(spec=Service)), service_document),
    "run": (lambda: run_application(board(), CommandHandlers()), run_document),
}


def board() -> RunStatus:
    return RunStatus(RunInfo.of_server(make_config(), 0))


async def test_a_studys_process_chooses_no_media_type(tmp_path: Path) -> None:
    async def page(request: web.Request) -> web.Response:
        status = 200 if request.path.endswith("metrics") else 409
        return web.Response(status=status, text="<script>1</script>", content_type="text/html")

    process = web.Application()
    process.router.add_get("/{path:.*}", page)
    runner = web.AppRunner(process)
    await runner.setup()
    await web.SockSite(runner, listen_unix(tmp_path / SOCKET_NAME)).start()
    service = Mock()
    service.studies.folder.return_value.work = tmp_path
    found = {}
    async with TestClient(TestServer(service_application(service))) as api:
        for what in ("metrics", "events", "nothing"):
            async with api.get(f"/v1/studies/x/{what}") as answer:
                found[what] = answer.content_type
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Content-Security-Policy"].endswith("; sandbox")
    await runner.cleanup()
    json_type = "application/json"
    assert found == {"metrics": "text/plain", "events": json_type, "nothing": json_type}


def operations(document: Document) -> dict[tuple[str, str], Document]:
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


@pytest.mark.parametrize("name", APIS)
def test_every_route_is_in_the_document_and_every_operation_is_a_route(name: str) -> None:
    application, document = (make() for make in APIS[name])
    routes = {
        (route.method, route.resource.canonical)
        for route in application.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    current = {
        (method, path) for method, path in routes if path.startswith("/v1/") or path in UNVERSIONED
    }
    assert current == set(operations(document))
    # Each former path is that of a route.
    assert {(method, f"/v1{path}") for method, path in routes - current} <= current


@pytest.mark.parametrize("name", APIS)
def test_a_document_is_whole(name: str) -> None:
    document = APIS[name][1]()
    assert document["openapi"] == "3.1.1"
    assert {"title", "version"} <= set(document["info"])
    schemas = document["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references == set(schemas)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
        assert schema["description"]
    found = operations(document)
    assert len({operation["operationId"] for operation in found.values()}) == len(found)
    for (_, path), operation in found.items():
        assert operation["summary"]
        named = {item["name"] for item in operation.get("parameters", ()) if item["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))


@pytest.mark.parametrize("name", APIS)
def test_every_body_is_closed(name: str) -> None:
    document = APIS[name][1]()
    schemas = document["components"]["schemas"]
    for (method, path), operation in operations(document).items():
        if method != "POST":
            assert "requestBody" not in operation
            continue
        form = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert schemas[form.rpartition("/")[2]]["additionalProperties"] is False, path


@pytest.mark.parametrize("name", APIS)
async def test_unknown_fields_are_refused_by_every_command(name: str) -> None:
    application, document = (make() for make in APIS[name])
    async with TestClient(TestServer(application)) as client:
        for (method, path), operation in operations(document).items():
            if method != "POST":
                continue
            form = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            schema = document["components"]["schemas"][form.rpartition("/")[2]]
            body = {key: {} if key == "certificates" else "x" for key in schema.get("required", ())}
            answer = await client.post(
                path.replace("{", "").replace("}", ""), json={**body, "more": 1}
            )
            said = await answer.json()
            assert (answer.status, said["error"]["what"]) == (
                422,
                "the body: object contains unknown field `more`",
            ), path
            assert "of /v1/openapi.json" in said["error"]["expected"]


@pytest.mark.parametrize("name", APIS)
async def test_a_server_has_its_document(name: str) -> None:
    application, document = (make() for make in APIS[name])
    async with TestClient(TestServer(application)) as client:
        assert await (await client.get("/v1/openapi.json")).json() == document


async def test_former_paths_answer_as_before_and_say_where_the_new_ones_are() -> None:
    async with TestClient(TestServer(run_application(board(), CommandHandlers()))) as client:
        former, new = await client.get("/status"), await client.get("/v1/status")
        assert (former.status, new.status) == (200, 200)
        assert (await former.json())["study"] == (await new.json())["study"]
        assert former.headers["Link"] == '</v1/status>; rel="successor-version"'
        assert former.headers["Deprecation"].startswith("@")
        for path in UNVERSIONED:
            answer = await client.get(path)
            assert answer.status in (200, 503)
            assert "Link" not in answer.headers
            assert (await client.get(f"/v1{path}")).status == 404
        assert "Link" not in new.headers
        refused = await client.post("/finish")
        assert refused.status == 409
        assert refused.headers["Link"] == '</v1/finish>; rel="successor-version"'


def test_answers_of_one_studys_server_have_their_forms(tmp_path: Path) -> None:
    shown, called = board(), list[str]()
    commands = CommandHandlers(close=lambda: called.append("close"), revoke=called.append)
    listening = [AdminListener(listen_unix(tmp_path / SOCKET_NAME))]
    with admin_thread(lambda: run_application(shown, commands), listening):
        for method, path, body in (
            ("GET", "/status", None),
            ("GET", "/healthz", None),
            ("GET", "/readyz", None),
            ("POST", "/close", None),
            ("POST", "/close", {}),
            ("POST", "/finish", None),
            ("POST", "/revoke", {"owner": "clinic-a"}),
            ("POST", "/revoke", {"owner": "clinic-a\n"}),
            ("POST", "/revoke", {}),
        ):
            status, answer = request_document(tmp_path, method, path, body)
            check_answer(method, path, status, answer, service=False)
        assert "phase" in get_document(tmp_path)
    assert called == ["close", "close", "clinic-a"]


def test_an_answer_with_a_field_that_no_form_has_is_found() -> None:
    with pytest.raises(AssertionError, match="more"):
        check_answer("GET", "/healthz", 200, {"healthy": True, "more": 1})
    with pytest.raises(AssertionError, match="required"):
        check_answer("GET", "/studies", 200, {})
    assert closed({"type": "object", "properties": {}})["additionalProperties"] is False


@pytest.mark.parametrize("name", APIS)
def test_the_command_prints_the_document(name: str) -> None:
    options = ["--study"] if name == "run" else []
    printed = CliRunner().invoke(cli, ["serve", "openapi", *options])
    assert json.loads(printed.output) == APIS[name][1]()
