"""Documents of a bundle for its readers: schema, model card, terms of use, and a package that lists all files.

The documents follow from a configuration and a report. All values here are public: figures of a trial's report that
need the real table are left out. The model card, in Markdown, describes the table, its uses and its operators. Names of
columns and categories are the users' own: they are escaped as text. The servers' seals bind table and model, and the
configuration with its terms; these texts follow from those, and an audit makes them anew and compares
(`parties.audit.checks.contents`). Source: Frictionless Data (Table Schema, Data Package); Mitchell et al., "Model Cards
for Model Reporting", 2019.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mechanisms.domain import Domain
from mechanisms.origins import counted, counted_in_words
from mechanisms.schema import table_schema
from mechanisms.text_format import TextFormat
from parties.audit.bundle import CARD, SCHEMA, TERMS
from parties.config import Config
from parties.foundation.version import TEXT_EDITION
from parties.identity.join_documents import fingerprint_words, grouped_hex
from parties.methods.flaim.settings import PAIRS
from parties.report.claimed import CLAIM_HEADS, CLAIMS_NOTE, claim_rows
from parties.report.likely import likely_error_text
from parties.report.privacy_text import (
    headline,
    is_private,
    method_name,
    privacy_text,
    report_header,
    unit_text,
)
from parties.report.public import LEFT_OUT
from parties.report.quality import NOISE
from parties.session.result_digests import TABLE_FILE

_SIGNS = re.compile(r"([\\`*_{}\[\]#|])")
_SHOWN_QUERIES = 20
_FARTHEST = 2.0
"""Maximum L1 distance; a bound of this size says nothing."""
_INTENDED = (
    "To explore what the real tables hold, to teach, to write and test programs, to plan a study; for shares and "
    "cross-tables of the queries below, within the noise that stands beside them.",
    "More rows of the same kind: `syncret data sample BUNDLE -n 10000 --out more.csv`. They cost no further privacy.",
)
LIMITS = (
    "Dependencies of columns that no query below holds are the model's guess, at best by way of other columns.",
    "Values that are rare come with noise as large as they are. Within a cell (a bin of numbers) every value is as "
    "likely as every other one, but for those that have a cell of their own.",
    "Rows are drawn from a model: none was copied from a person's, though one can equal it by chance. An analysis of "
    "many of them is no more certain than the noise of the counts behind them. Confidence intervals computed as if "
    "they were real rows are too narrow.",
)


def model_card(config: Config, report: Mapping[str, object]) -> str:
    """Returns the card of a study with the configuration ``config``; ``report`` is its report.json, or empty."""
    report = report or _without_report(config)
    sections = [
        f"# Model card: {markdown_text(config.run.id)}",
        f"{markdown_text(headline(report))} Every row was drawn from a model of noisy counts. A row can equal a "
        "person's: none was copied from one.",
        _warning(report),
        "## What it is for",
        markdown_list([*_INTENDED, *_verdict(report, "good_for")]),
        "## What it is not good for",
        markdown_list([*LIMITS, *_verdict(report, "not_for")]),
        _quality(report),
        _claims(report),
        "## How it was made",
        _method(config, report),
        "## Privacy",
        "\n\n".join(map(markdown_text, privacy_text(report))),
        markdown_list(map(markdown_text, _strings(report.get("trust")))),
        "## Who ran it",
        _operators(config),
        "## Columns",
        _columns(config),
        "## How to check it",
        _checks(config),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _without_report(config: Config) -> Mapping[str, object]:
    """Returns the facts of a run that follow from the configuration alone."""
    run = config.run
    return {
        "about": {"unit": unit_text(config)},
        "method": "flaim-" + config.flaim.variant if config.flaim is not None else "distaim",
        "parameters": {
            "epsilon": run.epsilon,
            "delta": run.delta,
            "clients": config.clients.expected,
            "unit": run.unit,
            "rows_of_unit": config.rows_of_unit,
            "noise": run.noise if config.flaim is None else config.flaim.noise,
        },
    }


def _warning(report: Mapping[str, object]) -> str:
    if report.get(LEFT_OUT):
        return (
            "**This was a trial on one machine**, which held the whole table. What was computed from that table "
            "without noise was taken out of report.json and report.html."
        )
    if not (report.get("not_private") or report.get("utility")):
        return ""
    return (
        "**This was a trial on one machine.** report.json and report.html hold figures that were computed from the "
        "real table without noise: take them out before you publish anything."
    )


def _verdict(report: Mapping[str, object], key: str) -> list[str]:
    """Returns the report's verdict, in sentences."""
    quality = report.get("quality")
    found = quality.get("verdict") if isinstance(quality, Mapping) else None
    return (
        [markdown_text(line) for line in _strings(found.get(key))]
        if isinstance(found, Mapping)
        else []
    )


