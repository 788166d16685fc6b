"""Command `result`: the result of a finished study, fetched from its servers, put into one file and audited there.

Studies of FLAIM and between silos have one server, which has all of it.
"""

import json
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mechanisms.errors import MechanismError
from parties.audit.findings import FAIL
from parties.cli.invitations import study_path
from parties.cli.numbers import NumberRange
from parties.cli.runtime import command_progress, common_options, run_supervised
from parties.config import CertificateFiles, Config, config_from_dict, load_config
from parties.foundation.errors import PartyError, StoreError
from parties.foundation.exit_codes import AuditFailed
from parties.foundation.untrusted_text import parse_json, parse_toml, printable
from parties.identity.study_setup import CERTIFICATES
from parties.identity.tls import load_identity
from parties.local.processes import Supervision
from parties.mpc.submission.result import OwnServer, obtain_result
from parties.session.owner import owner_files
from parties.storage.files import disk_errors, write_atomic

if TYPE_CHECKING:
    from parties.audit.runner import Audit

_PATH = click.Path(path_type=Path)
_DAMAGES = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""Exceptions from texts of a report that nobody has checked yet."""
_PACKAGE, _CONFIG = "datapackage.json", "config.toml"
RESULT_FOLDER = "result"
"""Folder of the fetched files, beside the study's configuration."""
MAX_WAIT_S = 31 * 86_400.0


@dataclass(frozen=True, slots=True)
class FetchedResult:
    """The ``bundle`` of a study's result, with the audit made of it, and the audit's ``page``."""

    bundle: Path
    page: Path
    audit: "Audit"

    def to_dict(self) -> dict[str, object]:
        """JSON form."""
        return {
            "bundle": str(self.bundle),
            "page": str(self.page),
            "audit": {"ok": self.audit.ok, "headline": self.audit.headline},
        }

    def lines(self) -> list[str]:
        """Returns the outcome for people."""
        headline = textwrap.fill(printable(self.audit.headline), 110)
        return [
            f"{self.bundle}: table, model, report, and what an audit reads",
            f"{self.page}: the audit, made here of what was fetched",
            headline,
        ]

    def require_passed(self) -> None:
        """Raises AuditFailed unless every check of the audit passes."""
        failed = [check.name for check in self.audit.checks if check.status == FAIL]
        if not self.audit.ok:
            raise AuditFailed(
                f"the audit found something wrong: {', '.join(failed) or 'nothing to check'}"
            )


@click.command(epilog="Example: syncret result stays.invitation")
@click.argument("config")
@click.option("--out", type=_PATH, default=None, help="The file to make; by default RUN.zip.")
@click.option(
    "--wait",
    "wait_s",
    type=NumberRange(0, MAX_WAIT_S),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the study's end.",
)
@click.option("--ca", type=_PATH, default=None, help="The run's authority, if not [tls] ca.")
@click.option("--cert", type=_PATH, default=None, help="Your certificate, if not [tls] cert.")
@click.option("--key", type=_PATH, default=None, help="Its private key, if not [tls] key.")
@click.option("--own", type=_PATH, default=None, hidden=True, help="A server's: its run's folder.")
@common_options
def result(
    config: str,
    *,
    out: Path | None,
    wait_s: float,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    own: Path | None,
    as_json: bool,
) -> None:
    """Fetch the result of a study, and audit it here.

    CONFIG is the study's configuration, or its invitation. Each of the three servers gives its own transcript, and one
    of them table, model and report, to everybody with a certificate of the study; of FLAIM and between silos the one
    server has all of it. They are put into one file, as by syncret bundle, and that file is audited on this machine, as
    by syncret audit: no server is believed. Run again
    after a failure, it fetches what is missing. Exit status 18 if the study is not over yet, 17 if it has no result.
    """
    path = study_path(config)
    loaded = load_config(path)
    files = owner_files(loaded, ca=ca, cert=cert, key=key)
    found = fetched_result(path, loaded, files, out=out, own=own, wait_s=wait_s)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else "\n".join(found.lines()))
    found.require_passed()


