"""Encryption at rest and in transit beyond TLS: HPKE boxes, encrypted files, pinned keys."""
