"""Hidden command `worker`, which the service starts: one study of `syncret serve` in a process of its own."""

import socket
from pathlib import Path

import click

from parties.cli.runtime import (
    common_options,
    log_option,
    make_private,
    register_option,
    run_supervised,
    server_progress,
)
from parties.config import load_config
from parties.foundation.process import disable_core_dumps
from parties.foundation.process_limits import raise_file_limit
from parties.local.processes import Supervision
from parties.network.port_sharing import SharedPorts
from parties.observability.logs import JsonLog
from parties.service.exposed_run import command_handlers
from parties.service.workers import run_study
from parties.session.operator_commands import OperatorCommands
from protocols.memory import keep_freed_memory

_PATH = click.Path(path_type=Path)


@click.command(hidden=True)
@click.argument("config", type=_PATH)
@click.option("--pid", type=click.IntRange(0, 2), default=None, help="None: FLAIM's server.")
@click.option("--dir", "directory", type=_PATH, required=True)
@click.option(
    "--channel", type=int, required=True, help="Descriptor that connections come in over."
)
@click.option("--traces", metavar="URL", default=None, help="Where traces of steps go.")
@register_option
@log_option
@common_options
def worker(
    config: Path,
    pid: int | None,
    directory: Path,
    channel: int,
    traces: str | None,
    register: Path | None,
    log: JsonLog | None,
    as_json: bool,
) -> None:
    """Run one study's part of this server, for `syncret serve`, which hands over the connections.

    Ends when standard input does. Events are JSON lines on standard output, whether --json or not.
    """
    disable_core_dumps()
    progress = server_progress("", log, as_json=True)
    connections = socket.socket(fileno=channel)
    connections.set_inheritable(False)

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        make_private(directory)
        keep_freed_memory()
        raise_file_limit()
        inlets, asked = SharedPorts(connections), OperatorCommands()
        try:
            await run_study(
                loaded,
                pid,
                directory,
                progress=progress,
                closed=supervision.go,
                register=register,
                inlets=inlets,
                orders=command_handlers(supervision.cancel, asked),
                asked=asked,
                log=log,
                traces=traces,
            )
        finally:
            inlets.close()

    run_supervised(serve, watch_stdin=True, events=progress)
