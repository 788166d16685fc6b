"""Commands `backup`, `restore`, `forget` and `status`, for the folder of a server.

`backup` makes an encrypted copy of the folder while the server runs, and `restore` makes a folder from it. `forget`
deletes the secrets of a run that will not be finished, and old files of ended runs. `status` shows the state of a
running server, or the last one.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from parties.cli.numbers import NumberRange
from parties.cli.runtime import Command, command_progress, common_options, register_option
from parties.config import load_config
from parties.crypto.encrypted_file import KeyWrapper, PassphraseWrapper, PublicKeyWrapper
from parties.crypto.hpke import SealKey, SealTo
from parties.foundation.errors import CertificateError, StoreError
from parties.foundation.exit_codes import Status
from parties.foundation.process import disable_core_dumps
from parties.local.folder import RunFolder
from parties.mpc.outputs import forget_run
from parties.service.admin_listener import SOCKET_NAME
from parties.service.backup import BackupContents, Manifest, back_up, manifest_of
from parties.service.backup import restore as restore_folder
from parties.service.offline_status import offline_status
from parties.service.retention import TRANSCRIPT
from parties.service.status_client import NotRunning, get_document, status_events
from parties.storage.files import disk_errors
from parties.storage.user_paths import registry_path

_PATH = click.Path(path_type=Path)
_KEYS_SHOWN = 8


def passphrase_option(command: Command) -> Command:
    """Adds --passphrase-file (as ``passphrase_file``)."""
    return click.option(
        "--passphrase-file",
        type=_PATH,
        default=None,
        metavar="FILE",
        help="The passphrase is its first line; in a terminal it is asked for.",
    )(command)


def passphrase(file: Path | None, *, new: bool) -> PassphraseWrapper:
    """Returns the passphrase from a file, or from a prompt; a ``new`` one is asked for twice.

    Raises StoreError, click.UsageError.
    """
    if file is not None:
        with disk_errors(file, "read"):
            text = file.read_text().split("\n", 1)[0]
    elif sys.stdin.isatty():
        text = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    else:
        other = "--for" if new else "--key"
        raise click.UsageError(f"nobody to ask for a passphrase: give --passphrase-file or {other}")
    try:
        return PassphraseWrapper(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _backup_opener(public: Path | None, file: Path | None) -> KeyWrapper:
    if public is None:
        return passphrase(file, new=True)
    if file is not None:
        raise click.UsageError("give --for or --passphrase-file: a backup opens in one way")
    with disk_errors(public, "read"):
        text = public.read_text()
    try:
        return PublicKeyWrapper(SealTo.parse(text))
    except ValueError as error:
        raise CertificateError(
            f"{public}: {error}; expected the .backup-pub that `syncret certs backup-key` made"
        ) from error


def described(manifest: Manifest) -> list[str]:
    """Returns the contents of a backup as lines of text."""
    lines = [f"of {manifest.folder}, made {manifest.made_at} by syncret {manifest.syncret}"]
    lines += [
        f"  {kept.path}: configuration {kept.config[:12]}, {kept.charges} charges in its ledger"
        for kept in manifest.stores
    ]
    if manifest.stores:
        lines.append("  the shares of these runs, where they have not ended by then")
    return lines + ([] if manifest.contents is None else _contents_lines(manifest.contents))


def _contents_lines(contents: BackupContents) -> list[str]:
    """Returns what a backup has besides runs as lines of text."""
    count, shown = len(contents.private_keys), contents.private_keys[:_KEYS_SHOWN]
    names = ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")
    keys = f"{count} ({names})" if count else "none in it: keep a copy of them elsewhere (--keys)"
    outside = ", ".join(contents.outside[:_KEYS_SHOWN])
    links = [f"  keys outside, of which it has the links alone: {outside}"] if outside else []
    if links and not count:
        keys = "none in it"
    return [
        f"  private keys: {keys}",
        *links,
        f"  the service's database: {'in it' if contents.database else 'not in it'}",
        f"  the release registry: {'in it' if contents.register else 'not in it'}",
        f"  {contents.files} files, {contents.size / 1e6:.1f} MB; whoever opens the backup has all of this",
    ]


def print_status(manifest: Manifest, *, as_json: bool) -> None:
    """Prints the contents of a backup on standard output."""
    text = json.dumps(asdict(manifest), indent=2) if as_json else "\n".join(described(manifest))
    click.echo(text)


@click.command(
    epilog="Example: syncret backup /var/lib/syncret --to /mnt/offsite/alpha.backup --for offsite.backup-pub"
)
@click.argument("directory", type=_PATH, metavar="DIR")
@click.option("--to", type=_PATH, required=True, metavar="FILE", help="A new file.")
@click.option(
    "--for",
    "public",
    type=_PATH,
    default=None,
    metavar="PUB",
    help="Whose key opens it: the .backup-pub of `syncret certs backup-key`.",
)
@passphrase_option
@click.option(
    "--keys", type=_PATH, default=None, metavar="DIR", help="Copy the server's keys (tls), too."
)
@register_option
@common_options
def backup(
    directory: Path,
    to: Path,
    public: Path | None,
    passphrase_file: Path | None,
    keys: Path | None,
    register: Path | None,
    as_json: bool,
) -> None:
    """Copy DIR, what a server keeps (--dir of `serve` or `serve study`), while it runs or not.

    The copy is of one moment, and encrypted: it holds this server's shares. Keep it away from the other two servers'
    copies, and delete it when its studies have ended: they delete their own shares, and cannot delete these.
    """
    disable_core_dumps()
    opener = _backup_opener(public, passphrase_file)
    print_status(
        back_up(directory, to, opener, keys=keys, register=registry_path(register)), as_json=as_json
    )


def _restore_opener(key: Path | None, file: Path | None) -> KeyWrapper:
    if key is None:
        return passphrase(file, new=False)
    if file is not None:
        raise click.UsageError("give --key or --passphrase-file: a backup opens in one way")
    private = SealKey.load(key)
    return PublicKeyWrapper(private.public, private)


@click.command(
    epilog="Example: syncret restore alpha.backup --to /var/lib/syncret --key offsite.backup-key"
)
@click.argument("file", type=_PATH)
@click.option("--to", type=_PATH, default=None, metavar="DIR", help="A new folder.")
@click.option(
    "--key", type=_PATH, default=None, help="The .backup-key of `syncret certs backup-key`."
)
@passphrase_option
@click.option(
    "--keys", type=_PATH, default=None, metavar="DIR", help="Where the server's keys go (tls)."
)
@click.option(
    "--behind",
    is_flag=True,
    help="Of a run that was charged more since: the two other servers have their folders, and the rest.",
)
@click.option("--list", "only_list", is_flag=True, help="Show what it is of, and restore nothing.")
@register_option
@common_options
def restore(
    file: Path,
    to: Path | None,
    key: Path | None,
    passphrase_file: Path | None,
    keys: Path | None,
    behind: bool,
    only_list: bool,
    register: Path | None,
    as_json: bool,
) -> None:
    """Make the folder of a server that `syncret backup` copied into FILE; start the server again on it.

    It goes on as after a kill at the moment of the backup: what the other servers know more they bring along. Where
    this server's register is still there it has the last word: a run that has ended is not brought back, and one that
    was charged more since only --behind the other servers. What is there already is never replaced.
    """
    disable_core_dumps()
    if (to is None) != only_list:
        raise click.UsageError("give --to DIR, or --list")
    opener = _restore_opener(key, passphrase_file)
    if to is None:
        print_status(manifest_of(file, opener), as_json=as_json)
        return
    target = registry_path(register)
    manifest = restore_folder(file, to, opener, keys=keys, register=target, behind=behind)
    print_status(manifest, as_json=as_json)


@click.command(
    epilog="Example: syncret forget syncret.toml --pid 0 --dir /var/lib/syncret/stays-2026"
)
@click.argument("config", type=_PATH, required=False)
@click.option("--pid", type=click.IntRange(0, 2), help="Which of the three servers.")
@click.option("--dir", "directory", type=_PATH, required=True, help="This server's folder.")
@click.option(
    "--older-than",
    "days",
    type=NumberRange(min=0),
    default=None,
    metavar="DAYS",
    help="Without CONFIG: of all runs below --dir that ended so long ago.",
)
@click.option("--transcripts", is_flag=True, help="With --older-than: transcripts alone.")
@click.option(
    "--results", is_flag=True, help="With --older-than: tables, models and reports alone."
)
@click.option("--dry-run", "dry", is_flag=True, help="With --older-than: show what would go.")
@register_option
@common_options
def forget(
    config: Path | None,
    pid: int | None,
    directory: Path,
    days: float | None,
    transcripts: bool,
    results: bool,
    dry: bool,
    register: Path | None,
    as_json: bool,
) -> None:
    """Delete the shares of a run that will not be finished, its sealing key and its recording, and close it for good.

    A finished run needs this for its recording alone (record_replay): the rest it deletes by itself. Transcript, ledger
    and what was released stay; what was charged stays spent, here and at the data owners.

    With --older-than, and without CONFIG: delete transcripts (with recordings) and results of runs that have ended. The
    ledger and the register are never deleted; removed.json says what was there.
    """
    if (config is None) != (days is not None) or (config is None) != (pid is None):
        raise click.UsageError("give CONFIG and --pid, or --older-than DAYS")
    if days is not None:
        _sweep(directory, days, transcripts, results, dry=dry, as_json=as_json)
        return
    if config is None or pid is None or transcripts or results or dry:
        raise click.UsageError("--transcripts, --results and --dry-run go with --older-than")
    progress = command_progress(f"party {pid}", as_json=as_json)
    forget_run(load_config(config), pid, directory, progress=progress, register=register)


def _sweep(
    directory: Path, days: float, transcripts: bool, results: bool, *, dry: bool, as_json: bool
) -> None:
    # Local import: few users need it, and it imports FLAIM's server.
    from parties.service.retention import sweep, to_json
    from parties.service.settings import KeepSection

    both = transcripts == results
    keep = KeepSection(days if transcripts or both else None, days if results or both else None)
    removed = sweep(directory, keep, dry=dry)
    if as_json:
        click.echo(to_json(removed))
        return
    for item in removed:
        would = "would go" if dry else "deleted"
        click.echo(f"{item.folder}, ended {item.ended}: {would}: {', '.join(item.names)}")
    if not removed:
        click.echo("nothing is that old")


Document = dict[str, Any]
_SERVER_FOLDER_GLOBS = ("party-*", "parties/*", "run", "studies/*/run")
"""Patterns of servers' folders below the folder of a trial, a study or a service."""


