"""Who a server has to be: its name and the hash of its public key, as the agreed configuration pins them. Public."""

import re
from dataclasses import dataclass

KEY_PATTERN = re.compile(r"[0-9a-f]{64}")
"""What the hash of a public key looks like: hex SHA-256 (`protocols.mesh.key_hash`)."""


@dataclass(frozen=True, slots=True)
class PinnedKey:
    """A server as the configuration has it: its common ``name`` and the hash of its public ``key``."""

    name: str
    key: str

    def other_than(self, name: str, key: str) -> str | None:
        """Why a peer with this ``name`` and ``key`` is not this server; None where it is."""
        if name != self.name:
            return f"the server's certificate is for {name!r}; expected {self.name!r}"
        if key != self.key:
            return (
                f"the server's certificate for {name!r} has another key (SHA-256 {key[:16]}...) than the "
                f"configuration ({self.key[:16]}...)"
            )
        return None
