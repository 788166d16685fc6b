"""The command `submit`: a data owner's part in a run of DistAIM."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from mechanisms.summary import ColumnSummary
from parties.budget import Budget
from parties.commands.owner_options import owner_options
from parties.commands.running import common_options, run_supervised
from parties.commands.submit_texts import (
    former_text,
    preview_text,
    question_text,
    returned_text,
    standings_text,
    submitted_text,
    withdrawn_text,
)
from parties.distaim.completed import withdrawn_by
from parties.distaim.feasible import check_owner
from parties.distaim.part import look_at, send_rows, state_of
from parties.distaim.planning import release_of
from parties.distaim.preview import Preview
from parties.distaim.revise import (
    Replaced,
    follow_up,
    made_in,
    replace_submission,
    withdraw,
)
from parties.distaim.standing import ask_standings
from parties.distaim.submit import Submitted, made_before, status
from parties.distaim.taking_back import TakenBack
from parties.errors import SubmitError
from parties.owner import Owner
from parties.progress import Lines
from parties.provenance import check_confirmed
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
@common_options
def submit(
    owner: Owner,
    capacity: int | None,
    state: Path | None,
    checks: bool,
    asks: bool,
    replaces: bool,
    withdraws: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Check a table against the config's domain, count, share, seal, send it to one server, print the receipts.

    Each server can read its own part alone. One that is away gets its part from the server that took the submission.
    Run again after a failure it sends the same submission, which counts once; when all three servers have it, nothing.
    The whole run is charged to the table's budget before anything is sent; beyond it nothing is: see syncret budget.

    Until a round begins with your rows, --replace and --withdraw take them back; after that nothing does, and the exit
    status is 15.
    """
    if asks + withdraws + (checks or replaces) > 1:
        raise click.UsageError(
            "give one of --check, --replace, --withdraw and --status; --check may stand beside --replace"
        )
    path, may_ask = state_of(owner, state), not yes and _in_terminal()
    if not (asks or withdraws):
        check_confirmed(owner.config)
        check_owner(owner.config, owner.config.build_workload())
    if asks:
        _ask(owner, path, as_json=as_json)
    elif withdraws:
        _withdraw(owner, path, asks=may_ask, as_json=as_json)
    elif checks:
        _check(owner, path, capacity, replaces=replaces, as_json=as_json)
    elif replaces:
        _replace(owner, path, capacity, asks=may_ask, as_json=as_json)
    else:
        _send(owner, path, capacity, asks=may_ask, as_json=as_json)


