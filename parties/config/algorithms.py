"""Names of the methods between silos, each of which has a table of its own in the configuration.

Syncret's own methods are listed here. An installed package adds one by an entry point of the group `syncret.methods`,
whose name is the table's, and whose object is a `parties.federation.algorithm.FederatedMethod`. Only names are read
here; `parties.methods.registry` loads the objects.
"""

import functools
import re
from importlib.metadata import EntryPoint, entry_points

OWN_ALGORITHMS = ("tda", "mtl")
GROUP = "syncret.methods"
SECTIONS = (
    "run",
    "workload",
    "clients",
    "column",
    "split",
    "constraint",
    "source",
    "refresh",
    "missing",
    "format",
    "party",
    "flaim",
    "silos",
    "tls",
    "network",
    "timeouts",
    "compute",
    "ignore",
)
"""Sections of a configuration that belong to no method between silos."""
_TAKEN = {*OWN_ALGORITHMS, *SECTIONS, "distaim", "aim", "central"}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")


@functools.cache
def installed_algorithms() -> dict[str, EntryPoint]:
    """Returns the entry points of installed packages, by name.

    An entry point whose name is no plain key, or that of a section or of one of Syncret's own methods, is left out: an
    installed package cannot change what a configuration without its table means.
    """
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {
        point.name: point
        for point in found
        if _NAME.fullmatch(point.name) and point.name not in _TAKEN
    }


def silo_algorithms() -> tuple[str, ...]:
    """Returns the names of all methods between silos."""
    return (*OWN_ALGORITHMS, *installed_algorithms())