def _quality(report: Mapping[str, object]) -> str:
    """Returns the error bounds of the queries, without figures that need a trial's real table."""
    quality = report.get("quality")
    if not isinstance(quality, Mapping):
        return ""
    queries = [m for m in _tables(quality.get("marginals")) if m["query"]]
    known = [m for m in queries if m["high"] < _FARTHEST]
    # Older reports, and those of other methods, have no likely errors.
    has_likely = bool(known) and all("likely" in m for m in known)
    rows = [
        (
            " × ".join(map(markdown_text, _strings(m["columns"]))),
            ("" if m["expected_is"] == NOISE else "up to ") + f"{50 * m['expected']:.3g} %",
            *([f"{50 * m['likely']:.3g} %"] if has_likely else []),
            f"{50 * m['high']:.3g} %",
        )
        for m in sorted(known, key=lambda m: m["high"])[:_SHOWN_QUERIES]
    ]
    if not rows:
        return (
            "## How good it is\n\nOf no query is it known, with some confidence, how far it is off."
        )
    left_out = len(queries) - len(rows)
    said = (
        "How many of the rows are in a wrong cell of each query: expected, and at most. That no marginal at all is "
        f"further off holds with {quality['confidence']:.0%} confidence. It follows from what was opened, and is as "
        "private as the table."
    )
    if likely := likely_error_text(quality):
        said += f" {likely}"
    more = (
        f"\n\nOf {left_out} more queries less is known, or nothing; report.json has them."
        if left_out > 0
        else ""
    )
    heads = ("query", "expected", *(["likely"] if has_likely else []), "at most")
    return f"## How good it is\n\n{said}\n\n{markdown_table(heads, rows)}{more}"


def _claims(report: Mapping[str, object]) -> str:
    """Returns the claims on each column in its values, without figures that need a trial's real table."""
    quality = report.get("quality")
    claims = _tables(quality.get("columns")) if isinstance(quality, Mapping) else []
    if not claims:
        return ""
    rows = [tuple(map(markdown_text, row)) for row in claim_rows(claims)]
    return f"## What holds of each column\n\n{CLAIMS_NOTE}\n\n{markdown_table(CLAIM_HEADS, rows)}"


def _method(config: Config, report: Mapping[str, object]) -> str:
    run, asked = config.run, report["parameters"]
    noise = asked["noise"] if isinstance(asked, Mapping) else run.noise
    name, done = method_name(report.get("method")), report.get("rounds_done", run.rounds)
    rounds = f"{done} {'round' if done == 1 else 'rounds'}"
    if config.flaim is not None and config.flaim.variant == PAIRS:
        how = (
            f"in {rounds} all columns and all pairs of columns that the workload has were measured, with noise "
            f"({markdown_text(str(noise))}). A graphical model (Private-PGM) was fitted to the columns and to the "
            "pairs that stand out of the noise"
        )
    else:
        how = (
            f"every column by itself was measured, then in {rounds} queries were chosen and measured, all with noise "
            f"({markdown_text(str(noise))}). A graphical model (Private-PGM) was fitted to all noisy counts"
        )
    said = f"By {markdown_text(name)}: {how}, and the rows are drawn from it."
    chosen: dict[str, list[Mapping[str, Any]]] = {}
    for item in _tables(report.get("selected")):
        chosen.setdefault(" × ".join(map(markdown_text, _strings(item["query"]))), []).append(item)
    rows = [
        (query, ", ".join(str(item["round"]) for item in times), _least_noise(times))
        for query, times in chosen.items()
    ]
    heads = ("query", "chosen in round", "noise of a cell, in rows (least deviation)")
    return f"{said}\n\n{markdown_table(heads, rows)}" if rows else said


def _least_noise(times: Sequence[Mapping[str, Any]]) -> str:
    return f"{min(item['sigma'] for item in times):.4g}"


