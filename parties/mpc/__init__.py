"""DistAIM: one compute server from start to end, and the participants' submissions to it."""
