"""Worker process of one study, on both sides: supervision in the service, and the run in the process.

``Worker`` starts a process, passes connections to it, restarts it after failures, and stops it. Each study has a
process of its own, so that a failure, a leak or an attack stays with it. The process ends when the service does, by the
pipe on its standard input, even if the service is killed. Obstacles that pass, such as the loss of a peer, and those
that its operator can cure alone, such as a full disk, are retried for ever, at growing intervals; an obstacle that
needs a new decision, such as a spent budget, ends the study here (`parties.service.attempts`).

``run_study`` runs in the process: one study of either kind, over the connections that it receives. It continues the run
in its folder. Secret: the files of the run. Public: its events.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from parties.config import Config
from parties.foundation.exit_codes import describe
from parties.foundation.report_limit import ReportLimit
from parties.local.processes import Child
from parties.methods.registry import served_method
from parties.mpc.estimation import LEAD
from parties.mpc.server import run_mpc_server
from parties.network.port_sharing import INGEST, MESH, SharedPorts, pass_socket
from parties.network.sni_router import SniRouter
from parties.observability.clocks import Clocks
from parties.observability.events import JsonLines, Progress
from parties.observability.failure_causes import CURES, Cure, Obstacle, cause_of, cause_of_exit
from parties.observability.logs import JsonLog, logged_status
from parties.observability.status import RunInfo
from parties.service.attempts import RetryState, decide_retry
from parties.service.events import EventName, relayed
from parties.service.exposed_run import with_admin_api
from parties.service.run_api import CommandHandlers
from parties.service.study_intake import StudyFolder
from parties.service.study_record import DISTAIM, StudyRecord, StudyState
from parties.session.operator_commands import OperatorCommands as Asking

_LOG_BYTES = 1 << 24
_ROUND_EVENT, _RECORD = "round-done", "log"
_PROGRESS_EVENTS, _SINGLE_PROGRESS_EVENTS = ("connected", _ROUND_EVENT), ("listening", _ROUND_EVENT)
"""Events after which the count of failures starts anew."""
_REJECTED = "rejected"
_MAX_REJECTED, _REJECTED_S = 20, 10.0
"""Number of refused inputs, and of log records, that a study reports in so many seconds; ``worker.log`` has all."""
STEADY_S = 5.0
"""Time that an attempt runs with its peers before an obstacle for the operator counts as cured, in seconds."""


class Worker:
    """Supervisor of a study's process in ``folder``; calls ``on_change`` after every change.

    ``traces`` is where the process sends traces of its steps. Its events, refused inputs among them, go to the bus
    ``events``.

    Attributes:
        state: WAITING, RUNNING or CLOSED.
        outcome: Final state with a reason, once the study has ended.
        calling: True while it waits for the other servers' processes after a failure.
        text: Last event or error text.
        obstacle: Last failure, until an attempt makes progress.
    """

    def __init__(
        self,
        study: StudyRecord,
        folder: StudyFolder,
        *,
        name: str,
        pid: int,
        register: Path | None,
        routers: tuple[SniRouter, SniRouter],
        clocks: Callable[[], Clocks],
        on_change: Callable[[], None],
        events: Progress,
        traces: str | None = None,
    ) -> None:
        self.study = study
        self.folder = folder
        self.state = StudyState.WAITING
        self.outcome: tuple[StudyState, str] | None = None
        self.calling = False
        self.text = ""
        self.obstacle: Obstacle | None = None
        self.restarts = 0
        self.next_try_at: float | None = None
        self._name = name
        self._pid = pid
        self._register = register
        self._traces = traces
        self._mesh, self._ingest = routers
        self._clocks = clocks
        self._on_change = on_change
        self._events = events
        self._limits = {
            name: ReportLimit(_REJECTED_S, _MAX_REJECTED) for name in (_REJECTED, _RECORD)
        }
        self._retry = RetryState()
        self._steady: asyncio.TimerHandle | None = None
        self._child: Child | None = None
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    @property
    def process(self) -> int | None:
        """Process id, None without a running process."""
        return self._child.pid if self._child is not None and self._child.running else None

    async def stop(self) -> None:
        """Ends the process; finished work stays in its folder."""
        self._stopping = True
        if self._child is not None:
            await self._child.stop()
        self._cancel_steady_timer()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self.outcome is None:
            try:
                await self._run_process()
            except Exception as error:  # noqa: BLE001  # A lack of this host's resources does not end a study.
                self._on_failure(cause_of(error), f"cannot be started: {describe(error).message}")
            self._on_change()
            if self.outcome is None:
                self.next_try_at = time.time() + self._retry.pause_s
                await asyncio.sleep(self._retry.pause_s)
                self._retry = self._retry.after_pause()
                self.next_try_at, self.restarts = None, self.restarts + 1

    async def _run_process(self) -> None:
        """Runs one process from start to end. Raises OSError."""
        _rotate(self.folder.log)
        ours, theirs = socket.socketpair()
        with contextlib.closing(ours):
            ours.setblocking(False)
            with contextlib.closing(theirs):
                child = self._child = Child.start(
                    self.study.run,
                    self._arguments(theirs.fileno()),
                    log=self.folder.log,
                    pass_fds=(theirs.fileno(),),
                )
            try:
                self._open_routes(ours)
                async for event in child.events():
                    self._on_event(event, child.pid)
                self._on_exit(child, await child.wait())
            finally:
                self._close_routes()
                await child.stop()

    def _arguments(self, channel: int) -> list[str]:
        pid = ["--pid", str(self._pid)] if self.study.kind == DISTAIM else []
        register = [] if self._register is None else ["--register", str(self._register)]
        where = [str(self.folder.config), "--dir", str(self.folder.work)]
        log = ["--log-format", "json"]
        traces = [] if self._traces is None else ["--traces", self._traces]
        more = [*log, *pid, *register, *traces]
        return ["internal", "worker", *where, "--channel", str(channel), *more]

    def _open_routes(self, channel: socket.socket) -> None:
        for kind, front in ((MESH, self._mesh), (INGEST, self._ingest)):
            front.routes[self._name] = partial(pass_socket, channel, kind)

    def _close_routes(self) -> None:
        for front in (self._mesh, self._ingest):
            front.routes.pop(self._name, None)

    def _on_event(self, event: Mapping[str, object], pid: int) -> None:
        name = event.get("event")
        self._relay(event, pid)
        if name in (_REJECTED, _RECORD):
            return
        self.text = str(event.get("text"))
        if name in (_PROGRESS_EVENTS if self.study.kind == DISTAIM else _SINGLE_PROGRESS_EVENTS):
            self.calling = False
            self._on_progress(at_once=name == _ROUND_EVENT)
            self.state = (
                StudyState.CLOSED if self.state is StudyState.CLOSED else StudyState.RUNNING
            )
        if name == StudyState.CLOSED.value:
            self.state = StudyState.CLOSED
        self._on_change()

    def _relay(self, event: Mapping[str, object], pid: int) -> None:
        """Passes an event of the process on; refused inputs and log records, which others cause, at a limited rate."""
        found = relayed(event, self.study.run, pid)
        if found is None:
            return
        if found.name in self._limits:
            more = self._limits[found.name].admit()
            if more is None:
                return
            if more:
                what = "inputs were refused" if found.name == _REJECTED else "lines were logged"
                text = f"{more} more {what}; see {self.folder.log}"
                self._events.event(found.name, text, study=self.study.run, more=more)
        self._events.take(found)

    def _on_progress(self, *, at_once: bool) -> None:
        """Records progress. A full disk shows only at the next write: its obstacle is cleared after ``STEADY_S``."""
        by_operator = self.obstacle is not None and CURES[self.obstacle.cause] is Cure.OPERATOR
        if at_once or not by_operator:
            self._clear_obstacle()
        elif self._steady is None:
            self._steady = asyncio.get_running_loop().call_later(STEADY_S, self._clear_obstacle)

    def _clear_obstacle(self) -> None:
        self._cancel_steady_timer()
        self._retry, self.obstacle = RetryState(), None
        self._on_change()

    def _cancel_steady_timer(self) -> None:
        if self._steady is not None:
            self._steady.cancel()
            self._steady = None

    def _on_exit(self, child: Child, code: int) -> None:
        self.state = StudyState.WAITING
        self._cancel_steady_timer()
        if code == 0:
            self.outcome = (StudyState.FINISHED, "")
        elif not self._stopping:
            text = child.failure[1] if child.failure else child.describe_end()
            self._on_failure(child.obstacle or cause_of_exit(code), text)

    def _on_failure(self, obstacle: Obstacle, text: str) -> None:
        self.text = text
        self.calling = True
        after = decide_retry(self._retry, obstacle, self._clocks())
        self._retry, self.obstacle = after.tries, after.obstacle
        if after.over:
            self.outcome = (StudyState.FAILED, text)
        self._events.event(
            EventName.PROCESS_FAILED,
            f"{self.study.run}: {text}",
            study=self.study.run,
            digest=self.study.digest,
            state=self.state.value,
            reason=self.obstacle.cause.value,
            restarts=self.restarts,
        )


def _rotate(log: Path) -> None:
    """Rotates a log above the size limit, so that a study with many restarts does not fill the disk."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_BYTES:
            log.rename(log.with_suffix(".log.1"))


