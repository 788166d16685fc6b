"""The command `status`: what a server is at, or what it was at last."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from parties.commands.running import common_options
from parties.errors import StoreError
from parties.operate.asking import NotRunning, ask, events
from parties.operate.past import past_status
from parties.operate.retention import TRANSCRIPT
from parties.operate.sockets import NAME
from parties.statuses import Status
from parties.trial.folder import Folder

Document = dict[str, Any]
_PLACES = ("party-*", "parties/*", "run", "studies/*/run")
"""Where servers' folders are below that of a trial, a study or a service."""


@click.command(epilog="Example: syncret status /var/lib/syncret/stays-2026 --watch")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option("--watch", is_flag=True, help="Go on showing it until the server ends.")
@common_options
def status(directory: Path, watch: bool, as_json: bool) -> None:
    """Show what the server that runs in DIR is at: owners, rounds, budget, peers, errors.

    DIR is the folder of `syncret party`, `flaim-server` or `silos-server`, by default the one you are in, or a trial's,
    which has several; of `syncret serve`, whose studies are listed, or of one of its studies. What runs is asked by the
    socket in its folder, which only who may enter the folder can reach. Where nothing runs, it is shown how far the run
    came. Exit status: 0 where every server runs or has finished, 16 where one does not run and is not done. With
    --json, one line of JSON a server, and a line for each change with --watch.
    """
    if (done := _finished_trial(directory)) is not None:
        click.echo(json.dumps(done) if as_json else f"finished; its report is {done['report']}")
        return
    folders = server_folders(directory)
    show: Callable[[Document], None] = _print_json if as_json else _Screen(watch).show
    if watch and len(folders) > 1:
        names = " or ".join(str(folder) for folder in folders)
        raise click.UsageError(f"--watch shows one server: give {names}")
    unfinished = False
    for folder in folders:
        for document in _watched(folder) if watch else [current(folder)]:
            show(document)
            unfinished = unfinished or _is_unfinished(document)
    if unfinished:
        raise click.exceptions.Exit(int(Status.NOT_RUNNING))


def _is_unfinished(document: Document) -> bool:
    return "service" not in document and not document["running"] and document["phase"] != "finished"


def _finished_trial(directory: Path) -> Document | None:
    """What is left to say of a trial that is over: its servers' stores are gone by then."""
    if not Folder(directory).finished:
        return None
    report = str(directory / "report.html")
    return {"running": False, "phase": "finished", "report": report}


def server_folders(directory: Path) -> list[Path]:
    """The folders of servers that ``directory`` is or holds; a service that runs stands for all its studies.

    Raises StoreError where there is none.
    """
    places = [directory, *(p for where in _PLACES for p in sorted(directory.glob(where)))]
    found = [p for p in places if (p / NAME).exists() or (p / TRANSCRIPT).exists()]
    if found and found[0] == directory and not (directory / TRANSCRIPT).exists():
        try:
            ask(directory)
        except NotRunning:
            # A service that was killed; its studies' folders say how far they came.
            found = found[1:]
    if not found:
        raise StoreError(
            directory,
            "no server runs here, or ran; expected the --dir of syncret party, flaim-server, silos-server or serve, or "
            "a trial's folder",
        )
    return found[:1] if found[0] == directory else found


def current(folder: Path) -> Document:
    """The status of the server in ``folder``, or of the run that was there. Raises StoreError."""
    try:
        return ask(folder)
    except NotRunning:
        return past_status(folder)


def _watched(folder: Path) -> Iterator[Document]:
    document = current(folder)
    yield document
    with contextlib.suppress(NotRunning):
        for document in events(folder):
            yield document
    if "service" in document:
        raise StoreError(folder, "the service has ended")
    if document["running"]:
        # It was killed.
        yield past_status(folder)


def _print_json(document: Document) -> None:
    click.echo(json.dumps(document))


class _Screen:
    """Prints statuses; while ``watching`` on a terminal, each in the place of the one before."""

    def __init__(self, watching: bool) -> None:
        # Tables take a while to import.
        from rich.console import Console

        self._console = Console(highlight=False, soft_wrap=False)
        self._watching = watching and self._console.is_terminal

    def show(self, document: Document) -> None:
        from parties.operate.text import show

        if self._watching:
            self._console.clear()
        show(self._console, document)
