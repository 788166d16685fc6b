"""The command `serve`: a server that runs on fixed ports and takes studies one after the other or side by side."""

import logging
import os
from pathlib import Path

import click

from parties.cards import words
from parties.commands.printing import print_json, say
from parties.commands.running import (
    common_options,
    log_option,
    make_private,
    register_option,
    run_supervised,
    server_progress,
)
from parties.commands.service_options import an_address, folder_option
from parties.config import Address
from parties.dumps import no_core_dumps
from parties.errors import ConfigError
from parties.files import write_whole
from parties.operate.identity import Identity, ServerFile, join, make_identity
from parties.operate.logs import JsonLog
from parties.places import REGISTER
from parties.progress import Progress
from parties.trial.processes import Supervision, allow_files
from protocols.memory import share_freed_memory

_PATH = click.Path(path_type=Path)
_AGAIN = "the same command goes on with the studies where they were"
_LIMIT = 2


@click.group(
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
    proposed, looked at and approved with `syncret study`; each runs in a process of its own. SIGTERM ends the studies'
    processes and then this one; started again, it goes on with them. With --json, events are JSON lines.
    """
    if ctx.invoked_subcommand is not None:
        return
    from parties.operate.serve import ServeOptions, serve_studies
    from parties.operate.service_database import database_url, taken_from_environment

    no_core_dumps()
    share_freed_memory()
    url = database_url(folder, database, database_file, taken_from_environment())
    identity = Identity.load(folder)
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
        allow_files()
        await serve_studies(identity, options, progress)

    run_supervised(main, watch_stdin=False, events=progress if as_json else None, again=_AGAIN)


@serve.command(
    "init",
    short_help="Make this server's key, and its public file.",
    epilog="Example: syncret serve init alpha --mesh alpha.example:7100 --ingest alpha.example:7443",
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
@folder_option
@click.option("--out", type=_PATH, default=None, help="The file; by default NAME.server, here.")
@common_options
def init_command(
    name: str, mesh: Address, ingest: Address, folder: Path, out: Path | None, as_json: bool
) -> None:
    """On a server's own host: make its key, and NAME.server for the operators of the two others.

    Once for all studies. Called again it makes the file anew, with the same key and the addresses that are given.
    """
    make_private(folder)
    made = make_identity(folder, name, mesh, ingest)
    path = out or Path(f"{name}.server")
    write_whole(path, (folder / f"{name}.server").read_bytes())
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
    identity = join(folder, files)
    if as_json:
        print_json(
            {"pid": identity.pid, "servers": [_public(server) for server in identity.servers]}
        )
        return
    for pid, server in enumerate(identity.servers):
        lines = server.lines()
        click.echo("\n".join([f"server {pid}: {lines[0]}", *lines[1:]]))
    say(f"this is server {identity.pid}, {identity.own.name}. Next: syncret serve --dir {folder}")


def _public(server: ServerFile) -> dict[str, str]:
    return {
        "name": server.name,
        "mesh": str(server.mesh),
        "ingest": str(server.ingest),
        "key": server.key,
        "words": words(server.key),
    }


def _register(folder: Path, given: Path | None) -> Path:
    """What this server has released: where it was named, or in the service's folder, which outlives every study."""
    named = given or (Path(value) if (value := os.environ.get(REGISTER)) else None)
    return (named or folder / "register.sqlite").absolute()


class _ToProgress(logging.Handler):
    """Log records as events, ``log`` or ``warning``, beside those of the command itself."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        name = "warning" if record.levelno >= logging.WARNING else "log"
        self._progress.event(name, record.getMessage(), source=record.name)


def _log_to(progress: Progress) -> None:
    root = logging.getLogger("syncret")
    root.setLevel(logging.INFO)
    root.addHandler(_ToProgress(progress))
