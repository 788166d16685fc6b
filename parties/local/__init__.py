"""Runs on one machine, as real processes: launchers, local participants, partitions, central AIM."""
