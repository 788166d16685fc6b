"""Child processes that cannot outlive their parent, and stopping on request.

``Child`` starts a process in a session of its own with a pipe on its standard input. The pipe carries commands, one a
line. The end of the pipe, which the operating system delivers even when the parent is killed, tells the child to stop,
so that no orphans remain. ``Supervision`` is the child's end of that pipe together with SIGINT and SIGTERM. Nothing
here is secret.

A child's imports take half a second. A ``held`` child is started before it has work: it imports its modules and waits
for ``begin`` (``await_begin`` is the child's end of that).
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from parties.foundation.exit_codes import ChildFailed, Status, Stopped
from parties.observability.failure_causes import Obstacle, obstacle_of
from parties.observability.systemd import is_supervised, notify, without_supervisor

STOP_GRACE_S = 3.0
"""Seconds from SIGTERM to a child until SIGKILL."""
HARD_EXIT_S = 8.0
"""Maximum duration of an orderly stop in the process itself, in seconds."""
HELD_OPTION = "--held"
_LOG_TAIL_BYTES = 4000
_POLL_S = 0.005


class FailedChild(ChildFailed):
    """Failure of a child process, with the process."""

    def __init__(self, child: "Child", status: Status) -> None:
        super().__init__(child.describe_end(), status)
        self.child = child


class Child:
    """A running process ``name`` with JSON events on standard output; other output goes to the file ``log``."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process
        self.failure: tuple[Status, str] | None = None
        self.obstacle: Obstacle | None = None
        """Cause of the failure, by the child's own account."""
        self.blamed_server: int | None = None
        """Index of the server whose loss made the child fail, by its own account."""

    @classmethod
    def start(
        cls, name: str, arguments: Sequence[str], *, log: Path, pass_fds: Sequence[int] = ()
    ) -> "Child":
        """Runs ``python -m parties ARGUMENTS``; ``pass_fds`` are shared descriptors.

        Raises OSError if the process or its log cannot be started.
        """
        with log.open("ab") as output:
            return cls(name, _run(arguments, output, pass_fds), log)

    @classmethod
    def held(cls, name: str, arguments: Sequence[str], *, log: Path) -> "Child":
        """Starts a child that waits for ``begin``; ``log`` need not be writable before that. Raises OSError."""
        return cls(name, _run([*arguments, HELD_OPTION], None), log)

    def begin(self) -> None:
        """Lets a held child do its work, with its other output in its log."""
        self.command(str(self.log.absolute()))

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True if the process has not ended yet, as far as is known."""
        return self._process.poll() is None

    async def events(self) -> AsyncIterator[Mapping[str, object]]:
        """Yields events until the child's output ends; a line that is no event goes to the log."""
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), self._process.stdout
        )
        try:
            while line := await stream.readline():
                if (event := _event(line)) is not None:
                    self._note_failure(event)
                    yield event
                else:
                    with self.log.open("ab") as log:
                        log.write(line)
        finally:
            transport.close()

    def _note_failure(self, event: Mapping[str, object]) -> None:
        if event["event"] == "failed":
            self.failure = (_status(event.get("status")), str(event.get("text")))
            peer = event.get("peer")
            self.blamed_server = peer if isinstance(peer, int) else None
            self.obstacle = obstacle_of(event.get("cause"), event.get("detail"))

    def command(self, line: str) -> None:
        """Sends a command line; does nothing if the child has ended."""
        stream = self._process.stdin
        if stream is not None and self.running:
            with contextlib.suppress(ConnectionError):
                stream.write(line.encode() + b"\n")

    async def wait(self) -> int:
        """Returns the exit status, negative for a signal."""
        # The caller waits after the child's output has ended, so the loop is short.
        while (status := self._process.poll()) is None:  # noqa: ASYNC110  # A process sets no event.
            await asyncio.sleep(_POLL_S)
        return status

    async def end_well(self) -> None:
        """Waits for the end. Raises FailedChild unless the exit status is 0."""
        code = await self.wait()
        if code != 0:
            status = Status.KILLED if code < 0 else Status.DEFECT
            raise FailedChild(self, self.failure[0] if self.failure else status)

    def describe_end(self) -> str:
        """Cause of the end: the child's own last message, or the signal or status."""
        code = self._process.poll()
        if self.failure is not None:
            return f"{self.name}: {self.failure[1]}"
        if code is not None and code < 0:
            return f"{self.name} was killed by {signal.Signals(-code).name}; see {self.log}"
        return f"{self.name} ended with status {code}; the end of {self.log}:\n{self._tail()}"

    def _tail(self) -> str:
        with contextlib.suppress(OSError):
            return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
        return ""

    async def stop(self) -> None:
        """Ends the child: SIGTERM, a short grace, SIGKILL (which reaches a stopped process, too)."""
        if self.running:
            self._process.terminate()
            try:
                await asyncio.wait_for(self.wait(), STOP_GRACE_S)
            except TimeoutError:
                self._process.kill()
                await self.wait()
        self._close()

    def kill(self) -> None:
        """Kills the child at once, if nothing waits for its answer."""
        if self.running:
            self._process.kill()
            self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def await_begin() -> None:
    """Waits, in a held child, for the parent's ``begin``. Ends the process if the parent is gone."""
    line = b""
    # Byte by byte: later input is for ``Supervision``.
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            os._exit(int(Status.TERMINATED))
        line += byte
    log = os.open(os.fsdecode(line[:-1]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 2)
    os.close(log)


def _run(
    arguments: Sequence[str], output: IO[bytes] | None, pass_fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "parties", *arguments],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        start_new_session=True,
        pass_fds=pass_fds,
        env=child_environment(),
    )


