"""Refusal of a study whose domain was read from a table and confirmed by nobody.

A trial on one machine does not call ``check_confirmed``. Founding a study with others and submitting a table to one do.
"""

from mechanisms.origins import origins
from mechanisms.provenance import TABLE
from parties.config import Config
from parties.foundation.errors import ConfigError

_SHOWN = 8


def check_confirmed(config: Config) -> None:
    """Raises ConfigError, naming columns and keys, if a value of the domain is ``from = "table"``."""
    keys: dict[str, list[str]] = {}
    for origin in origins(config.domain):
        if origin.origin == TABLE and origin.count:
            keys.setdefault(origin.column, []).append(origin.key)
    if not keys:
        return
    named = [f"{column!r} ({', '.join(of)})" for column, of in list(keys.items())[:_SHOWN]]
    more = f" and {len(keys) - _SHOWN} more columns" if len(keys) > _SHOWN else ""
    raise ConfigError(
        config.source,
        "column.from",
        f"what was read from a table would be published with no privacy: {', '.join(named)}{more}. Compare these "
        'values with a code book, replace what it does not have, and write from = "public: " and its name instead of '
        'from = "table" (docs/configuration.md, Provenance)',
    )
