"""The hidden command `worker`: one study of `syncret serve`, in a process of its own."""

import socket
from pathlib import Path

import click

from parties.commands.running import (
    common_options,
    log_option,
    make_private,
    register_option,
    run_supervised,
    server_progress,
)
from parties.config import load_config
from parties.dumps import no_core_dumps
from parties.inlets import Inlets
from parties.operate.logs import JsonLog
from parties.operate.shown import orders_of
from parties.operate.work import run_study
from parties.orders import Orders
from parties.trial.processes import Supervision, allow_files
from protocols.memory import keep_freed_memory

_PATH = click.Path(path_type=Path)


@click.command(hidden=True)
@click.argument("config", type=_PATH)
@click.option("--pid", type=click.IntRange(0, 2), default=None, help="None: FLAIM's server.")
@click.option("--dir", "directory", type=_PATH, required=True)
@click.option(
    "--channel", type=int, required=True, help="Descriptor that connections come in over."
)
@register_option
@log_option
@common_options
def worker(
    config: Path,
    pid: int | None,
    directory: Path,
    channel: int,
    register: Path | None,
    log: JsonLog | None,
    as_json: bool,
) -> None:
    """Run one study's part of this server, for `syncret serve`, which hands over the connections.

    Ends when standard input does. Events are JSON lines on standard output, whether --json or not.
    """
    no_core_dumps()
    progress = server_progress("", log, as_json=True)
    handed = socket.socket(fileno=channel)
    handed.set_inheritable(False)

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        make_private(directory)
        keep_freed_memory()
        allow_files()
        inlets, asked = Inlets(handed), Orders()
        try:
            await run_study(
                loaded,
                pid,
                directory,
                progress=progress,
                closed=supervision.go,
                register=register,
                inlets=inlets,
                orders=orders_of(supervision.cancel, asked),
                asked=asked,
                log=log,
            )
        finally:
            inlets.close()

    run_supervised(serve, watch_stdin=True, events=progress)
