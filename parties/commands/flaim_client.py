"""The command `flaim-client`: a data owner's part in a run of FLAIM."""

import json
from pathlib import Path

import click

from parties.commands.owner_options import owner_options
from parties.commands.running import common_options, run_supervised
from parties.config import Config
from parties.flaim.client import ClientReport, run_client
from parties.flaim.guarantee import unit
from parties.flaim.sums import release_of, section_of
from parties.owner import Owner
from parties.progress import Lines
from parties.provenance import check_confirmed
from parties.trial.processes import Supervision


@click.command("flaim-client", epilog="Example: syncret flaim-client flaim.toml --data stays.csv")
@owner_options
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="This client's ledger of the run; by default beside the table. Another one is charged once more.",
)
@common_options
def flaim_client(owner: Owner, directory: Path | None, as_json: bool) -> None:
    """Take part in a run of FLAIM with your own table, which stays here, until the server says goodbye.

    The whole run is charged to the table's budget before anything is sent: see syncret budget. What the server asks for
    is checked against your config, and charged to a ledger of your own; beyond it nothing is sent. Prints what was
    released.
    """
    config = owner.config
    check_confirmed(config)
    ledger_folder = directory or owner.beside("flaim")
    codes = owner.table.codes(config.domain)
    account, progress = owner.account(release_of(config)), Lines()

    async def take_part(supervision: Supervision) -> ClientReport:
        return await run_client(
            config, codes, owner.files, ledger_folder, progress=progress, spend=account.spend
        )

    report = run_supervised(take_part, watch_stdin=False, events=None)
    click.echo(json.dumps(report.to_dict(), indent=2) if as_json else _client_text(report, config))


def _client_text(report: ClientReport, config: Config) -> str:
    return "\n".join(
        (
            f"run {config.run.id}: {report.client} took part in {report.rounds} rounds and {report.sums} sums, "
            f"{report.given_up} of them given up",
            f"rho {report.rho_spent:.6g} of {report.rho_total:.6g} spent by its own ledger",
            f"epsilon = {config.run.epsilon:g}, delta = {config.run.delta:g} in all, for {unit(section_of(config))}",
            *([] if report.replaced is None else [report.replaced]),
            f"{report.sent_bytes} bytes sent, {report.received_bytes} received in {report.seconds:.1f} s",
        )
    )
