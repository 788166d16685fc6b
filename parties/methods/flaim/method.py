"""FLAIM as a method with one server: its registration.

The server's modules are imported by the server alone: figures take half a second to import, and clients need none.
"""

from pathlib import Path

from parties.config import Config
from parties.federation.client import Participation
from parties.federation.method import ServedMethod
from parties.federation.server import FederationPlan
from parties.methods.flaim.client import FlaimClientSession, flaim_participation
from parties.session.owner import Table


def _plan(config: Config) -> FederationPlan:
    from parties.methods.flaim.server import flaim_plan

    return flaim_plan(config)


def _participation(config: Config, table: Table) -> Participation[FlaimClientSession]:
    return flaim_participation(config, table.codes(config))


def _write_report(config: Config, folder: Path) -> None:
    from parties.methods.flaim.report import write_server_report

    write_server_report(config, folder)


SERVED = ServedMethod(
    key="flaim",
    title="FLAIM",
    again="the same command goes on after the last finished round; with an annealed schedule, or before the first "
    "sums, it begins anew with what is left of the budget",
    join_options=("checks", "directory"),
    run_options=(
        "schedule",
        "participation",
        "partition",
        "variant",
        "local_rounds",
        "grouping",
        "minimum",
        "simulate",
        "processes",
        "plain",
    ),
    plan=_plan,
    participation=_participation,
    write_report=_write_report,
)
