"""The command `restore`: a server's folder of a backup."""

from pathlib import Path

import click

from parties.commands.backup import passphrase, passphrase_option, show
from parties.commands.running import common_options, register_option
from parties.dumps import no_core_dumps
from parties.operate.backup import manifest_of
from parties.operate.backup import restore as restore_folder
from parties.places import register_file
from parties.sealing import SealKey
from parties.vault import Locked, Opener

_PATH = click.Path(path_type=Path)


def _opener(key: Path | None, file: Path | None) -> Opener:
    if key is None:
        return passphrase(file, new=False)
    if file is not None:
        raise click.UsageError("give --key or --passphrase-file: a backup opens in one way")
    private = SealKey.load(key)
    return Locked(private.public, private)


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
    no_core_dumps()
    if (to is None) != only_list:
        raise click.UsageError("give --to DIR, or --list")
    opener = _opener(key, passphrase_file)
    if to is None:
        show(manifest_of(file, opener), as_json=as_json)
        return
    place = register_file(register)
    manifest = restore_folder(file, to, opener, keys=keys, register=place, behind=behind)
    show(manifest, as_json=as_json)