def _event(line: bytes) -> Mapping[str, object] | None:
    """Returns the event in a line of output; None if the line is no event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def child_environment() -> dict[str, str]:
    """The parent's environment, with this project importable.

    The system's certificate files are off: only the run's own certificates count, and loading the system's takes time.
    """
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    nobody = dict.fromkeys(("SSL_CERT_FILE", "SSL_CERT_DIR"), os.devnull)
    added = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    return {**without_supervisor(dict(os.environ)), **added, **nobody}


def _status(value: object) -> Status:
    try:
        return Status(value)  # type: ignore[arg-type]
    except ValueError:
        return Status.DEFECT


class Supervision:
    """Stop requests and commands to this process during ``task``, the current task.

    ``go`` is set by the command ``go``, at the end of this process's wait. ``stopped`` is the reason of the task's
    cancellation.
    """

    def __init__(self, *, watch_stdin: bool) -> None:
        self.go = asyncio.Event()
        self.stopped: Stopped | None = None
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        # A stop by a supervisor's SIGTERM is a success.
        ordered = Status.DONE if is_supervised() else Status.TERMINATED
        for number, status in ((signal.SIGINT, Status.INTERRUPTED), (signal.SIGTERM, ordered)):
            name = "Ctrl-C" if number == signal.SIGINT else number.name
            self._loop.add_signal_handler(number, self._stop, f"stopped by {name}", status)
        if watch_stdin:
            threading.Thread(target=self._watch, name="watch-stdin", daemon=True).start()

    def close(self) -> None:
        """Sets ``go``; from any thread."""
        self._call(self.go.set)

    def cancel(self) -> None:
        """Ends the process in order, as after SIGTERM; from any thread."""
        self._call(self._stop, "stopped by its operator", Status.TERMINATED)

    def _watch(self) -> None:
        # The raw descriptor: a buffered reader's lock would be held when the interpreter ends.
        pending = b""
        with contextlib.suppress(OSError):
            while data := os.read(0, 4096):
                *lines, pending = (pending + data).split(b"\n")
                if b"go" in lines:
                    self._call(self.go.set)
        self._call(self._stop, "stopped: its launcher is gone", Status.TERMINATED)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended already.
            self._loop.call_soon_threadsafe(function, *arguments)

    def _stop(self, message: str, status: Status) -> None:
        if self.stopped is None and self._task is not None:
            notify("STOPPING=1")
            self.stopped = Stopped(message, status)
            self._task.cancel()
            # A forced end never reports success.
            forced = int(status or Status.TERMINATED)
            timer = threading.Timer(HARD_EXIT_S, os._exit, (forced,))
            timer.daemon = True
            timer.start()
