"""The utility workbench: every method on every table and partition, with its results judged."""
