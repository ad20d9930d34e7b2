"""The ledger in SQLite, and in a PostgreSQL server."""

import pytest

from diffcredit.ledger import Ledger
from diffcredit.testing.ledgers import LEDGER_CHECKS


@pytest.mark.parametrize("check", LEDGER_CHECKS)
def test_conformance(check, database):
    check(lambda: Ledger.open(database))
