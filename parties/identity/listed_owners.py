"""Owners that a study's configuration lists by name, and the keys that it may have of them.

The list is public: it is part of what everybody agreed on. An owner whose name is not in it can never take part, and so
asks nobody to be admitted.
"""

from collections.abc import Mapping

from parties.config import Config


def listed_owners(config: Config) -> Mapping[str, str]:
    """Returns the hash of each listed owner's key by its name, "" where only the name is listed.

    Empty where every owner with a certificate may take part.
    """
    section = config.federation
    if section is not None and not config.parties and section.client_keys:
        return dict(zip(section.clients, section.client_keys, strict=True))
    return dict.fromkeys(sorted(config.owners), "")


def unlisted_problem(listed: Mapping[str, str], name: str, key: str) -> str:
    """Returns why the owner called ``name`` with the key of this hash cannot take part; empty if it can."""
    if not listed:
        return ""
    if name not in listed:
        return f"the study has no owner called {name!r}"
    if listed[name] not in ("", key):
        return f"the study has another key of {name!r} ({listed[name][:16]}...) than {key[:16]}..."
    return ""
