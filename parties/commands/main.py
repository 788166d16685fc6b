"""The `syncret` command: each of its commands is imported when it is asked for, since all together take a second."""

import importlib
import os

import click

from parties.extras import need_server
from parties.uncollected import uncollected
from parties.version import version

_COMMANDS = {
    "audit": "Verify the transcripts of a run, and that what is published came of it.",
    "backup": "Copy a server's folder, encrypted, while the server runs.",
    "bench": "Measure Syncret on this machine.",
    "budget": "Show what your tables have spent, and set what they may.",
    "bundle": "Put what an audit reads of a run into one file.",
    "certs": "Make keys, cards and certificates, each where it belongs.",
    "close": "Take no further data owners in a run.",
    "console": "Show a server, or a service of studies, in a browser on this host.",
    "demo": "Try it: three servers and 24 data owners on this machine.",
    "domain": "Draft a config from a table.",
    "finish": "End a run with the rounds that are done.",
    "fingerprint": "Show what everybody in a study reads out to one another.",
    "flaim": "Run FLAIM on this machine, with one table for all clients.",
    "flaim-client": "Take part in a run of FLAIM with your own table.",
    "flaim-clients": "",
    "flaim-server": "Run the server of FLAIM.",
    "forget": "Delete what is secret of a run that will not be finished.",
    "kit": "Make what each server and data owner of a study needs, as folders.",
    "mtl": "Run MR-MTL on this machine, with one table for all silos.",
    "owners": "",
    "party": "Run one of the three compute servers, for one study.",
    "plan": "Say what a run takes, and what noise it has, before it is run.",
    "restore": "Make a server's folder of a backup.",
    "revoke": "Turn a data owner away from a run.",
    "run": "Run DistAIM or central AIM on this machine, with one table for all owners.",
    "sample": "Draw more rows from the model of a finished run.",
    "serve": "Run a service: a server that takes studies, one after the other or side by side.",
    "silos-client": "Take part in a run of Fed-TDA or MR-MTL with your own table.",
    "silos-clients": "",
    "silos-server": "Run the server of Fed-TDA or MR-MTL.",
    "status": "Show what a server, or a service, is at.",
    "study": "Propose, look at, approve, close and end studies of a service.",
    "submit": "Take part in a run of DistAIM with your own table.",
    "tda": "Run Fed-TDA on this machine, with one table for all silos.",
    "worker": "",
}
"""What each is for, for the list of them; "" is hidden."""
_OF_SERVERS = (
    "bench",
    "close",
    "console",
    "demo",
    "finish",
    "flaim",
    "flaim-clients",
    "flaim-server",
    "mtl",
    "owners",
    "party",
    "revoke",
    "run",
    "sample",
    "serve",
    "silos-clients",
    "silos-server",
    "status",
    "tda",
    "worker",
)
"""Those that the packages of the extra ``server`` are for; data owners do without."""
_ORDERS = "parties.commands.orders"
_ELSEWHERE = {"bench": "bench.cli", "close": _ORDERS, "finish": _ORDERS, "revoke": _ORDERS}
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
        if cmd_name in _OF_SERVERS:
            need_server(f"syncret {cmd_name}")
        name = cmd_name.replace("-", "_")
        module = _ELSEWHERE.get(cmd_name, f"parties.commands.{name}")
        with uncollected():
            command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module} has no command {cmd_name!r}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of them, for which none has to be imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, text in _COMMANDS.items() if text])


@click.group(cls=_Commands, epilog="Exit statuses: see parties/README.md. Start with: syncret demo")
@click.version_option(version(), prog_name="syncret")
def cli() -> None:
    """Differentially private synthetic tables from data that several owners hold and may not pool.

    DistAIM: three compute servers work on secret shares of the owners' rows or counts; none of them ever sees one.
    FLAIM: one server learns sums of the owners' counts. Between silos, Fed-TDA and MR-MTL: of their numbers. `syncret
    COMMAND --help` ends with an example.
    """


def main() -> None:
    """The console script."""
    try:
        from parties.commands.running import guarded, leave
    except KeyboardInterrupt:
        click.echo("syncret: error: stopped by Ctrl-C", err=True)
        os._exit(130)
    leave(guarded(cli))
