"""Replay of a compute server from its log: recorded effects and the log itself."""
