"""Groups of commands.

They end on SIGTERM as on Ctrl-C, import commands on demand, and refuse names of commands that are elsewhere now.
"""

import importlib
import importlib.util
import signal
from collections.abc import Mapping
from types import FrameType, MappingProxyType
from typing import Any

import click

from parties.foundation.exit_codes import Status, Stopped


class TerminableGroup(click.Group):
    """A group whose commands end on SIGTERM as on Ctrl-C, but with another exit status."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command. Raises Stopped after SIGTERM."""
        terminated = False

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal terminated
            terminated = True
            # An event loop has a handler of its own.
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                handler(signal.SIGINT, frame)
            else:
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, terminate)
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as stopped:
            if not terminated:
                raise
            raise Stopped("stopped by SIGTERM", Status.TERMINATED) from stopped
        finally:
            signal.signal(signal.SIGTERM, before)


class FormerNames(click.Group):
    """A group that refuses a ``former`` name of a command with the command that stands for it now."""

    def __init__(
        self, *args: Any, former: Mapping[str, str] = MappingProxyType({}), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._former = former

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that ``args`` begin with. Raises UsageError for a former name, or an unknown one."""
        if (now := self._former.get(args[0])) is not None:
            raise click.UsageError(
                f"{ctx.command_path} {args[0]} is called {now} now, in a checkout of the source",
                ctx,
            )
        return super().resolve_command(ctx, args)


class CommandsOnDemand(click.Group):
    """A group of commands that are imported when somebody asks for them.

    ``entries`` has, by heading, the module and the line of each command. Those of a module that this installation does
    not have are not listed, and refused with ``missing``.
    """

    def __init__(
        self,
        *args: Any,
        entries: Mapping[str, Mapping[str, tuple[str, str]]],
        missing: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._groups, self._missing = entries, missing
        self._modules = {
            name: module for group in entries.values() for name, (module, _) in group.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands that are here."""
        here = [name for name in self._modules if self._is_here(name)]
        return sorted({*self.commands, *here})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of that name, if there is one. Raises UsageError if it is not here."""
        if cmd_name in self.commands or cmd_name not in self._modules:
            return super().get_command(ctx, cmd_name)
        if not self._is_here(cmd_name):
            raise click.UsageError(f"{ctx.command_path} {cmd_name}: {self._missing}", ctx)
        module = importlib.import_module(self._modules[cmd_name])
        command = getattr(module, cmd_name.replace("-", "_"))
        if not isinstance(command, click.Command):
            raise TypeError(f"{module.__name__} has no command {cmd_name!r}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by heading; none is imported for it."""
        width = max(map(len, self._modules))
        for heading, entries in self._groups.items():
            if here := [name for name in entries if self._is_here(name)]:
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(width), entries[name][1]) for name in here])

    def _is_here(self, name: str) -> bool:
        package = ".".join(self._modules[name].split(".")[:2])
        return importlib.util.find_spec(package) is not None
