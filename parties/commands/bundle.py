"""The command `bundle`: the public files of a run in one file, for an auditor."""

import json
from pathlib import Path

import click

from parties.commands.running import common_options


@click.command(epilog="Example: syncret bundle runs/stays --out stays.zip")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The file to make, a .zip."
)
@common_options
def bundle(run: Path, out: Path, as_json: bool) -> None:
    """Put what an audit reads of the run in folder RUN into one file, which `syncret audit` takes.

    In it are the transcripts, the certificates (no keys), config.toml, the report, the synthetic table and the model:
    all of it public. The servers' transcripts have to be in RUN/transcripts by then, as party-0.jsonl to party-2.jsonl.
    """
    from parties.audit.bundle import write_bundle

    names = write_bundle(run, out)
    if as_json:
        click.echo(json.dumps({"bundle": str(out), "files": names}))
    else:
        click.echo(f"{len(names)} files are in {out}; check it with: syncret audit {out}")
