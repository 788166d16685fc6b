"""Allocator settings of a party's process: memory that NumPy frees stays with the process.

The engine allocates and frees arrays of the same few sizes all the time; glibc by default gives the top of its heap
back to the kernel each time and asks for it again, page by page. Nothing here is secret. Limits: only glibc has these
switches; elsewhere the functions do nothing and return False.
"""

import ctypes

# From glibc's malloc.h.
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8

_KEEP_BYTES = 256 << 20
_GROW_BYTES = 16 << 20
_LARGE_BYTES = 32 << 20
_MAPPED_BYTES = 1 << 20


def keep_freed_memory() -> bool:
    """Keeps up to 256 MB of freed memory in this process, and maps only arrays above 32 MB; returns True on success."""
    return _switched(
        (_TRIM_THRESHOLD, _KEEP_BYTES),
        (_TOP_PAD, _GROW_BYTES),
        (_MMAP_THRESHOLD, _LARGE_BYTES),
    )


def share_freed_memory() -> bool:
    """Makes all threads allocate from one arena, and maps blocks above 1 MB; returns True on success.

    Call it before there are threads: otherwise each thread has an arena of its own, as large as the largest work that
    it was ever given. Mapped blocks are given back when they are freed: glibc by default no longer does so with those
    of a size that was once freed, and they leave holes in its heap. For a process whose threads wait more than they
    work.
    """
    return _switched(
        (_ARENA_MAX, 1),
        (_TRIM_THRESHOLD, _MAPPED_BYTES),
        (_MMAP_THRESHOLD, _MAPPED_BYTES),
    )


def _switched(*settings: tuple[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(name, value) == 1 for name, value in settings)
