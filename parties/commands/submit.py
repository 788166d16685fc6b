"""The command `submit`: a data owner's part in a run of DistAIM."""

import json
from pathlib import Path

import click

from parties.commands.owner_options import Owner, owner_options
from parties.commands.running import common_options, run_supervised
from parties.distaim.planning import release_of
from parties.distaim.submit import Receipt, submit_table
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
@common_options
def submit(owner: Owner, state: Path | None, as_json: bool) -> None:
    """Check a table against the config's domain, count, share, upload to the three servers, print the receipt.

    Run again after a failure it sends the same submission, which counts once; when all three servers have it, nothing.
    The whole run is charged to the table's budget before anything is sent; beyond it nothing is: see syncret budget.
    """
    config, progress = owner.config, Lines()

    def spend(submission: str) -> None:
        owner.account(release_of(config, config.build_workload())).spend(submission)

    async def send(supervision: Supervision) -> Receipt:
        return await submit_table(
            config,
            owner.data,
            owner.files,
            state=state or owner.beside("submission"),
            spend=spend,
            on_retry=lambda text: progress.event("retry", text),
        )

    receipt = run_supervised(send, watch_stdin=False, events=None)
    click.echo(json.dumps(receipt.to_dict(), indent=2) if as_json else _receipt_text(receipt))


def _receipt_text(receipt: Receipt) -> str:
    if receipt.first_round is None:
        return (
            f"{receipt.client} was not drawn for any round of run {receipt.run}; nothing was sent"
        )
    lines = ["sent before; nothing was sent now"] if receipt.earlier else []
    lines += [
        f"run {receipt.run}: the submission of {receipt.client} is at all three servers",
        f"counted from round {receipt.first_round} on; {receipt.cells} cells, form {receipt.form}, "
        f"{receipt.sent_bytes} bytes sent in {receipt.seconds:.1f} s",
        f"digest {receipt.digest}",
    ]
    lines += [f"  {s.party}: {s.status}, {s.sent_bytes} bytes" for s in receipt.servers]
    return "\n".join(lines)
