"""Command `serve study`: the server of one study, on its own host or within a trial."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

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
from parties.config import Config, load_config
from parties.federation.result import RESULT
from parties.federation.server import run_federated_server
from parties.federation.session import TRANSCRIPT, server_certificate_files
from parties.foundation.errors import PartyError
from parties.foundation.process import disable_core_dumps
from parties.foundation.process_limits import raise_file_limit
from parties.foundation.untrusted_text import parse_json
from parties.local.processes import Supervision
from parties.methods.federated_report import silos_report, write_silos_report
from parties.methods.flaim.server import run_flaim_server
from parties.methods.registry import plan_of
from parties.mpc.estimation import LEAD
from parties.mpc.server import run_mpc_server, server_files
from parties.observability.events import Progress, StepTracer, no_tracing
from parties.observability.logs import JsonLog, logged_status
from parties.observability.status import RunInfo, RunStatus
from parties.service.exposed_run import command_handlers, with_admin_api
from parties.session.operator_commands import OperatorCommands
from parties.storage.files import disk_errors, write_atomic
from protocols.memory import keep_freed_memory

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
    kind = _kind_of(config, pid, only)
    if kind is None and pid is not None:
        _serve_mpc(config, pid, directory, watch_stdin, register, log, as_json=as_json)
    elif kind is None:
        raise click.UsageError(f"give --pid 0, 1 or 2: {config} is of three compute servers")
    elif pid is None:
        _serve_federation(config, kind, directory, watch_stdin, register, log, as_json=as_json)
    else:
        raise click.UsageError(f"--pid {pid} is for DistAIM; the run of {config} has one server")


def _kind_of(config: Path, pid: int | None, only: str | None) -> "_FederationServer | None":
    """Returns the kind of server that a configuration is for; None for one of three compute servers.

    A configuration that cannot be loaded is left to the server itself, which reports it, as an event where asked:
    FLAIM's without --pid. Raises ConfigError for one that is not of the method ``only``.
    """
    try:
        loaded = load_config(config)
    except PartyError:
        return None if pid is not None else _FLAIM
    if only == "flaim" and loaded.flaim is not None:
        return _FLAIM
    method = "silos" if loaded.silos else "flaim" if loaded.flaim else "distaim"
    method = "distaim" if loaded.parties else method
    check_only(only, method, loaded.source)
    return {"silos": _SILOS, "flaim": _FLAIM}.get(method)


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
        commands = command_handlers(supervision.cancel, asked)
        async with with_admin_api(board, own_folder, commands) as tracer:
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


class ServerRunner(Protocol):
    """Signature of `parties.methods.flaim.server.run_flaim_server` and similar functions."""

    async def __call__(
        self,
        config: Config,
        directory: Path,
        *,
        progress: Progress,
        closed: asyncio.Event,
        register: Path | None,
        board: RunStatus,
        orders: OperatorCommands,
    ) -> None:
        """Serves the run of ``config`` in ``directory`` until it is finished."""


class _FederationServer(NamedTuple):
    """The server of one kind of federation.

    ``folder`` is the default name of its folder; ``report`` is called at the end, and ``again`` describes the effect of
    repeating the command after a stop.
    """

    folder: str
    run: ServerRunner
    report: Callable[[Config, Path], None]
    again: str


def _serve_federation(
    config: Path,
    served: _FederationServer,
    directory: Path | None,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    *,
    as_json: bool,
) -> None:
    """Runs the one server of a federation."""
    progress = server_progress("server", log, as_json=as_json)
    folder = directory or config.absolute().parent / served.folder

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        server_certificate_files(loaded)  # Checked before anything is written.
        make_private(folder)
        board, asked = logged_status(RunInfo.of_federation(loaded), log), OperatorCommands()
        alone = not watch_stdin
        async with _with_admin_api(board, folder, supervision, asked, alone=alone) as tracer:
            await served.run(
                loaded,
                folder,
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
        served.report(load_config(config), folder)
        progress.event("report", f"wrote {folder / 'report.html'}")


@contextlib.asynccontextmanager
async def _with_admin_api(
    board: RunStatus,
    folder: Path,
    supervision: Supervision,
    asked: OperatorCommands,
    *,
    alone: bool,
) -> AsyncIterator[StepTracer]:
    """Serves the server's admin socket; a trial's server has none, which saves it the import of a web server."""
    if not alone:
        yield no_tracing
        return
    from parties.service.exposed_run import command_handlers, with_admin_api

    async with with_admin_api(board, folder, command_handlers(supervision.cancel, asked)) as tracer:
        yield tracer


_FLAIM_RESUME_TEXT = (
    "the same command goes on after the last finished round; with an annealed schedule, or before the first sums, it "
    "begins anew with what is left of the budget"
)


def _report(config: Config, folder: Path) -> None:
    # Local import: figures take half a second to import, and a trial's server does not need them.
    from parties.methods.flaim.report import write_server_report

    write_server_report(config, folder)


def _for_auditors(config: Config, folder: Path) -> None:
    """Writes the report, and beside it the files that an audit reads. Raises StoreError."""
    result = parse_json((folder / RESULT).read_text(encoding="utf-8"))
    transcript, files = folder / TRANSCRIPT, server_certificate_files(config)
    report = silos_report(config, result, dataset=config.run.id, transcript=transcript, trial=False)
    write_silos_report(folder, report)
    with disk_errors(folder):
        for name in ("transcripts", "certificates"):
            (folder / name).mkdir(exist_ok=True)
        shutil.copyfile(transcript, folder / "transcripts" / "server.jsonl")
        for name, source in (("ca.crt", files.ca), (f"{files.cert.stem}.crt", files.cert)):
            shutil.copyfile(source, folder / "certificates" / name)
    public = config.override({"tls": None, "compute": None})
    write_atomic(folder / "config.toml", public.resolved_toml())


async def _serve_plan(
    config: Config,
    directory: Path,
    *,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None,
    board: RunStatus,
    orders: OperatorCommands,
) -> None:
    """Serves the run of ``config`` by the plan of its own algorithm."""
    await run_federated_server(
        config,
        directory,
        plan=plan_of(config),
        progress=progress,
        closed=closed,
        register=register,
        board=board,
        orders=orders,
    )


_FLAIM = _FederationServer("flaim-server", run_flaim_server, _report, _FLAIM_RESUME_TEXT)
_SILOS = _FederationServer(
    "silos-server", _serve_plan, _for_auditors, "the same command goes on after the last sum"
)
