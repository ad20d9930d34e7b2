"""The ledger's tables, the same in every database.

Rows are only ever added. Two partial unique indices guarantee that a recipe's coalition and replicate succeeds at most
once and that an evaluation has at most one value of a property. Any number of failed attempts may stand beside the
success. Claims alone come and go: they say who works on what, and are no part of the record.
"""

import sqlalchemy as sa
from sqlalchemy import Column, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint

SCHEMA_VERSION = 4
OLDEST_VERSION = 2  # from which migrations start

metadata = sa.MetaData()

schema_version = Table("schema_version", metadata, Column("version", Integer, nullable=False))

studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("settings", sa.JSON, nullable=False),
)


def _of_study(name: str, *columns: Column) -> Table:
    """Return a table of what a study names, such as its recipes."""
    return Table(
        name,
        metadata,
        Column("id", Integer, primary_key=True),
        Column("study_id", ForeignKey(studies.c.id), nullable=False),
        Column("name", String, nullable=False),
        Column("settings", sa.JSON, nullable=False),
        *columns,
        UniqueConstraint("study_id", "name"),
    )


def _unique(name: str, *columns: Column, where: sa.ColumnElement[bool]) -> None:
    """Have at most one row for each content of ``columns``, of those ``where`` the condition holds."""
    Index(name, *columns, unique=True, sqlite_where=where, postgresql_where=where)


recipes = _of_study("recipes", Column("weights", String, nullable=False))
properties = _of_study(
    "properties", Column("higher_is_better", sa.Boolean, nullable=False), Column("state", String, nullable=False)
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("recipe_id", ForeignKey(recipes.c.id), nullable=False, index=True),
    Column("coalition", Text, nullable=False),
    Column("replicate", Integer, nullable=False),
    Column("purpose", String, nullable=False),
    Column("status", String, nullable=False),
    Column("error", Text),
    Column("numerics", sa.JSON, nullable=False),
    Column("seconds", sa.JSON, nullable=False),
    Column("versions", sa.JSON, nullable=False),
    Column("worker", String, nullable=False),
    Column("started", String, nullable=False),
    Column("finished", String, nullable=False),
    sa.CheckConstraint("(status = 'done') = (error IS NULL)", name="failed_has_error"),
)
_task = (evaluations.c.recipe_id, evaluations.c.coalition, evaluations.c.replicate)
_unique("one_success", *_task, where=evaluations.c.status == "done")

values = Table(
    "property_values",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("evaluation_id", ForeignKey(evaluations.c.id), nullable=False, index=True),
    Column("property_id", ForeignKey(properties.c.id), nullable=False),
    Column("value", sa.Double),
    Column("standard_error", sa.Double),
    Column("images", Integer),
    Column("error", Text),
    sa.CheckConstraint("(value IS NULL) <> (error IS NULL)", name="value_or_error"),
)
_unique("one_value", values.c.evaluation_id, values.c.property_id, where=values.c.error.is_(None))

entries = Table(
    "entries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey(studies.c.id), nullable=False),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("content", sa.JSON, nullable=False),
    Column("entered", String, nullable=False),
)
"""What else decides or follows from a study's credits, such as the policy by which contributors are paid."""

chain = Table(
    "chain",
    metadata,
    Column("study_id", ForeignKey(studies.c.id), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("row_id", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    UniqueConstraint("study_id", "kind", "row_id", name="chained_once"),
)

claims = Table(
    "claims",
    metadata,
    Column("recipe_id", ForeignKey(recipes.c.id), primary_key=True),
    Column("coalition", Text, primary_key=True),
    Column("replicate", Integer, primary_key=True, autoincrement=False),
    Column("token", Integer, nullable=False),
    Column("holder", String, nullable=False),
    Column("expires", sa.Double, nullable=False),
)
