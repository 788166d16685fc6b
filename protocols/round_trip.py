"""Round-trip time to a peer, as the operating system has measured it on a connection.

TCP times the acknowledgements of its normal traffic (RFC 6298), so that nothing is sent to measure it, and neither
transcripts nor costs know of it. Public: a time. Known limits: Linux; elsewhere it is unknown. Through a proxy it is
the time to the proxy.
"""

import socket
import struct

_RTT_OFFSET = 68
"""Offset of ``tcpi_rtt`` (u32, microseconds) in ``struct tcp_info`` of linux/tcp.h, whose beginning never changes."""


def round_trip_s(connection: socket.socket) -> float | None:
    """Returns the smoothed time in seconds; None where the system does not say, or the connection is closed."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_OFFSET + 4)
    except OSError:
        return None
    if len(info) < _RTT_OFFSET + 4:
        return None
    return int(struct.unpack_from("=I", info, _RTT_OFFSET)[0]) / 1e6
