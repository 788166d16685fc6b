"""A compute server's ingest API as a process: ``python -m bench.overhead.ingest PID CONFIG...``, for `upload`.

One API and one store, in FOLDER/server-PID of each config's folder, for every config, as `syncret party` runs them.
Prints "ready" when all listen; ends when standard input does. Secret: shares in the stores, of generated or published
rows here.
"""

import asyncio
import contextlib
import sys
from pathlib import Path

from parties.config import load_config
from parties.distaim.ingest import start_ingest
from parties.distaim.store import Store


async def _serve(pid: int, paths: list[Path]) -> None:
    async with contextlib.AsyncExitStack() as exits:
        for path in paths:
            config = load_config(path)
            store = exits.enter_context(Store(store_folder(path, pid), config.digest()))
            ingest = await start_ingest(store, config, pid, config.require_tls(pid))
            exits.push_async_callback(ingest.close)
        print("ready", flush=True)  # noqa: T201  # the parent waits for it
        await asyncio.to_thread(sys.stdin.read)


def store_folder(config: Path, pid: int) -> Path:
    """Where server ``pid`` keeps the submissions of the run that ``config`` describes."""
    return config.parent / f"server-{pid}"


def main() -> None:
    """Serve until standard input ends."""
    asyncio.run(_serve(int(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))


if __name__ == "__main__":
    main()
