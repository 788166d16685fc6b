"""The command `forget`: deletes what is secret of a run that will not be finished, and what is old of ended ones."""

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
@click.argument("config", type=_PATH, required=False)
@click.option("--pid", type=click.IntRange(0, 2), help="Which of the three servers.")
@click.option("--dir", "directory", type=_PATH, required=True, help="This server's folder.")
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=None,
    metavar="DAYS",
    help="Without CONFIG: of all runs below --dir that ended so long ago.",
)
@click.option("--transcripts", is_flag=True, help="With --older-than: transcripts alone.")
@click.option(
    "--results", is_flag=True, help="With --older-than: tables, models and reports alone."
)
@click.option("--dry-run", "dry", is_flag=True, help="With --older-than: show what would go.")
@register_option
@common_options
def forget(
    config: Path | None,
    pid: int | None,
    directory: Path,
    days: float | None,
    transcripts: bool,
    results: bool,
    dry: bool,
    register: Path | None,
    as_json: bool,
) -> None:
    """Delete the shares of a run that will not be finished, its sealing key and its recording, and close it for good.

    A finished run needs this for its recording alone (record_replay): the rest it deletes by itself. Transcript, ledger
    and what was released stay; what was charged stays spent, here and at the data owners.

    With --older-than, and without CONFIG: delete transcripts (with recordings) and results of runs that have ended. The
    ledger and the register are never deleted; removed.json says what was there.
    """
    if (config is None) != (days is not None) or (config is None) != (pid is None):
        raise click.UsageError("give CONFIG and --pid, or --older-than DAYS")
    if days is not None:
        _sweep(directory, days, transcripts, results, dry=dry, as_json=as_json)
        return
    if config is None or pid is None or transcripts or results or dry:
        raise click.UsageError("--transcripts, --results and --dry-run go with --older-than")
    progress: Progress = JsonLines() if as_json else Lines(f"party {pid}")
    forget_run(load_config(config), pid, directory, progress=progress, register=register)


def _sweep(
    directory: Path, days: float, transcripts: bool, results: bool, *, dry: bool, as_json: bool
) -> None:
    # Wanted by few, and it imports what FLAIM's server is made of.
    from parties.operate.retention import sweep, to_json
    from parties.operate.settings import KeepSection

    both = transcripts == results
    keep = KeepSection(days if transcripts or both else None, days if results or both else None)
    removed = sweep(directory, keep, dry=dry)
    if as_json:
        click.echo(to_json(removed))
        return
    for item in removed:
        would = "would go" if dry else "deleted"
        click.echo(f"{item.folder}, ended {item.ended}: {would}: {', '.join(item.names)}")
    if not removed:
        click.echo("nothing is that old")
