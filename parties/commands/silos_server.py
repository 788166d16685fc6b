"""The command `silos-server`: the server of an algorithm between silos, on a host of its own or of a trial."""

import shutil
from pathlib import Path

from parties.commands.one_server import server_command
from parties.config import Config
from parties.files import disk_errors, write_whole
from parties.flaim.attempt import TRANSCRIPT, own_files
from parties.flaim.result import RESULT
from parties.silos.report import silos_report, write_silos_report
from parties.silos.server import run_server
from parties.texts import json_of


def _for_auditors(config: Config, folder: Path) -> None:
    """The report, and beside it what an audit reads, where it reads it. Raises StoreError."""
    result = json_of((folder / RESULT).read_text(encoding="utf-8"))
    transcript, files = folder / TRANSCRIPT, own_files(config)
    report = silos_report(config, result, dataset=config.run.id, transcript=transcript, trial=False)
    write_silos_report(folder, report)
    with disk_errors(folder):
        for name in ("transcripts", "certificates"):
            (folder / name).mkdir(exist_ok=True)
        shutil.copyfile(transcript, folder / "transcripts" / "server.jsonl")
        for name, source in (("ca.crt", files.ca), (f"{files.cert.stem}.crt", files.cert)):
            shutil.copyfile(source, folder / "certificates" / name)
    public = config.override({"tls": None, "compute": None})
    write_whole(folder / "config.toml", public.resolved_toml())


silos_server = server_command(
    "silos",
    run_server,
    _for_auditors,
    again="the same command goes on after the last sum",
    example="syncret silos-server tda.toml --dir /var/lib/syncret/stays-2026",
    text="""Run the server of the algorithm whose table the config has ([tda], [mtl]), until the run is finished.

It listens at silos.address, waits up to clients.wait_s seconds for the silos that silos.clients names, and takes
sums over those who are there: of silos.minimum or more. A silo that leaves, or is silent for timeouts.receive_s
(which is also how long one may compute), is out of the sum and may come back for the next one. Started again after
a stop or a crash it goes on after the last sum; the interrupted one is lost. It writes result, report and
transcript. With --json, events are JSON lines.
""",
)
