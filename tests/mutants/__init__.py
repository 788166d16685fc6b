"""Mutants: small faults put into the code, each of which some test has to find."""
