"""Runtime of commands: common options, event loops that can be stopped, failures as one message, and output.

Results go to standard output, as lines or as JSON; remarks about them to standard error.
"""

import asyncio
import contextlib
import errno
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import Status, describe
from parties.local.processes import HELD_OPTION, Supervision, await_begin
from parties.observability.events import (
    CLEAR_LINE,
    Event,
    EventSink,
    JsonLines,
    Progress,
    TextLines,
    ignoring_full_disk,
)
from parties.observability.failure_causes import cause_of
from parties.observability.systemd import SystemdSink
from parties.storage.files import disk_errors
from protocols.errors import ChannelError

Command = Callable[..., None]
Result = TypeVar("Result")

TEXT_FORMAT = "text"
_CANCEL_S = 1.0
"""Time that remaining tasks have to react to their cancellation, in seconds."""


class CommandState:
    """State of a command for the handling of its failure."""

    def __init__(self) -> None:
        self.debug = False
        self.log: EventSink | None = None
        """Log for the failure, instead of standard error."""


def common_options(command: Command) -> Command:
    """Adds --json (as ``as_json``) and --debug."""

    def set_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        state = ctx.find_object(CommandState)
        if state is not None and value:
            state.debug = True

    command = click.option(
        "--json", "as_json", is_flag=True, help="For programs: JSON on standard output."
    )(command)
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=set_debug,
        help="Show where a failure came from.",
    )(command)


register_option = click.option(
    "--register",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE",
    help="What this server has released, if not SYNCRET_REGISTER or its place in your home. Keep it.",
)


def _log(ctx: click.Context, parameter: click.Parameter, value: str) -> EventSink | None:
    if value == TEXT_FORMAT:
        return None
    # Local import: only servers need it, and they import it anyway.
    from parties.observability.logs import JsonLog

    log = JsonLog()
    ctx.with_resource(log.installed())
    if (state := ctx.find_object(CommandState)) is not None:
        state.log = log
    return log


log_option = click.option(
    "--log-format",
    "log",
    type=click.Choice([TEXT_FORMAT, "json"]),
    default=TEXT_FORMAT,
    callback=_log,
    help="Lines on standard error: for people, or JSON with time, party, study and event, and what was not let in.",
)
"""Passes a JSON log to the command as ``log``, or None."""


def _wait_for_begin(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        await_begin()


held_option = click.option(
    HELD_OPTION,
    is_flag=True,
    hidden=True,
    expose_value=False,
    is_eager=True,
    callback=_wait_for_begin,
)


def command_progress(prefix: str = "", *, as_json: bool = False) -> Progress:
    """Returns the bus of a command's events, which go to JSON lines, or else to lines with a prefix."""
    return Progress(JsonLines() if as_json else TextLines(prefix))


def server_progress(prefix: str, log: EventSink | None, *, as_json: bool) -> Progress:
    """Returns the bus of a server's events: JSON and its ``log``, or else lines with a prefix; and the supervisor."""
    sinks: list[EventSink] = [JsonLines()] if as_json else []
    if log is not None:
        sinks.append(log)
    return Progress(*(sinks or [TextLines(prefix)]), SystemdSink())


def make_private(directory: Path) -> None:
    """Makes a ``directory`` for secrets, or checks that an existing one is closed to others. Raises StoreError."""
    with disk_errors(directory, "made"):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = directory.stat().st_mode & 0o777
    if mode & 0o077:
        raise StoreError(
            directory,
            f"others may enter it (mode {mode:o}); expected 700, as after: chmod 700 {directory}",
        ) from PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def run_supervised(
    main: Callable[[Supervision], Awaitable[Result]],
    *,
    watch_stdin: bool,
    events: Progress | None,
    again: str = "",
) -> Result:
    """Runs ``main`` on an event loop until its end, SIGINT, SIGTERM or (``watch_stdin``) the end of the parent.

    Returns the result of ``main``. Raises its errors, and Stopped after a stop, with the advice ``again`` on repeating
    the command; with ``events``, the failure is an event, too. After a failure threads may still run: the caller ends
    the process without waiting for them (``exit_now``).
    """

    async def supervised() -> Result:
        supervision = Supervision(watch_stdin=watch_stdin)
        try:
            return await main(supervision)
        except asyncio.CancelledError:
            if supervision.stopped is None:
                raise
            raise supervision.stopped.with_advice(again) from None

    loop = asyncio.new_event_loop()
    try:
        result = loop.run_until_complete(supervised())
        loop.run_until_complete(loop.shutdown_asyncgens())
        return result
    except BaseException as error:
        if events is not None:
            _emit_failure(events, error)
        raise
    finally:
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=_CANCEL_S))
        loop.close()


