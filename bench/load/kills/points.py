"""The points of a server's run at which something can happen to it, and the faults that happen within its process.

Provides ``watch``: from then on this process passes a numbered point before and after every call by which a server
charges, keeps, opens, seals, sends on or deletes something, and when it enters a step of the protocol; at the one that
is asked for the fault happens. What is patched here is patched in this process alone. Public: names of points.
"""

import datetime
import functools
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import parties.distaim.computation
import parties.enrolment
import parties.tls
from parties.distaim.outbox import Outbox
from parties.distaim.store import Store
from parties.ledger import DurableLedger
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
"""By name: what happens."""
_CLOCK_S = 3 * 3600.0


class Point:
    """Where ``fault`` happens: after so many points. Its name is written into the file ``hit`` before that."""

    def __init__(self, number: int, fault: str, hit: Path) -> None:
        self._number = number
        self._fault = fault
        self._hit = hit
        self._passed = 0

    @property
    def count(self) -> int:
        """How many were passed so far."""
        return self._passed

    def passed(self, name: str) -> None:
        """One more."""
        self._passed += 1
        if self._passed == self._number:
            self._hit.write_text(name)
            _happens(self._fault)

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


def _happens(fault: str) -> None:
    match fault:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop" | "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "full":
            # SIGXFSZ is ignored by the interpreter: writes fail with EFBIG.
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        case "ahead":
            _shift_clock(_CLOCK_S)
        case "behind":
            _shift_clock(-_CLOCK_S)


def _shift_clock(seconds: float) -> None:
    """What this process's own code takes for the time of day; OpenSSL's stays."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)
    delta = datetime.timedelta(seconds=seconds)
    tls_now, enrolment_now = parties.tls._now, parties.enrolment.now
    parties.tls._now = lambda: tls_now() + delta
    parties.enrolment.now = lambda: enrolment_now() + delta


def watch(number: int, fault: str, hit: Path) -> Point:
    """Let ``fault`` happen at point ``number`` of this process; 0: at none."""
    point = Point(number, fault, hit)
    point.watch(DurableLedger, "charge", lambda _, round, step, __: f"charge {round} {step}")
    point.watch(Store, "save_checkpoint", lambda _, kept: f"checkpoint {kept.round}")
    point.watch(Store, "set_meta", lambda _, key, value: f"meta {key}")
    point.watch(Store, "save_total", lambda _, total: f"total {total.round}")
    point.watch(Store, "discard_files", lambda _, table: f"discard {table}")
    point.watch(Store, "scrub", lambda _: "scrub")
    point.watch(Store, "accept", lambda *_, **__: "accept")
    point.watch(Outbox, "delivered", lambda *_, **__: "delivered")
    point.watch(Transcript, "ledger", lambda _, **f: f"ledger {f['round']} {f['step']}")
    point.watch(Transcript, "opened", lambda _, **f: f"opened {f['round']} {f['what']}")
    point.watch(Transcript, "note", lambda _, what, **f: f"note {what} {f.get('round')}")
    point.watch(Transcript, "seal", lambda _, reason: f"seal {reason}")
    point.watch(Context, "step", lambda _, name, round=None: f"step {name} {round}")
    point.watch(parties.distaim.computation, "write_json", lambda path, *_, **__: path.name)
    return point
