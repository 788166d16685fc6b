"""The participants of a DistAIM run: registry, synchronisation between servers, admission, exclusion."""
