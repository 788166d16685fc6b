"""The command `silos-server`: the server of an algorithm between silos, on a host of its own or of a trial."""

import shutil
from pathlib import Path

import click

from parties.commands.one_server import run_one_server
from parties.commands.running import (
    common_options,
    log_option,
    register_option,
)
from parties.config import load_config
from parties.files import disk_errors, write_whole
from parties.flaim.attempt import TRANSCRIPT, own_files
from parties.flaim.result import RESULT
from parties.operate.logs import JsonLog
from parties.silos.report import silos_report, write_silos_report
from parties.silos.server import run_server
from parties.texts import json_of

_AGAIN = "the same command goes on after the last sum"


@click.command(
    "silos-server",
    epilog="Example: syncret silos-server tda.toml --dir /var/lib/syncret/stays-2026",
)
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="The server's folder; by default silos-server beside the config.",
)
@click.option("--watch-stdin", is_flag=True, hidden=True)
@register_option
@log_option
@common_options
def silos_server(
    config: Path,
    directory: Path | None,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    as_json: bool,
) -> None:
    """Run the server of the algorithm whose table the config has ([tda], [mtl]), until the run is finished.

    It listens at silos.address, waits up to clients.wait_s seconds for the silos that silos.clients names, and takes
    sums over those who are there: of silos.minimum or more. A silo that leaves, or is silent for timeouts.receive_s
    (which is also how long one may compute), is out of the sum and may come back for the next one. Started again after
    a stop or a crash it goes on after the last sum; the interrupted one is lost. It writes result, report and
    transcript. With --json, events are JSON lines.
    """
    own_folder = directory or config.absolute().parent / "silos-server"
    progress = run_one_server(
        run_server,
        "silos",
        config,
        own_folder,
        watch_stdin=watch_stdin,
        register=register,
        log=log,
        as_json=as_json,
        again=_AGAIN,
    )
    # A launcher has the real table at hand and writes a fuller report.
    if not watch_stdin:
        _for_auditors(config, own_folder)
        progress.event("report", f"wrote {own_folder / 'report.html'}")


def _for_auditors(config: Path, folder: Path) -> None:
    """The report, and beside it what an audit reads, where it reads it. Raises StoreError."""
    loaded = load_config(config)
    result = json_of((folder / RESULT).read_text(encoding="utf-8"))
    transcript, files = folder / TRANSCRIPT, own_files(loaded)
    report = silos_report(loaded, result, dataset=loaded.run.id, transcript=transcript, trial=False)
    write_silos_report(folder, report)
    with disk_errors(folder):
        for name in ("transcripts", "certificates"):
            (folder / name).mkdir(exist_ok=True)
        shutil.copyfile(transcript, folder / "transcripts" / "server.jsonl")
        for name, source in (("ca.crt", files.ca), (f"{files.cert.stem}.crt", files.cert)):
            shutil.copyfile(source, folder / "certificates" / name)
    public = loaded.override({"tls": None, "compute": None})
    write_whole(folder / "config.toml", public.resolved_toml())
