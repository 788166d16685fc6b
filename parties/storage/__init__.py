"""Durable state: databases, whole files, the privacy ledger, owners' budgets, the registry of releases."""
