"""SecAgg over TLS connections: a round's server and clients as processes."""
