"""Children that are held: nothing happens before they may begin, and they do not outlive who holds them."""

import asyncio
import os
from pathlib import Path

import pytest

from parties.foundation.exit_codes import Status
from parties.local.processes import Child


def held(folder: Path) -> Child:
    """A server without a configuration."""
    arguments = [
        "internal",
        "server",
        str(folder / "none.toml"),
        "--pid",
        "0",
        "--json",
        "--watch-stdin",
    ]
    return Child.held("party 0", arguments, log=folder / "made" / "log.txt")


def test_begin_lets_a_held_child_work_with_its_log_where_it_belongs(tmp_path: Path) -> None:
    async def played() -> tuple[list[object], int]:
        child = held(tmp_path)
        await asyncio.sleep(0.1)  # Sleeps: quiet.
        assert child.running
        # Not before now is there a place for its log.
        (tmp_path / "made").mkdir()
        child.begin()
        events = [event["event"] async for event in child.events()]
        status = await child.wait()
        await child.stop()
        assert child.failure is not None
        assert "none.toml" in child.describe_end()
        return events, status

    assert asyncio.run(played()) == (["failed"], Status.CONFIG)
    assert "none.toml" in (tmp_path / "made" / "log.txt").read_text()


def test_held_child_ends_with_who_holds_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def left() -> int:
        child = held(tmp_path)
        # What becomes of the pipe when its parent is killed.
        assert child._process.stdin is not None
        child._process.stdin.close()
        status = await child.wait()
        await child.stop()
        return status

    assert asyncio.run(left()) == Status.TERMINATED
    child = held(tmp_path)
    child.kill()
    assert not child.running
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    assert not (tmp_path / "made").exists()
    assert capfd.readouterr().err == ""