def _in_terminal() -> bool:
    """Whether there is somebody to ask, and a place to ask: questions are written to standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(owner: Owner, path: Path, *, as_json: bool) -> None:
    config, files = owner.config, owner.files
    gone = withdrawn_by(path, config.digest(), owner.name)

    async def ask(supervision: Supervision) -> None:
        told = await ask_standings(config, files)
        former = await follow_up(config, files, state=path, told=told, give_back=_give_back(owner))
        if gone is None:
            found = await status(config, files, path)
            document, text = found.to_dict(), submitted_text(found, told)
        else:
            signed = TakenBack.from_proof(gone.proof, gone.version)
            document, text = signed.to_dict(), withdrawn_text(signed, config.run.id)
        if former is not None:
            document = document | {"former": former.to_dict()}
            text = f"{text}\n{former_text(former)}"
        document = {**document, "standings": [each.to_dict() for each in told]}
        text = f"{text}\n{standings_text(told)}"
        click.echo(json.dumps(document, indent=2) if as_json else text)

    run_supervised(ask, watch_stdin=False, events=None)


def _give_back(
    owner: Owner, datasets: list[str] | None = None
) -> Callable[[Sequence[str], str], None]:
    """What gives charges back, to a budget that is there; ``datasets`` collects whose they were."""

    def give_back(submissions: Sequence[str], proof: str) -> None:
        if owner.budget.exists():
            found = Budget(owner.budget).give_back(owner.config.digest(), submissions, proof)
            if datasets is not None:
                datasets.extend(found)

    return give_back


def _withdraw(owner: Owner, path: Path, *, asks: bool, as_json: bool) -> None:
    config = owner.config
    if asks:
        _confirm(f"Withdraw the submission of {owner.name} from run {config.run.id}?")

    datasets: list[str] = []
    give_back = _give_back(owner, datasets)

    async def take(supervision: Supervision) -> TakenBack:
        return await withdraw(config, owner.files, state=path, give_back=give_back)

    found = run_supervised(take, watch_stdin=False, events=None)
    document = {"run": config.run.id, **found.to_dict(), "given_back_to": datasets}
    text = withdrawn_text(found, config.run.id)
    if found.complete:
        text += f"\n{returned_text(datasets, owner.budget)}"
    click.echo(json.dumps(document, indent=2) if as_json else text)


def _confirm(question: str) -> None:
    """Raises Stopped where the answer is no."""
    if not click.confirm(question, err=True):
        raise Stopped("not confirmed: nothing was sent or charged", Status.INTERRUPTED)


def _check(
    owner: Owner, path: Path, capacity: int | None, *, replaces: bool, as_json: bool
) -> None:
    """Show it all, and then fail where a submission would."""
    config = owner.config
    codes, columns = owner.looked_at()
    config.check_rows(len(codes), capacity)
    if replaces:
        made, before = made_in(config, owner.name, path), None
        paid = None if made is None else made.submission
    else:
        before = made_before(config, codes, owner.name, path, capacity=capacity)
        paid = before[0] if before else None
    found = _preview(owner, len(codes), capacity, columns, paid, earlier=before is not None)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else preview_text(found))
    if not found.cost.covered:
        owner.account(release_of(config, config.build_workload())).require()
    if not found.there:
        raise SubmitError("no server would take the submission now; what each says is above")


def _preview(
    owner: Owner,
    rows: int,
    capacity: int | None,
    columns: Sequence[ColumnSummary],
    paid: str | None,
    *,
    earlier: bool = False,
) -> Preview:
    """Before anything is sent; ``paid`` is the submission whose charge is for this one, too."""

    async def look(supervision: Supervision) -> Preview:
        return await look_at(owner, rows, columns, capacity=capacity, paid=paid, earlier=earlier)

    return run_supervised(look, watch_stdin=False, events=None)


def _send(owner: Owner, path: Path, capacity: int | None, *, asks: bool, as_json: bool) -> None:
    config, progress = owner.config, Lines()
    codes, columns = owner.looked_at()
    config.check_rows(len(codes), capacity)
    # What was confirmed once is only sent on.
    if asks and made_before(config, codes, owner.name, path, capacity=capacity) is None:
        click.echo(question_text(_preview(owner, len(codes), capacity, columns, None)), err=True)
        _confirm("Send it?")

    async def send(supervision: Supervision) -> Submitted:
        return await send_rows(owner, codes, capacity=capacity, state=path, progress=progress)

    found = run_supervised(send, watch_stdin=False, events=None)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else submitted_text(found))


def _replace(owner: Owner, path: Path, capacity: int | None, *, asks: bool, as_json: bool) -> None:
    config, progress = owner.config, Lines()
    codes, columns = owner.looked_at()
    config.check_rows(len(codes), capacity)
    if asks:
        made = made_in(config, owner.name, path)
        paid = None if made is None else made.submission
        click.echo(question_text(_preview(owner, len(codes), capacity, columns, paid)), err=True)
        _confirm("Send it in the place of the former submission?")

    def spend(submission: str, replaced: Sequence[str]) -> None:
        owner.account(release_of(config, config.build_workload())).spend(submission, replaced)

    async def send(supervision: Supervision) -> Replaced:
        return await replace_submission(
            config,
            codes,
            owner.files,
            state=path,
            spend=spend,
            give_back=_give_back(owner),
            capacity=capacity,
            on_retry=lambda text: progress.event("retry", text),
        )

    found = run_supervised(send, watch_stdin=False, events=None)
    document, text = found.submitted.to_dict(), submitted_text(found.submitted)
    if found.former is not None:
        document = document | {"former": found.former.to_dict()}
        text = f"{text}\n{former_text(found.former)}"
    click.echo(json.dumps(document, indent=2) if as_json else text)
