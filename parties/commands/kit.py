"""The command `kit`: for each server and data owner of a study what it needs, and nothing that is secret."""

import json
from pathlib import Path

import click

from parties.commands.running import common_options
from parties.operate.kit import make_kits

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="Example: syncret kit study/stays.toml alpha.server beta.server gamma.server --owner north --out kits"
)
@click.argument("config", type=_PATH)
@click.argument("cards", type=_PATH, nargs=-1)
@click.option(
    "--owner", "owners", multiple=True, metavar="NAME", help="A data owner; may be repeated."
)
@click.option(
    "--out", type=_PATH, default=Path("kits"), show_default=True, help="A new folder for them."
)
@click.option("--zip", "zipped", is_flag=True, help="NAME.zip instead of the folder NAME.")
@common_options
def kit(
    config: Path,
    cards: tuple[Path, ...],
    owners: tuple[str, ...],
    out: Path,
    zipped: bool,
    as_json: bool,
) -> None:
    """Make for each server and each data owner of CONFIG a folder with what it needs: configuration, certificates, the
    servers' cards, a systemd unit and a compose file, and its commands.

    CONFIG is what `syncret certs merge` or `study propose` made. With the servers' files of `serve init` as CARDS, in
    their order, the units run `syncret serve`; with their cards, or none, this one study, as always between silos. Data
    owners are those that the configuration names, and each --owner. No private key gets into a kit.
    """
    made = make_kits(config, cards, owners, out=out, zipped=zipped)
    if as_json:
        click.echo(json.dumps({"kits": [str(path) for path in made]}, indent=2))
        return
    for path in made:
        click.echo(f"{path}: send it to {path.stem if zipped else path.name}")
