"""The command `flaim-clients`, which `flaim` starts: plays a share of a trial's clients."""

from pathlib import Path

import click

from parties.commands.running import common_options, run_supervised
from parties.dumps import no_core_dumps
from parties.flaim.clients import play_clients
from parties.progress import JsonLines, Lines, Progress
from parties.trial.processes import Supervision


@click.command("flaim-clients", hidden=True)
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--share", required=True, help="i/n: the clients whose number is i modulo n.")
@click.option("--watch-stdin", is_flag=True, hidden=True)
@common_options
def flaim_clients(job: Path, share: str, watch_stdin: bool, as_json: bool) -> None:
    """Play a share of a trial's clients; `syncret flaim` starts this."""
    no_core_dumps()
    progress: Progress = JsonLines() if as_json else Lines()
    index, _, count = share.partition("/")

    async def play(supervision: Supervision) -> None:
        await play_clients(job, (int(index), int(count)), progress=progress)

    run_supervised(play, watch_stdin=watch_stdin, events=progress if as_json else None)
