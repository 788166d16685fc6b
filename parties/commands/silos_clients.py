"""The command `silos-clients`, which a trial between silos starts: plays a share of its silos."""

from pathlib import Path

import click

from parties.commands.running import common_options, run_supervised
from parties.dumps import no_core_dumps
from parties.progress import JsonLines, Lines, Progress
from parties.silos.clients import play_silos
from parties.trial.processes import Supervision


@click.command("silos-clients", hidden=True)
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--share", required=True, help="i/n: the silos whose number is i modulo n.")
@click.option("--watch-stdin", is_flag=True, hidden=True)
@common_options
def silos_clients(job: Path, share: str, watch_stdin: bool, as_json: bool) -> None:
    """Play a share of a trial's silos; a command such as `syncret tda` starts this."""
    no_core_dumps()
    progress: Progress = JsonLines() if as_json else Lines()
    index, _, count = share.partition("/")

    async def play(supervision: Supervision) -> None:
        await play_silos(job, (int(index), int(count)), progress=progress)

    run_supervised(play, watch_stdin=watch_stdin, events=progress if as_json else None)
