"""Groups of commands: they end on SIGTERM as on Ctrl-C, and refuse names of commands that are elsewhere now."""

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
