"""The command `submit`: a data owner's part in a run of DistAIM."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from parties.commands.owner_options import Owner, owner_options
from parties.commands.running import common_options, run_supervised
from parties.distaim.planning import release_of
from parties.distaim.standing import Told, ask_standings
from parties.distaim.submit import Submitted, status, submit_table
from parties.progress import Lines
from parties.trial.processes import Supervision


@click.command(epilog="Example: syncret submit syncret.toml --data stays.csv")
@owner_options
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=None,
    help="What sending the same submission again needs; by default beside the table. Secret, like the table.",
)
@click.option(
    "--status",
    "asks",
    is_flag=True,
    help="Send nothing; ask who has the submission, and whether it is counted.",
)
@common_options
def submit(owner: Owner, state: Path | None, asks: bool, as_json: bool) -> None:
    """Check a table against the config's domain, count, share, seal, send it to one server, print the receipts.

    Each server can read its own part alone. One that is away gets its part from the server that took the submission.
    Run again after a failure it sends the same submission, which counts once; when all three servers have it, nothing.
    The whole run is charged to the table's budget before anything is sent; beyond it nothing is: see syncret budget.
    """
    config, progress = owner.config, Lines()
    path = state or owner.beside("submission")

    def spend(submission: str) -> None:
        owner.account(release_of(config, config.build_workload())).spend(submission)

    async def send(supervision: Supervision) -> Submitted:
        return await submit_table(
            config,
            owner.table.source,
            owner.files,
            state=path,
            spend=spend,
            ignore_extra=owner.table.ignore_extra,
            on_retry=lambda text: progress.event("retry", text),
        )

    async def ask(supervision: Supervision) -> tuple[Submitted, tuple[Told, ...]]:
        found = await status(config, owner.files, path)
        return found, await ask_standings(config, owner.files)

    if asks:
        found, told = run_supervised(ask, watch_stdin=False, events=None)
        document = {**found.to_dict(), "standings": [each.to_dict() for each in told]}
        text = f"{_text(found)}\n{_standings(told)}"
    else:
        found = run_supervised(send, watch_stdin=False, events=None)
        document, text = found.to_dict(), _text(found)
    click.echo(json.dumps(document, indent=2) if as_json else text)


def _standings(told: Sequence[Told]) -> str:
    """What each server says became of the submission."""
    if not told:
        return (
            "no server answers whether it is counted; after the run's end its result.json and transcripts have the "
            "digest"
        )
    return "\n".join(f"{each.party} says: {each.text}" for each in told)


def _text(found: Submitted) -> str:
    if found.first_round is None:
        return f"{found.client} was not drawn for any round of run {found.run}; nothing was sent"
    lines = ["sent before; nothing was sent now"] if found.earlier else []
    lines += [
        f"run {found.run}: the submission of {found.client} {_where(found)}",
        f"counted from round {found.first_round} on; {found.cells} cells, form {found.form}, "
        f"{found.traffic.sent_bytes} bytes sent in {found.seconds:.1f} s",
        f"digest {found.upload}",
    ]
    names = ", ".join(receipt.party for receipt in found.receipts)
    return "\n".join([*lines, f"receipts signed by {names}"])


def _where(found: Submitted) -> str:
    if found.complete:
        return "is at all three servers"
    has = " and ".join(receipt.party for receipt in found.receipts)
    if not found.kept_for:
        return f"is at {has}; no other server confirms it. Send it again: what is there is kept"
    away = " and ".join(found.kept_for)
    verb = "is" if len(found.kept_for) == 1 else "are"
    return (
        f"is at {has} and, as {found.via} says, kept for {away}, who {verb} away. It counts when three receipts are "
        "there: ask later with --status"
    )
