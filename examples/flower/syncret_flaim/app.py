"""The names that Flower asks for."""

from parties.methods.flaim.flower_app import client, server

__all__ = ["client", "server"]
