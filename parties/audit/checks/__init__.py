"""Checks of the auditor, by subject."""
