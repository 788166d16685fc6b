"""Migration 1: studies, approvals and events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Creates the first tables."""
    op.create_table(
        "service",
        sa.Column("key", sa.String(40), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "studies",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("run", sa.String(200), nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("certificates", sa.Text, nullable=False),
        sa.Column("proposer", sa.String(200), nullable=False),
        sa.Column("proposed_at", _MOMENT, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("turn", sa.Integer, nullable=True),
        sa.Column("changed_at", _MOMENT, nullable=False),
        sa.Column("started_at", _MOMENT, nullable=True),
        sa.Column("ended_at", _MOMENT, nullable=True),
    )
    op.create_index("ix_studies_state", "studies", ["state"])
    op.create_table(
        "approvals",
        sa.Column("digest", sa.String(64), sa.ForeignKey("studies.digest"), primary_key=True),
        sa.Column("server", sa.String(200), primary_key=True),
        sa.Column("at", _MOMENT, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("digest", sa.String(64), nullable=True),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("what", sa.String(40), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("ix_events_digest", "events", ["digest"])
