"""Attacks of a deviating server on small runs of the protocols, in both security modes."""
