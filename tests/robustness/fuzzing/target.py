"""Fuzzing targets: readers of input from others, and the check of their behaviour.

A reader takes an input or refuses it, with an error of its own class whose text is readable, within ``LIMIT_S`` and
without more memory than the process may have (``bounded``). Any other end is a find. Inputs are generated data.
"""

import hashlib
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from bench.processes import memory
from mechanisms.errors import MechanismError
from parties.foundation.errors import PartyError
from parties.foundation.exit_codes import describe
from parties.foundation.untrusted_text import MAX_PRINTED
from protocols.errors import ProtocolError
from secagg.errors import SecAggError
from tests.robustness.fuzzing.mutate import Mutator

OURS: tuple[type[Exception], ...] = (PartyError, MechanismError, ProtocolError, SecAggError)
"""Roots of the packages' trees of errors."""
LIMIT_S = 10.0
"""Largest seconds for one input; readers take milliseconds, and the machine may be busy."""
_MOST_GROWTH = 1 << 31


@dataclass(frozen=True, slots=True)
class Target:
    """A reader: ``read`` takes an input or raises one of ``refuses``; ``damage`` makes inputs of the ``seeds``.

    ``share`` is the target's number of inputs per thousand in all, by its speed; a target that is not ``fresh`` reads
    one message after the other, so that a seed may come at the wrong time.
    """

    name: str
    seeds: Sequence[bytes]
    read: Callable[[bytes], object]
    damage: Callable[[Mutator, bytes], bytes]
    refuses: tuple[type[Exception], ...] = OURS
    share: float = 1.0
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Find:
    """An input of ``target`` with an unexpected end, described by ``what``."""

    target: str
    what: str
    data: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        """Place and class of the error, without its text."""
        return self.what.split(": ")[0]

    @property
    def name(self) -> str:
        """Name of the file that keeps the input."""
        return hashlib.sha256(self.data).hexdigest()[:16]


class _TooSlowError(BaseException):
    """A BaseException, so that no reader catches it by mistake."""


def judged(target: Target, data: bytes) -> tuple[Find | None, bool]:
    """Describes the defect in how ``target`` reads ``data``, None without one; and tells if ``data`` was refused."""
    try:
        with _deadline():
            target.read(data)
    except target.refuses as error:
        fault = _fault_of(describe(error).message)
        said = Find(target.name, f"{type(error).__name__}: {fault}", data)
        return (said if fault else None), True
    except _TooSlowError:
        return Find(target.name, f"takes longer than {LIMIT_S:g} s", data), False
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return Find(target.name, where(error), data), False
    return None, False


def refused_seed(target: Target) -> Find | None:
    """Returns a find if a seed is refused as it is: damaged inputs made of it would say little."""
    for seed in target.seeds if target.fresh else ():
        try:
            target.read(seed)
        except Exception as error:  # noqa: BLE001  # whatever it is, the seed is none
            return Find(target.name, f"a real one is refused: {where(error)}", seed)
    return None


@contextmanager
def bounded() -> Iterator[None]:
    """Limits the growth of this process to 2 GiB: beyond, memory runs out here and not on the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + _MOST_GROWTH, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _deadline() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGALRM, late)
    left, _ = signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    started = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # an outer timer, such as a test's deadline
            signal.setitimer(signal.ITIMER_REAL, max(0.01, left - (time.monotonic() - started)))


def _fault_of(words: str) -> str:
    """Describes the defect of an error's text; empty without one."""
    if not words.strip():
        return "says nothing"
    if len(words) > MAX_PRINTED + 3:
        return f"says {len(words)} characters"
    odd = [letter for letter in words if not letter.isprintable() and letter != "\n"]
    return f"says {odd[0]!r}, which would reach a terminal" if odd else ""


def where(error: Exception) -> str:
    """Describes an unexpected error: class, place, the beginning of its text."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if any(
            f"/{package}/" in name for package in ("parties", "protocols", "secagg", "mechanisms")
        ):
            place = f"{'/'.join(name.split('/')[-2:])}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} in {place or 'a library'}: {str(error)[:120]!r}"
