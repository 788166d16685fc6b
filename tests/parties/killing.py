"""Three servers as processes of their own, killed without warning where a test says so: nothing is flushed or closed.

A point is "before" or "after" and a call that a server makes, such as "after checkpoint 1" or "before opened 2
select.index", or a number: so many points after the start.
"""

import asyncio
import functools
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import parties.mpc.server
import parties.mpc.server_folder
from parties.audit.runner import audit_folder
from parties.methods.distaim import write_lead_report
from parties.mpc.server import run_mpc_server
from parties.mpc.storage.folder_files import FolderFiles
from parties.mpc.storage.outbox import Outbox
from parties.mpc.storage.releases import ReleaseStore
from parties.mpc.storage.store import Store
from parties.mpc.storage.submissions import SubmissionStore
from parties.mpc.storage.totals import TotalStore
from parties.storage.privacy_ledger import DurableLedger
from protocols.products import NumpySums
from protocols.transcript import Transcript
from tests.parties.audit_runs import collect
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform

LIMIT_S = 60
_CONTEXT = multiprocessing.get_context("forkserver")
# Imported once, by a process without threads.
_CONTEXT.set_forkserver_preload(["tests.parties.killing"])


class _Point:
    """The point at which this process is killed."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._passed = 0

    def passed(self, name: str) -> None:
        self._passed += 1
        if self._point in (name, str(self._passed)):
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner: Any, name: str, label: Callable[..., str]) -> None:
        """Pass the points before and after every call of the owner's function."""
        real = getattr(owner, name)

        @functools.wraps(real)
        def watched(*args: Any, **kwargs: Any) -> Any:
            what = label(*args, **kwargs)
            self.passed(f"before {what}")
            result = real(*args, **kwargs)
            self.passed(f"after {what}")
            return result

        setattr(owner, name, watched)


def _watch(point: _Point) -> None:
    point.watch(DurableLedger, "charge", lambda _, round, step, __, **___: f"charge {round} {step}")
    point.watch(
        ReleaseStore, "save_checkpoint", lambda _, checkpoint: f"checkpoint {checkpoint.round}"
    )
    point.watch(Store, "set_meta", lambda _, key, value: f"meta {key}")
    point.watch(TotalStore, "save", lambda _, total: f"total {total.round}")
    point.watch(FolderFiles, "discard", lambda _, table: f"discard {table}")
    point.watch(Store, "scrub", lambda _: "scrub")
    point.watch(
        SubmissionStore,
        "accept",
        lambda _, upload, *rest, **named: f"accept {upload.submission.client}",
    )
    point.watch(
        Outbox, "delivered", lambda _, client, pid, *rest, **named: f"delivered {client} {pid}"
    )
    point.watch(Transcript, "ledger", lambda _, **f: f"ledger {f['round']} {f['step']}")
    point.watch(Transcript, "opened", lambda _, **f: f"opened {f['round']} {f['what']}")
    point.watch(Transcript, "note", lambda _, what, **f: f"note {what} {f.get('round')}")
    point.watch(Transcript, "seal", lambda _, reason: f"seal {reason}")
    point.watch(NumpySums, "result", lambda _: "counting")
    point.watch(parties.mpc.server_folder, "write_json", lambda path, *_, **__: path.name)


def _serve(cluster: Cluster, pid: int, point: str) -> None:
    """A process of its own: what is patched here is patched nowhere else."""
    parties.mpc.server.make_estimator = make_uniform  # type: ignore[assignment]
    _watch(_Point(point))
    config, folder = cluster.with_own_certificates()[pid], cluster.directory(pid)
    folder.mkdir(parents=True, exist_ok=True)
    progress = Recording()
    closed, register = asyncio.Event(), cluster.register(pid)
    asyncio.run(
        run_mpc_server(config, pid, folder, progress=progress, closed=closed, register=register)
    )


def _submit(
    cluster: Cluster, first_rounds: Mapping[str, int], capacities: Mapping[str, int]
) -> None:
    asyncio.run(cluster.submit(EVERYONE, first_rounds=first_rounds, capacities=capacities))


@contextmanager
def _started(target: Callable[..., None], *args: object) -> Iterator[ForkServerProcess]:
    process = _CONTEXT.Process(target=target, args=args)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()
        process.close()


def run_servers(
    cluster: Cluster,
    kill: Mapping[int, str] | None = None,
    first_rounds: Mapping[str, int] | None = None,
    capacities: Mapping[str, int] | None = None,
) -> list[int | None]:
    """Run the three until all have ended, those in `kill` at its point at the latest; returns their exit codes."""
    points = kill or {}
    # Copied once, before three processes would.
    cluster.with_own_certificates()
    with (
        _started(_serve, cluster, 0, points.get(0, "")) as first,
        _started(_serve, cluster, 1, points.get(1, "")) as second,
        _started(_serve, cluster, 2, points.get(2, "")) as third,
        _started(_submit, cluster, first_rounds or {}, capacities or {}),
    ):
        until = time.monotonic() + LIMIT_S
        for process in (first, second, third):
            process.join(max(0.0, until - time.monotonic()))
        return [process.exitcode for process in (first, second, third)]


def audit_of(cluster: Cluster) -> list[str]:
    """Lists the defects of a finished run and of its lead's report."""
    out = cluster.folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    collect(cluster, out)
    write_lead_report(cluster.config, cluster.directory(0))
    shutil.copyfile(cluster.directory(0) / "report.json", out / "report.json")
    report = json.loads((out / "report.json").read_text())
    # A deployment says how good its table is, and nothing that was computed from a real one.
    assert report["quality"]["marginals"]
    assert report["columns"]
    assert "not_private" not in report
    audit = audit_folder(out, replays=_recordings(cluster))
    return [f"{check.name}: {check.detail}" for check in audit.checks if check.status == "fail"]


def _recordings(cluster: Cluster) -> list[Path]:
    folders = [cluster.directory(pid) for pid in range(3)]
    return folders if cluster.config.run.record_replay else []
