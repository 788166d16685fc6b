"""The checks of the auditor, by subject."""
