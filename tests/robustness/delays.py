"""Plugin of pytest: random delays around threads and new connections of event loops, to find tests that lean on a time.

``python -m pytest -p tests.robustness.delays tests/parties``, and again with another ``DELAYS_SEED``.
A test that fails with it, and passes alone, waits for a time where it should wait for what it looks at
(``tests.until.eventually``), or has a deadline of a second or two.
"""

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

SHARE, LONGEST_S = 0.12, 0.5
_draw = random.Random(os.environ.get("DELAYS_SEED", "1"))
_to_thread = asyncio.to_thread
_create_connection = asyncio.BaseEventLoop.create_connection


async def _delay() -> None:
    if _draw.random() < SHARE:
        await asyncio.sleep(_draw.random() * LONGEST_S)  # Sleeps: slow.


async def _delayed_thread(function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    await _delay()
    found = await _to_thread(function, *args, **named)
    await _delay()
    return found


async def _delayed_connection(loop: Any, *args: Any, **named: Any) -> Any:
    # A socket that was opened before would be left open where this is cancelled.
    if named.get("sock") is None:
        await _delay()
    return await _create_connection(loop, *args, **named)


asyncio.to_thread = _delayed_thread
asyncio.BaseEventLoop.create_connection = _delayed_connection  # type: ignore[assignment, method-assign]
