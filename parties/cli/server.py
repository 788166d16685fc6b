"""Command `serve study`: the server of one study, on its own host or within a trial."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parties.cli.options import check_only, only_option
from parties.cli.runtime import (
    common_options,
    held_option,
    log_option,
    make_private,
    register_option,
    run_supervised,
    server_progress,
)
from parties.config import CertificateFiles, load_config
from parties.foundation.errors import PartyError
from parties.foundation.process import disable_core_dumps
from parties.foundation.process_limits import raise_file_limit
from parties.local.processes import Supervision
from parties.methods.registry import DISTAIM, method_of, served_method, served_methods
from parties.mpc.estimation import LEAD
from parties.mpc.server import run_mpc_server
from parties.mpc.session import server_files
from parties.observability.events import StepTracer, no_tracing
from parties.observability.logs import JsonLog, logged_status
from parties.observability.status import RunInfo, RunStatus
from parties.service.exposed_run import command_handlers, with_admin_api
from parties.session.operator_commands import OperatorCommands
from protocols.memory import keep_freed_memory

if TYPE_CHECKING:
    from parties.federation.method import ServedMethod

_PATH = click.Path(path_type=Path)
_SERVER_RESUME_TEXT = "the same command goes on after the last finished round, once all three servers are started again"


@click.command(
    "study",
    short_help="Run the server of one study.",
    epilog="Example: syncret serve study syncret.toml --pid 0 --dir /var/lib/syncret/stays-2026",
)
@click.argument("config", type=_PATH)
@click.option(
    "--pid",
    type=click.IntRange(0, 2),
    default=None,
    help="DistAIM: which of the three servers. FLAIM and methods between silos have one server.",
)
@click.option(
    "--dir",
    "directory",
    type=_PATH,
    default=None,
    help="This server's folder; by default beside the config: party-PID, flaim-server or silos-server. Keep it to "
    "yourself: it holds shares.",
)
@click.option(
    "--watch-stdin",
    is_flag=True,
    help="Stop when standard input ends; its line 'go' ends the wait for data owners.",
)
@register_option
@log_option
@held_option
@only_option
@common_options
def server(
    config: Path,
    pid: int | None,
    directory: Path | None,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    only: str | None,
    as_json: bool,
) -> None:
    """Run the server of one study, in the foreground, until the run is finished.

    With [[party]] tables (DistAIM) it is one of three compute servers. Started again after a stop, a crash or the loss
    of a peer, it goes on after the last finished round, with its ledger where it was. When all three are done it
    deletes its shares and its sealing key (the file beside the key that ends in .seal): a card is made for one run.
    Server 0 writes the model and the synthetic table.

    With [flaim] it waits up to clients.wait_s seconds for the clients that flaim.clients names, and goes on without
    those that do not come or leave; below clients.minimum a round waits as long for them to come back, and the server
    then ends with status 10. Started again it goes on after the last finished round; without the first sums, or with
    an annealed schedule, it begins anew with what is left of the budget.

    With [silos] it takes sums over the silos that are there: of silos.minimum or more. A silo that leaves, or is silent
    for timeouts.receive_s, is out of the sum and may come back for the next one. Started again it goes on after the
    last sum.

    A configuration is released from one folder, once: started from another one after that, the server refuses. With
    --json, events are JSON lines on standard output.
    """
    disable_core_dumps()
    served = _served_by(config, pid, only)
    if served is None and pid is not None:
        _serve_mpc(config, pid, directory, watch_stdin, register, log, as_json=as_json)
    elif served is None:
        raise click.UsageError(f"give --pid 0, 1 or 2: {config} is of three compute servers")
    elif pid is None:
        _serve_federation(config, served, directory, watch_stdin, register, log, as_json=as_json)
    else:
        raise click.UsageError(f"--pid {pid} is for DistAIM; the run of {config} has one server")


def _served_by(config: Path, pid: int | None, only: str | None) -> "ServedMethod | None":
    """Returns the method with one server that a configuration is for; None for one of three compute servers.

    A configuration that cannot be loaded is left to the server itself, which reports it, as an event where asked:
    by a server of its own without --pid. Raises ConfigError for one that is not of the method ``only``.
    """
    try:
        loaded = load_config(config)
    except PartyError:
        return None if pid is not None else served_methods()[0]
    method = method_of(loaded, only)
    check_only(only, method, loaded.source)
    return None if method == DISTAIM else served_method(method)


def _serve_mpc(
    config: Path,
    pid: int,
    directory: Path | None,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    *,
    as_json: bool,
) -> None:
    """Runs one compute server."""
    progress = server_progress(f"party {pid}", log, as_json=as_json)
    own_folder = directory or config.absolute().parent / f"party-{pid}"

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        server_files(loaded, pid, own_folder)  # Checked before anything is written.
        make_private(own_folder)
        keep_freed_memory()
        raise_file_limit()
        board, asked = logged_status(RunInfo.of_server(loaded, pid), log), OperatorCommands()
        commands, tls = command_handlers(supervision.cancel, asked), loaded.require_tls(pid)
        async with with_admin_api(board, own_folder, commands, tls=tls) as tracer:
            await run_mpc_server(
                loaded,
                pid,
                own_folder,
                progress=progress.also(tracer=tracer),
                closed=supervision.go,
                register=register,
                status=board,
                commands=asked,
            )

    run_supervised(
        serve,
        watch_stdin=watch_stdin,
        events=progress if as_json else None,
        again=_SERVER_RESUME_TEXT,
    )
    # A launcher has the real table and writes a fuller report.
    if pid == LEAD and not watch_stdin:
        # Local import: figures take half a second to import, and the other servers do not need them.
        from parties.methods.distaim import write_lead_report

        write_lead_report(load_config(config), own_folder)
        progress.event("report", f"wrote {own_folder / 'report.html'}")


def _serve_federation(
    config: Path,
    served: "ServedMethod",
    directory: Path | None,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    *,
    as_json: bool,
) -> None:
    """Runs the one server of a federation."""
    # Local imports: compute servers need nothing of a federation.
    from parties.federation.server import run_federated_server
    from parties.federation.session import server_certificate_files

    progress = server_progress("server", log, as_json=as_json)
    folder = directory or config.absolute().parent / f"{served.key}-server"

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        tls = server_certificate_files(loaded)  # Checked before anything is written.
        make_private(folder)
        board, asked = logged_status(RunInfo.of_federation(loaded), log), OperatorCommands()
        alone = not watch_stdin
        async with _with_admin_api(
            board, folder, supervision, asked=asked, tls=tls, alone=alone
        ) as tracer:
            await run_federated_server(
                loaded,
                folder,
                plan=served.plan(loaded),
                progress=progress.also(tracer=tracer),
                closed=supervision.go,
                register=register,
                board=board,
                orders=asked,
            )

    run_supervised(
        serve, watch_stdin=watch_stdin, events=progress if as_json else None, again=served.again
    )
    # A launcher has the real table and writes a fuller report.
    if not watch_stdin:
        served.write_report(load_config(config), folder)
        progress.event("report", f"wrote {folder / 'report.html'}")


@contextlib.asynccontextmanager
async def _with_admin_api(
    board: RunStatus,
    folder: Path,
    supervision: Supervision,
    *,
    asked: OperatorCommands,
    tls: CertificateFiles,
    alone: bool,
) -> AsyncIterator[StepTracer]:
    """Serves the server's admin socket; a trial's server has none."""
    if not alone:
        yield no_tracing
        return
    commands = command_handlers(supervision.cancel, asked)
    async with with_admin_api(board, folder, commands, tls=tls) as tracer:
        yield tracer
