"""Storage of one compute server: participants' records, bodies of uploads, the outbox, queries."""
