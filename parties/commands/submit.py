"""The command `submit`: a data owner's part in a run of DistAIM."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from mechanisms.summary import ColumnSummary
from parties.commands.owner_options import owner_options
from parties.commands.running import common_options, run_supervised
from parties.commands.submit_texts import (
    preview_text,
    question_text,
    standings_text,
    submitted_text,
)
from parties.distaim.planning import release_of
from parties.distaim.preview import Preview, preview
from parties.distaim.standing import ask_standings
from parties.distaim.submit import Submitted, made_before, status
from parties.distaim.submit import submit as submit_codes
from parties.errors import SubmitError
from parties.owner import Owner
from parties.progress import Lines
from parties.statuses import Status, Stopped
from parties.trial.processes import Supervision


@click.command(epilog="Example: syncret submit syncret.toml --data stays.csv")
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
@click.option("--yes", is_flag=True, help="Do not ask. Nothing is asked but in a terminal.")
@common_options
def submit(
    owner: Owner,
    capacity: int | None,
    state: Path | None,
    checks: bool,
    asks: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Check a table against the config's domain, count, share, seal, send it to one server, print the receipts.

    Each server can read its own part alone. One that is away gets its part from the server that took the submission.
    Run again after a failure it sends the same submission, which counts once; when all three servers have it, nothing.
    The whole run is charged to the table's budget before anything is sent; beyond it nothing is: see syncret budget.
    """
    if checks and asks:
        raise click.UsageError("--check is before, --status after a submission; give one of them")
    path = state or owner.beside("submission")
    if asks:
        _ask(owner, path, as_json=as_json)
    elif checks:
        _check(owner, path, capacity, as_json=as_json)
    else:
        _send(owner, path, capacity, asks=not yes and _in_terminal(), as_json=as_json)


def _in_terminal() -> bool:
    """Whether there is somebody to ask, and a place to ask: questions are written to standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(owner: Owner, path: Path, *, as_json: bool) -> None:
    async def ask(supervision: Supervision) -> None:
        found = await status(owner.config, owner.files, path)
        told = await ask_standings(owner.config, owner.files)
        document = {**found.to_dict(), "standings": [each.to_dict() for each in told]}
        text = f"{submitted_text(found, told)}\n{standings_text(told)}"
        click.echo(json.dumps(document, indent=2) if as_json else text)

    run_supervised(ask, watch_stdin=False, events=None)


def _check(owner: Owner, path: Path, capacity: int | None, *, as_json: bool) -> None:
    """Show it all, and then fail where a submission would."""
    found = _look(owner, path, capacity)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else preview_text(found))
    if not found.cost.covered:
        owner.account(release_of(owner.config, owner.config.build_workload())).require()
    if not found.there:
        raise SubmitError("no server would take the submission now; what each says is above")


def _look(owner: Owner, path: Path, capacity: int | None) -> Preview:
    codes, columns = owner.table.looked_at(owner.config.domain)
    owner.config.check_rows(len(codes), capacity)
    before = made_before(owner.config, codes, owner.name, path, capacity=capacity)
    return _preview(owner, len(codes), capacity, columns, before)


def _preview(
    owner: Owner,
    rows: int,
    capacity: int | None,
    columns: Sequence[ColumnSummary],
    before: tuple[str | None, bool] | None,
) -> Preview:
    config = owner.config
    submission = before[0] if before else None
    cost = owner.quote(release_of(config, config.build_workload()), submission)

    async def look(supervision: Supervision) -> Preview:
        return await preview(
            config,
            owner.files,
            columns,
            cost,
            client=owner.name,
            rows=rows,
            capacity=capacity,
            earlier=before is not None,
        )

    return run_supervised(look, watch_stdin=False, events=None)


def _send(owner: Owner, path: Path, capacity: int | None, *, asks: bool, as_json: bool) -> None:
    config, progress = owner.config, Lines()
    codes, columns = owner.table.looked_at(config.domain)
    config.check_rows(len(codes), capacity)
    # What was confirmed once is only sent on.
    if asks and made_before(config, codes, owner.name, path, capacity=capacity) is None:
        click.echo(question_text(_preview(owner, len(codes), capacity, columns, None)), err=True)
        if not click.confirm("Send it?", err=True):
            raise Stopped("not confirmed: nothing was sent or charged", Status.INTERRUPTED)

    def spend(submission: str) -> None:
        owner.account(release_of(config, config.build_workload())).spend(submission)

    async def send(supervision: Supervision) -> Submitted:
        return await submit_codes(
            config,
            codes,
            owner.files,
            capacity=capacity,
            state=path,
            spend=spend,
            on_retry=lambda text: progress.event("retry", text),
        )

    found = run_supervised(send, watch_stdin=False, events=None)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else submitted_text(found))
