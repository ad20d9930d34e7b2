"""The chain of hashes over the rows that are there, and the table of claims."""

import sqlalchemy as sa
from alembic import op

from diffcredit.ledger.chain import chain_all

revision = "3"
down_revision = "2"


def upgrade() -> None:
    op.create_table(
        "chain",
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("row_id", sa.Integer, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.UniqueConstraint("study_id", "kind", "row_id", name="chained_once"),
    )
    op.create_table(
        "claims",
        sa.Column("recipe_id", sa.Integer, sa.ForeignKey("recipes.id"), primary_key=True),
        sa.Column("coalition", sa.Text, primary_key=True),
        sa.Column("replicate", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
    )
    chain_all(op.get_bind(), version=2)
