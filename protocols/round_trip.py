"""How long a message takes to a peer and back, as the operating system has measured it on a connection.

Provides ``round_trip_s``: TCP times the acknowledgements of what is sent anyway (RFC 6298), so that nothing is sent to
measure it, and neither transcripts nor costs know of it. Public: a time. Known limits: Linux; elsewhere it is unknown.
Through a proxy it is the time to the proxy.
"""

import socket
import struct

_RTT_OFFSET = 68
"""Of ``tcpi_rtt`` (u32, microseconds) in ``struct tcp_info`` of linux/tcp.h, whose beginning never changes."""


def round_trip_s(connection: socket.socket) -> float | None:
    """Seconds, smoothed; None where the system does not say, or the connection is closed."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_OFFSET + 4)
    except OSError:
        return None
    if len(info) < _RTT_OFFSET + 4:
        return None
    return int(struct.unpack_from("=I", info, _RTT_OFFSET)[0]) / 1e6
