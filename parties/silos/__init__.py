"""Algorithms on rounds of exact sums between silos, as processes over mutual TLS."""
