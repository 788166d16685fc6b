"""Plugin of pytest: random delays around threads, connections and parties of a mesh, to find tests that lean on a time.

``python -m pytest -p tests.robustness.delays tests/parties``, and again with another ``DELAYS_SEED``.
A test that fails with it, and passes alone, waits for a time where it should wait for what it looks at
(``tests.until.eventually``), or has a deadline of a second or two.
"""

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

from protocols.mesh import Connections, Mesh

SHARE, LONGEST_S = 0.12, 0.5
_draw = random.Random(os.environ.get("DELAYS_SEED", "1"))
_to_thread = asyncio.to_thread
_create_connection = asyncio.BaseEventLoop.create_connection
_connect = Mesh.connect


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


async def _delayed_party(mesh: Mesh) -> tuple[Connections, Connections]:
    # Half of all parties come late: a mesh has three, and its sockets are none of the loop's.
    if _draw.random() < 0.5:
        await asyncio.sleep(_draw.random() * LONGEST_S)  # Sleeps: slow.
    return await _connect(mesh)


asyncio.to_thread = _delayed_thread
Mesh.connect = _delayed_party  # type: ignore[assignment, method-assign]
asyncio.BaseEventLoop.create_connection = _delayed_connection  # type: ignore[assignment, method-assign]
