"""The utility workbench: every method on every table and partition, with what came out judged."""
