"""A replay ends where nothing goes on any more, not where the first of its tasks lacks something."""

import asyncio
import time

import pytest

from parties.audit.replay_loop import ReplayEnded, ReplayLoop, running_loop


def play(*tasks: object) -> list[object]:
    async def run() -> list[object]:
        return await asyncio.gather(*(task() for task in tasks), return_exceptions=True)  # type: ignore[operator]

    with asyncio.Runner(loop_factory=ReplayLoop) as runner:
        return runner.run(run())


def test_task_that_lacks_an_item_waits_for_all_others() -> None:
    done: list[str] = []

    async def lacks() -> None:
        try:
            await running_loop().end()
        finally:
            done.append("ended")

    async def steps() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        done.append("steps")

    async def threads() -> None:
        for _ in range(3):
            await asyncio.to_thread(time.sleep, 0.02)
        done.append("threads")
        await running_loop().end()

    ended = play(lacks, steps, threads, lacks)
    assert [type(error) for error in ended] == [ReplayEnded, type(None), ReplayEnded, ReplayEnded]
    assert sorted(done[:2]) == ["steps", "threads"]
    assert done[2:] == ["ended"] * 2


@pytest.mark.parametrize("waits", [1, 3])
def test_thread_that_lacks_an_item_waits_for_all_others(waits: int) -> None:
    done: list[str] = []

    async def lacks() -> None:
        await asyncio.to_thread(running_loop().end_thread)

    async def steps() -> None:
        for _ in range(5):
            await asyncio.to_thread(time.sleep, 0.01)
            await asyncio.sleep(0)
        done.append("steps")
        await running_loop().end()

    ended = play(*[lacks] * waits, steps)
    assert all(isinstance(error, ReplayEnded) for error in ended)
    assert done == ["steps"]


def test_an_ordinary_loop_is_refused() -> None:
    async def run() -> None:
        running_loop()

    with pytest.raises(TypeError, match="is no loop of a replay"):
        asyncio.run(run())