@click.command(epilog="Example: syncret status /var/lib/syncret/stays-2026 --watch")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option("--watch", is_flag=True, help="Go on showing it until the server ends.")
@common_options
def status(directory: Path, watch: bool, as_json: bool) -> None:
    """Show how far the server in DIR is: owners, rounds, budget, peers, errors.

    DIR is the folder of `syncret serve study`, by default the one you are in, or a trial's,
    which has several; of `syncret serve`, whose studies are listed, or of one of its studies. A running server is asked
    by the socket in its folder, which only those can reach who may enter the folder. Where none runs, the command shows
    how far the run came. Exit status: 0 where every server runs or has finished, 16 where one does not run and is not
    done. With --json, one line of JSON a server, and a line for each change with --watch.
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
        for document in _watched(folder) if watch else [current_status(folder)]:
            show(document)
            unfinished = unfinished or _is_unfinished(document)
    if unfinished:
        raise click.exceptions.Exit(int(Status.NOT_RUNNING))


def _is_unfinished(document: Document) -> bool:
    return "service" not in document and not document["running"] and document["phase"] != "finished"


def _finished_trial(directory: Path) -> Document | None:
    """Returns the status of a trial that is over, None if it is not: its servers' stores are deleted by then."""
    if not RunFolder(directory).finished:
        return None
    report = str(directory / "report.html")
    return {"running": False, "phase": "finished", "report": report}


