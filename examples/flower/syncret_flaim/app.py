"""The names that Flower asks for."""

from parties.flaim.flower.app import client, server

__all__ = ["client", "server"]
