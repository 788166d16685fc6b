"""Commands `party`, `flaim-server` and `silos-server`: one server of a run, on its own host or within a trial.

``server_command`` makes the commands of runs with a single server.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import click

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
from parties.foundation.errors import ConfigError
from parties.foundation.process import disable_core_dumps
from parties.foundation.process_limits import raise_file_limit
from parties.foundation.untrusted_text import parse_json
from parties.local.processes import Supervision
from parties.methods.federated_report import silos_report, write_silos_report
from parties.methods.flaim.server import run_flaim_server
from parties.methods.registry import plan_of
from parties.mpc.estimation import LEAD
from parties.mpc.server import run_mpc_server, server_files
from parties.observability.events import Progress
from parties.observability.logs import JsonLog, logged_status
from parties.observability.status import RunInfo, RunStatus
from parties.service.exposed_run import command_handlers, with_admin_api
from parties.session.operator_commands import OperatorCommands
from parties.storage.files import disk_errors, write_atomic
from protocols.memory import keep_freed_memory

_PATH = click.Path(path_type=Path)
_SERVER_RESUME_TEXT = "the same command goes on after the last finished round, once all three servers are started again"


@click.command(
    epilog="Example: syncret party syncret.toml --pid 0 --dir /var/lib/syncret/stays-2026"
)
@click.argument("config", type=_PATH)
@click.option("--pid", type=click.IntRange(0, 2), required=True, help="Which of the three servers.")
@click.option(
    "--dir",
    "directory",
    type=_PATH,
    default=None,
    help="This server's folder; by default party-PID beside the config. Holds shares: keep it to yourself.",
)
@click.option(
    "--watch-stdin",
    is_flag=True,
    help="Stop when standard input ends; its line 'go' ends the wait for data owners.",
)
@register_option
@log_option
@held_option
@common_options
def party(
    config: Path,
    pid: int,
    directory: Path | None,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    as_json: bool,
) -> None:
    """Run one compute server, in the foreground, until the run is finished.

    A configuration is released from one folder, once: started from another one after that, the server refuses.

    Started again after a stop, a crash or the loss of a peer, it goes on after the last finished round, with its
    ledger where it was. When all three are done it deletes its shares and its sealing key (the file beside the key that
    ends in .seal): a card is made for one run. Party 0 writes the model and the synthetic table. With --json, events
    are JSON lines on standard output.
    """
    disable_core_dumps()
    progress = server_progress(f"party {pid}", log, as_json=as_json)
    own_folder = directory or config.absolute().parent / f"party-{pid}"

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        server_files(loaded, pid, own_folder)  # Checked before anything is written.
        make_private(own_folder)
        keep_freed_memory()
        raise_file_limit()
        board, asked = logged_status(RunInfo.of_server(loaded, pid), log), OperatorCommands()
        async with with_admin_api(board, own_folder, command_handlers(supervision.cancel, asked)):
            await run_mpc_server(
                loaded,
                pid,
                own_folder,
                progress=progress,
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


_EXPECTED = {
    "flaim": "a run of FLAIM, with [flaim] alone; the server of one between silos is syncret silos-server",
    "silos": "a run between silos, with [silos] and [tda] or [mtl]; FLAIM's server is syncret flaim-server",
}


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


def server_command(
    meeting: str,
    server: ServerRunner,
    report: Callable[[Config, Path], None],
    *,
    again: str,
    example: str,
    text: str,
) -> click.Command:
    """Returns the command that runs ``server`` for configurations with the section ``meeting``, with the help ``text``.

    ``again`` describes the effect of repeating the command after a stop; ``report`` is called at the end.
    """
    name = f"{meeting}-server"

    @click.command(name, epilog=f"Example: {example}", help=text)
    @click.argument("config", type=_PATH)
    @click.option(
        "--dir",
        "directory",
        type=_PATH,
        default=None,
        help=f"The server's folder; by default {name} beside the config.",
    )
    @click.option("--watch-stdin", is_flag=True, hidden=True)
    @register_option
    @log_option
    @common_options
    def command(
        config: Path,
        directory: Path | None,
        watch_stdin: bool,
        register: Path | None,
        log: JsonLog | None,
        as_json: bool,
    ) -> None:
        disable_core_dumps()
        progress = server_progress("server", log, as_json=as_json)
        folder = directory or config.absolute().parent / name

        async def serve(supervision: Supervision) -> None:
            loaded = load_config(config)
            _check_meeting(loaded, meeting)
            server_certificate_files(loaded)  # Checked before anything is written.
            make_private(folder)
            board, asked = logged_status(RunInfo.of_federation(loaded), log), OperatorCommands()
            async with _with_admin_api(board, folder, supervision, asked, alone=not watch_stdin):
                await server(
                    loaded,
                    folder,
                    progress=progress,
                    closed=supervision.go,
                    register=register,
                    board=board,
                    orders=asked,
                )

        run_supervised(
            serve, watch_stdin=watch_stdin, events=progress if as_json else None, again=again
        )
        # A launcher has the real table and writes a fuller report.
        if not watch_stdin:
            report(load_config(config), folder)
            progress.event("report", f"wrote {folder / 'report.html'}")

    return command


def _check_meeting(config: Config, meeting: str) -> None:
    """Raises ConfigError if the config belongs to another method."""
    if config.federation_section != meeting:
        has = "is there" if config.silos else "is missing"
        raise ConfigError(config.source, "silos", f"{has}; expected {_EXPECTED[meeting]}")


@contextlib.asynccontextmanager
async def _with_admin_api(
    board: RunStatus,
    folder: Path,
    supervision: Supervision,
    asked: OperatorCommands,
    *,
    alone: bool,
) -> AsyncIterator[None]:
    """Serves the server's admin socket; a trial's server has none, which saves it the import of a web server."""
    if not alone:
        yield
        return
    from parties.service.exposed_run import command_handlers, with_admin_api

    async with with_admin_api(board, folder, command_handlers(supervision.cancel, asked)):
        yield


_FLAIM_RESUME_TEXT = (
    "the same command goes on after the last finished round; with an annealed schedule, or before the first sums, it "
    "begins anew with what is left of the budget"
)


def _report(config: Config, folder: Path) -> None:
    # Local import: figures take half a second to import, and a trial's server does not need them.
    from parties.methods.flaim.report import write_server_report

    write_server_report(config, folder)


flaim_server = server_command(
    "flaim",
    run_flaim_server,
    _report,
    again=_FLAIM_RESUME_TEXT,
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


silos_server = server_command(
    "silos",
    _serve_plan,
    _for_auditors,
    again="the same command goes on after the last sum",
    example="syncret silos-server tda.toml --dir /var/lib/syncret/stays-2026",
    text="""Run the server of the algorithm whose table the config has ([tda], [mtl]), until the run is finished.

It listens at silos.address, waits up to clients.wait_s seconds for the silos that silos.clients names, and takes
sums over those who are there: of silos.minimum or more. A silo that leaves, or is silent for timeouts.receive_s
(which is also how long one may compute), is out of the sum and may come back for the next one. Started again after
a stop or a crash it goes on after the last sum; the interrupted one is lost. It writes result, report and
transcript. With --json, events are JSON lines.
""",
)
