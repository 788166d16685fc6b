"""Documents of a bundle of tables with keys, over those of its views: model card, terms of use, and a data package.

The data package has each table with the types of its columns, the key of persons as its primary key and that of other
tables as a foreign key, so that programs read the tables as one database. All values here are public, and the same
arguments make the same bytes: an audit makes the documents anew (`parties.audit.keyed`). Source: Frictionless Data
(Table Schema, Data Package). Known limit: of columns whose values a run has chosen the schema has all that it could
have chosen.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from mechanisms.keyed.declared import ParentTable
from mechanisms.keyed.drawing import keyed_domain
from mechanisms.origins import counted
from mechanisms.schema import table_schema
from mechanisms.text_table import and_list
from parties.audit.bundle import CARD, PACKAGE, PAGE_FILE, REPORT_FILE, TERMS
from parties.audit.checks.documents import (
    LIMITS,
    BundledFile,
    file_resource,
    markdown_list,
    markdown_table,
    markdown_text,
    package_text,
    plain_name,
    table_resource,
    terms_bytes,
)
from parties.foundation.version import TEXT_EDITION
from parties.local.keyed_run import OF_VIEWS, STUDY_FILE, VIEWS
from parties.methods.keyed_study import KeyedStudy, study_text
from parties.report.keyed import estimate_rows
from parties.report.privacy_text import method_name
from parties.report.public import LEFT_OUT

_INTENDED = (
    "To explore what the real tables hold, to teach, to write and test programs that join tables, to plan a study; for "
    "figures below that have an interval.",
    "More persons of the same kind: `syncret data sample BUNDLE -n 10000 --out more`. They cost no further privacy.",
    'Figures about persons, with intervals: `syncret data estimate BUNDLE "mean(TABLE.number)"`.',
)
_OWN_LIMITS = (
    "A row follows from the one before it, not from all earlier ones; between tables of one person only the person's "
    "own columns and the first rows are related.",
    "Keys are new numbers: they lead to nobody, and to no row of a real table.",
)
_TITLES = {
    STUDY_FILE: "Tables, columns and budget: the configuration",
    CARD: "What the tables are, and what they are good for",
    TERMS: "What they may be used for",
    REPORT_FILE: "What was done and spent, for programs",
    PAGE_FILE: "The same for people",
}


def keyed_documents(
    study: KeyedStudy, report: Mapping[str, Any], *, terms: str | None = None
) -> dict[str, bytes]:
    """Returns model card and terms by their names; ``terms`` applies if the configuration has none.

    Raises KeyError, TypeError, ValueError for a report that is none.
    """
    return {CARD: keyed_card(study, report).encode(), TERMS: terms_bytes(study.terms or terms)}


def keyed_card(study: KeyedStudy, report: Mapping[str, Any]) -> str:
    """Returns the card of the tables; ``report`` is report.json."""
    rows = ", ".join(f"{number:,} rows of {name}" for name, number in report["tables"].items())
    privacy = report["privacy"]
    method = report["method"]
    by = "made" if method == OF_VIEWS else f"made by {method_name(method)}"
    sections = [
        f"# Model card: {markdown_text(study.id)}",
        f"Synthetic tables with keys, {by}: {markdown_text(rows)}, of {report['persons']:,} persons. Every row was "
        "drawn from models of noisy counts, a person with all of its rows. A row can equal a person's: none was copied "
        "from one.",
        _warning(report),
        "## Tables",
        _tables(study, report),
        "## What they are for",
        markdown_list(_INTENDED),
        "## What they are not good for",
        markdown_list([*_guesses(report), *_OWN_LIMITS, *LIMITS]),
        "## How good they are",
        _quality(study, report),
        "## Privacy",
        f"Differentially private, for {markdown_text(study.unit_text)}: epsilon = {study.epsilon:g}, delta = "
        f"{study.delta:g}, over all tables together. All views together cost at most epsilon "
        f"{privacy['spent at most']:.4g} at that delta.",
        "## How they were made, and by whom",
        f"A study of tables with keys is one of flat tables, its views: {_views(study)}. Each has its own model and "
        "its own model card, which says who ran it, how it was measured, how far its columns and pairs may be off, and "
        "who is protected.",
        "## How to check it",
        f"`syncret audit BUNDLE` audits every view that servers have signed, adds up what a person pays, draws the "
        f"tables again, and makes report, card and {PACKAGE} anew. Of views without transcripts nothing is signed.",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _warning(report: Mapping[str, Any]) -> str:
    if report["figures"]["real"] is not None:
        return (
            "**This was a trial on one machine.** report.json and report.html hold figures that were computed from the "
            "real tables without noise: take them out before you publish anything."
        )
    if report.get(LEFT_OUT):
        return (
            "**This was a trial on one machine**, which held the whole tables. What was computed from them without "
            "noise was taken out of report.json and report.html."
        )
    return ""


def _tables(study: KeyedStudy, report: Mapping[str, Any]) -> str:
    rows = []
    for name in study.tables.names:
        table = study.tables.by_name[name]
        parent = isinstance(table, ParentTable)
        leads = "" if parent or study.tables.parent.domain is None else study.tables.parent.name
        columns = len(study.tables.domain_of(name).header)
        rows.append(
            (f"{name}.csv", report["tables"][name], columns, markdown_text(table.key), leads)
        )
    return markdown_table(("file", "rows", "columns", "key", "leads to"), rows)


def _guesses(report: Mapping[str, Any]) -> list[str]:
    return [
        f"What follows from row to row in {name} of {markdown_text(and_list(columns))}: nothing was measured of it."
        for name, columns in report["not_measured"].items()
        if columns
    ]


def _quality(study: KeyedStudy, report: Mapping[str, Any]) -> str:
    heads = ("figure", "estimate", "95 % interval", "basis")
    parts = []
    for child in study.tables.children:
        rows = [
            tuple(map(markdown_text, row)) for row in estimate_rows(report["estimates"], child.name)
        ]
        if rows:
            parts.append(f"Of {child.name}:\n\n{markdown_table(heads, rows)}")
    if not parts:
        return "Of no figure is it known, with some confidence, how far it is off."
    return "\n\n".join(
        ["Figures of the real tables, by the noisy counts alone, with intervals for them.", *parts]
    )


def _views(study: KeyedStudy) -> str:
    return and_list(
        [f"`{VIEWS}/{name}/` (a row is {view.holds})" for name, view in study.views.items()]
    )


def keyed_package(
    study: KeyedStudy,
    files: Iterable[BundledFile],
) -> bytes:
    """Returns the Data Package over all ``files``, the tables first."""
    by_name = {file.name: file for file in files}
    tables = {f"{name}.csv": name for name in study.tables.names}
    resources = [
        table_resource(
            by_name[path],
            study.tables.domain_of(name).format,
            name=plain_name(name),
            schema=keyed_schema(study, name),
            title=f"Synthetic table {name}",
        )
        for path, name in tables.items()
        if path in by_name
    ]
    resources += [
        file_resource(by_name[path], plain_name(path), title=_TITLES.get(path, ""))
        for path in sorted(by_name.keys() - tables.keys())
    ]
    return package_text(
        {
            "profile": "data-package",
            "name": plain_name(study.id),
            "id": f"sha256:{study_digest(study)}",
            "title": f"Synthetic tables of the study {study.id}",
            "description": f"Differentially private, for {study.unit_text}; see {CARD}. The id is the digest of "
            f"{STUDY_FILE}.",
            "edition": TEXT_EDITION,
            "licenses": [{"path": TERMS, "title": "Terms of use"}],
            "resources": resources,
        }
    )


def study_digest(study: KeyedStudy) -> str:
    """Returns the hex SHA-256 of study.toml."""
    return hashlib.sha256(study_text(study).encode()).hexdigest()


def keyed_schema(study: KeyedStudy, name: str) -> dict[str, object]:
    """Returns the schema of a table: its columns as the study has them, and the key with what it leads to."""
    tables = study.tables
    table, domain = tables.by_name[name], tables.domain_of(name)
    schema: dict[str, Any] = table_schema(keyed_domain(domain, table.key))
    # The key is new: nobody's table has its values.
    for each in schema["fields"]:
        if each["name"] == table.key:
            each.pop("provenance", None)
    if "provenance" in schema:
        schema["provenance"] = counted(domain)
    if isinstance(table, ParentTable):
        return schema | {"primaryKey": [table.key]}
    if tables.parent.domain is None:
        return schema
    reference = {"resource": plain_name(tables.parent.name), "fields": [tables.parent.key]}
    return schema | {"foreignKeys": [{"fields": [table.key], "reference": reference}]}
