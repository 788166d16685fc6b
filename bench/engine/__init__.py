"""The engine's benchmark: three parties over TLS, one task at a time, beside floors and peers."""
