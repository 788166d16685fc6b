"""Versions of this program and of its message and file formats, which parties compare before they compute."""

import functools
import importlib.metadata

WIRE_VERSION = 20
"""Version of the servers' messages in a run. Raised whenever the order or form of messages changes, or the servers' use
of an opened value.
"""
AUDITED_WIRES = (16, 17, 18, 19, WIRE_VERSION)
"""Versions of messages that an audit reads. Runs of 16 to 18 differ where noisy counts chose a column's cells, those of
16 to 19 in the sizes of proofs of products in Z_2^64.
"""

INGEST_VERSION = 2
"""Version of the HTTPS messages of owners to servers, and of servers that forward uploads; version 1 was not sent."""
INGEST_HEADER = "Syncret-Messages"

STORE_VERSION = 5
"""Version of a compute server's store (database and files beside it); 0 stands for stores without a version."""

TEXT_EDITION = 8
"""Edition of the sentences, pages and documents that follow from a run. Raised whenever one of them changes: an audit
holds those of its own edition to the last letter, and calls others unchecked. Edition 1 was not written down.
"""


@functools.cache
def version() -> str:
    """Returns the installed version of syncret, "unknown" for a bare source tree."""
    try:
        return importlib.metadata.version("syncret")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def ingest_headers() -> dict[str, str]:
    """Returns the headers of every HTTPS request and answer."""
    return {INGEST_HEADER: str(INGEST_VERSION)}


def version_line() -> str:
    """Returns the version text that servers exchange first; all three have to be equal."""
    return f"{version()}, messages {WIRE_VERSION}"
