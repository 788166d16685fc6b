"""Papers' experiments, repeated, and the mechanisms that they alone use; the extra `papers`, which no image has."""
