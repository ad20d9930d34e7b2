"""Migrations from an older schema of the ledger to the present one.

The scripts are alembic's. The ledger's own table ``schema_version`` says which of them it has gone through.
"""

from pathlib import Path

from sqlalchemy import Connection, update

from diffcredit.ledger import tables


def migrate(connection: Connection, version: int) -> None:
    """Migrate a ledger of schema ``version`` to :data:`~diffcredit.ledger.tables.SCHEMA_VERSION`, within the
    connection's transaction."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    scripts = reversed(list(ScriptDirectory(str(Path(__file__).parent)).walk_revisions()))
    with Operations.context(MigrationContext.configure(connection)):
        for script in scripts:
            if int(script.revision) > version:
                script.module.upgrade()
    connection.execute(update(tables.schema_version).values(version=tables.SCHEMA_VERSION))
