"""Command line of `syncret`. Modules of commands are imported on demand, since all together take a second."""

import contextlib
import difflib
import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import click

from parties.foundation.process import require_server_packages, without_gc
from parties.foundation.version import version

_NEAR = 0.6
"""Minimum similarity of a misspelt name to a suggestion."""


class _Entry(NamedTuple):
    """A command: its module, its line in the list, and ``needs_server`` if it needs the extra ``server``."""

    module: str
    text: str
    needs_server: bool = False

    @property
    def is_here(self) -> bool:
        """Presence of the command's package: images and wheels have no `bench`."""
        package, dot, _ = self.module.partition(".")
        return not dot or importlib.util.find_spec(package) is not None


_GROUPS: Mapping[str, Mapping[str, _Entry]] = {
    "Try it on this machine": {
        "demo": _Entry("run", "Try it: three servers and 24 data owners on this machine.", True),
        "run": _Entry("run", "Run a method on this machine, with one table for all.", True),
    },
    "Prepare a study": {
        "data": _Entry("data", "Draft a config from a table; draw rows from a model."),
        "plan": _Entry("plan", "Say what a run takes, and what noise it has, before it is run."),
        "certs": _Entry("certs", "Make keys, cards and certificates, each where it belongs."),
        "kit": _Entry("serve", "Make folders for all servers and data owners of a study."),
    },
    "Take part with your own table": {
        "join": _Entry("join", "Take part in a run with your own table."),
        "result": _Entry("result", "Fetch the result of a study, and audit it here."),
        "doctor": _Entry("doctor", "Find out what keeps this machine from a study's servers."),
        "budget": _Entry("budget", "Show what your tables have spent, and set what they may."),
    },
    "Run a server": {
        "serve": _Entry("serve", "Run a server: of one study, or a service that takes many.", True),
        "study": _Entry("study", "Propose, look at, approve, close and end a service's studies."),
        "status": _Entry("maintain", "Show how far a server, or a service, is.", True),
        "console": _Entry("serve", "Show a server, or a service, in a browser on this host.", True),
        "close": _Entry("operator_commands", "Take no further data owners in a run.", True),
        "finish": _Entry("operator_commands", "End a run with the rounds that are done.", True),
        "revoke": _Entry("operator_commands", "Turn a data owner away from a run.", True),
        "backup": _Entry("maintain", "Copy a server's folder, encrypted, while the server runs."),
        "restore": _Entry("maintain", "Make a server's folder of a backup."),
        "forget": _Entry("maintain", "Delete what is secret of a run that will not be finished."),
    },
    "Check a run": {
        "audit": _Entry("audit", "Verify a run's transcripts, and that its results came of it."),
        "bundle": _Entry("data", "Put what an audit reads of a run into one file."),
        "bench": _Entry("bench.cli", "Measure Syncret on this machine.", True),
    },
}
"""The commands by group, as `syncret --help` lists them."""
_INTERNAL: Mapping[str, Mapping[str, _Entry]] = {
    "Started by launchers and services": {
        "server": _Entry("server", "Run the server of one study."),
        "worker": _Entry("worker", "Run a study of a service."),
        "owners": _Entry("participants", "Play all data owners of a trial."),
        "flaim-clients": _Entry("participants", "Play a share of a trial's clients."),
        "silos-clients": _Entry("participants", "Play a share of a trial's silos."),
    }
}
_FORMER: Mapping[str, tuple[str, ...]] = {
    "domain": ("data", "draft"),
    "fingerprint": ("certs", "fingerprint"),
    "flaim": ("run", "--only", "flaim"),
    "flaim-client": ("join", "--only", "flaim"),
    "flaim-server": ("serve", "study", "--only", "flaim"),
    "mtl": ("run", "--only", "mtl"),
    "party": ("serve", "study", "--only", "distaim"),
    "sample": ("data", "sample"),
    "silos-client": ("join", "--only", "silos"),
    "silos-server": ("serve", "study", "--only", "silos"),
    "submit": ("join", "--only", "distaim"),
    "tda": ("run", "--only", "tda"),
}
"""Former names of commands, and what stands for each; they go with the next version.

The hidden option --only holds a command to the method that the former name was for.
"""


def _called(words: Sequence[str]) -> str:
    """Returns ``words`` as a user types them: `run` takes the method, the others find it in the configuration."""
    shown = " ".join(words)
    return (
        shown.replace("--only", "--method") if words[0] == "run" else shown.partition(" --only")[0]
    )


class _Commands(click.Group):
    """A group whose commands are imported on demand: all together take a second.

    ``groups`` are its commands by heading, ``former`` the names that stand for others.
    """

    def __init__(
        self,
        *args: Any,
        groups: Mapping[str, Mapping[str, _Entry]],
        former: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._groups, self._former = groups, former
        self._entries = {name: e for group in groups.values() for name, e in group.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands that are here."""
        return sorted(name for name, entry in self._entries.items() if entry.is_here)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of that name, if there is one."""
        if cmd_name == "internal" and ctx.parent is None:
            return internal
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        if not entry.is_here:
            raise click.UsageError(
                f"syncret {cmd_name} is in a checkout of the source alone, and is not installed here",
                ctx,
            )
        if entry.needs_server:
            require_server_packages(f"syncret {cmd_name}")
        module = entry.module if "." in entry.module else f"{__package__}.{entry.module}"
        with without_gc():
            command = getattr(importlib.import_module(module), cmd_name.replace("-", "_"))
        if not isinstance(command, click.Command):
            raise TypeError(f"{module} has no command {cmd_name!r}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that ``args`` begin with. Raises UsageError with the nearest names if there is none."""
        now = self._former.get(args[0])
        if now is not None:
            # Programs read JSON, which a sentence would break.
            if "--json" not in args and "--log-format" not in " ".join(args):
                with contextlib.suppress(OSError):
                    click.echo(f"syncret {args[0]} is called syncret {_called(now)} now", err=True)
            args = [*now, *args[1:]]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], [*self._entries, *self._former], cutoff=_NEAR)
            if not near or args[0] in self._entries:
                raise
            near = list(dict.fromkeys(_called(self._former.get(name, (name,))) for name in near))
            message = f"{error.message.rstrip('.')}; did you mean {' or '.join(near)}?"
            raise click.UsageError(message, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by group; none is imported for it."""
        width = max(map(len, self._entries))
        for group, entries in self._groups.items():
            with formatter.section(group):
                here = [(name.ljust(width), e.text) for name, e in entries.items() if e.is_here]
                formatter.write_dl(here)


@click.group(
    cls=_Commands,
    groups=_GROUPS,
    former=_FORMER,
    epilog="Exit statuses: see parties/README.md. Start with: syncret demo",
)
@click.version_option(version(), prog_name="syncret")
def cli() -> None:
    """Differentially private synthetic tables from data that several owners hold and may not pool.

    DistAIM: three compute servers work on secret shares of the owners' rows or counts; none of them ever sees one.
    FLAIM: one server learns sums of the owners' counts. Between silos, Fed-TDA and MR-MTL: of their numbers. `syncret
    COMMAND --help` ends with an example.
    """


@click.group(cls=_Commands, groups=_INTERNAL, hidden=True)
def internal() -> None:
    """Commands that launchers and services start; nobody needs to type them."""


def main() -> None:
    """Entry point of the console script."""
    try:
        from parties.cli.runtime import exit_now, run_command_line
    except KeyboardInterrupt:
        click.echo("syncret: error: stopped by Ctrl-C", err=True)
        os._exit(130)
    exit_now(run_command_line(cli))
