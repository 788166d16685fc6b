"""The command `party`: one compute server, on a host of its own or as a process of a trial."""

from pathlib import Path

import click

from parties.board import About
from parties.commands.running import (
    common_options,
    held_option,
    log_option,
    make_private,
    register_option,
    run_supervised,
    server_progress,
)
from parties.config import load_config
from parties.distaim.estimation import LEAD
from parties.distaim.server import own_files, run_party
from parties.dumps import no_core_dumps
from parties.operate.logs import JsonLog, board_of
from parties.operate.shown import orders_of, shown
from parties.orders import Orders
from parties.trial.processes import Supervision, allow_files
from protocols.memory import keep_freed_memory

_PATH = click.Path(path_type=Path)
_AGAIN = "the same command goes on after the last finished round, once all three servers are started again"


@click.command(
    epilog="Example: syncret party syncret.toml --pid 0 --dir /var/lib/syncret/stays-2026"
)
@click.argument("config", type=_PATH)
@click.option("--pid", type=click.IntRange(0, 2), required=True, help="Which of the three servers.")
@click.option(
    "--dir",
    "directory",
    type=_PATH,
    default=None,
    help="This server's folder; by default party-PID beside the config. Holds shares: keep it to yourself.",
)
@click.option(
    "--watch-stdin",
    is_flag=True,
    help="Stop when standard input ends; its line 'go' ends the wait for data owners.",
)
@register_option
@log_option
@held_option
@common_options
def party(
    config: Path,
    pid: int,
    directory: Path | None,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    as_json: bool,
) -> None:
    """Run one compute server, in the foreground, until the run is finished.

    A configuration is released from one folder, once: started from another one after that, the server refuses.

    Started again after a stop, a crash or the loss of a peer, it goes on after the last finished round, with its
    ledger where it was. When all three are done it deletes its shares and its sealing key (the file beside the key that
    ends in .seal): a card is made for one run. Party 0 writes the model and the synthetic table. With --json, events
    are JSON lines on standard output.
    """
    no_core_dumps()
    progress = server_progress(f"party {pid}", log, as_json=as_json)
    own_folder = directory or config.absolute().parent / f"party-{pid}"

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        own_files(loaded, pid, own_folder)  # Before anything is written.
        make_private(own_folder)
        keep_freed_memory()
        allow_files()
        board, asked = board_of(About.of_party(loaded, pid), log), Orders()
        async with shown(board, own_folder, orders_of(supervision.cancel, asked)):
            await run_party(
                loaded,
                pid,
                own_folder,
                progress=progress,
                closed=supervision.go,
                register=register,
                board=board,
                orders=asked,
            )

    run_supervised(
        serve, watch_stdin=watch_stdin, events=progress if as_json else None, again=_AGAIN
    )
    # A launcher has the real table at hand and writes a fuller report.
    if pid == LEAD and not watch_stdin:
        # Pictures take half a second to import, which the other servers do without.
        from parties.distaim.report import write_lead_report

        write_lead_report(load_config(config), own_folder)
        progress.event("report", f"wrote {own_folder / 'report.html'}")
