"""Command `join`: a data owner's participation in a run of any method, by the configuration."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mechanisms.text_table import and_list
from parties.cli.attend import (
    FederationPart,
    attend,
    attend_invited,
    attendance_text,
    show_check,
)
from parties.cli.invitations import ensure_admitted, is_admitted, is_invitation, open_invitation
from parties.cli.numbers import NumberRange
from parties.cli.options import check_only, only_option, owner_options
from parties.cli.result import MAX_WAIT_S, FetchedResult, fetched_result
from parties.cli.runtime import (
    command_progress,
    common_options,
    print_json,
    print_lines,
    run_supervised,
)
from parties.cli.submit import in_terminal, participate
from parties.foundation.errors import CertificateError, ResultMissing
from parties.identity.invitation import accept_invitation
from parties.local.processes import Supervision
from parties.methods.registry import DISTAIM, method_of, served_method, served_methods
from parties.mpc.submission.participation import state_path
from parties.mpc.submission.state import completed_receipt_of
from parties.mpc.submission.status import await_begin
from parties.session.owner import DataOwner

_WAIT_S = 86_400.0
_OPTIONS = {
    "capacity": "--capacity",
    "state": "--state",
    "checks": "--check",
    "asks": "--status",
    "replaces": "--replace",
    "withdraws": "--withdraw",
    "directory": "--dir",
    "epsilon": "--epsilon",
    "not_private": "--not-private",
}
"""Options of some methods only, by parameter."""
_DISTAIM_OPTIONS = ("capacity", "state", "checks", "asks", "replaces", "withdraws")


@click.command(epilog="Example: syncret join syncret.toml --data stays.csv")
@owner_options
@click.option(
    "--capacity",
    type=click.IntRange(1),
    default=None,
    help="Rows that the table may have at most; public, so choose it without looking at the data (beds, not patients). "
    "By default clients.rows_per_client of the config.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=None,
    help="What sending the same submission again needs; by default beside the table. Secret, like the table.",
)
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="Send and charge nothing; show the table, what would be sent, what it costs, and whether servers answer.",
)
@click.option(
    "--status",
    "asks",
    is_flag=True,
    help="Send nothing; ask who has the submission, and from which round on it is counted.",
)
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Send this table in the place of the one that was sent, as long as that one is not counted for good.",
)
@click.option(
    "--withdraw",
    "withdraws",
    is_flag=True,
    help="Take the submission back, as long as it is not counted for good; what was charged is given back then.",
)
@click.option("--yes", is_flag=True, help="Do not ask. Nothing is asked but in a terminal.")
@click.option(
    "--name",
    default=None,
    help="By an invitation: the name by which you ask to be admitted, if it has none for you.",
)
@click.option(
    "--wait",
    "wait_s",
    type=NumberRange(0, MAX_WAIT_S),
    default=_WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="By an invitation: how long to wait for each, admission, the study's begin and its end.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="FLAIM and silos: this participant's ledger of the run, and what a silo takes home; by default beside the "
    "table. Another one is charged once more.",
)
@click.option(
    "--epsilon",
    type=NumberRange(0, min_open=True),
    default=None,
    help="Silos: your own, where the method lets each silo choose.",
)
@click.option(
    "--not-private",
    is_flag=True,
    help="Silos: take part although the run has no privacy guarantee.",
)
@only_option
@common_options
def join(
    study: str,
    owner: Callable[[], DataOwner],
    *,
    yes: bool,
    name: str | None,
    wait_s: float,
    only: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Take part in a run with your own table, by the method that the config is for.

    CONFIG may be an invitation instead, a file or a URL that ends in # and the study's digest. Then this command does
    it all: it makes your key, asks to be admitted and waits for that, checks the table, shows in sentences what you
    agree to, sends, waits, and fetches the result with its audit. Stopped at any point, the same command goes on. Its
    parts by themselves: syncret certs request --to, join --check, join with the config, join --status, result. With
    FLAIM and between silos, it stays connected until the study ends, and waits for a server that is away.

    DistAIM ([[party]]): the table is checked against the config's domain, counted, shared, sealed and sent to one
    server; each server can read its own part alone. Run again after a failure it sends the same submission, which
    counts once; when all three servers have it, nothing. Until a round begins with your rows, --replace and --withdraw
    take them back; after that nothing does, and the exit status is 15.

    FLAIM ([flaim]) and methods between silos ([silos]): the table stays here, and this command until the server says
    goodbye. What the server asks for is checked against your config, and charged to a ledger of your own. A run whose
    sums are opened without noise has to be allowed with --not-private.

    The whole run is charged to the table's budget just before anything of the table is sent; beyond it nothing is: see
    syncret budget.
    """
    alone = any(given[name] for name in ("checks", "asks", "replaces", "withdraws"))
    if is_invitation(study) and not alone:
        _join_invited(study, owner, name=name, wait_s=wait_s, yes=yes, as_json=as_json, given=given)
        return
    if name is not None:
        raise click.UsageError("--name is for an invitation, without --check and its like")
    _join(_admitted(study, owner), yes=yes, only=only, as_json=as_json, given=given)


def _admitted(study: str, owner: Callable[[], DataOwner]) -> DataOwner:
    """Returns the owner. Raises CertificateError, by an invitation with the command that asks to be admitted."""
    try:
        return owner()
    except CertificateError as error:
        if not is_invitation(study):
            raise
        raise CertificateError(
            f"{error}. If you have not asked to be admitted yet: syncret certs request NAME --to {study}"
        ) from error


