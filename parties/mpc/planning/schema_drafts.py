"""Drafts of configurations from Table Schemas or SDV's metadata: reading a file, and the draft's text.

All of it is public, if the schema is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mechanisms.draft import Draft
from mechanisms.errors import DataError
from mechanisms.schema_draft import schema_draft
from mechanisms.sdv_metadata import is_metadata, schema_of_metadata
from parties.foundation.untrusted_text import parse_json
from parties.mpc.planning.draft_sizes import draft_text_with_upload_sizes
from parties.storage.files import disk_errors


def read_schema_draft(path: Path) -> tuple[str, Draft]:
    """Returns the text of the draft of a schema in a file, and the draft. Raises DataError, StoreError."""
    with disk_errors(path, "read"):
        data = path.read_bytes()
    try:
        document = parse_json(data.decode())
    except ValueError as error:
        raise DataError(f"{path}: is no JSON: {error}; expected a Table Schema") from error
    return schema_draft_text(document, path.name)


def schema_draft_text(document: object, name: str) -> tuple[str, Draft]:
    """Returns the text of the draft of a schema, a resource with one, or SDV's metadata; and the draft.

    Raises DataError.
    """
    if isinstance(document, Mapping) and isinstance(document.get("schema"), Mapping):
        document = document["schema"]
    if not isinstance(document, Mapping):
        raise DataError(f"{name}: is no table; expected a Table Schema")
    schema = schema_of_metadata(document, name) if is_metadata(document) else document
    draft = schema_draft(schema, name)
    return draft_text_with_upload_sizes(name, draft)[0], draft
