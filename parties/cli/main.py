"""Command line of `syncret`. Modules of commands are imported on demand, since all together take a second."""

import difflib
import importlib
import os
from collections.abc import Mapping
from typing import NamedTuple

import click

from parties.foundation.process import require_server_packages, without_gc
from parties.foundation.version import version

_HIDDEN = ""
_NEAR = 0.6
"""Minimum similarity of a misspelt name to a suggestion."""


class _Entry(NamedTuple):
    """A command: its module, its line in the list, and ``needs_server`` if it needs the extra ``server``."""

    module: str
    text: str
    needs_server: bool = False


_GROUPS: Mapping[str, Mapping[str, _Entry]] = {
    "Try it on this machine": {
        "demo": _Entry(
            "parties.cli.run",
            "Try it: three servers and 24 data owners on this machine.",
            needs_server=True,
        ),
        "run": _Entry(
            "parties.cli.run",
            "Run DistAIM or central AIM on this machine, with one table for all owners.",
            needs_server=True,
        ),
        "flaim": _Entry(
            "parties.cli.run_federation",
            "Run FLAIM on this machine, with one table for all clients.",
            needs_server=True,
        ),
        "tda": _Entry(
            "parties.cli.run_federation",
            "Run Fed-TDA on this machine, with one table for all silos.",
            needs_server=True,
        ),
        "mtl": _Entry(
            "parties.cli.run_federation",
            "Run MR-MTL on this machine, with one table for all silos.",
            needs_server=True,
        ),
        "sample": _Entry(
            "parties.cli.data",
            "Draw more rows from the model of a finished run.",
            needs_server=True,
        ),
    },
    "Prepare a study": {
        "domain": _Entry("parties.cli.data", "Draft a config from a table."),
        "plan": _Entry(
            "parties.cli.plan", "Say what a run takes, and what noise it has, before it is run."
        ),
        "certs": _Entry(
            "parties.cli.certs", "Make keys, cards and certificates, each where it belongs."
        ),
        "fingerprint": _Entry(
            "parties.cli.certs", "Show what everybody in a study reads out to one another."
        ),
        "kit": _Entry(
            "parties.cli.serve",
            "Make what each server and data owner of a study needs, as folders.",
        ),
    },
    "Take part with your own table": {
        "submit": _Entry(
            "parties.cli.submit", "Take part in a run of DistAIM with your own table."
        ),
        "flaim-client": _Entry(
            "parties.cli.join", "Take part in a run of FLAIM with your own table."
        ),
        "silos-client": _Entry(
            "parties.cli.join", "Take part in a run of Fed-TDA or MR-MTL with your own table."
        ),
        "budget": _Entry(
            "parties.cli.budget", "Show what your tables have spent, and set what they may."
        ),
    },
    "Run a server": {
        "serve": _Entry(
            "parties.cli.serve",
            "Run a service: a server that takes studies, one after the other or side by side.",
            needs_server=True,
        ),
        "study": _Entry(
            "parties.cli.study", "Propose, look at, approve, close and end studies of a service."
        ),
        "party": _Entry(
            "parties.cli.server",
            "Run one of the three compute servers, for one study.",
            needs_server=True,
        ),
        "flaim-server": _Entry("parties.cli.server", "Run the server of FLAIM.", needs_server=True),
        "silos-server": _Entry(
            "parties.cli.server", "Run the server of Fed-TDA or MR-MTL.", needs_server=True
        ),
        "status": _Entry(
            "parties.cli.maintain", "Show what a server, or a service, is at.", needs_server=True
        ),
        "console": _Entry(
            "parties.cli.serve",
            "Show a server, or a service of studies, in a browser on this host.",
            needs_server=True,
        ),
        "close": _Entry(
            "parties.cli.operator_commands",
            "Take no further data owners in a run.",
            needs_server=True,
        ),
        "finish": _Entry(
            "parties.cli.operator_commands",
            "End a run with the rounds that are done.",
            needs_server=True,
        ),
        "revoke": _Entry(
            "parties.cli.operator_commands", "Turn a data owner away from a run.", needs_server=True
        ),
        "backup": _Entry(
            "parties.cli.maintain", "Copy a server's folder, encrypted, while the server runs."
        ),
        "restore": _Entry("parties.cli.maintain", "Make a server's folder of a backup."),
        "forget": _Entry(
            "parties.cli.maintain", "Delete what is secret of a run that will not be finished."
        ),
    },
    "Check a run": {
        "audit": _Entry(
            "parties.cli.audit",
            "Verify the transcripts of a run, and that what is published came of it.",
        ),
        "bundle": _Entry("parties.cli.data", "Put what an audit reads of a run into one file."),
        "bench": _Entry("bench.cli", "Measure Syncret on this machine.", needs_server=True),
    },
    _HIDDEN: {
        "owners": _Entry("parties.cli.worker", "", needs_server=True),
        "worker": _Entry("parties.cli.worker", "", needs_server=True),
        "flaim-clients": _Entry("parties.cli.worker", "", needs_server=True),
        "silos-clients": _Entry("parties.cli.worker", "", needs_server=True),
    },
}
"""Commands by group, as `syncret --help` lists them; only launchers start those of `_HIDDEN`."""

_COMMANDS = {name: entry for group in _GROUPS.values() for name, entry in group.items()}


class _Commands(click.Group):
    """Group with commands that are imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns all names, hidden ones included."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of that name, None if there is none."""
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if entry.needs_server:
            require_server_packages(f"syncret {cmd_name}")
        with without_gc():
            command = getattr(importlib.import_module(entry.module), cmd_name.replace("-", "_"))
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module} has no command {cmd_name!r}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that ``args`` begin with. Raises UsageError with the nearest names for an unknown one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            shown = [name for name, entry in _COMMANDS.items() if entry.text]
            near = difflib.get_close_matches(args[0], shown, cutoff=_NEAR)
            if not near:
                raise
            message = f"{error.message.rstrip('.')}; did you mean {' or '.join(near)}?"
            raise click.UsageError(message, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by group without importing them."""
        width = max(map(len, _COMMANDS))
        for group, entries in _GROUPS.items():
            if group != _HIDDEN:
                with formatter.section(group):
                    formatter.write_dl(
                        [(name.ljust(width), entry.text) for name, entry in entries.items()]
                    )


@click.group(cls=_Commands, epilog="Exit statuses: see parties/README.md. Start with: syncret demo")
@click.version_option(version(), prog_name="syncret")
def cli() -> None:
    """Differentially private synthetic tables from data that several owners hold and may not pool.

    DistAIM: three compute servers work on secret shares of the owners' rows or counts; none of them ever sees one.
    FLAIM: one server learns sums of the owners' counts. Between silos, Fed-TDA and MR-MTL: of their numbers. `syncret
    COMMAND --help` ends with an example.
    """


def main() -> None:
    """Entry point of the console script."""
    try:
        from parties.cli.runtime import exit_now, run_command_line
    except KeyboardInterrupt:
        click.echo("syncret: error: stopped by Ctrl-C", err=True)
        os._exit(130)
    exit_now(run_command_line(cli))
