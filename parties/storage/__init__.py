"""Durable state: databases, atomic files, the privacy ledger, owners' budgets, the release registry."""
