"""Commands `flaim-client` and `silos-client`: a data owner's participation in a run with one server."""

import json
from pathlib import Path

import click

from parties.cli.options import owner_options
from parties.cli.runtime import common_options, make_private, run_supervised
from parties.config import Config
from parties.config.provenance import check_confirmed
from parties.federation.client import SiloReport, federated_release, run_silo
from parties.federation.flaim_parameters import flaim_release, flaim_section
from parties.local.processes import Supervision
from parties.methods.flaim.client import ClientReport, run_client
from parties.methods.flaim.settings import neighbours_text
from parties.methods.registry import plan_of
from parties.observability.events import TextLines
from parties.session.owner import DataOwner


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
def flaim_client(owner: DataOwner, directory: Path | None, as_json: bool) -> None:
    """Take part in a run of FLAIM with your own table, which stays here, until the server says goodbye.

    The whole run is charged to the table's budget before anything is sent: see syncret budget. What the server asks for
    is checked against your config, and charged to a ledger of your own; beyond it nothing is sent. Prints what was
    released.
    """
    config = owner.config
    check_confirmed(config)
    ledger_folder = directory or owner.beside("flaim")
    codes = owner.table.codes(config.domain)
    account, progress = owner.account(flaim_release(config)), TextLines()

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
            f"epsilon = {config.run.epsilon:g}, delta = {config.run.delta:g} in all, for "
            f"{neighbours_text(flaim_section(config))}",
            *([] if report.replaced is None else [report.replaced]),
            f"{report.sent_bytes} bytes sent, {report.received_bytes} received in {report.seconds:.1f} s",
        )
    )


@click.command("silos-client", epilog="Example: syncret silos-client tda.toml --data stays.csv")
@owner_options
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="This silo's ledger of the run, and what it takes home; by default beside the table.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, min_open=True),
    default=None,
    help="Your own, where the algorithm lets each silo choose.",
)
@click.option(
    "--not-private", is_flag=True, help="Take part although the run has no privacy guarantee."
)
@common_options
def silos_client(
    owner: DataOwner,
    directory: Path | None,
    epsilon: float | None,
    not_private: bool,
    as_json: bool,
) -> None:
    """Take part in a run between silos with your own table, which stays here, until the server says goodbye.

    Fed-TDA is charged to the table's budget as a whole before anything is sent: see syncret budget; what MR-MTL has
    spent of your epsilon stands in personal.json. What the server asks for is checked against your config, and charged
    to a ledger of your own; beyond it nothing is sent. A run whose sums are opened without noise has to be allowed with
    --not-private. Prints what was released.
    """
    config, plan = owner.config, plan_of(owner.config)
    check_confirmed(config)
    if not plan.private and not not_private:
        raise click.UsageError(
            f"{plan.guarantee} Say --not-private to take part all the same, or ask for a run with noise."
        )
    if epsilon is not None and not plan.private_answers:
        raise click.UsageError(
            f"--epsilon is for algorithms with each silo's own noise; here all silos have run.epsilon, "
            f"{config.run.epsilon:g}"
        )
    table, release = (
        owner.table.kept(owner.table.text(), config.domain),
        federated_release(config, plan),
    )
    # Checked before anything is made or charged.
    plan.check_table(table, owner.table.source.shown)
    folder = directory or owner.beside("silos")
    make_private(folder)
    spend = None if release is None else owner.account(release).spend
    progress = TextLines()

    async def take_part(supervision: Supervision) -> SiloReport:
        return await run_silo(
            config,
            table,
            owner.files,
            folder,
            progress=progress,
            spend=spend,
            epsilon=epsilon,
            plan=plan,
        )

    report = run_supervised(take_part, watch_stdin=False, events=None)
    click.echo(json.dumps(report.to_dict(), indent=2) if as_json else _text(report, config))


def _text(report: SiloReport, config: Config) -> str:
    spent = f"rho {report.rho_spent:.6g} of {report.rho_total:.6g} spent by its own ledger"
    return "\n".join(
        (
            f"run {config.run.id}: {report.client} took part in {report.sums} sums, {report.given_up} of them given up",
            *([spent] if report.rho_total else []),
            report.guarantee,
            f"{report.sent_bytes} bytes sent, {report.received_bytes} received in {report.seconds:.1f} s",
        )
    )