def _emit_failure(events: Progress, error: BaseException) -> None:
    failure, obstacle = describe(error), cause_of(error)
    events.event(
        "failed" if failure.status else "stopped",
        failure.message,
        status=int(failure.status),
        peer=error.pid if isinstance(error, ChannelError) else None,
        cause=obstacle.cause.value,
        detail=obstacle.detail,
    )


def exit_now(status: int) -> None:
    """Ends the process at once, without waiting for threads that still compute."""
    sys.stdout.flush()
    with ignoring_full_disk():
        sys.stderr.flush()
    os._exit(status)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGINT end the block and its children, also in a process that was started with SIGINT ignored.

    A shell without job control starts background processes with SIGINT ignored, and children inherit that.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Defers SIGINT and SIGTERM until the end of the block, also if it fails.

    Thus every child that was started is recorded.
    """
    arrived: list[int] = []
    # Only the main thread receives the signals.
    numbers = (
        (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread()
        else ()
    )
    before = {one: signal.signal(one, lambda number, _: arrived.append(number)) for one in numbers}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        for number in arrived:
            signal.raise_signal(number)


def run_command_line(cli: click.Group, arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status; a failure is one message on standard error."""
    state = CommandState()
    try:
        with interruptible():
            left = cli.main(args=arguments, prog_name="syncret", standalone_mode=False, obj=state)
    except click.ClickException as error:
        with ignoring_full_disk():
            _with_hint(error).show()
        return int(Status.USAGE)
    except (click.Abort, KeyboardInterrupt):
        _print_failure("stopped by Ctrl-C")
        return int(Status.INTERRUPTED)
    except BrokenPipeError:
        return int(Status.DEFECT)
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # Whatever it is: one message and a status.
        return _failed(error, state)
    # A command that chooses its status raises click's Exit, which comes back as a number.
    return left if isinstance(left, int) else int(Status.DONE)


def _with_hint(error: click.ClickException) -> click.ClickException:
    """Names ``--data`` where an argument was too many for a command that takes tables by that option alone."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or "unexpected extra argument" not in error.message:
        return error
    if not any("--data" in parameter.opts for parameter in context.command.params):
        return error
    return click.UsageError(f"{error.message.rstrip('.')}; a table stands behind --data", context)


def _failed(error: BaseException, state: CommandState) -> int:
    if state.debug:
        with ignoring_full_disk():
            traceback.print_exception(error)
    failure = describe(error)
    if state.log is not None:
        name = "failed" if failure.status else "stopped"
        state.log.take(Event(name, failure.message, {"status": int(failure.status)}))
    elif failure.status is Status.DONE:
        with ignoring_full_disk():
            click.echo(f"syncret: {failure.message}", err=True)
    else:
        _print_failure(failure.message)
    return int(failure.status)


def _print_failure(message: str) -> None:
    clear = CLEAR_LINE if sys.stderr.isatty() else ""
    with ignoring_full_disk():
        click.echo(f"{clear}syncret: error: {message}", err=True)


def print_json(document: Mapping[str, object]) -> None:
    """Prints one JSON document, for programs."""
    click.echo(json.dumps(document, indent=2))


def print_lines(lines: Sequence[str]) -> None:
    """Prints a result, for people."""
    click.echo("\n".join(lines))


def say(text: str) -> None:
    """Prints a remark on standard error, such as the path of a result or the next step."""
    click.echo(text, file=sys.stderr)
