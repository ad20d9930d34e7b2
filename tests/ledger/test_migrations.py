"""A ledger of an older schema becomes one of the present schema, and keeps every row."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text

from diffcredit.errors import UserError
from diffcredit.ledger import Entry, Ledger, tables

from .contract import DIVERSITY, QUALITY, RECIPE, STUDY, evaluation, failure, register

SCHEMA_2 = Path(__file__).with_name("schema_2.sql")  # a dump of a ledger that the release of that schema wrote
RECORDED = [evaluation(), failure("1111"), replace(evaluation("1111", 1 / 3, -2e-300), purpose="endpoint")]


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA_2.read_text(encoding="utf-8"))
    connection.close()
    return path


@pytest.fixture
def old_on_a_server(postgres):
    """The same schema on a server: what the migration adds is taken away from a new ledger."""
    with Ledger.open(postgres) as ledger:
        register(ledger)
        for each in RECORDED:
            ledger.record(STUDY, RECIPE.name, each)
    engine = create_engine(postgres)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE entries"))
        connection.execute(text("DROP TABLE chain"))
        connection.execute(text("DROP TABLE claims"))
        connection.execute(text("UPDATE schema_version SET version = 2"))
    engine.dispose()
    return postgres


def check_migrated(url):
    with Ledger.open(url) as ledger:
        assert ledger.evaluations(STUDY, RECIPE.name) == RECORDED
        assert ledger.recipes(STUDY) == [RECIPE]
        assert ledger.properties(STUDY) == [QUALITY, DIVERSITY]
        found = ledger.audit(STUDY)
        assert found.problems == ()
        assert found.migrated == found.rows  # all of it was chained by the migration, and the chain says so
        register(ledger)
        assert not ledger.record(STUDY, RECIPE.name, RECORDED[0])
        assert ledger.record(STUDY, RECIPE.name, evaluation("0011"))
        grown = ledger.audit(STUDY, found.head)
        assert (grown.problems, grown.rows, grown.migrated) == ((), found.rows + 3, found.rows)
        with ledger._database.engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
            names = {each["name"] for each in inspect(connection).get_unique_constraints("chain")}
            assert names == {"chained_once"}


def test_what_was_there_is_chained(old):
    check_migrated(old)
    with sqlite3.connect(old) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(4,)]
        kinds = connection.execute("SELECT kind, count(*) FROM chain GROUP BY kind ORDER BY kind").fetchall()
    # of two studies; a value that was measured again has two rows; one evaluation came after
    assert kinds == [("evaluation", 4), ("migration", 2), ("property", 2), ("recipe", 1), ("study", 2), ("value", 7)]


def test_on_a_server(old_on_a_server):
    check_migrated(old_on_a_server)


def test_a_ledger_without_entries_is_read_and_gets_them_when_it_is_written_to(old):
    with Ledger.open(old) as ledger:
        head = ledger.head(STUDY)
    with sqlite3.connect(old) as connection:
        connection.execute("DROP TABLE entries")
        connection.execute("UPDATE schema_version SET version = 3")
    with Ledger.open(old, create=False) as ledger:
        assert ledger.entries(STUDY, "policy") == []
        assert ledger.audit(STUDY, head.hash).problems == ()
        entry = Entry("policy", "policy", {}, "2026-01-31T12:00:00+00:00")
        assert ledger.enter(STUDY, entry, lambda known, evaluated: True)
        (known,) = ledger.entries(STUDY, "policy")
        assert known == replace(entry, before_evaluations=False, head=ledger.head(STUDY).hash)
        assert ledger.audit(STUDY, head.hash).problems == ()


def test_a_reader_leaves_it_as_it_is_and_shows_nothing_that_no_chain_covers(old):
    before = old.read_bytes()
    with Ledger.open(old, create=False) as ledger:
        assert STUDY in ledger.studies()
        for asked in (ledger.audit, ledger.export, ledger.head, ledger.recipes, ledger.properties, ledger.settings):
            with pytest.raises(UserError, match=r"ledger\.db: is of an older schema without a chain"):
                asked(STUDY)
    with sqlite3.connect(old) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(2,)]
    assert len(before) == old.stat().st_size


def test_the_first_row_that_a_reader_writes_migrates_it_and_several_may_open_it_at_once(old):
    with ThreadPoolExecutor(4) as openers:
        opened = [*openers.map(lambda create: Ledger.open(old, create=create), (False, True, False, True))]
    with opened[0] as ledger:
        ledger.record(STUDY, RECIPE.name, evaluation("0011"))
        assert ledger.audit(STUDY).problems == ()


def test_a_migration_that_fails_changes_nothing(old):
    with sqlite3.connect(old) as connection:
        connection.execute("UPDATE evaluations SET numerics = 'no JSON' WHERE id = 1")
    with pytest.raises(UserError, match=r"ledger\.db: cannot be opened as a ledger \(Expecting value"):
        Ledger.open(old)
    with sqlite3.connect(old) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(2,)]
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not names & {"chain", "claims"}


@pytest.mark.parametrize("version", [1, 5])
def test_refuses_what_it_does_not_know(old, version):
    with sqlite3.connect(old) as connection:
        connection.execute("UPDATE schema_version SET version = ?", (version,))
    for create in (True, False):
        with pytest.raises(UserError, match=rf"schema version {version}; this diffcredit knows versions 2 to 4"):
            Ledger.open(old, create=create)
