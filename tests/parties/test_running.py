import contextlib
import errno
import io
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parties.cli.runtime import deferred_signals, make_private
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import Status
from parties.observability.events import EventSink, Progress, TextLines
from parties.observability.logs import JsonLog
from tests.parties.commands import ROOT


def test_make_private_makes_a_folder_that_only_its_owner_may_enter(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "party-0"
    for _ in range(2):
        make_private(place)
        assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_make_private_refuses_a_folder_that_is_open_to_others(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(StoreError, match=f"mode {mode:o}.*chmod 700"):
        make_private(tmp_path)
    # A user's folder is not changed without asking.
    assert tmp_path.stat().st_mode & 0o777 == mode


def test_make_private_names_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made"):
        make_private(tmp_path / "file")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("fails", [False, True])
def test_postponed_lets_a_signal_take_effect_at_the_end(number: int, *, fails: bool) -> None:
    steps = []
    before = signal.signal(number, lambda *_: steps.append("signal"))
    try:
        with contextlib.suppress(OSError), deferred_signals():
            signal.raise_signal(number)
            steps.append("started")
            if fails:
                raise OSError
    finally:
        signal.signal(number, before)
    assert steps == ["started", "signal"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["party", "no.toml", "--pid", "0"], Status.CONFIG),
        (["party", "no.toml", "--pid", "0", "--debug"], Status.CONFIG),
        (["nonsense"], Status.USAGE),
    ],
    ids=["failure", "debug", "usage"],
)
def test_a_command_whose_log_is_on_a_full_disk_ends_as_it_would(
    arguments: list[str], status: Status
) -> None:
    """It takes a second: only a process's own end flushes its standard error."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "parties", *arguments], cwd=ROOT, stderr=full, check=False
        )
    assert done.returncode == status


class Refusing(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, "nothing is taken")


@pytest.mark.parametrize("log", [TextLines, JsonLog])
def test_a_log_on_a_full_disk_ends_nothing(log: Callable[..., EventSink]) -> None:
    for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        Progress(log(stream=Refusing(number))).event("done", "it is done")
    # The reader of a pipe that has gone wants no more of it.
    with pytest.raises(BrokenPipeError):
        Progress(log(stream=Refusing(errno.EPIPE))).event("done", "it is done")
