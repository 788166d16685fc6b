"""The process of a study, and what its failures lead to: real processes, which a test writes in a line of shell."""

import asyncio
import errno
import json
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import parties.service.attempts
from parties.local import processes as processes_module
from parties.observability.clocks import Clocks
from parties.observability.events import Event, Progress
from parties.observability.failure_causes import Cause, Obstacle
from parties.service import workers
from parties.service.attempts import MAX_FAILURES
from parties.service.study_record import DISTAIM, StudyState
from parties.service.workers import Worker
from tests.until import eventually

PROGRAM = Path("/bin/sh")


class Script:
    """Commands of the next attempts, one line of shell each; the last one again and again."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = ["exit 0"]
        self.started = 0
        self.events: list[Event] = []
        self.raises: Exception | None = None
        self.clocks = Clocks(0, {}, known=True)
        self.place = Namespace(log=folder / "log", config=folder / "c.toml", work=folder / "run")
        self.worker: Worker | None = None

    def command(self) -> str:
        self.started += 1
        if self.raises is not None:
            raise self.raises
        return self.lines[min(self.started, len(self.lines)) - 1]

    def run(self, *lines: str) -> Worker:
        self.lines = list(lines)
        fronts: Any = (Namespace(routes={}), Namespace(routes={}))
        study: Any = Namespace(run="stays", kind=DISTAIM, digest="d" * 64)
        place: Any = self.place
        self.worker = Worker(
            study,
            place,
            name="stays.study.invalid",
            pid=0,
            register=None,
            routers=fronts,
            clocks=lambda: self.clocks,
            on_change=lambda: None,
            events=Progress(self),
        )
        return self.worker

    def take(self, event: Event) -> None:
        self.events.append(event)

    async def until(self, holds: Callable[[], object]) -> None:
        await eventually(holds)


@pytest.fixture
async def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Script]:
    made, start = Script(tmp_path), processes_module.subprocess.Popen

    def popen(arguments: list[str], **options: Any) -> Any:
        return start([str(PROGRAM), "-c", made.command()], **options)

    monkeypatch.setattr(processes_module.subprocess, "Popen", popen)
    monkeypatch.setattr(parties.service.attempts, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(workers.asyncio, "sleep", _hasty(asyncio.sleep))
    yield made
    if made.worker is not None:
        await made.worker.stop()


def _hasty(sleep: Any) -> Any:
    async def hasty(seconds: float) -> None:
        await sleep(min(seconds, 0.01))

    return hasty


def event(name: str, **fields: object) -> str:
    return f"echo '{json.dumps({'event': name, 'text': name, **fields})}'"


def failed(cause: Cause, detail: int | None = None, status: int = 7) -> str:
    said = event("failed", status=status, cause=cause.value, detail=detail)
    return f"{said}; exit {status}"


async def test_a_worker_tries_what_its_operator_can_cure_until_it_is_cured(script: Script) -> None:
    attempts = 3 * MAX_FAILURES
    worker = script.run(*[failed(Cause.DISK_FULL)] * attempts, "exit 0")
    await script.until(lambda: worker.obstacle)
    assert worker.obstacle == Obstacle(Cause.DISK_FULL)
    assert worker.state is StudyState.WAITING
    assert worker.calling
    await script.until(lambda: worker.outcome)
    assert worker.outcome == (StudyState.FINISHED, "")
    assert script.started == attempts + 1


async def test_a_worker_gives_up_a_defect_and_at_once_what_needs_a_decision(script: Script) -> None:
    worker = script.run(failed(Cause.FAULT, status=1))
    await script.until(lambda: worker.outcome)
    assert script.started == MAX_FAILURES + 1
    await worker.stop()
    script.started = 0
    worker = script.run(failed(Cause.DECISION, status=8))
    await script.until(lambda: worker.outcome)
    assert worker.outcome == (StudyState.FAILED, "failed")
    assert script.started == 1


async def test_a_worker_that_is_killed_goes_by_the_signal(script: Script) -> None:
    worker = script.run(*["kill -KILL $$"] * 3 * MAX_FAILURES, "exit 0")
    await script.until(lambda: worker.obstacle)
    assert worker.obstacle == Obstacle(Cause.KILLED, 9)
    await script.until(lambda: worker.outcome)
    assert worker.outcome == (StudyState.FINISHED, "")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.ENOMEM, "no memory"), Cause.MEMORY),
        (OSError(errno.EMFILE, "too many files"), Cause.FILES),
        (BlockingIOError(errno.EAGAIN, "no more processes"), Cause.IN_USE),
        (MemoryError(), Cause.MEMORY),
        # No code says what it lacks; it is tried like any defect, and the worker does not vanish.
        (RuntimeError("can't start new thread"), Cause.FAULT),
    ],
)
async def test_a_worker_that_cannot_be_started_is_not_lost(
    script: Script, error: Exception, cause: Cause
) -> None:
    script.raises = error
    worker = script.run("exit 0")
    await script.until(lambda: script.started > 2)
    assert worker.obstacle == Obstacle(cause)
    script.raises = None
    await script.until(lambda: worker.outcome)
    assert worker.outcome == (StudyState.FINISHED, "")


async def test_an_obstacle_of_a_disk_is_over_when_a_round_is_or_after_a_while(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "STEADY_S", 0.3)
    connects = event("connected")
    worker = script.run(
        failed(Cause.DISK_FULL),
        f"{connects}; sleep 0.1; {failed(Cause.DISK_FULL)}",
        f"{connects}; sleep 2",
    )
    await script.until(lambda: script.started == 3 and worker.state is StudyState.RUNNING)
    # It connected twice, and the disk may be as full as before.
    assert worker.obstacle == Obstacle(Cause.DISK_FULL)
    await script.until(lambda: worker.obstacle is None)
    assert worker.state is StudyState.RUNNING
    await worker.stop()
    script.started = 0
    monkeypatch.setattr(workers, "STEADY_S", 60.0)
    worker = script.run(failed(Cause.DISK_FULL), f"{event('round-done')}; sleep 2")
    await script.until(lambda: script.started == 2 and worker.state is StudyState.RUNNING)
    assert worker.obstacle is None


async def test_a_lost_peer_is_over_once_it_is_there(script: Script) -> None:
    worker = script.run(failed(Cause.NETWORK, 2, status=6), f"{event('connected')}; sleep 2")
    await script.until(lambda: worker.obstacle)
    assert worker.obstacle == Obstacle(Cause.NETWORK, 2)
    await script.until(lambda: worker.state is StudyState.RUNNING)
    assert worker.obstacle is None


async def test_an_expired_certificate_is_believed_of_a_clock_that_is_right(script: Script) -> None:
    script.clocks = Clocks(0, {0: 4e7}, known=True)
    worker = script.run(failed(Cause.EXPIRED, status=5))
    await script.until(lambda: script.started > MAX_FAILURES)
    assert worker.obstacle == Obstacle(Cause.CLOCK)
    script.clocks = Clocks(0, {}, known=False)
    await script.until(lambda: worker.obstacle == Obstacle(Cause.EXPIRED))
    assert worker.outcome is None
    script.clocks = Clocks(0, {}, known=True)
    await script.until(lambda: worker.outcome)
    assert worker.outcome == (StudyState.FAILED, "failed")


async def test_a_word_of_another_form_is_a_problem_of_its_own(script: Script) -> None:
    worker = script.run(f"{event('failed', status=7, cause=['x'], detail='y')}; exit 7")
    await script.until(lambda: worker.obstacle)
    assert worker.obstacle == Obstacle(Cause.OTHER)


async def test_what_a_process_reports_is_relayed_under_names_of_a_run_alone(script: Script) -> None:
    """A process that computes on what others sent cannot speak for the service, nor of another study."""
    forged = event("study.approved", study="other", actor="operator anna", done=3, deep=[1])
    worker = script.run(
        f"{forged}; {event('rejected', reason='tls', remote='203.0.113.9')}; exit 0"
    )
    await script.until(lambda: worker.outcome)
    first, second = script.events
    assert (first.name, second.name) == ("log", "rejected")
    process = first.fields["process"]
    assert isinstance(process, int)
    assert first.fields == {"study": "stays", "process": process, "done": 3}
    assert second.fields == {
        **{"study": "stays", "process": process, "reason": "tls", "remote": "203.0.113.9"}
    }
    # What is refused, and what is logged, is not what the study is at.
    assert worker.text == "study.approved"


@pytest.mark.parametrize("name", ["rejected", "log", "Of Its Own"])
async def test_what_others_cause_is_relayed_at_a_limited_rate(
    script: Script, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(workers, "_REJECTED_S", 0.5)
    refused = event(name, reason="tls")
    many = f"for i in $(seq 50); do {refused}; done"
    worker = script.run(f"{many}; sleep 1; {refused}; exit 0")
    await script.until(lambda: worker.outcome)
    assert [each.fields.get("more") for each in script.events] == [*[None] * 20, 30, None]
