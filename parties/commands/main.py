"""The `syncret` command: each of its commands is imported when it is asked for, since all together take a second."""

import importlib
import os

import click

from parties.version import version

_COMMANDS = (
    "audit",
    "bench",
    "budget",
    "bundle",
    "certs",
    "demo",
    "domain",
    "fingerprint",
    "flaim",
    "flaim-client",
    "flaim-clients",
    "flaim-server",
    "forget",
    "owners",
    "party",
    "run",
    "sample",
    "submit",
)
_ELSEWHERE = {"bench": "bench.cli"}
"""The module of a command that is no file of this folder; every other one's has its name, "_" for "-"."""


class _Commands(click.Group):
    """A group whose commands are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = _ELSEWHERE.get(cmd_name, f"parties.commands.{name}")
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module} has no command {cmd_name!r}")
        return command


@click.group(cls=_Commands, epilog="Exit statuses: see parties/README.md. Start with: syncret demo")
@click.version_option(version(), prog_name="syncret")
def cli() -> None:
    """Differentially private synthetic tables from data that several owners hold and may not pool.

    Three compute servers run DistAIM on secret shares of the owners' counts; no server ever sees a count.
    """


def main() -> None:
    """The console script."""
    try:
        from parties.commands.running import guarded, leave
    except KeyboardInterrupt:
        click.echo("syncret: error: stopped by Ctrl-C", err=True)
        os._exit(130)
    leave(guarded(cli))
