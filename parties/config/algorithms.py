"""Names of the methods between silos, each of which has a table of its own in the configuration.

Syncret's own methods are listed here. An installed package adds one by an entry point of the group `syncret.methods`,
whose name is the table's, and whose object is a `parties.federation.algorithm.FederatedMethod`. Only names are read
here; `parties.methods.registry` loads the objects.
"""

import functools
from importlib.metadata import EntryPoint, entry_points

from parties.config.limits import NAME_PATTERN

OWN_ALGORITHMS = ("tda", "mtl")
GROUP = "syncret.methods"


@functools.cache
def installed_algorithms() -> dict[str, EntryPoint]:
    """Returns the entry points of installed packages, by name; none takes the name of one of Syncret's own."""
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {
        point.name: point
        for point in found
        if NAME_PATTERN.fullmatch(point.name) and point.name not in OWN_ALGORITHMS
    }


def silo_algorithms() -> tuple[str, ...]:
    """Returns the names of all methods between silos."""
    return (*OWN_ALGORITHMS, *installed_algorithms())
