"""The command `forget`: deletes what is secret of a run that will not be finished."""

from pathlib import Path

import click

from parties.commands.running import common_options, register_option
from parties.config import load_config
from parties.distaim.forget import forget_run
from parties.progress import JsonLines, Lines, Progress

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="Example: syncret forget syncret.toml --pid 0 --dir /var/lib/syncret/stays-2026"
)
@click.argument("config", type=_PATH)
@click.option("--pid", type=click.IntRange(0, 2), required=True, help="Which of the three servers.")
@click.option("--dir", "directory", type=_PATH, required=True, help="This server's folder.")
@register_option
@common_options
def forget(config: Path, pid: int, directory: Path, register: Path | None, as_json: bool) -> None:
    """Delete the shares of a run that will not be finished, its sealing key and its recording, and close it for good.

    A finished run needs this for its recording alone (record_replay): the rest it deletes by itself. Transcript, ledger
    and what was released stay; what was charged stays spent, here and at the data owners.
    """
    progress: Progress = JsonLines() if as_json else Lines(f"party {pid}")
    forget_run(load_config(config), pid, directory, progress=progress, register=register)
