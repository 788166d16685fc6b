"""Alembic environment: migrates on the connection that `parties.service.database` provides."""

from alembic import context

from parties.service.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transaction_per_migration=False,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
