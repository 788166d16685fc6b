"""Identities of servers and participants: certificates, signatures, join documents, the set-up of a study."""
