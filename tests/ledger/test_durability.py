"""What waits for the disk: every record, and no claim."""

import pytest
from sqlalchemy import Engine, event

from diffcredit.ledger import Evaluation, Ledger, PropertyRecord, RecipeRecord, Value

DONE = Evaluation("01", 0, "estimate", "done", (Value("p", 1.0),), None, {}, {}, "w", "", "")


@pytest.fixture
def ledger(database):
    with Ledger.open(database) as opened:
        opened.register_study("s", {"contributors": ["a", "b"]})
        opened.register_recipe("s", RecipeRecord("r", {}))
        opened.register_property("s", PropertyRecord("p", {}, higher_is_better=True))
        yield opened


@pytest.fixture
def waiting(ledger):
    """By statement, whether its transaction waits: what PostgreSQL is told applies to one, what SQLite is to all that
    come."""
    found = {}
    state = {"waits": None}

    def note(connection, cursor, statement, parameters, context, executemany):
        if statement.startswith("PRAGMA synchronous"):
            state["waits"] = statement.endswith("FULL")
        elif statement.startswith("SET LOCAL synchronous_commit"):
            state["waits"] = not statement.endswith("off")
        elif statement.startswith(("INSERT", "UPDATE", "DELETE")):
            found[" ".join(statement.split()[:3])] = state["waits"]

    def begun(connection):
        if connection.dialect.name == "postgresql":
            state["waits"] = True

    event.listen(Engine, "before_cursor_execute", note)
    event.listen(Engine, "begin", begun)
    yield found
    event.remove(Engine, "before_cursor_execute", note)
    event.remove(Engine, "begin", begun)


def test_records_wait_for_the_disk_and_claims_do_not(ledger, waiting):
    claim = ledger.claim("s", "r", "01", 0, "me", 60.0)
    assert waiting == {"INSERT INTO claims": False}
    ledger.renew([claim], 60.0)
    assert waiting.pop("UPDATE claims SET") is False
    ledger.record("s", "r", DONE)
    ledger.claim("s", "r", "10", 0, "me", 60.0)
    for table in ("evaluations", "property_values", "chain"):
        assert waiting[f"INSERT INTO {table}"] is True
    assert waiting["INSERT INTO claims"] is False
