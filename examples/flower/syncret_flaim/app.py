"""The app objects that Flower loads."""

from parties.methods.flaim.flower_app import client, server

__all__ = ["client", "server"]
