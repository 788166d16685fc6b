"""The HTTPS intake of a compute server: connections, validation of requests, forwarding to the other servers."""
