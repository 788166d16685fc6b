"""Command `study apply`: a study as a file declares it."""

import os
import pwd
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from parties.cli.options import folder_option, service_answer
from parties.cli.proposals import propose_study
from parties.cli.runtime import common_options, print_json, print_lines, say
from parties.foundation.exit_codes import NotYet, ServiceRefused, Status
from parties.identity.join_documents import fingerprint_lines
from parties.service.declared_study import (
    Change,
    DecisionNeeded,
    DeclaredStudy,
    StudyPlan,
    WordsOfAnother,
    check_same,
    find_study,
    load_declared_study,
    plan,
    proposed_before,
)
from parties.service.status_client import request_document


@click.command(
    short_help="Make a study at this server as a file says.",
    epilog="Example: syncret study apply stays-2026.study.toml --dry-run",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@folder_option
@common_options
def apply(file: Path, *, dry_run: bool, yes: bool, folder: Path, as_json: bool) -> None:
    """Make a study at this server as FILE says, a file in TOML: propose it, approve it, close, finish or cancel it.

    Its keys are config (proposed if nobody has yet) or run, the study's name; words, the twelve that you have compared
    with the other operators; state ("running", "closed", "finished", "cancelled") and revoked, a list of data owners;
    reason, of a cancelled study; authority, out and days, as in `syncret study propose`. Without words a study is
    proposed, and nothing else: no program puts them there.

    Applied again it does nothing. Exit status: 0 if the study is as FILE says; 18 if something is to be done later, by
    the same command; 19 if it is not so, with --dry-run or because that takes a decision (it has failed, was cancelled,
    or is another one than config).
    """
    declared = load_declared_study(file)
    try:
        study, found = _compared(declared, folder)
        _confirm(found, dry_run=dry_run, yes=yes or as_json)
        if not dry_run:
            for change in found.changes:
                study = _carried_out(declared, folder, change, study=study)
    except WordsOfAnother as error:
        raise ServiceRefused(str(error), Status.PROTOCOL) from error
    except DecisionNeeded as error:
        raise ServiceRefused(str(error), Status.DIFFERS) from error
    _print(declared, study, found, dry_run=dry_run, as_json=as_json)
    if dry_run and found.changes:
        raise click.exceptions.Exit(int(Status.DIFFERS))
    if found.waits:
        raise NotYet(f"{'; '.join(found.waits)}; the same command does the rest")


def _compared(declared: DeclaredStudy, folder: Path) -> tuple[Mapping[str, Any] | None, StudyPlan]:
    """Returns the study's document, if it is known, and what is to be done. Raises PartyError."""
    study = find_study(declared, service_answer(folder, "GET", "/studies")["studies"])
    given = None
    if study is not None:
        target = f"/studies/{study['digest']}"
        study = service_answer(folder, "GET", target)
        check_same(declared, study)
        status, answer = request_document(folder, "GET", f"{target}/status")
        if status == HTTPStatus.OK:
            given = (answer["asked"] or {"here": {}})["here"]
    own = service_answer(folder, "GET", "/status")
    eyes = _own_name() if own["four_eyes"] else ""
    return study, plan(declared, study, given, server=own["service"], four_eyes=eyes)


def _own_name() -> str:
    """Returns the name in the history of a user of the admin socket."""
    try:
        return f"operator {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"operator {os.geteuid()}"


def _confirm(found: StudyPlan, *, dry_run: bool, yes: bool) -> None:
    """Shows the changes on a terminal, and asks. Raises click.Abort."""
    if found.changes and not dry_run and not yes and sys.stdin.isatty():
        for change in found.changes:
            say(f"  {change}")
        click.confirm("Do this?", abort=True, err=True)


def _carried_out(
    declared: DeclaredStudy, folder: Path, change: Change, *, study: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Carries out a change, and returns the study's document. Raises PartyError."""
    if change.command is None or study is None:
        if declared.config is None:
            raise ValueError("a proposal has a configuration")
        answer, path = propose_study(
            proposed_before(declared) or declared.config,
            folder,
            authority=declared.authority,
            out=declared.out,
            days=declared.days,
        )
        say(f"{path}: proposed; the other two fetch it from this server")
        return service_answer(folder, "GET", f"/studies/{answer['digest']}")
    order, body = change.command
    target = f"/studies/{study['digest']}"
    service_answer(folder, "POST", f"{target}/{order}", body)
    return service_answer(folder, "GET", target)


def _print(
    declared: DeclaredStudy,
    study: Mapping[str, Any] | None,
    found: StudyPlan,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        document = {
            "run": declared.run,
            **{key: study and study[key] for key in ("digest", "words", "state")},
            "changes": [change.to_dict() for change in found.changes],
            "done": not dry_run,
            "waits": list(found.waits),
        }
        print_json(document)
        return
    did = ("would change" if dry_run else "changed") if found.changes else "nothing to do"
    print_lines([f"{declared.run}: {did}", *(f"  {change}" for change in found.changes)])
    if study is not None and not declared.words and study["state"] == "proposed":
        print_lines(fingerprint_lines(study["digest"]))
        say(
            "Not approved: its words are for the file once you have compared them with the other operators."
        )
