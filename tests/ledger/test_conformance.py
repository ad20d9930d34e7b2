"""The ledger in SQLite, and in PostgreSQL where DIFFCREDIT_TEST_POSTGRES names a database to write to."""

import os
import uuid

import pytest
from sqlalchemy import create_engine, make_url, text

from diffcredit.ledger import Ledger
from diffcredit.testing.ledgers import LEDGER_CHECKS

POSTGRES = os.environ.get("DIFFCREDIT_TEST_POSTGRES")


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_sqlite(check, tmp_path):
    check(lambda: Ledger.open(tmp_path / "ledger.db"))


@pytest.mark.skipif(POSTGRES is None, reason="DIFFCREDIT_TEST_POSTGRES is not set")
@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_postgres(check):
    schema = f"test_{uuid.uuid4().hex}"
    engine = create_engine(POSTGRES)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    url = make_url(POSTGRES).update_query_dict({"options": f"-csearch_path={schema}"})
    try:
        check(lambda: Ledger.open(url.render_as_string(hide_password=False)))
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        engine.dispose()
