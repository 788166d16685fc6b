"""Bytes on the network below any protocol: frames, shared ports, the TLS greeting, routing by name."""