def server_folders(directory: Path) -> list[Path]:
    """Returns the servers' folders in ``directory``, or itself; a running service stands for all its studies.

    Raises StoreError if there is none.
    """
    candidates = [
        directory,
        *(p for where in _SERVER_FOLDER_GLOBS for p in sorted(directory.glob(where))),
    ]
    found = [p for p in candidates if (p / SOCKET_NAME).exists() or (p / TRANSCRIPT).exists()]
    if found and found[0] == directory and not (directory / TRANSCRIPT).exists():
        try:
            get_document(directory)
        except NotRunning:
            # The service was killed; its studies' folders have their last states.
            found = found[1:]
    if not found:
        raise StoreError(
            directory,
            "no server runs here, or ran; expected the --dir of syncret serve study or serve, or "
            "a trial's folder",
        )
    return found[:1] if found[0] == directory else found


def current_status(folder: Path) -> Document:
    """Returns the status of the server in ``folder``, or of its last run. Raises StoreError."""
    try:
        return get_document(folder)
    except NotRunning:
        return offline_status(folder)


def _watched(folder: Path) -> Iterator[Document]:
    document = current_status(folder)
    yield document
    with contextlib.suppress(NotRunning):
        for document in status_events(folder):
            yield document
    if "service" in document:
        raise StoreError(folder, "the service has ended")
    if document["running"]:
        # The server was killed.
        yield offline_status(folder)


def _print_json(document: Document) -> None:
    click.echo(json.dumps(document))


class _Screen:
    """Printer of statuses; while ``watching`` on a terminal, each one replaces the one before."""

    def __init__(self, watching: bool) -> None:
        # Local import: tables take a while to import.
        from rich.console import Console

        self._console = Console(highlight=False, soft_wrap=False)
        self._redraws = watching and self._console.is_terminal

    def show(self, document: Document) -> None:
        from parties.observability.status_text import print_status

        if self._redraws:
            self._console.clear()
        print_status(self._console, document)