async def run_study(
    config: Config,
    pid: int | None,
    directory: Path,
    *,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None,
    inlets: SharedPorts,
    orders: CommandHandlers,
    asked: Asking,
    log: JsonLog | None = None,
    traces: str | None = None,
) -> None:
    """Runs server ``pid`` of DistAIM, or (None) a federation's, until the study is finished, and writes the report.

    Serves the admin socket in ``directory`` meanwhile, and sends ``traces`` (`parties.service.exposed_run`). Raises as
    `parties.mpc.server.run_mpc_server` and `parties.federation.server.run_federated_server`.
    """
    about = RunInfo.of_federation(config) if pid is None else RunInfo.of_server(config, pid)
    board = logged_status(about, log, rejections=progress)
    if log is not None:
        log.records = JsonLines()
    tls = config.require_tls(pid, None if pid is not None else config.require_federation().server)
    async with with_admin_api(board, directory, orders, tls=tls, traces=traces) as tracer:
        progress = progress.also(tracer=tracer)
        if pid is None:
            # Local imports: most studies have three servers.
            from parties.federation.server import run_federated_server
            from parties.federation.tls_members import TlsClients

            served = served_method(config.federation_section)
            await run_federated_server(
                config,
                directory,
                plan=served.plan(config),
                progress=progress,
                closed=closed,
                register=register,
                meet=partial(TlsClients, inlets=inlets),
                board=board,
                orders=asked,
            )
            await asyncio.to_thread(served.write_report, config, directory)
            return
        await run_mpc_server(
            config,
            pid,
            directory,
            progress=progress,
            closed=closed,
            register=register,
            ports=inlets,
            status=board,
            commands=asked,
        )
        if pid == LEAD:
            await asyncio.to_thread(_write_lead_report, config, directory)


# Figures take half a second to import, and are needed once, at the end.


def _write_lead_report(config: Config, directory: Path) -> None:
    from parties.methods.distaim import write_lead_report

    write_lead_report(config, directory)
