"""DistAIM: one compute server from start to end, and the data owners' submissions to it."""