def fetched_result(
    path: Path,
    config: Config,
    files: CertificateFiles,
    *,
    out: Path | None,
    wait_s: float,
    own: Path | None = None,
) -> FetchedResult:
    """Waits for the result of the study in the file ``path``, fetches it, packs and audits it. Raises PartyError."""
    folder, progress = (own or path.resolve().parent) / RESULT_FOLDER, command_progress()
    bundle = out or Path(f"{config.run.id}.zip")
    if own is None:
        _check_replaceable(bundle, config)
    server = None if own is None else _own_server(config, files, own)

    async def fetch(supervision: Supervision) -> None:
        await obtain_result(config, files, folder, own=server, wait_s=wait_s, progress=progress)

    run_supervised(fetch, watch_stdin=False, events=None)
    _copy_certificates(config, files, folder)
    good = False
    try:
        found = _audited(path, folder, bundle)
        good = found.audit.ok
    finally:
        if own is not None or not good:
            # A server has most of it twice; and where something is wrong with it, another try fetches all of it anew.
            shutil.rmtree(folder, ignore_errors=True)
    if own is not None and not good:
        bundle.unlink(missing_ok=True)
    return found


def _check_replaceable(bundle: Path, config: Config) -> None:
    """Raises StoreError for a file that is there and is no bundle of this study: an invitation names the file."""
    # Local import: archives take long to import.
    import zipfile
    import zlib

    if not (bundle.exists() or bundle.is_symlink()):
        return
    try:
        with zipfile.ZipFile(bundle) as archive:
            names = archive.namelist()
            package = parse_json(archive.read(_PACKAGE)) if _PACKAGE in names else None
            if package is None:
                package = {"id": _config_id(archive.read(_CONFIG).decode())}
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error):
        package = None
    if not isinstance(package, dict) or package.get("id") != f"sha256:{config.digest()}":
        raise StoreError(
            bundle, "is there already, and is no result of this study; expected a new name by --out"
        )


def _config_id(text: str) -> str:
    """Returns the identity of a bundle between silos, without a data package: its configuration's.

    Raises ValueError.
    """
    try:
        return f"sha256:{config_from_dict(parse_toml(text), source='bundle', base=Path()).digest()}"
    except (PartyError, MechanismError) as error:
        raise ValueError(str(error)) from error


def _own_server(config: Config, files: CertificateFiles, folder: Path) -> OwnServer:
    names = [party.name for party in config.require_servers()]
    return OwnServer(names.index(load_identity(files).name), folder)


def _copy_certificates(config: Config, files: CertificateFiles, folder: Path) -> None:
    """Copies the certificates of authority and servers: a bundle is the same whoever makes it. Raises StoreError."""
    source, target = files.ca.parent, folder / CERTIFICATES
    with disk_errors(target, "made"):
        target.mkdir(parents=True, exist_ok=True)
    pairs = [(files.ca, "ca.crt")]
    pairs += [(source / f"{p.name}.crt", f"{p.name}.crt") for p in config.require_servers()]
    for path, name in pairs:
        with disk_errors(path, "read"):
            data = path.read_bytes()
        write_atomic(target / name, data)


def _audited(path: Path, folder: Path, bundle: Path) -> FetchedResult:
    """Packs the fetched files, and audits the bundle."""
    # Local imports: the checks take a second to import.
    from parties.audit.bundle import unpacked_run
    from parties.audit.html import render_audit
    from parties.audit.packing import pack_run
    from parties.audit.runner import audit_folder

    try:
        pack_run(folder, bundle, config=path, overwrite=True, fetched=True)
    except (PartyError, MechanismError):
        raise
    except _DAMAGES as error:
        raise AuditFailed(
            f"{folder}: table, model and report, as a server gave them, are none: {error}; expected those of this study"
        ) from error
    page = bundle.with_suffix(".audit.html")
    with unpacked_run(bundle) as unpacked:
        findings = audit_folder(unpacked.folder, agreed=path, left_out=unpacked.left_out)
        write_atomic(page, render_audit(findings))
    return FetchedResult(bundle, page, findings)
