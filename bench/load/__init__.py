"""Syncret under load and under attack: many owners, garbage, faults, long runs."""
