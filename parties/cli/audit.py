"""Command `audit`, for a data-protection officer with the run folder, and for an auditor with a recording."""

import contextlib
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parties.audit.findings import FAIL, NOT_APPLICABLE, PASS, Check
from parties.cli.runtime import common_options
from parties.config import load_config
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import AuditFailed
from parties.foundation.process import require_server_packages
from parties.foundation.untrusted_text import printable
from parties.storage.files import write_atomic

if TYPE_CHECKING:
    from parties.audit.bundle import UnpackedRun
    from parties.audit.runner import Audit

_PATH = click.Path(path_type=Path)
_MARKS = {PASS: "pass", FAIL: "FAIL", NOT_APPLICABLE: "  - "}


@click.command(epilog="Example: syncret audit runs/adult")
@click.argument("run", type=_PATH, required=False)
@click.option(
    "--certificates",
    type=_PATH,
    default=None,
    help="Folder with ca.crt and the servers' certificates; by default RUN/certificates.",
)
@click.option(
    "--config",
    "agreed",
    type=_PATH,
    default=None,
    help="The configuration that was agreed on, from a source of your own: the run has to be of it.",
)
@click.option(
    "--replay",
    "replays",
    type=_PATH,
    multiple=True,
    help="A server's folder with what record_replay kept: its messages are recomputed. May be repeated.",
)
@click.option(
    "--independent",
    is_flag=True,
    help="Also compute epsilon by autodp and dp_accounting, and a model by mbi, of a run of three servers (extra "
    "`independent`; minutes where columns are many).",
)
@click.option(
    "--html",
    type=_PATH,
    default=None,
    help="Where the page goes; by default RUN/audit.html, beside an archive RUN.audit.html.",
)
@common_options
def audit(
    run: Path | None,
    certificates: Path | None,
    agreed: Path | None,
    replays: tuple[Path, ...],
    independent: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Verify the transcripts of a run: what was sent, opened and charged, and that what is published came of it.

    RUN is the folder of a run of DistAIM, FLAIM or an algorithm between silos, with transcripts/ and certificates/,
    nothing of it secret, or a bundle (syncret bundle) or other archive of one, .zip or .tar.gz. --replay alone judges
    one server's recording against the transcript in its own folder. The exit status is 0 only if every check passes.

    Of a run of tables with keys every view is audited, with a page in its own folder or, of a bundle, beside it, and
    the budget of a person over all of them; the tables are drawn again and compared, and their report is made anew.
    """
    # Local import: the checks take a second to import, and no other command needs them.
    from parties.audit.bundle import unpacked_run
    from parties.audit.html import render_audit
    from parties.audit.runner import audit_folder
    from parties.local.keyed_run import VIEWS, is_keyed_run

    if run is None and not replays:
        raise click.UsageError("give a run, a recording with --replay, or both")
    if run is None and independent:
        raise click.UsageError("--independent is for a run; give one")
    if run is None and agreed is not None:
        raise click.UsageError("--config is for a run; give one")
    for folder in replays:
        if not folder.is_dir():
            raise StoreError(folder, "is not a folder; expected a server's")
    page = html or (None if run is None else _page_of(run))
    with contextlib.nullcontext() if run is None else unpacked_run(run) as unpacked:
        if run is not None and unpacked is not None and is_keyed_run(unpacked.folder):
            if certificates or replays or html:
                raise click.UsageError(
                    "--certificates, --replay and --html are for one run; of tables with keys give the run of a view, "
                    f"such as {run / VIEWS}/NAME"
                )
            _audit_keyed(run, unpacked, agreed, independent=independent, as_json=as_json)
            return
        if agreed is not None:
            # A wrong path is an error of the call, not of the run.
            load_config(agreed)
        findings = audit_folder(
            None if unpacked is None else unpacked.folder,
            certificates=certificates,
            replays=replays,
            agreed=agreed,
            left_out=() if unpacked is None else unpacked.left_out,
            independent=independent,
        )
        if page is not None:
            # Replaces the file: an unknown run folder may have a link there, to a file of the auditor's.
            write_atomic(page, render_audit(findings))
    if as_json:
        click.echo(json.dumps(findings.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print(findings, page)
    if not findings.ok:
        failed = [check.name for check in findings.checks if check.status == FAIL]
        raise AuditFailed(
            f"the audit found something wrong: {', '.join(failed) or 'nothing to check'}"
        )


def _audit_keyed(
    run: Path,
    unpacked: "UnpackedRun",
    agreed: Path | None,
    *,
    independent: bool,
    as_json: bool,
) -> None:
    require_server_packages("syncret audit of tables with keys")
    from parties.audit.html import render_audit
    from parties.audit.keyed import audit_keyed
    from parties.local.keyed_run import VIEWS

    found = audit_keyed(
        unpacked.folder, agreed=agreed, left_out=unpacked.left_out, independent=independent
    )
    pages = {
        name: run / VIEWS / name / "audit.html" if run.is_dir() else _page_of(run, name)
        for name in found.views
    }
    for name, view in found.views.items():
        # A folder from elsewhere may have links in the place of folders.
        if not pages[name].parent.is_symlink() and not pages[name].parent.parent.is_symlink():
            write_atomic(pages[name], render_audit(view))
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        for name, view in found.views.items():
            click.echo(f"{printable(name)}: {textwrap.fill(printable(view.headline), 110)}")
            click.echo(f"{pages[name]}\n")
        if found.notice:
            click.echo(f"{textwrap.fill(found.notice, 110)}\n")
        click.echo("All views together")
        _print_checks(found.checks)
    if not found.ok:
        raise AuditFailed(
            f"the audit found something wrong: {', '.join(found.failed) or 'nothing to check'}"
        )


def _page_of(run: Path, view: str = "") -> Path:
    if run.is_dir():
        return run / "audit.html"
    name = run.name
    for suffix in (".zip", ".tar.gz", ".tgz", ".tar"):
        name = name.removesuffix(suffix)
    return run.with_name(f"{name}.{view}.audit.html" if view else f"{name}.audit.html")


def _print(findings: "Audit", page: Path | None) -> None:
    """Prints the headline, each question with its answer and its checks, and the path of the page."""
    click.echo(textwrap.fill(printable(findings.headline), 110))
    for number, answer in enumerate(findings.answers, start=1):
        click.echo(f"\n{number}. {answer.question}")
        for sentence in answer.sentences:
            click.echo(
                textwrap.fill(
                    printable(sentence), 110, initial_indent="   ", subsequent_indent="   "
                )
            )
        _print_checks([check for check in findings.checks if check.name in answer.checks])
    if not findings.answers:
        _print_checks(findings.checks)
        click.echo("")
        for sentence in findings.limits:
            click.echo(textwrap.fill(sentence, 110))
    if page is not None:
        click.echo(f"\n{page}")


def _print_checks(checks: Sequence[Check]) -> None:
    for check in checks:
        first, *more = textwrap.wrap(check.detail, 92)
        click.echo(f"{_MARKS[check.status]}  {check.name:<14}{first}")
        for line in more:
            click.echo(f"{'':<20}{line}")
