"""Commands `serve`, `console` and `kit`: a service of studies, its view in a browser, and folders for participants.

`serve` runs a server on fixed ports that takes studies one after the other or concurrently. `console` shows a server's
status, actions and results in a browser on this host. `kit` makes a folder for each server and data owner of a study,
without secrets.
"""

import asyncio
import json
import logging
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from parties.cli.options import an_address, folder_option, service_answer
from parties.cli.runtime import (
    common_options,
    log_option,
    make_private,
    print_json,
    register_option,
    run_supervised,
    say,
    server_progress,
)
from parties.config import Address
from parties.foundation.errors import ConfigError
from parties.foundation.process import disable_core_dumps
from parties.foundation.process_limits import raise_file_limit
from parties.identity.join_documents import fingerprint_words
from parties.identity.tls import Authority
from parties.local.processes import Supervision
from parties.observability.events import Event, Progress
from parties.observability.logs import JsonLog, event_of
from parties.service.identity import ServerFile, ServiceIdentity, create_identity, join_servers
from parties.service.kit import make_kits
from parties.service.rotation import announce, finish_activation
from parties.service.rotation import withdraw as withdraw_announcement
from parties.storage.files import disk_errors, write_atomic
from parties.storage.user_paths import REGISTRY_VARIABLE
from protocols.memory import share_freed_memory

if TYPE_CHECKING:
    from parties.service.console.upstream import Upstream


_PATH = click.Path(path_type=Path)
_SERVICE_RESUME_TEXT = "the same command goes on with the studies where they were"
_LIMIT = 2


