"""Hidden commands that launchers start: `owners`, `flaim-clients` and `silos-clients`.

`owners`, started by `run`, plays all data owners of a trial; `flaim-clients` and `silos-clients` play a share of a
trial's clients or silos.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from parties.cli.runtime import command_progress, common_options, held_option, run_supervised
from parties.foundation.process import disable_core_dumps
from parties.local.participants import run_flaim_clients, run_owners, run_silo_clients
from parties.local.processes import Supervision


@click.command(hidden=True)
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--watch-stdin", is_flag=True)
@held_option
@common_options
def owners(job: Path, watch_stdin: bool, as_json: bool) -> None:
    """Play all data owners of a trial; `syncret run` starts this, and says go once the servers listen."""
    disable_core_dumps()
    progress = command_progress(as_json=as_json)

    async def play(supervision: Supervision) -> None:
        if watch_stdin:
            await supervision.go.wait()
        await run_owners(job, progress=progress)

    run_supervised(play, watch_stdin=watch_stdin, events=progress if as_json else None)


def _share_of(run: Callable[..., Awaitable[None]], name: str, text: str) -> click.Command:
    """Returns the command ``name`` that plays a share of a job's participants by ``run``."""

    @click.command(name, hidden=True, help=text)
    @click.argument("job", type=click.Path(path_type=Path))
    @click.option(
        "--share", required=True, help="i/n: the participants whose number is i modulo n."
    )
    @click.option("--watch-stdin", is_flag=True, hidden=True)
    @common_options
    def command(job: Path, share: str, watch_stdin: bool, as_json: bool) -> None:
        disable_core_dumps()
        progress = command_progress(as_json=as_json)
        index, _, count = share.partition("/")

        async def play(supervision: Supervision) -> None:
            await run(job, (int(index), int(count)), progress=progress)

        run_supervised(play, watch_stdin=watch_stdin, events=progress if as_json else None)

    return command


flaim_clients = _share_of(
    run_flaim_clients,
    "flaim-clients",
    "Play a share of a trial's clients; `syncret run --method flaim` starts this.",
)
silos_clients = _share_of(
    run_silo_clients,
    "silos-clients",
    "Play a share of a trial's silos; a command such as `syncret run --method tda` starts this.",
)
