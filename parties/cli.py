"""The `syncret` command: each of its commands is imported when it is asked for, since all together take a second."""

import importlib
import os

import click

from parties.version import version

_COMMANDS = {
    "audit": "parties.cli_audit",
    "bench": "bench.cli",
    "certs": "parties.cli_setup",
    "demo": "parties.cli_trial",
    "domain": "parties.cli_setup",
    "flaim": "parties.cli_flaim",
    "flaim-client": "parties.cli_flaim_hosts",
    "flaim-clients": "parties.cli_flaim_hosts",
    "flaim-server": "parties.cli_flaim_hosts",
    "owners": "parties.cli_owner",
    "party": "parties.cli_party",
    "run": "parties.cli_trial",
    "submit": "parties.cli_owner",
}
"""The module of each command, which has it under the same name, "_" for "-"."""


class _Commands(click.Group):
    """A group whose commands are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name])
        command = getattr(module, cmd_name.replace("-", "_"))
        if not isinstance(command, click.Command):
            raise TypeError(f"{_COMMANDS[cmd_name]} has no command {cmd_name!r}")
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
        from parties.running import guarded, leave
    except KeyboardInterrupt:
        click.echo("syncret: error: stopped by Ctrl-C", err=True)
        os._exit(130)
    leave(guarded(cli))
