"""Migrations of a service's database by Alembic: one module of `versions` for each step."""
