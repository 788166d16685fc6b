"""Runs on one machine, as real processes: the launcher, the owners it plays, and central AIM beside them."""
