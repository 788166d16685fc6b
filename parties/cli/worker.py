"""Hidden commands that launchers and the service start: `worker`, `owners`, `flaim-clients` and `silos-clients`.

`worker` runs one study of `syncret serve` in a process of its own. `owners`, started by `run`, plays all data owners of
a trial; `flaim-clients` and `silos-clients` play a share of a trial's clients or silos.
"""

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from parties.cli.runtime import (
    command_progress,
    common_options,
    held_option,
    log_option,
    make_private,
    register_option,
    run_supervised,
    server_progress,
)
from parties.config import load_config
from parties.foundation.process import disable_core_dumps
from parties.foundation.process_limits import raise_file_limit
from parties.local.participants import run_flaim_clients, run_owners, run_silo_clients
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


@click.command(hidden=True)
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--watch-stdin", is_flag=True)
@held_option
@common_options
def owners(job: Path, watch_stdin: bool, as_json: bool) -> None:
    """Play all data owners of a trial; `syncret run` starts this, and says go once the servers listen."""
    disable_core_dumps()
    progress = command_progress(as_json=as_json)

    async def play(supervision: Supervision) -> None:
        if watch_stdin:
            await supervision.go.wait()
        await run_owners(job, progress=progress)

    run_supervised(play, watch_stdin=watch_stdin, events=progress if as_json else None)


def _share_of(run: Callable[..., Awaitable[None]], name: str, text: str) -> click.Command:
    """Returns the command ``name`` that plays a share of a job's participants by ``run``."""

    @click.command(name, hidden=True, help=text)
    @click.argument("job", type=click.Path(path_type=Path))
    @click.option(
        "--share", required=True, help="i/n: the participants whose number is i modulo n."
    )
    @click.option("--watch-stdin", is_flag=True, hidden=True)
    @common_options
    def command(job: Path, share: str, watch_stdin: bool, as_json: bool) -> None:
        disable_core_dumps()
        progress = command_progress(as_json=as_json)
        index, _, count = share.partition("/")

        async def play(supervision: Supervision) -> None:
            await run(job, (int(index), int(count)), progress=progress)

        run_supervised(play, watch_stdin=watch_stdin, events=progress if as_json else None)

    return command


flaim_clients = _share_of(
    run_flaim_clients,
    "flaim-clients",
    "Play a share of a trial's clients; `syncret run --method flaim` starts this.",
)
silos_clients = _share_of(
    run_silo_clients,
    "silos-clients",
    "Play a share of a trial's silos; a command such as `syncret run --method tda` starts this.",
)