class _Serve(click.Group):
    """The group `serve`; the server of one study is imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands."""
        return [*super().list_commands(ctx), "study"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of that name, if there is one."""
        if cmd_name != "study":
            return super().get_command(ctx, cmd_name)
        from parties.cli.server import server

        return server


@click.group(
    cls=_Serve,
    invoke_without_command=True,
    epilog="Example: syncret serve --dir /var/lib/syncret --max-running 2",
)
@folder_option
@click.option("--pid", type=click.IntRange(0, 2), help="Refuse to start as another server.")
@click.option(
    "--database",
    metavar="URL",
    help="postgresql://USER@HOST/DATABASE; by default service.sqlite in the folder. No password here: "
    "SYNCRET_DATABASE, --database-file or ~/.pgpass may have it.",
)
@click.option("--database-file", type=_PATH, help="A file with the database's URL in it.")
@click.option(
    "--max-running",
    type=click.IntRange(1, 64),
    default=_LIMIT,
    show_default=True,
    help="Studies that run at once; the least of the three servers' counts.",
)
@click.option(
    "--listen-mesh",
    metavar="HOST:PORT",
    callback=an_address,
    help="Where to listen for servers, if not at the address that they were given.",
)
@click.option(
    "--listen-ingest", metavar="HOST:PORT", callback=an_address, help="The same for data owners."
)
@register_option
@log_option
@common_options
@click.pass_context
def serve(
    ctx: click.Context,
    folder: Path,
    pid: int | None,
    database: str | None,
    database_file: Path | None,
    max_running: int,
    listen_mesh: Address | None,
    listen_ingest: Address | None,
    register: Path | None,
    log: JsonLog | None,
    as_json: bool,
) -> None:
    """Run a server on fixed ports that takes studies one after the other or side by side, until it is stopped.

    Once before: `syncret serve init` makes its keys, `syncret serve join` tells it who the two others are. Studies are
    proposed, looked at and approved with `syncret study`; each runs in a process of its own. `syncret serve study` runs
    the server of a single study instead, without a service. SIGTERM ends the studies'
    processes and then this one; started again, it goes on with them. With --json, events are JSON lines.
    """
    if ctx.invoked_subcommand is not None:
        return
    from parties.service.database import database_url, pop_environment_url
    from parties.service.main import ServeOptions, serve_studies

    disable_core_dumps()
    share_freed_memory()
    url = database_url(folder, database, database_file, pop_environment_url())
    finish_activation(folder)
    identity = ServiceIdentity.load(folder)
    if pid not in (None, identity.pid):
        raise ConfigError(
            "service", "--pid", f"is {pid}; this is server {identity.pid}, {identity.own.name}"
        )
    progress = server_progress(identity.own.name, log, as_json=as_json)
    if log is None:
        _log_to(progress)
    else:
        log.serves(identity.own.name)
    options = ServeOptions(
        url, max_running, _register(folder, register), listen_mesh, listen_ingest
    )

    async def main(supervision: Supervision) -> None:
        make_private(folder)
        raise_file_limit()
        await serve_studies(identity, options, progress)

    run_supervised(
        main, watch_stdin=False, events=progress if as_json else None, again=_SERVICE_RESUME_TEXT
    )


@serve.command(
    "init",
    short_help="Make this server's key, and its public file.",
    epilog="Example: syncret serve init alpha --mesh alpha.example:7100 --ingest alpha.example:443",
)
@click.argument("name")
@click.option(
    "--mesh",
    metavar="HOST:PORT",
    callback=an_address,
    required=True,
    help="Where the other two servers reach this one.",
)
@click.option(
    "--ingest",
    metavar="HOST:PORT",
    callback=an_address,
    required=True,
    help="Where data owners reach it.",
)
@click.option(
    "--key",
    "key_file",
    type=_PATH,
    default=None,
    metavar="FILE",
    help="The server's key (Ed25519, PEM), where another program keeps it outside; by default one is made.",
)
@folder_option
@click.option("--out", type=_PATH, default=None, help="The file; by default NAME.server, here.")
@common_options
def init_command(
    name: str,
    mesh: Address,
    ingest: Address,
    *,
    key_file: Path | None,
    folder: Path,
    out: Path | None,
    as_json: bool,
) -> None:
    """On a server's own host: make its key, and NAME.server for the operators of the two others.

    Once for all studies. Called again it makes the file anew, with the same key and the addresses that are given. With
    --key, the folder has a link to the file, which Vault's agent or Kubernetes may write, and not the key.
    """
    make_private(folder)
    made = create_identity(folder, name, mesh, ingest, key_file=key_file)
    path = out or Path(f"{name}.server")
    write_atomic(path, (folder / f"{name}.server").read_bytes())
    if as_json:
        print_json({"server": str(path), "key": made.key, **_public(made)})
        return
    click.echo("\n".join(made.lines()))
    say(
        f"{path}: send it to the operators of the two other servers, and read the words to them. What is in {folder} "
        "stays on this host."
    )


@serve.command(
    "join",
    short_help="Tell this server who the three are.",
    epilog="Example: syncret serve join alpha.server beta.server gamma.server",
)
@click.argument("files", type=_PATH, nargs=-1, required=True)
@folder_option
@common_options
def join_command(files: tuple[Path, ...], folder: Path, as_json: bool) -> None:
    """Keep the files of the three servers, this one's among them, in the order that all three agree on.

    The order is the servers' numbers: 0, 1, 2. Compare the words with each operator before any study is approved. With
    this server's file alone it runs studies of FLAIM, which have one server.
    """
    identity = join_servers(folder, files)
    if as_json:
        print_json(
            {"pid": identity.pid, "servers": [_public(server) for server in identity.servers]}
        )
        return
    for pid, server in enumerate(identity.servers):
        lines = server.lines()
        click.echo("\n".join([f"server {pid}: {lines[0]}", *lines[1:]]))
    say(f"this is server {identity.pid}, {identity.own.name}. Next: syncret serve --dir {folder}")


@serve.command(
    "rotate",
    short_help="Replace this server's key, or confirm another's.",
    epilog="Example: syncret serve rotate (at alpha); syncret serve rotate alpha 'legal winner ...' (at the others)",
)
@click.argument("name", required=False)
@click.argument("words", required=False)
@click.option(
    "--file",
    "new_file",
    type=_PATH,
    default=None,
    help="NAME's new public file, where its old key is lost or stolen: that key is refused at once.",
)
@click.option(
    "--withdraw",
    is_flag=True,
    help="Take this server's announcement back; with NAME what was confirmed here of another's.",
)
@click.option(
    "--key",
    "key_file",
    type=_PATH,
    default=None,
    metavar="FILE",
    help="This server's new key, where another program keeps it; the former file stays until its studies have ended.",
)
@folder_option
@common_options
def rotate_command(
    name: str | None,
    words: str | None,
    *,
    new_file: Path | None,
    withdraw: bool,
    key_file: Path | None,
    folder: Path,
    as_json: bool,
) -> None:
    """Make a new key for this server, and announce it to the two others under the old one.

    Their operators hear its words from this one's, and type them: the same command with this server's NAME and the
    WORDS. The new key is at work from the next study once both have; studies go on with the key that they began with.
    The services run meanwhile.
    """
    if key_file is not None and (name is not None or withdraw):
        raise click.UsageError("--key goes with this server's own new key, and with nothing else")
    if name is not None and not withdraw:
        _confirm_key(name, words, new_file=new_file, folder=folder, as_json=as_json)
        return
    if name is not None and words is None and new_file is None:
        answer = service_answer(folder, "DELETE", f"/servers/{quote(name, safe='')}/confirm")
        print_json(answer) if as_json else say(
            f"the next key of {name} is not accepted here any more"
        )
        return
    if name is not None or new_file is not None:
        raise click.UsageError("give NAME and WORDS of another server, or --withdraw, or neither")
    finish_activation(folder)
    identity = ServiceIdentity.load(folder)
    if withdraw:
        withdrawn = withdraw_announcement(identity)
        there = (
            f"taken back; a server that has confirmed it accepts it until its operator types: syncret serve rotate "
            f"{identity.own.name} --withdraw"
        )
        text = there if withdrawn else "nothing was announced"
        print_json({"withdrawn": withdrawn}) if as_json else say(text)
        return
    made = announce(identity, new_key=True, key_file=key_file)
    if as_json:
        print_json({"key": made.server.key, **_public(made.server)})
        return
    click.echo("\n".join(made.server.lines()))
    own, others = identity.own.name, [identity.servers[pid].name for pid in identity.peers]
    say(
        f"This is {own}'s next key. Read its words to the operators of {' and '.join(others)}; each types: syncret "
        f"serve rotate {own} 'TWELVE WORDS'. It is used from the next study on, once both have (syncret study list)."
        if others
        else "It is used from the next study on, once the service runs."
    )


@serve.command(
    "openapi",
    short_help="Print the OpenAPI document of the admin API.",
    epilog="Example: syncret serve openapi > syncret.json",
)
@click.option("--study", is_flag=True, help="Of the server of one study (`syncret serve study`).")
@common_options
def openapi_command(*, study: bool, as_json: bool) -> None:
    """Print the OpenAPI 3.1 document of a service's admin API, for programs that use it.

    A running server has the same at /v1/openapi.json. It needs neither a service nor a folder.
    """
    if study:
        from parties.service.run_api import run_document as document
    else:
        from parties.service.api import service_document as document
    print_json(document())


def _confirm_key(
    name: str, words: str | None, *, new_file: Path | None, folder: Path, as_json: bool
) -> None:
    """Confirms another server's next key. Raises ServiceRefused."""
    if words is None:
        raise click.UsageError(f"give the twelve words that {name}'s operator reads out, in quotes")
    body: dict[str, object] = {"words": words}
    if new_file is not None:
        with disk_errors(new_file, "read"):
            body["file"] = new_file.read_text(encoding="utf-8")
    answer = service_answer(folder, "POST", f"/servers/{quote(name, safe='')}/confirm", body)
    if as_json:
        print_json(answer)
        return
    after = (
        "its former key is refused from now on"
        if new_file is not None
        else "its former key is refused once the next one is in use"
    )
    say(f"the next key of {name} is confirmed here; {after}")


def _public(server: ServerFile) -> dict[str, str]:
    return {
        "name": server.name,
        "mesh": str(server.mesh),
        "ingest": str(server.ingest),
        "key": server.key,
        "words": fingerprint_words(server.key),
    }


def _register(folder: Path, given: Path | None) -> Path:
    """Returns the path of the release registry: as given, or in the service's folder, which outlives every study."""
    named = given or (Path(value) if (value := os.environ.get(REGISTRY_VARIABLE)) else None)
    return (named or folder / "register.sqlite").absolute()


class _ToProgress(logging.Handler):
    """Logging handler that emits records as events, ``log`` or ``warning``, beside those of the command itself."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        event = event_of(record)
        if event is None:
            name = "warning" if record.levelno >= logging.WARNING else "log"
            event = Event(name, record.getMessage(), {"source": record.name})
        self._progress.take(event)


def _log_to(progress: Progress) -> None:
    root = logging.getLogger("syncret")
    root.setLevel(logging.INFO)
    root.addHandler(_ToProgress(progress))


_HOST = "127.0.0.1"


@click.command(epilog="Example: syncret console /var/lib/syncret/stays-2026")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="By default a free one.")
@click.option("--open", "opened", is_flag=True, help="Open this user's browser, too.")
@click.option(
    "--authority",
    type=_PATH,
    default=None,
    help="The folder of `syncret certs authority`, at the coordinator: the console then admits data owners.",
)
@common_options
def console(
    directory: Path, port: int, opened: bool, authority: Path | None, *, as_json: bool
) -> None:
    """Show the server in DIR in a browser: progress as it happens, owners, budget, the report, downloads.

    Prints an address of this host that opens the console once; whoever else has a login here cannot use it after that,
    and nothing of it is reachable from elsewhere. From another host, forward the port: ssh -L 8800:127.0.0.1:8800 HOST,
    with --port 8800 here. DIR is the folder of syncret serve, with all its studies, or that of syncret serve
    study, by default the one you are in, whether the server runs or not. Ctrl-C ends the
    console, and nothing else.
    """
    if authority is not None:
        Authority.load(authority)  # What is wrong with it is said at once, and not at an admission.
    listening = _listen(port)
    asyncio.run(_serve(directory, listening, opened=opened, authority=authority, as_json=as_json))


def _listen(port: int) -> socket.socket:
    """Returns a socket that only this host can reach. Raises ConfigError."""
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        what = f"cannot listen on {_HOST}:{port}: {error.strerror}; expected a free port"
        raise ConfigError("console", "port", what) from error


def _upstream(directory: Path) -> "Upstream":
    """Returns the console's upstream for a folder. Raises StoreError, UsageError."""
    from parties.cli.maintain import server_folders
    from parties.service.console.upstream import ServiceUpstream, upstream_of

    upstream = upstream_of(directory)
    if isinstance(upstream, ServiceUpstream):
        return upstream
    folders = server_folders(directory)
    if len(folders) > 1:
        names = " or ".join(str(folder) for folder in folders)
        raise click.UsageError(f"the console shows one server: give {names}")
    return upstream_of(folders[0])


async def _serve(
    directory: Path,
    listening: socket.socket,
    *,
    opened: bool,
    authority: Path | None,
    as_json: bool,
) -> None:
    # Local import: the pages take a while to import.
    from aiohttp import web

    from parties.service.console.gate import ENTER, Loopback
    from parties.service.console.pages import add_console

    upstream = _upstream(directory)
    port = listening.getsockname()[1]
    gate = Loopback(port)
    app = web.Application()
    app.router.add_get(ENTER, gate.enter)
    add_console(app, upstream, gate, authority=authority)
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


@click.command(
    epilog="Example: syncret kit study/stays.toml alpha.server beta.server gamma.server --owner north --out kits"
)
@click.argument("config", type=_PATH)
@click.argument("cards", type=_PATH, nargs=-1)
@click.option(
    "--owner", "owners", multiple=True, metavar="NAME", help="A data owner; may be repeated."
)
@click.option(
    "--out", type=_PATH, default=Path("kits"), show_default=True, help="A new folder for them."
)
@click.option("--zip", "zipped", is_flag=True, help="NAME.zip instead of the folder NAME.")
@common_options
def kit(
    config: Path,
    cards: tuple[Path, ...],
    owners: tuple[str, ...],
    out: Path,
    zipped: bool,
    as_json: bool,
) -> None:
    """Make for each server and each data owner of CONFIG a folder with what it needs: configuration, certificates, the
    servers' cards, a systemd unit and a compose file, and its commands.

    CONFIG is what `syncret certs merge` or `study propose` made. With the servers' files of `serve init` as CARDS, in
    their order, the units run `syncret serve`; with their cards, or none, this one study, as always between silos. Data
    owners are those that the configuration names, and each --owner. No private key gets into a kit.
    """
    made = make_kits(config, cards, owners, out=out, zipped=zipped)
    if as_json:
        click.echo(json.dumps({"kits": [str(path) for path in made]}, indent=2))
        return
    for path in made:
        click.echo(f"{path}: send it to {path.stem if zipped else path.name}")
