"""The command `bundle`: the public files of a run in one file, for who gets the table and for an auditor."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import click

from parties.commands.running import common_options
from parties.config import Config, check_terms, load_config
from parties.errors import ConfigError, StoreError
from parties.files import disk_errors
from parties.texts import json_of

_PATH = click.Path(path_type=Path)
_CONFIG = "config.toml"


@click.command(epilog="Example: syncret bundle runs/stays --out stays.zip")
@click.argument("run", type=_PATH)
@click.option("--out", type=_PATH, required=True, help="The file to make, a .zip.")
@click.option(
    "--terms",
    type=_PATH,
    default=None,
    help="What the table may be used for, a text file; by default run.terms, else terms of this program's.",
)
@click.option(
    "--config",
    type=_PATH,
    default=None,
    help="The study's configuration; by default RUN/config.toml.",
)
@click.option(
    "--certificates",
    type=_PATH,
    default=None,
    help="Folder with ca.crt and the servers' certificates; by default RUN/certificates.",
)
@common_options
def bundle(
    run: Path,
    out: Path,
    terms: Path | None,
    config: Path | None,
    certificates: Path | None,
    as_json: bool,
) -> None:
    """Put everything public of the run in folder RUN into one file.

    In it are the synthetic table with its schema, a model card, terms of use and a data package that lists it all; the
    model, to draw more rows from (syncret sample); the report; and what an audit reads (syncret audit): transcripts,
    certificates and configuration. No keys. The servers' transcripts have to be in RUN/transcripts by then, as
    party-0.jsonl to party-2.jsonl; of FLAIM, RUN may be the server's own folder. Central AIM has none. Of a run between
    silos no bundle is made: an auditor takes its folder.
    """
    from parties.audit.bundle import public_files, write_bundle
    from parties.audit.documents import PACKAGE, Packed, datapackage, documents

    loaded = load_config(config or _config_of(run))
    if loaded.silos is not None:
        raise ConfigError(
            loaded.source,
            "silos",
            "is of a run between silos, whose folder is what an auditor reads: syncret audit takes it as it is; "
            "expected a run of DistAIM or FLAIM",
        )
    report = _report_of(run)
    files = public_files(run, certificates=certificates, one_server=_has_one_server(loaded))
    texts = documents(loaded, report, terms=_terms(terms, loaded))
    # Where keys and certificates lie, and which cluster a server has, is nobody else's affair.
    texts[_CONFIG] = loaded.override({"tls": None, "compute": None}).resolved_toml().encode()
    packed = [
        Packed(name, len(text), hashlib.sha256(text).hexdigest()) for name, text in texts.items()
    ]
    with disk_errors(run, "read"):
        packed += [
            Packed(name, path.stat().st_size, _digest(path))
            for name, path in files.items()
            if name not in texts
        ]
    texts[PACKAGE] = datapackage(loaded, report, packed)
    names = write_bundle(files, out, documents=texts)
    signed = any(name.startswith("transcripts/") for name in names)
    if as_json:
        click.echo(json.dumps({"bundle": str(out), "files": names}))
    else:
        check = f"check it with: syncret audit {out}" if signed else "nothing in it is signed"
        click.echo(f"{len(names)} files are in {out}; {check}")


def _config_of(run: Path) -> Path:
    """Raises StoreError."""
    if not (run / _CONFIG).is_file():
        raise StoreError(
            run, f"has no {_CONFIG}; expected a run's folder, or the study's file with --config"
        )
    return run / _CONFIG


def _has_one_server(config: Config) -> bool:
    return config.flaim is not None and not config.parties


def _report_of(run: Path) -> Mapping[str, object] | None:
    """The report in the folder, if there is one. Raises StoreError where it is none."""
    path = run / "report.json"
    if not path.exists():
        return None
    try:
        document = json_of(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(path, f"is no report: {error}; expected what the run wrote") from error
    if not isinstance(document, dict):
        raise StoreError(path, "is no report; expected what the run wrote")
    return document


def _terms(path: Path | None, config: Config) -> str | None:
    """The terms of a file. Raises StoreError, and ConfigError where all have agreed on others."""
    if path is None:
        return None
    if config.run.terms is not None:
        raise ConfigError(
            config.source,
            "run.terms",
            f"has the terms that all agreed on; expected no --terms {path}",
        )
    with disk_errors(path, "read"):
        data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise StoreError(path, "is not UTF-8 text; expected terms of use") from error
    check_terms(text, str(path))
    return text


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
