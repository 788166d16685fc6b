"""Identity of a server by its name and the hash of its public key, as the agreed configuration pins them."""

import re
from dataclasses import dataclass

KEY_PATTERN = re.compile(r"[0-9a-f]{64}")
"""Form of the hash of a public key: hex SHA-256 (`protocols.mesh.key_hash`)."""


@dataclass(frozen=True, slots=True)
class PinnedKey:
    """A server in the configuration: its common ``name`` and the hash of its public ``key``."""

    name: str
    key: str

    def other_than(self, name: str, key: str) -> str | None:
        """Returns the difference of a peer with this ``name`` and ``key`` from this server, None if there is none."""
        if name != self.name:
            return f"the server's certificate is for {name!r}; expected {self.name!r}"
        if key != self.key:
            return (
                f"the server's certificate for {name!r} has another key (SHA-256 {key[:16]}...) than the "
                f"configuration ({self.key[:16]}...)"
            )
        return None
