"""Command `join`: a data owner's participation in a run of any method, by the configuration."""

import json
from pathlib import Path
from typing import Any

import click

from parties.cli.options import check_only, only_option, owner_options
from parties.cli.runtime import command_progress, common_options, make_private, run_supervised
from parties.cli.submit import participate
from parties.config import Config
from parties.config.provenance import check_confirmed
from parties.federation.client import SiloReport, federated_release, run_silo
from parties.federation.flaim_parameters import flaim_release, flaim_section
from parties.local.processes import Supervision
from parties.methods.flaim.client import ClientReport, run_client
from parties.methods.flaim.settings import neighbours_text
from parties.methods.registry import plan_of
from parties.session.owner import DataOwner

_DISTAIM, _FLAIM, _SILOS = "distaim", "flaim", "silos"
_TITLES = {_DISTAIM: "DistAIM", _FLAIM: "FLAIM", _SILOS: "methods between silos"}
_OPTIONS = {
    "capacity": ("--capacity", (_DISTAIM,)),
    "state": ("--state", (_DISTAIM,)),
    "checks": ("--check", (_DISTAIM,)),
    "asks": ("--status", (_DISTAIM,)),
    "replaces": ("--replace", (_DISTAIM,)),
    "withdraws": ("--withdraw", (_DISTAIM,)),
    "directory": ("--dir", (_FLAIM, _SILOS)),
    "epsilon": ("--epsilon", (_SILOS,)),
    "not_private": ("--not-private", (_SILOS,)),
}
"""Options of some methods only: by parameter, the option and its methods."""


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
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="FLAIM and silos: this participant's ledger of the run, and what a silo takes home; by default beside the "
    "table. Another one is charged once more.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, min_open=True),
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
def join(owner: DataOwner, yes: bool, only: str | None, as_json: bool, **given: Any) -> None:
    """Take part in a run with your own table, by the method that the config is for.

    DistAIM ([[party]]): the table is checked against the config's domain, counted, shared, sealed and sent to one
    server; each server can read its own part alone. Run again after a failure it sends the same submission, which
    counts once; when all three servers have it, nothing. Until a round begins with your rows, --replace and --withdraw
    take them back; after that nothing does, and the exit status is 15.

    FLAIM ([flaim]) and methods between silos ([silos]): the table stays here, and this command until the server says
    goodbye. What the server asks for is checked against your config, and charged to a ledger of your own. A run whose
    sums are opened without noise has to be allowed with --not-private.

    The whole run is charged to the table's budget before anything is sent; beyond it nothing is: see syncret budget.
    """
    method = _method_of(owner.config, only)
    check_only(only, method, owner.config.source)
    for name, (option, methods) in _OPTIONS.items():
        if given[name] not in (None, False) and method not in methods:
            titles = " and ".join(_TITLES[one] for one in methods)
            raise click.UsageError(
                f"{option} is for {titles}; {owner.config.source} is of {_TITLES[method]}"
            )
    if method == _DISTAIM:
        served = {name: given[name] for name, (_, of) in _OPTIONS.items() if _DISTAIM in of}
        participate(owner, yes=yes, as_json=as_json, **served)
    elif method == _FLAIM:
        _join_flaim(owner, given["directory"], as_json=as_json)
    else:
        _join_silos(
            owner,
            given["directory"],
            epsilon=given["epsilon"],
            not_private=given["not_private"],
            as_json=as_json,
        )


def _method_of(config: Config, only: str | None) -> str:
    """Returns the method that a configuration is for; one with compute servers is of DistAIM.

    A configuration with [flaim] beside them is of FLAIM where ``only`` says so.
    """
    if only == _FLAIM and config.flaim is not None:
        return _FLAIM
    if config.parties:
        return _DISTAIM
    if config.silos is not None:
        return _SILOS
    return _DISTAIM if config.flaim is None else _FLAIM


def _join_flaim(owner: DataOwner, directory: Path | None, *, as_json: bool) -> None:
    config = owner.config
    check_confirmed(config)
    ledger_folder = directory or owner.beside("flaim")
    codes = owner.table.codes(config.domain)
    account, progress = owner.account(flaim_release(config)), command_progress()

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


def _join_silos(
    owner: DataOwner,
    directory: Path | None,
    *,
    epsilon: float | None,
    not_private: bool,
    as_json: bool,
) -> None:
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
        owner.table.kept(owner.table.text(config.domain), config.domain),
        federated_release(config, plan),
    )
    # Checked before anything is made or charged.
    plan.check_table(table, owner.table.source.shown)
    folder = directory or owner.beside("silos")
    make_private(folder)
    spend = None if release is None else owner.account(release).spend
    progress = command_progress()

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
