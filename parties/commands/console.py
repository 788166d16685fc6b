"""The command `console`: a server's status, actions and results in a browser on this host."""

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parties.commands.running import common_options
from parties.errors import ConfigError

if TYPE_CHECKING:
    from parties.operate.console.upstream import Upstream

_HOST = "127.0.0.1"


@click.command(epilog="Example: syncret console /var/lib/syncret/stays-2026")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="By default a free one.")
@click.option("--open", "opened", is_flag=True, help="Open this user's browser, too.")
@common_options
def console(directory: Path, port: int, opened: bool, as_json: bool) -> None:
    """Show the server in DIR in a browser: progress as it happens, owners, budget, the report, downloads.

    Prints an address of this host that opens the console once; whoever else has a login here cannot use it after that,
    and nothing of it is reachable from elsewhere. From another host, forward the port: ssh -L 8800:127.0.0.1:8800 HOST,
    with --port 8800 here. DIR is the folder of syncret serve, with all its studies, or that of syncret party,
    flaim-server or silos-server, by default the one you are in, whether the server runs or not. Ctrl-C ends the
    console, and nothing else.
    """
    listening = _listen(port)
    asyncio.run(_serve(directory, listening, opened=opened, as_json=as_json))


def _listen(port: int) -> socket.socket:
    """A socket of this host alone. Raises ConfigError."""
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        what = f"cannot listen on {_HOST}:{port}: {error.strerror}; expected a free port"
        raise ConfigError("console", "port", what) from error


def _upstream(directory: Path) -> "Upstream":
    """Whom the console asks. Raises StoreError, UsageError."""
    from parties.commands.status import server_folders
    from parties.operate.console.upstream import Studies, upstream_of

    upstream = upstream_of(directory)
    if isinstance(upstream, Studies):
        return upstream
    folders = server_folders(directory)
    if len(folders) > 1:
        names = " or ".join(str(folder) for folder in folders)
        raise click.UsageError(f"the console shows one server: give {names}")
    return upstream_of(folders[0])


async def _serve(directory: Path, listening: socket.socket, *, opened: bool, as_json: bool) -> None:
    # The pages take a while to import.
    from aiohttp import web

    from parties.operate.console.gate import ENTER, Loopback
    from parties.operate.console.pages import add_console

    upstream = _upstream(directory)
    port = listening.getsockname()[1]
    gate = Loopback(port)
    app = web.Application()
    app.router.add_get(ENTER, gate.enter)
    add_console(app, upstream, gate)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        address = f"http://{_HOST}:{port}{ENTER}?token={gate.token}"
        _say(address, as_json=as_json)
        if opened:
            await asyncio.to_thread(click.launch, address)
        await _until_stopped()
    finally:
        await runner.cleanup()


def _say(address: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"address": address}))
        return
    click.echo(address)
    click.echo("It opens the console once, in one browser. Ctrl-C ends the console.", err=True)


async def _until_stopped() -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
