"""The command `flaim-server`: FLAIM's server, on a host of its own or as a process of a trial."""

from pathlib import Path

from parties.commands.one_server import server_command
from parties.config import Config
from parties.flaim.server import run_server

_AGAIN = (
    "the same command goes on after the last finished round; with an annealed schedule, or before the first sums, it "
    "begins anew with what is left of the budget"
)


def _report(config: Config, folder: Path) -> None:
    # Pictures take half a second to import, which a trial's server does without.
    from parties.flaim.report import write_server_report

    write_server_report(config, folder)


flaim_server = server_command(
    "flaim",
    run_server,
    _report,
    again=_AGAIN,
    example="syncret flaim-server flaim.toml --dir /var/lib/syncret/stays-2026",
    text="""Run the FLAIM server, in the foreground, until the run is finished.

It listens at flaim.address, waits up to clients.wait_s seconds for the clients that flaim.clients names, and goes
on without those that do not come or leave; below clients.minimum a round waits as long for them to come back, and
the server then ends with status 10. It writes model, synthetic table, report and transcript. Started again
after a stop or a crash it goes on after the last finished round; the interrupted one is lost. Without the first
sums, or with an annealed schedule, it begins anew with what is left of the budget. Started from another folder once
anything was released, it refuses. With --json, events are JSON
lines.
""",
)
