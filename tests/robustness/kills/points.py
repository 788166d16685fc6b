"""The points of a server's run at which a fault can happen, and the faults within its process.

After ``watch``, this process passes a numbered point before and after every call by which a server charges, keeps,
opens, seals, forwards or deletes something, and when it enters a step of the protocol; at the chosen point the fault
happens. The patches affect this process alone. Names of points are public.
"""

import contextlib
import datetime
import functools
import inspect
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import parties.identity.tls
import parties.mpc.server_folder
import parties.session.enrollment
from bench.load.services import children
from parties.mpc.storage.folder_files import FolderFiles
from parties.mpc.storage.outbox import Outbox
from parties.mpc.storage.releases import ReleaseStore
from parties.mpc.storage.store import Store
from parties.mpc.storage.submissions import SubmissionStore
from parties.mpc.storage.totals import TotalStore
from parties.storage.privacy_ledger import DurableLedger
from protocols.context import Context
from protocols.transcript import Transcript

KILL, STOP, HANG, FULL = "kill", "stop", "hang", "full"
AHEAD, BEHIND, CUT, LAG = "ahead", "behind", "cut", "lag"
FAULTS = {
    KILL: "SIGKILL",
    STOP: "SIGSTOP, and SIGCONT before the others' deadline",
    HANG: "SIGSTOP, and SIGCONT after the others' deadline",
    FULL: "from then on no file grows: what a full disk does",
    AHEAD: "its clock is three hours ahead",
    BEHIND: "its clock is three hours behind",
    CUT: "all its connections to other servers break",
    LAG: "what it says to other servers and hears from them comes late, in pieces of any size",
}
"""Description of each fault, by name."""
OF_SERVICES = {
    FULL: "for two seconds no file grows, in its studies' processes neither",
    CUT: "all connections between servers break",
    LAG: "what servers say to one another comes late from then on, in pieces of any size",
}
"""Descriptions that differ for a service."""
_CLOCK_S = 3 * 3600.0
_CLOCKS: Sequence[tuple[Any, str]] = (
    (parties.identity.tls, "_now"),
    (parties.session.enrollment, "utc_now"),
)


class Point:
    """The point at which ``fault`` happens: the ``number``-th. Its name is written into the file ``hit`` before that.

    ``clocks`` are functions, by their modules and names, that tell the time beside those of `time`.
    """

    def __init__(
        self, number: int, fault: str, hit: Path, clocks: Sequence[tuple[Any, str]] = _CLOCKS
    ) -> None:
        self._number = number
        self.fault = fault
        self._hit = hit
        self._clocks = clocks
        self._lock = threading.Lock()
        self.names = list[str]()
        """Names of the points passed so far."""

    @property
    def count(self) -> int:
        """Number of points passed so far."""
        return len(self.names)

    def passed(self, name: str, *, once: bool = False) -> None:
        """Passes one more point, from any thread; a point passed ``once`` does not count the next time."""
        with self._lock:
            if once and name in self.names:
                return
            self.names.append(name)
            here = self.count == self._number
        if here:
            self._hit.write_text(name)
            _happens(self.fault, self._clocks)

    def watch(
        self, owner: Any, name: str, label: Callable[..., str], *, once: bool = False
    ) -> None:
        """Passes points before and after every call, or the first one with its label, of the owner's function."""
        real = getattr(owner, name)

        @functools.wraps(real)
        def watched(*args: Any, **kwargs: Any) -> Any:
            what = label(*args, **kwargs)
            self.passed(f"before {what}", once=once)
            result = real(*args, **kwargs)
            self.passed(f"after {what}", once=once)
            return result

        @functools.wraps(real)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            what = label(*args, **kwargs)
            self.passed(f"before {what}", once=once)
            result = await real(*args, **kwargs)
            self.passed(f"after {what}", once=once)
            return result

        setattr(owner, name, awaited if inspect.iscoroutinefunction(real) else watched)


def _happens(fault: str, clocks: Sequence[tuple[Any, str]]) -> None:
    match fault:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop" | "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "full":
            # SIGXFSZ is ignored by the interpreter: writes fail with EFBIG.
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            for pid in [os.getpid(), *children(os.getpid())]:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
        case "ahead":
            _shift_clocks(_CLOCK_S, clocks)
        case "behind":
            _shift_clocks(-_CLOCK_S, clocks)


def _shift_clocks(seconds: float, clocks: Sequence[tuple[Any, str]]) -> None:
    """Shifts the time of day for this process's own code; OpenSSL's stays."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)
    for module, name in clocks:
        setattr(module, name, _shifted(getattr(module, name), datetime.timedelta(seconds=seconds)))


def _shifted(
    clock: Callable[[], datetime.datetime], by: datetime.timedelta
) -> Callable[[], datetime.datetime]:
    return lambda: clock() + by


def watch(number: int, fault: str, hit: Path) -> Point:
    """Lets ``fault`` happen at point ``number`` of this process, at none if that is 0."""
    point = Point(number, fault, hit)
    point.watch(DurableLedger, "charge", lambda _, round, step, __, **___: f"charge {round} {step}")
    point.watch(ReleaseStore, "save_checkpoint", lambda _, kept: f"checkpoint {kept.round}")
    point.watch(Store, "set_meta", lambda _, key, value: f"meta {key}")
    point.watch(TotalStore, "save", lambda _, total: f"total {total.round}")
    point.watch(FolderFiles, "discard", lambda _, table: f"discard {table}")
    point.watch(Store, "scrub", lambda _: "scrub")
    point.watch(SubmissionStore, "accept", lambda *_, **__: "accept")
    point.watch(Outbox, "delivered", lambda *_, **__: "delivered")
    point.watch(Transcript, "ledger", lambda _, **f: f"ledger {f['round']} {f['step']}")
    point.watch(Transcript, "opened", lambda _, **f: f"opened {f['round']} {f['what']}")
    point.watch(Transcript, "note", lambda _, what, **f: f"note {what} {f.get('round')}")
    point.watch(Transcript, "seal", lambda _, reason: f"seal {reason}")
    point.watch(Context, "step", lambda _, name, round=None: f"step {name} {round}")
    point.watch(parties.mpc.server_folder, "write_json", lambda path, *_, **__: path.name)
    return point
