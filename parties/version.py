"""The versions that parties compare before they compute: of this program, and of what it sends."""

import functools
import importlib.metadata

WIRE_VERSION = 5
"""Of what servers say to one another and owners to servers. Raised whenever the order or form of messages changes."""


@functools.cache
def version() -> str:
    """The installed version of syncret, "unknown" where it runs from a bare source tree."""
    try:
        return importlib.metadata.version("syncret")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def spoken() -> str:
    """What a server says of itself before anything else; all three say the same, or do not begin."""
    return f"{version()}, messages {WIRE_VERSION}"
