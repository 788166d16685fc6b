"""The commands of FLAIM for hosts of their own, `flaim-server` and `flaim-client`; and `flaim-clients`, of a trial."""

import json
from pathlib import Path

import click

from parties.config import Config, load_config
from parties.flaim.client import ClientReport, run_client
from parties.flaim.clients import play_clients
from parties.flaim.server import own_files, run_server
from parties.owner_options import Owner, owner_options
from parties.processes import Supervision
from parties.progress import JsonLines, Lines, Progress
from parties.running import common_options, make_private, run_supervised

_PATH = click.Path(path_type=Path)
_WATCH = click.option("--watch-stdin", is_flag=True, hidden=True)


@click.command(
    "flaim-server",
    epilog="Example: syncret flaim-server flaim.toml --dir /var/lib/syncret/stays-2026",
)
@click.argument("config", type=_PATH)
@click.option(
    "--dir",
    "directory",
    type=_PATH,
    default=None,
    help="The server's folder; by default flaim-server beside the config.",
)
@_WATCH
@common_options
def flaim_server(config: Path, directory: Path | None, watch_stdin: bool, as_json: bool) -> None:
    """Run the FLAIM server, in the foreground, until the run is finished.

    It listens at flaim.address, waits up to clients.wait_s seconds for the clients that flaim.clients names, and goes
    on without those that do not come or leave. It writes model, synthetic table, report and transcript. Started again
    after a stop or a crash it goes on after the last finished round; the interrupted one is lost. Without the first
    sums, or with an annealed schedule, it begins anew with what is left of the budget. With --json, events are JSON
    lines.
    """
    progress: Progress = JsonLines() if as_json else Lines("server")
    place = directory or config.absolute().parent / "flaim-server"

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        own_files(loaded)  # Before anything is written.
        make_private(place)
        await run_server(loaded, place, progress=progress, closed=supervision.go)

    run_supervised(serve, watch_stdin=watch_stdin, events=progress if as_json else None)
    # A launcher has the real table at hand and writes a fuller report.
    if not watch_stdin:
        # Pictures take half a second to import, which a trial's server does without.
        from parties.flaim.report import write_server_report

        write_server_report(load_config(config), place)
        progress.event("report", f"wrote {place / 'report.html'}")


@click.command("flaim-client", epilog="Example: syncret flaim-client flaim.toml --data stays.csv")
@owner_options
@click.option(
    "--dir",
    "directory",
    type=_PATH,
    default=None,
    help="This client's ledger; by default beside the table. Keep it: without it your budget is forgotten.",
)
@common_options
def flaim_client(owner: Owner, directory: Path | None, as_json: bool) -> None:
    """Take part in a run of FLAIM with your own table, which stays here, until the server says goodbye.

    What the server asks for is checked against your config, and charged to a ledger of your own before anything is
    sent; beyond your budget nothing is. Prints what was released.
    """
    # Pandas takes a fifth of a second to import, which the other commands here do without.
    from mechanisms.table import encode, read_table

    config = owner.config
    place = directory or owner.beside("flaim")
    codes = encode(config.domain, read_table(owner.data), source=owner.data)
    found: list[ClientReport] = []
    progress = Lines(owner.name)

    async def take_part(supervision: Supervision) -> None:
        found.append(await run_client(config, codes, owner.files, place, progress=progress))

    run_supervised(take_part, watch_stdin=False, events=None)
    click.echo(
        json.dumps(found[0].to_dict(), indent=2) if as_json else _client_text(found[0], config)
    )


def _client_text(report: ClientReport, config: Config) -> str:
    return "\n".join(
        (
            f"run {config.run.id}: {report.client} took part in {report.rounds} rounds and {report.sums} sums, "
            f"{report.given_up} of them given up",
            f"rho {report.rho_spent:.6g} of {report.rho_total:.6g} spent by its own ledger",
            f"{report.sent_bytes} bytes sent, {report.received_bytes} received in {report.seconds:.1f} s",
        )
    )


@click.command("flaim-clients", hidden=True)
@click.argument("job", type=_PATH)
@click.option("--share", required=True, help="i/n: the clients whose number is i modulo n.")
@_WATCH
@common_options
def flaim_clients(job: Path, share: str, watch_stdin: bool, as_json: bool) -> None:
    """Play a share of a trial's clients; `syncret flaim` starts this."""
    progress: Progress = JsonLines() if as_json else Lines()
    index, _, count = share.partition("/")

    async def play(supervision: Supervision) -> None:
        await play_clients(job, (int(index), int(count)), progress=progress)

    run_supervised(play, watch_stdin=watch_stdin, events=progress if as_json else None)
