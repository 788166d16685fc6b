"""The command `owners`, which `run` starts: plays all data owners of a trial."""

from pathlib import Path

import click

from parties.commands.running import common_options, held_option, run_supervised
from parties.dumps import no_core_dumps
from parties.progress import JsonLines, Lines, Progress
from parties.trial.owners import run_owners
from parties.trial.processes import Supervision


@click.command(hidden=True)
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--watch-stdin", is_flag=True)
@held_option
@common_options
def owners(job: Path, watch_stdin: bool, as_json: bool) -> None:
    """Play all data owners of a trial; `syncret run` starts this, and says go once the servers listen."""
    no_core_dumps()
    progress: Progress = JsonLines() if as_json else Lines()

    async def play(supervision: Supervision) -> None:
        if watch_stdin:
            await supervision.go.wait()
        await run_owners(job, progress=progress)

    run_supervised(play, watch_stdin=watch_stdin, events=progress if as_json else None)
