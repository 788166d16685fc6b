"""Metadata as SDV has it (a single table, SINGLE_TABLE_V1): of a domain, and as a Table Schema.

``sdv_metadata`` states the kinds of a synthetic table's columns. ``schema_of_metadata`` turns metadata into a Table
Schema for `mechanisms.schema_draft`: it has kinds and formats, and no values or bounds.

All values here are public. Limits: one table; semantic types ("email", "city") are texts without listed values.
"""

from __future__ import annotations

from collections.abc import Mapping

from mechanisms.domain import Domain
from mechanisms.errors import DataError
from mechanisms.schema import table_schema

VERSION_KEY, VERSION = "METADATA_SPEC_VERSION", "SINGLE_TABLE_V1"
_DAY, _MOMENT = "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"
_TIMES = ("%H", "%I", "%M", "%S", "%T")


def is_metadata(document: Mapping[str, object]) -> bool:
    """Returns whether a document is SDV's metadata."""
    return VERSION_KEY in document or isinstance(document.get("columns"), Mapping)


def sdv_metadata(domain: Domain) -> dict[str, object]:
    """Returns the metadata of tables drawn from a model over ``domain``."""
    fields = table_schema(domain)["fields"]
    if not isinstance(fields, list):
        raise TypeError("a schema's fields are a list")
    modelled = set(domain.written_names)
    columns = {f["name"]: _sdtype(f) for f in fields if f["name"] in modelled}
    return {VERSION_KEY: VERSION, "columns": columns}


def schema_of_metadata(metadata: Mapping[str, object], name: str) -> dict[str, object]:
    """Returns metadata, which messages call ``name``, as a Table Schema. Raises ``DataError``."""
    tables = metadata.get("tables")
    if isinstance(tables, Mapping):
        if len(tables) != 1:
            raise DataError(f"{name}: has {len(tables)} tables; expected one")
        metadata = dict(next(iter(tables.values())))
    columns = metadata.get("columns")
    if not isinstance(columns, Mapping) or not all(
        isinstance(c, Mapping) for c in columns.values()
    ):
        raise DataError(
            f'{name}: has no columns; expected metadata, as {{"columns": {{"age": ...}}}}'
        )
    key = metadata.get("primary_key")
    return {
        "fields": [_field(str(column), said) for column, said in columns.items()],
        "missingValues": ["", "NA"],
        **({"primaryKey": key} if isinstance(key, str | list) else {}),
    }


def _sdtype(field: Mapping[str, object]) -> dict[str, object]:
    """Returns the type of a field of a Table Schema."""
    kind, pattern = field["type"], field.get("format", "default")
    constraints = field.get("constraints", {})
    listed = isinstance(constraints, Mapping) and "enum" in constraints
    if kind == "boolean":
        return {"sdtype": "boolean"}
    if listed or kind == "string":
        return {"sdtype": "categorical"}
    if kind in ("integer", "number"):
        whole = kind == "integer"
        return {"sdtype": "numerical", "computer_representation": "Int64" if whole else "Float"}
    default = {"date": _DAY, "yearmonth": "%Y-%m"}.get(str(kind), _MOMENT)
    return {"sdtype": "datetime", "datetime_format": default if pattern == "default" else pattern}


def _field(name: str, said: Mapping[str, object]) -> dict[str, object]:
    """Returns the field of a Table Schema for a column of metadata."""
    kind = said.get("sdtype")
    if kind == "id" or said.get("pii"):
        return {"name": name, "type": "string", "constraints": {"unique": True}}
    if kind == "boolean":
        return {"name": name, "type": "boolean"}
    if kind == "numerical":
        whole = "Int" in str(said.get("computer_representation", "Float"))
        return {"name": name, "type": "integer" if whole else "number"}
    if kind == "datetime":
        pattern = str(said.get("datetime_format", _DAY))
        if pattern == "%Y-%m":
            return {"name": name, "type": "yearmonth"}
        timed = any(letters in pattern for letters in _TIMES)
        default = pattern in (_DAY, _MOMENT)
        return {
            "name": name,
            "type": "datetime" if timed else "date",
            "format": "default" if default else pattern,
        }
    return {"name": name, "type": "string"}
