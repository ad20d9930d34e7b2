"""The chain of hashes against an implementation of its own, and against every kind of manipulation."""

import hashlib
import json
import sqlite3

import pytest
from sqlalchemy import create_engine, text

from diffcredit.errors import UserError
from diffcredit.ledger import Entry, Ledger
from diffcredit.ledger.audited import audit
from diffcredit.ledger.database import prepare_sqlite

from .contract import HEAD, RECIPE, STUDY, evaluation, failure, register

POLICY = Entry("policy", "policy", {"r": "0.3"}, "2026-01-31T12:00:00+00:00")


def follow(previous, kind, row):
    said = json.dumps({"kind": kind, "row": row}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256((previous + said).encode("utf-8")).hexdigest()


def test_the_head_by_hand():
    """The rows of ``check_the_chain_is_the_same_everywhere``, written down and hashed without the ledger."""
    made = {
        "recipe": "sparsified",
        "coalition": "0110",
        "replicate": 0,
        "purpose": "estimate",
        "status": "done",
        "error": None,
        "numerics": {"device": "cpu", "threads": 1},
        "seconds": {"training": 1.25, "sampling": 0.1, "measuring": 0.0},
        "versions": {"torch": "2.6.0"},
        "worker": "machine:17",
        "started": "2025-01-31T12:00:00.000+00:00",
        "finished": "2025-01-31T12:00:01.350+00:00",
    }
    failed = made | {"coalition": "1111", "status": "failed", "error": "Traceback: out of memory"}
    settings = {"data": {"resolution": 32}, "retraining": {"method": "sparsified", "steps": 100}, "seed": 0}
    diversity = {"evaluation": 5, "property": "diversité «½»", "standard_error": None, "images": None}
    rows = [
        ("study", {"name": "openmoji", "settings": {"contributors": ["a", "b", "c", "d"]}}),
        ("recipe", {"name": "sparsified", "settings": settings, "weights": "abc"}),
        ("property", {"name": "quality", "settings": {"clusters": 20}, "higher_is_better": True, "state": "def"}),
        ("property", {"name": "diversité «½»", "settings": {}, "higher_is_better": False, "state": ""}),
        ("evaluation", made),
        ("value", {**diversity, "property": "quality", "value": 0.5, "standard_error": 0.1, "error": None}),
        ("value", {**diversity, "value": None, "error": "no features"}),
        ("evaluation", failed),
        ("value", {**diversity, "value": 2.5, "error": None}),
    ]
    head = ""
    for kind, row in rows:
        head = follow(head, kind, row)
    assert head == HEAD


def record(database):
    """Record two studies: five evaluations of one with eight values. Return its head."""
    with Ledger.open(database) as ledger:
        ledger.register_study("other", {})
        ledger.register_recipe("other", RECIPE)
        register(ledger)
        for coalition, quality in (("0001", 1.0), ("0010", 2.0), ("0100", 3.0)):
            ledger.record(STUDY, RECIPE.name, evaluation(coalition, quality))
        ledger.record(STUDY, RECIPE.name, failure("0100"))
        ledger.record(STUDY, RECIPE.name, evaluation("1000", 4.0))
        ledger.enter(STUDY, POLICY, lambda known, evaluated: True)
        return ledger.head(STUDY).hash


@pytest.fixture
def recorded(tmp_path):
    """The URL of such a ledger in SQLite, and its head."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    return url, record(url)


def tamper(database, statements):
    engine = create_engine(database)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def problems(database, head=None):
    with Ledger.open(database, create=False) as ledger:
        return list(ledger.audit(STUDY, head).problems)


# the study is 2; its recipe 2; evaluations 1 to 5, of which 4 failed; values 1 to 8; entry 1; chain 1 to 18
COPY = "recipe_id, replicate, purpose, error, numerics, seconds, versions, worker, started, finished, status"
VALUE = "INSERT INTO property_values (id, evaluation_id, property_id, value) VALUES"
LAST_HASH = "(SELECT hash FROM chain WHERE study_id = 2 AND number = 18)"
JSON, TEXT = "'{\"x\": 1}'", "'x'"
CHANGES = {  # new content of every column that the chain covers, by table, key and how an audit calls the row
    ("studies", 2, "openmoji"): {"settings": JSON},
    ("recipes", 2, "'sparsified'"): {"settings": JSON, "weights": TEXT},
    ("properties", 1, "'quality'"): {"settings": JSON, "higher_is_better": "false", "state": TEXT},
    ("evaluations", 2, "0010"): dict.fromkeys(("numerics", "seconds", "versions"), JSON)
    | dict.fromkeys(("purpose", "worker", "started", "finished"), TEXT),
    ("evaluations", 2, "0011, replicate 0"): {"coalition": "'0011'"},
    ("evaluations", 2, "0010, replicate 7"): {"replicate": "7"},
    ("evaluations", 4, "0100"): {"error": TEXT},
    ("entries", 1, "row 18 (entry '"): {"content": JSON} | dict.fromkeys(("kind", "name", "entered"), TEXT),
    ("property_values", 3, "'quality'"): {"value": "2.0000000000000004", "standard_error": "NULL", "images": "7"},
}
MANIPULATIONS = {
    **{
        f"another {column} in {table}": ([f"UPDATE {table} SET {column} = {content} WHERE id = {key}"], [name])
        for (table, key, name), changes in CHANGES.items()
        for column, content in changes.items()
    },
    "a deleted entry": (["DELETE FROM entries WHERE id = 1"], ["row 18 (entry) is missing"]),
    "an inserted entry": (
        ["INSERT INTO entries VALUES (99, 2, 'policy', 'policy', '{}', 'x')"],
        ["entry 'policy' is in no row of the chain: inserted"],
    ),
    "a deleted value": (["DELETE FROM property_values WHERE id = 3"], ["(value) is missing"]),
    "a deleted evaluation": (
        ["DELETE FROM property_values WHERE evaluation_id = 2", "DELETE FROM evaluations WHERE id = 2"],
        ["(evaluation) is missing", "(value) is missing"],
    ),
    "a deleted evaluation with its chain": (
        [
            "DELETE FROM property_values WHERE evaluation_id = 2",
            "DELETE FROM evaluations WHERE id = 2",
            "DELETE FROM chain WHERE study_id = 2 AND number IN (8, 9, 10)",
        ],
        ["rows 8 to 10 of the chain are missing"],
    ),
    "a deleted link": (
        ["DELETE FROM chain WHERE study_id = 2 AND number = 9"],
        ["rows 9 to 9", "'quality' is in no row"],
    ),
    "an inserted evaluation": (
        [f"INSERT INTO evaluations (id, coalition, {COPY}) SELECT 99, '1100', {COPY} FROM evaluations WHERE id = 2"],
        ["1100, replicate 0 is in no row of the chain: inserted"],
    ),
    "an inserted value": (
        ["DELETE FROM property_values WHERE id = 8", f"{VALUE} (99, 5, 2, 7.0)"],
        ["missing", "inserted"],
    ),
    "an inserted link": (
        [f"{VALUE} (99, 4, 1, 7.0)", f"INSERT INTO chain VALUES (2, 19, 'value', 99, {LAST_HASH})"],
        ["row 19 (value of 'quality') is not as it was written"],
    ),
    "a truncated record": (
        ["DELETE FROM property_values WHERE evaluation_id = 5", "DELETE FROM evaluations WHERE id = 5"],
        ["row 15 (evaluation) is missing", "row 17 (value) is missing"],
    ),
    "a truncated chain": (["DELETE FROM chain WHERE study_id = 2 AND number > 14"], ["1000, replicate 0 is in no row"]),
    "exchanged coalitions": (
        [
            "UPDATE evaluations SET coalition = 'x' WHERE id = 1",
            "UPDATE evaluations SET coalition = '0001' WHERE id = 2",
            "UPDATE evaluations SET coalition = '0010' WHERE id = 1",
        ],
        ["0001", "0010"],
    ),
    "exchanged values": (
        [
            "UPDATE property_values SET evaluation_id = 4 WHERE id = 1",
            "UPDATE property_values SET evaluation_id = 1 WHERE id = 3",
            "UPDATE property_values SET evaluation_id = 2 WHERE id = 1",
        ],
        ["row 6 (value of 'quality')", "row 9 (value of 'quality')"],
    ),
    "a value under another property": (
        ["DELETE FROM property_values WHERE id = 8", "UPDATE property_values SET property_id = 2 WHERE id = 7"],
        ["row 16 (value of 'diversité «½»') is not as it was written"],
    ),
    "exchanged links": (
        [
            "UPDATE chain SET number = 99 WHERE study_id = 2 AND number = 6",
            "UPDATE chain SET number = 6 WHERE study_id = 2 AND number = 7",
            "UPDATE chain SET number = 7 WHERE study_id = 2 AND number = 99",
        ],
        ["row 6 (value of 'diversité", "row 7 (value of 'quality'", "out of its order"],
    ),
    "rows in another order": (
        [
            f"INSERT INTO evaluations (id, coalition, {COPY}) "
            f"SELECT 99, coalition, {COPY} FROM evaluations WHERE id = 4",
            "DELETE FROM evaluations WHERE id = 4",
            "UPDATE chain SET row_id = 99 WHERE study_id = 2 AND kind = 'evaluation' AND row_id = 4",
        ],
        ["row 15 (evaluation of coalition 1000, replicate 0) is out of its order"],
    ),
    "an evaluation moved to another study": (
        ["UPDATE evaluations SET recipe_id = 1 WHERE id = 4"],
        ["(evaluation) is missing"],
    ),
    "a changed hash": (["UPDATE chain SET hash = 'x' WHERE study_id = 2 AND number = 9"], ["row 9", "row 10"]),
}


def test_every_manipulation_is_found(database):
    head = record(database)
    engine = create_engine(database)
    if engine.dialect.name == "sqlite":
        prepare_sqlite(engine)
    with engine.connect() as connection:
        assert audit(connection, STUDY, head).problems == ()
        for name, (statements, words) in MANIPULATIONS.items():
            connection.rollback()
            for statement in statements:
                connection.execute(text(statement))
            found = audit(connection, STUDY, None).problems
            assert found, name
            for word in words:
                assert any(word in line for line in found), f"{name}: {word} not in {found}"
            assert set(found) <= set(audit(connection, STUDY, head).problems), name
        connection.rollback()
        assert audit(connection, STUDY, head).problems == ()
    engine.dispose()


def test_a_truncated_end_is_found_by_the_head(recorded):
    database, head = recorded
    tamper(
        database,
        [
            "DELETE FROM property_values WHERE evaluation_id = 5",
            "DELETE FROM evaluations WHERE id = 5",
            "DELETE FROM entries WHERE id = 1",
            "DELETE FROM chain WHERE study_id = 2 AND number > 14",
        ],
    )
    assert problems(database) == []  # which is why the head is noted down
    assert len(problems(database, head)) == 1
    assert "removed from the end" in problems(database, head)[0]


def test_a_chain_written_anew_is_found_by_the_head(recorded):
    """Who changes a value and every hash after it leaves no trace within, but another head."""
    database, head = recorded
    tamper(database, ["UPDATE property_values SET value = 9 WHERE id = 7"])
    engine = create_engine(database)
    with engine.begin() as connection:
        previous, made = [
            connection.execute(text(f"SELECT hash FROM chain WHERE study_id = 2 AND number = {n}")).scalar_one()
            for n in (15, 18)
        ]
        quality = {"evaluation": 15, "property": "quality", "value": 9.0, "standard_error": 0.1}
        diversity = {"evaluation": 15, "property": "diversité «½»", "value": 2.5, "standard_error": None}
        rows = [("value", {**row, "images": None, "error": None}) for row in (quality, diversity)]
        for number, (kind, row) in enumerate([*rows, ("entry", POLICY.row)], 16):
            previous = follow(previous, kind, row)
            connection.execute(text(f"UPDATE chain SET hash = '{previous}' WHERE study_id = 2 AND number = {number}"))
    engine.dispose()
    assert made == head
    assert problems(database) == []
    assert len(problems(database, head)) == 1


def test_an_earlier_head_holds_for_a_ledger_that_grew(recorded):
    database, head = recorded
    with Ledger.open(database) as ledger:
        ledger.record(STUDY, RECIPE.name, evaluation("1110", 5.0))
        assert ledger.head(STUDY).hash != head
    assert problems(database, head) == []
    tamper(database, ["UPDATE property_values SET value = 9 WHERE id = 3"])
    assert problems(database, head) == ["row 9 (value of 'quality') is not as it was written"]  # and no other row


def test_one_study_says_nothing_of_another(recorded):
    database, _ = recorded
    tamper(database, ["UPDATE recipes SET weights = 'xyz' WHERE id = 1"])
    assert problems(database) == []
    with Ledger.open(database) as ledger:
        assert len(ledger.audit("other").problems) == 1


def test_a_crash_between_rows_leaves_no_gap(tmp_path):
    """A row and its link are one transaction: what cannot be chained is not written."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        with pytest.raises(UserError, match="no study 'openmoji'; there is none yet"):
            ledger.head(STUDY)
        register(ledger)
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TRIGGER no BEFORE INSERT ON chain BEGIN SELECT RAISE(ABORT, 'no'); END")
        with pytest.raises(Exception, match="no"):
            ledger.record(STUDY, RECIPE.name, evaluation())
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TRIGGER no")
        assert ledger.evaluations(STUDY, RECIPE.name) == []
        assert ledger.audit(STUDY).problems == ()