def _join(
    owner: DataOwner, *, yes: bool, only: str | None, as_json: bool, given: Mapping[str, Any]
) -> None:
    """Takes part by a configuration."""
    method = method_of(owner.config, only)
    check_only(only, method, owner.config.source)
    _check_options(method, owner.config.source, given)
    if method == DISTAIM:
        served = {name: given[name] for name in _DISTAIM_OPTIONS}
        participate(owner, yes=yes, as_json=as_json, **served)
    else:
        part = _part_of(owner, method, given)
        if given["checks"]:
            show_check(part, as_json=as_json)
            return
        report = attend(part)
        click.echo(
            json.dumps(report.to_dict(), indent=2)
            if as_json
            else attendance_text(report, owner.config)
        )


def _part_of(owner: DataOwner, method: str, given: Mapping[str, Any]) -> FederationPart:
    """Returns the owner's part in a run of a method with one server. Raises UsageError, DataError."""
    return FederationPart.of(
        owner,
        served_method(method),
        given["directory"],
        epsilon=given["epsilon"],
        not_private=given["not_private"],
    )


def _join_invited(
    study: str,
    owner: Callable[[], DataOwner],
    *,
    name: str | None,
    wait_s: float,
    yes: bool,
    as_json: bool,
    given: Mapping[str, Any],
) -> None:
    """Takes part by an invitation, from the request for admission to the audited result."""
    if not (yes or in_terminal()):
        raise click.UsageError("there is no terminal to ask in; give --yes where you agree unasked")
    invitation = open_invitation(study)
    method = method_of(invitation.config)
    _check_options(method, study, given)
    path = accept_invitation(invitation, Path())
    if not is_admitted(path):
        ensure_admitted(path, _own_name(name or invitation.owner, yes=yes), wait_s=wait_s)
    found, progress = owner(), command_progress()

    async def begin(supervision: Supervision) -> bool:
        return await await_begin(found.config, found.files, wait_s=wait_s, progress=progress)

    begun = run_supervised(begin, watch_stdin=False, events=None)
    options = _Invited(path, found, given, yes=yes, as_json=as_json, wait_s=wait_s)
    take_part = _submit_invited if method == DISTAIM else _attend
    did, result = take_part(options, begun)
    if as_json:
        print_json({**did, "result": result.to_dict()})
    else:
        print_lines(result.lines())
    result.require_passed()


@dataclass(frozen=True, slots=True)
class _Invited:
    """An invited owner that is admitted, its study's configuration file, and its command's options."""

    path: Path
    owner: DataOwner
    given: Mapping[str, Any]
    yes: bool
    as_json: bool
    wait_s: float

    def result(self) -> FetchedResult:
        """Waits for the result and fetches it. Raises ResultMissing, NotYet."""
        owner = self.owner
        return fetched_result(self.path, owner.config, owner.files, out=None, wait_s=self.wait_s)


def _submit_invited(invited: _Invited, begun: bool) -> tuple[dict[str, object], FetchedResult]:
    """Sends the submission, and fetches the result of a study of three servers; returns both."""
    owner, as_json, sent = invited.owner, invited.as_json, None
    served = {option: invited.given[option] for option in _DISTAIM_OPTIONS}
    if begun or not _was_sent(owner, invited.given):
        sent = participate(owner, yes=invited.yes, as_json=as_json, invited=True, **served)
    try:
        result = invited.result()
    except ResultMissing:
        # What was charged comes back where two servers sign that nothing was opened.
        participate(owner, yes=True, as_json=as_json, **served | {"asks": True})
        raise
    return {"submission": None if sent is None else sent.to_dict()}, result


def _attend(invited: _Invited, begun: bool) -> tuple[dict[str, object], FetchedResult]:
    """Takes part until the study ends, and fetches the result of a study of one server; returns both."""
    owner, report = invited.owner, None
    if begun:
        part = _part_of(owner, method_of(owner.config), invited.given)
        asks = not invited.yes and in_terminal()
        report = attend_invited(part, wait_s=invited.wait_s, asks=asks)
        if report is not None and not invited.as_json:
            click.echo(attendance_text(report, owner.config))
    document: dict[str, object] = {"participation": None if report is None else report.to_dict()}
    return document, invited.result()


def _own_name(name: str, *, yes: bool) -> str:
    """Returns the name by which an owner asks to be admitted. Raises UsageError."""
    if name:
        return name
    if yes:
        raise click.UsageError("the invitation has no name for you; give --name NAME")
    return str(click.prompt("The name by which you ask to be admitted", err=True))


def _was_sent(owner: DataOwner, given: Mapping[str, Any]) -> bool:
    """True if all three servers have had the owner's submission."""
    path = state_path(owner, given["state"])
    return completed_receipt_of(path, owner.config.digest(), owner.name) is not None


def _check_options(method: str, source: str, given: Mapping[str, Any]) -> None:
    """Raises UsageError for options of other methods."""
    titles = {DISTAIM: "DistAIM"}
    options: dict[str, Sequence[str]] = {DISTAIM: _DISTAIM_OPTIONS}
    for served in served_methods():
        titles[served.key], options[served.key] = served.title, served.join_options
    for name, option in _OPTIONS.items():
        if given[name] not in (None, False) and name not in options[method]:
            having = and_list(titles[one] for one in titles if name in options[one])
            raise click.UsageError(f"{option} is for {having}; {source} is of {titles[method]}")