def _operators(config: Config) -> str:
    """Returns the table of servers by name and pinned key; the agreed key identifies a server."""
    servers = [(party.name, party.key) for party in config.parties]
    if not servers and config.flaim is not None and config.flaim.key is not None:
        servers = [(config.flaim.server, config.flaim.key)]
    digest = config.digest()
    study = (
        f"The configuration that all agreed on has the digest `{grouped_hex(digest)}`, in words: "
        f"*{fingerprint_words(digest)}*."
    )
    if not servers:
        return f"One process on one machine, which held the whole table. {study}"
    rows = [
        (markdown_text(name), f"`{grouped_hex(key)}`", fingerprint_words(key))
        for name, key in servers
    ]
    return f"{study}\n\n{markdown_table(('server', 'key (SHA-256)', 'in words'), rows)}"


def _columns(config: Config) -> str:
    provenance = report_header(config, ended=0.0)
    rows = [
        (
            markdown_text(item.name),
            item.kind,
            item.cells or "",
            markdown_text(item.values),
            markdown_text(item.provenance),
        )
        for item in provenance.columns
    ]
    missing = config.domain.missing_values[:1]
    spelt = f"\n\nA missing value is written `{missing[0]}`." if missing and missing[0] else ""
    if missing == ("",):
        spelt = "\n\nA missing value is an empty cell."
    optional = any(column.missing for column in config.domain.columns)
    said = f"{counted_in_words(provenance.provenance)}\n\n"
    heads = ("column", "kind", "cells", "values", "from")
    return said + markdown_table(heads, rows) + (spelt if optional else "")


def _checks(config: Config) -> str:
    """Returns the paragraph on the signed parts of the bundle and the command that verifies them."""
    if not config.parties and (config.flaim is None or config.flaim.key is None):
        return "There are no transcripts of such a run, and nothing is signed; datapackage.json has the files' hashes."
    return (
        "The servers signed the digests of synthetic.csv and of the model, and everything that led to them, in "
        "transcripts/. `syncret audit BUNDLE` verifies this with certificates/ and the keys above; compare the words "
        "above with those that were agreed on. schema.json, terms.txt and this card follow from the configuration and "
        "report.json; datapackage.json has the hashes of all files."
    )


