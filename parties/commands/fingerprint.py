"""The command `fingerprint`: what everybody who takes part in a study reads out to one another."""

import json
from pathlib import Path

import click

from parties.cards import read_out, words
from parties.commands.running import common_options
from parties.config import Config, load_config


@click.command(epilog="Example: syncret fingerprint study/stays.toml")
@click.argument("config", type=click.Path(path_type=Path))
@common_options
def fingerprint(config: Path, as_json: bool) -> None:
    """Show what stands for the configuration, and for each server's key, in words and in hex.

    All operators and data owners compare the configuration's words before they begin: it has the budget, the columns
    and the servers' keys in it. Paths, addresses and timeouts do not count. A server's words are those of its card.
    """
    loaded = load_config(config)
    if as_json:
        click.echo(json.dumps(record_of(loaded), indent=2))
    else:
        click.echo("\n".join(lines_of(loaded)))


def record_of(config: Config) -> dict[str, object]:
    """The fingerprints as --json has them."""
    servers = [
        {"role": role, "name": name, "key": key, "words": words(key)}
        for role, name, key in _servers(config)
    ]
    digest = config.digest()
    return {"run": config.run.id, "digest": digest, "words": words(digest), "servers": servers}


def lines_of(config: Config) -> list[str]:
    """The fingerprints for people."""
    lines = [f"the configuration of {config.run.id}", *read_out(config.digest())]
    servers = _servers(config)
    if not servers:
        lines.append("no servers yet: `syncret certs merge` puts them in")
    for role, name, key in servers:
        lines += [f"{role}: {name}", *read_out(key)]
    return lines


def _servers(config: Config) -> list[tuple[str, str, str]]:
    """Role, name and key of each server."""
    servers = [(f"party {pid}", party.name, party.key) for pid, party in enumerate(config.parties)]
    for name, section in (("flaim", config.flaim), ("silos", config.silos)):
        if section is not None and section.key is not None:
            servers.append((f"{name}.server", section.server, section.key))
    return servers
