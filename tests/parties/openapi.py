"""Answers of admin APIs, held against their OpenAPI documents: forms are closed, so that no field is without a word."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from parties.service.api import service_document
from parties.service.run_api import run_document
from parties.service.status_client import API, versioned


@cache
def document(*, service: bool) -> Mapping[str, Any]:
    return service_document() if service else run_document()


def check_answer(
    method: str, path: str, status: int, body: object, *, service: bool = True
) -> None:
    """Fails unless the JSON answer has the form that the document gives for this request, which it has to name."""
    found = _responses(document(service=service), method, path.partition("?")[0])
    form = found.get(str(status)) or (found["default"] if status >= 400 else None)
    assert form is not None, f"{method} {path} answers {status}: {sorted(found)}"
    schema = form["content"]["application/json"]["schema"]
    errors = [error.message for error in _validator(schema["$ref"], service).iter_errors(body)]
    assert not errors, f"{method} {path} {status}: {errors}"


def _responses(api: Mapping[str, Any], method: str, path: str) -> Mapping[str, Any]:
    target = path if path.startswith(f"{API}/") else versioned(path)
    for pattern, operations in api["paths"].items():
        fits = re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), target)
        if fits and method.lower() in operations:
            return dict(operations[method.lower()]["responses"])
    # What is no route answers with an error of the same form.
    return {"default": api["paths"]["/healthz"]["get"]["responses"]["default"]}


@cache
def _validator(reference: str, service: bool) -> Draft202012Validator:
    schemas = closed(document(service=service)["components"])
    Draft202012Validator.check_schema({"$ref": reference, "components": schemas})
    return Draft202012Validator({"$ref": reference, "components": schemas})


def closed(schema: object) -> Any:
    """A schema whose objects have the properties that it names, and no others."""
    if isinstance(schema, Mapping):
        inner = {key: closed(value) for key, value in schema.items()}
        if "properties" in schema and schema.get("type") == "object":
            inner["additionalProperties"] = False
        return inner
    return [closed(item) for item in schema] if isinstance(schema, list) else schema
