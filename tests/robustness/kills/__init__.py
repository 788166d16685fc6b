"""Faults at every step of every server, and their effect on the run."""