def markdown_list(lines: Iterable[str]) -> str:
    """Returns a list of lines in Markdown."""
    return "\n".join(f"- {line}" for line in lines)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def markdown_text(value: str) -> str:
    """Returns text in one line, with Markdown's signs escaped."""
    shown = "".join(c if c.isprintable() else " " for c in value)
    return _SIGNS.sub(r"\\\1", html.escape(shown, quote=False))


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def _tables(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


DEFAULT_TERMS = """Terms of use

This table is synthetic: no row of it was copied from a person's, though one can equal it by chance. It was drawn from a
model of noisy counts; the model card says how private these are, and for whom.

1. Use it to explore, to teach, to write and test programs, to plan studies, and for statistics that the model card
   calls it good for. Check what a decision or a publication rests on against the real tables, at their owners.
2. Do not decide about a person by it, and do not take its rows for people.
3. Do not try to find out whom it was made of, alone or with other data. The model card says how little the best
   attacker could find, if it promises privacy at all.
4. Whoever passes it on, or rows drawn from its model, passes on these terms and the model card.
5. Name the study and the digest of its configuration wherever results are published.
6. It comes without any warranty.
"""
"""Terms of use of a table whose study has not agreed on terms of its own."""
_DESCRIPTIONS = {
    TABLE_FILE: ("synthetic-table", "The synthetic table"),
    "model/model.json": ("model-tree", "The model: columns and junction tree"),
    "model/marginals.npz": ("model-marginals", "The model: marginals, NumPy arrays"),
    "report.json": ("report", "What was done, opened and spent, for programs"),
    "report.html": ("report-page", "The same for people"),
    "config.toml": ("configuration", "What all agreed on; its digest is signed by the servers"),
    SCHEMA: ("schema", "The table's columns, types and values (Table Schema)"),
    CARD: ("model-card", "What the table is, and what it is good for"),
    TERMS: ("terms", "What it may be used for"),
}
_MEDIA_TYPES = {
    "csv": "text/csv",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "html": "text/html",
    "toml": "application/toml",
    "md": "text/markdown",
    "txt": "text/plain",
    "npz": "application/zip",
    "crt": "application/x-pem-file",
    "pem": "application/x-pem-file",
}


@dataclass(frozen=True, slots=True)
class BundledFile:
    """A file of a bundle: its name, its size in bytes, and the hex SHA-256 of its content."""

    name: str
    size: int
    digest: str


def documents(
    config: Config,
    report: Mapping[str, object] | None,
    *,
    terms: str | None = None,
    domain: Domain | None = None,
) -> dict[str, bytes]:
    """Returns schema, model card and terms by their names; ``terms`` applies if the configuration has none.

    ``domain`` has the values that a run chose; by default there are none. The same arguments make the same bytes.
    """
    described = config.domain if domain is None else domain
    schema = json.dumps(table_schema(described), indent=2, ensure_ascii=False) + "\n"
    card = model_card(config, report or {})
    return {
        SCHEMA: schema.encode(),
        CARD: card.encode(),
        TERMS: terms_bytes(config.run.terms or terms),
    }


def terms_bytes(terms: str | None) -> bytes:
    """Returns terms of use as a file has them; those of this program for None."""
    said = terms or DEFAULT_TERMS
    return (said if said.endswith("\n") else f"{said}\n").encode()


def datapackage(
    config: Config, report: Mapping[str, object] | None, files: Iterable[BundledFile]
) -> bytes:
    """Returns the Data Package over all ``files``: description, size and hash of each."""
    about = (report or {}).get("about")
    ended = about.get("ended") if isinstance(about, Mapping) else None
    document = {
        "profile": "data-package",
        "name": plain_name(config.run.id),
        "id": f"sha256:{config.digest()}",
        "title": f"Synthetic table of the study {config.run.id}",
        "description": f"{_privacy_of(config)}; see {CARD}. The id is the digest of the configuration.",
        **({"created": ended} if ended else {}),
        **({"provenance": counted(config.domain)} if config.domain.provenance else {}),
        "edition": TEXT_EDITION,
        "licenses": [{"path": TERMS, "title": "Terms of use"}],
        "resources": [
            _resource(file, config.domain.format)
            for file in sorted(files, key=lambda file: file.name)
        ],
    }
    return package_text(document)


def package_text(document: Mapping[str, object]) -> bytes:
    """Returns a Data Package as its file has it."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _privacy_of(config: Config) -> str:
    private = is_private(_without_report(config))
    return "Differentially private" if private else "Not private"


def _resource(file: BundledFile, form: TextFormat) -> dict[str, object]:
    name, title = _DESCRIPTIONS.get(file.name, (plain_name(file.name), ""))
    if file.name == TABLE_FILE:
        return table_resource(file, form, name=name, schema=SCHEMA, title=title)
    return file_resource(file, name, title=title)


def file_resource(file: BundledFile, name: str, *, title: str = "") -> dict[str, object]:
    """Returns the resource of a file, called ``name``."""
    ending = file.name.rpartition(".")[2]
    return {
        "name": name,
        # Without a type, validators guess by the ending and take report.json for a report of their own.
        "type": "file",
        **({"title": title} if title else {}),
        "path": file.name,
        "format": ending,
        "mediatype": _MEDIA_TYPES.get(ending, "application/octet-stream"),
        "bytes": file.size,
        "hash": f"sha256:{file.digest}",
    }


def table_resource(
    file: BundledFile, form: TextFormat, *, name: str, schema: object, title: str
) -> dict[str, object]:
    """Returns the resource of a table that was written in the format ``form``; ``schema`` is one, or its file."""
    resource = file_resource(file, name, title=title) | {
        "type": "table",
        "profile": "tabular-data-resource",
        "encoding": "utf-8" if form.encoding == "utf-8-sig" else form.encoding,
        "schema": schema,
    }
    if dialect := _dialect(form):
        resource["dialect"] = dialect
    return resource


def _dialect(form: TextFormat) -> dict[str, str]:
    """Returns the parts of a format that differ from the standard's default."""
    written = {"delimiter": form.delimiter, "quoteChar": form.quote}
    usual = {"delimiter": ",", "quoteChar": '"'}
    return {key: value for key, value in written.items() if value != usual[key]}


def plain_name(name: str) -> str:
    """Returns a name in the standard's form: small letters, digits, and a few signs."""
    return re.sub(r"[^-a-z0-9._/]+", "-", name.lower()).replace("/", "-")
