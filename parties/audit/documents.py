"""Documents of a bundle for its readers: schema, model card, terms of use, and a package that lists all files.

Provides ``documents`` (the files by name, made from a configuration and a report), ``datapackage`` and
``DEFAULT_TERMS``. Public: everything; of a trial's report nothing that its real table was needed for is repeated.
Source: Frictionless Data (Table Schema, Data Package); Mitchell et al., "Model Cards for Model Reporting", 2019.
Known limits: the servers' seals bind table and model, and the configuration with its terms; these texts follow from
those, but are their writer's words.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mechanisms.origins import counted
from mechanisms.schema import table_schema
from mechanisms.text_format import TextFormat
from parties.audit.card import model_card
from parties.config import Config
from parties.published import TABLE

SCHEMA, CARD, TERMS, PACKAGE = "schema.json", "model-card.md", "terms.txt", "datapackage.json"
DEFAULT_TERMS = """Terms of use

This table is synthetic: no row of it is a person's. It was drawn from a model of noisy counts, which are differentially
private; the model card says by how much, and of whom.

1. Use it to explore, to teach, to write and test programs, to plan studies, and for statistics that the model card
   calls it good for. Check what a decision or a publication rests on against the real tables, at their owners.
2. Do not decide about a person by it, and do not take its rows for people.
3. Do not try to find out whom it was made of, alone or with other data. It is of no use: with or without any one row
   of the real tables nearly the same would have come out, so that whatever is found is chance.
4. Whoever passes it on, or rows drawn from its model, passes on these terms and the model card.
5. Name the study and the digest of its configuration wherever results are published.
6. It comes without any warranty.
"""
"""What a table may be used for, where the study has not agreed on terms of its own."""
_DESCRIPTIONS = {
    TABLE: ("synthetic-table", "The synthetic table"),
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
class Packed:
    """A file of a bundle: its name, its size, and the hex SHA-256 of its content."""

    name: str
    size: int
    digest: str


def documents(
    config: Config, report: Mapping[str, object] | None, *, terms: str | None = None
) -> dict[str, bytes]:
    """Schema, model card and terms by their names; ``terms`` where the configuration has none of its own.

    The same configuration and report make the same bytes.
    """
    schema = json.dumps(table_schema(config.domain), indent=2, ensure_ascii=False) + "\n"
    said = config.run.terms or terms or DEFAULT_TERMS
    card = model_card(config, report or {})
    return {
        SCHEMA: schema.encode(),
        CARD: card.encode(),
        TERMS: (said if said.endswith("\n") else f"{said}\n").encode(),
    }


def datapackage(
    config: Config, report: Mapping[str, object] | None, files: Iterable[Packed]
) -> bytes:
    """The Data Package over all ``files``: what each is, its size and its hash."""
    about = (report or {}).get("about")
    ended = about.get("ended") if isinstance(about, Mapping) else None
    document = {
        "profile": "data-package",
        "name": _plain(config.run.id),
        "id": f"sha256:{config.digest()}",
        "title": f"Synthetic table of the study {config.run.id}",
        "description": f"Differentially private; see {CARD}. The id is the digest of the configuration.",
        **({"created": ended} if ended else {}),
        **({"provenance": counted(config.domain)} if config.domain.provenance else {}),
        "licenses": [{"path": TERMS, "title": "Terms of use"}],
        "resources": [
            _resource(file, config.domain.format)
            for file in sorted(files, key=lambda file: file.name)
        ],
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _resource(file: Packed, form: TextFormat) -> dict[str, object]:
    ending = file.name.rpartition(".")[2]
    name, title = _DESCRIPTIONS.get(file.name, (_plain(file.name), ""))
    resource: dict[str, object] = {
        "name": name,
        # Without it, validators guess from the ending, and take report.json for a report of their own.
        "type": "table" if file.name == TABLE else "file",
        **({"title": title} if title else {}),
        "path": file.name,
        "format": ending,
        "mediatype": _MEDIA_TYPES.get(ending, "application/octet-stream"),
        "bytes": file.size,
        "hash": f"sha256:{file.digest}",
    }
    if file.name == TABLE:
        resource |= {
            "profile": "tabular-data-resource",
            "encoding": "utf-8" if form.encoding == "utf-8-sig" else form.encoding,
            "schema": SCHEMA,
        }
        if dialect := _dialect(form):
            resource["dialect"] = dialect
    return resource


def _dialect(form: TextFormat) -> dict[str, str]:
    """The parts of a format that are not the standard's default."""
    written = {"delimiter": form.delimiter, "quoteChar": form.quote}
    usual = {"delimiter": ",", "quoteChar": '"'}
    return {key: value for key, value in written.items() if value != usual[key]}


def _plain(name: str) -> str:
    """A name as the standard has it: small letters, digits, and a few signs."""
    return re.sub(r"[^-a-z0-9._/]+", "-", name.lower()).replace("/", "-")
