"""Answer to an owner about its releases: what of its key a server has released, over all studies that it knows.

An owner proves its key by its connection. The answer has nothing of other owners: the owner's own signed uploads, and
the agreed configurations that they are for. The release registry is the record. Nothing here is secret to that owner.
"""

import json
from collections.abc import Mapping

from parties.storage.release_registry import ReleaseRegistry

CONFIG = "config"
"""Query of a request for one configuration, by its digest."""


def releases_answer(
    registry: ReleaseRegistry, key: str, *, party: str, query: Mapping[str, str]
) -> Mapping[str, object] | None:
    """Returns the released uploads of the key with this hash, or one configuration of them; None for an unknown one.

    Blocks. Raises StoreError.
    """
    if (config := query.get(CONFIG)) is not None:
        document = registry.agreed_with(key, config)
        return None if document is None else json.loads(document)
    found = [json.loads(upload) for _, upload in registry.released_to(key)]
    return {"party": party, "releases": found}
