"""Errors of the engine. Messages name parties, steps and sizes, never values.

ProtocolError
+-- ConfigurationError        this party was set up wrongly
+-- ChannelError              the network, or a peer that is gone
|   +-- ConnectTimeout        a peer did not appear, or did not prove who it is, in time
|   +-- ReceiveTimeout        a peer is connected and silent
|   +-- PeerClosed            a peer closed the connection or broke it
+-- ProtocolViolation         a peer sent what the protocol does not allow
|   +-- OtherVersion          a peer has another version of the program or of its messages
+-- CheckFailed               a consistency check between the parties did not hold
"""


class ProtocolError(Exception):
    """Base class of the engine's errors."""


class ConfigurationError(ProtocolError):
    """This party's own parameters, files or addresses are unusable."""


class ChannelError(ProtocolError):
    """A peer cannot be reached or is lost; ``pid`` names it (None where it is not known)."""

    def __init__(self, message: str, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class ConnectTimeout(ChannelError):
    """The mesh was not complete within the connect deadline."""


class ReceiveTimeout(ChannelError):
    """A peer sent nothing for an awaited message within the receive deadline."""


class PeerClosed(ChannelError):
    """A peer's connection ended while the protocol still needed it."""


class ProtocolViolation(ProtocolError):
    """A peer sent a message of a wrong size, label or content; ``pid`` names it."""

    def __init__(self, message: str, pid: int) -> None:
        super().__init__(message)
        self.pid = pid


class OtherVersion(ProtocolViolation):
    """A peer has another version of the program or of its messages, as while servers are upgraded one by one."""


class CheckFailed(ProtocolError):
    """The parties' views differ where they have to agree."""
