"""Attacks of a deviating server, damaged inputs, and faults at every point: tests that no installation has."""
