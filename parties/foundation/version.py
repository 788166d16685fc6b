"""The versions that parties compare before they compute: of this program, and of what it sends."""

import functools
import importlib.metadata

WIRE_VERSION = 16
"""Of what servers say to one another in a run. Raised whenever the order or form of messages changes, or what
servers make of an opened value."""

INGEST_VERSION = 2
"""Of what data owners and servers say to one another over HTTPS, and servers that pass uploads on; 1 did not say it."""
INGEST_HEADER = "Syncret-Messages"

STORE_VERSION = 5
"""Of a compute server's store, the database in its folder and the files beside it; 0 are those that do not say."""


@functools.cache
def version() -> str:
    """The installed version of syncret, "unknown" where it runs from a bare source tree."""
    try:
        return importlib.metadata.version("syncret")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def ingest_headers() -> dict[str, str]:
    """What every request and every answer over HTTPS has."""
    return {INGEST_HEADER: str(INGEST_VERSION)}


def version_line() -> str:
    """What a server says of itself before anything else; all three say the same, or do not begin."""
    return f"{version()}, messages {WIRE_VERSION}"
