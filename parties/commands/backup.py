"""The command `backup`: a copy of what a server keeps, encrypted, while it runs; and who opens it (`restore`, too)."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from parties.commands.running import Command, common_options, register_option
from parties.dumps import no_core_dumps
from parties.errors import CertificateError
from parties.files import disk_errors
from parties.operate.backup import Manifest, back_up
from parties.places import register_file
from parties.sealing import SealTo
from parties.vault import Locked, Opener, Passphrase

_PATH = click.Path(path_type=Path)


def passphrase_option(command: Command) -> Command:
    """Add --passphrase-file (as ``passphrase_file``)."""
    return click.option(
        "--passphrase-file",
        type=_PATH,
        default=None,
        metavar="FILE",
        help="The passphrase is its first line; in a terminal it is asked for.",
    )(command)


def passphrase(file: Path | None, *, new: bool) -> Passphrase:
    """From a file, or asked for in a terminal; twice where it is ``new``. Raises StoreError, click.UsageError."""
    if file is not None:
        with disk_errors(file, "read"):
            text = file.read_text().split("\n", 1)[0]
    elif sys.stdin.isatty():
        text = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    else:
        other = "--for" if new else "--key"
        raise click.UsageError(f"nobody to ask for a passphrase: give --passphrase-file or {other}")
    try:
        return Passphrase(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _opener(public: Path | None, file: Path | None) -> Opener:
    if public is None:
        return passphrase(file, new=True)
    if file is not None:
        raise click.UsageError("give --for or --passphrase-file: a backup opens in one way")
    with disk_errors(public, "read"):
        text = public.read_text()
    try:
        return Locked(SealTo.parse(text))
    except ValueError as error:
        raise CertificateError(
            f"{public}: {error}; expected the .backup-pub that `syncret certs backup-key` made"
        ) from error


def described(manifest: Manifest) -> list[str]:
    """What a backup is of, for people."""
    lines = [f"of {manifest.folder}, made {manifest.made_at} by syncret {manifest.syncret}"]
    lines += [
        f"  {kept.path}: configuration {kept.config[:12]}, {kept.charges} charges in its ledger"
        for kept in manifest.stores
    ]
    return [*lines, f"  keys: {'yes' if manifest.keys else 'none'}"]


def show(manifest: Manifest, *, as_json: bool) -> None:
    """On standard output."""
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
    """Copy DIR, what a server keeps (--dir of `serve`, `party`, `flaim-server`, `silos-server`), while it runs or not.

    The copy is of one moment, and encrypted: it holds this server's shares. Keep it away from the other two servers'
    copies, and delete it when its studies have ended: they delete their own shares, and cannot delete these.
    """
    no_core_dumps()
    opener = _opener(public, passphrase_file)
    show(
        back_up(directory, to, opener, keys=keys, register=register_file(register)), as_json=as_json
    )
