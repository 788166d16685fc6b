"""Where a server's code takes what its keys and messages do not decide: its store, the time, its own random nonce.

Provides ``Inputs``, which passes everything on and keeps nothing. With ``record_replay`` a ``tape.Tape`` takes its
place, and in a replay what was kept then. Public: the interface; what goes through it may be secret.
"""

import json
from collections.abc import Callable
from typing import Any


class Inputs:
    """Where a server's code takes what its keys and messages do not decide; nothing is kept."""

    def keep(self, name: str, take: Callable[[], bytes]) -> bytes:
        """What ``take`` returns. In a replay: what it returned then."""
        return take()

    def keep_json(self, name: str, take: Callable[[], Any]) -> Any:
        """As ``keep``, for a value that JSON has."""
        return json.loads(self.keep(name, lambda: json.dumps(take()).encode()))
