"""Imports without garbage collection. Provides ``uncollected``. Nothing here is secret."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while the block imports, and none later of what it has made, which stays anyway.

    A hundred modules are so many objects that the collector goes over all of them several times: a seventh of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
