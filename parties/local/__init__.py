"""Runs on one machine, as real processes: launchers, played participants, partitions, central AIM."""
