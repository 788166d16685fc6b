"""Servers, participants and all code that touches files, certificates and the network.

Compute server, data owner's program, launcher, ingest API, durable store, TLS, reports and the `syncret` command are
here. This package puts `protocols` (secure computation) and `mechanisms` (differential privacy and synthesis) together.
Neither of the two imports this package.
"""
