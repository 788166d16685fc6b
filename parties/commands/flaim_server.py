"""The command `flaim-server`: FLAIM's server, on a host of its own or as a process of a trial."""

from pathlib import Path

import click

from parties.commands.one_server import run_one_server
from parties.commands.running import (
    common_options,
    log_option,
    register_option,
)
from parties.config import load_config
from parties.flaim.server import run_server
from parties.operate.logs import JsonLog

_AGAIN = (
    "the same command goes on after the last finished round; with an annealed schedule, or before the first sums, it "
    "begins anew with what is left of the budget"
)


@click.command(
    "flaim-server",
    epilog="Example: syncret flaim-server flaim.toml --dir /var/lib/syncret/stays-2026",
)
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="The server's folder; by default flaim-server beside the config.",
)
@click.option("--watch-stdin", is_flag=True, hidden=True)
@register_option
@log_option
@common_options
def flaim_server(
    config: Path,
    directory: Path | None,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    as_json: bool,
) -> None:
    """Run the FLAIM server, in the foreground, until the run is finished.

    It listens at flaim.address, waits up to clients.wait_s seconds for the clients that flaim.clients names, and goes
    on without those that do not come or leave; below clients.minimum a round waits as long for them to come back, and
    the server then ends with status 10. It writes model, synthetic table, report and transcript. Started again
    after a stop or a crash it goes on after the last finished round; the interrupted one is lost. Without the first
    sums, or with an annealed schedule, it begins anew with what is left of the budget. Started from another folder once
    anything was released, it refuses. With --json, events are JSON
    lines.
    """
    own_folder = directory or config.absolute().parent / "flaim-server"
    progress = run_one_server(
        run_server,
        "flaim",
        config,
        own_folder,
        watch_stdin=watch_stdin,
        register=register,
        log=log,
        as_json=as_json,
        again=_AGAIN,
    )
    # A launcher has the real table at hand and writes a fuller report.
    if not watch_stdin:
        # Pictures take half a second to import, which a trial's server does without.
        from parties.flaim.report import write_server_report

        write_server_report(load_config(config), own_folder)
        progress.event("report", f"wrote {own_folder / 'report.html'}")
