import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from diffcredit.errors import UserError
from diffcredit.ledger import Ledger, NonDeterminism, Value
from diffcredit.ledger.sqlite import switch_to_wal
from diffcredit.testing.ledgers import RECIPE, STUDY, evaluation, failure, register


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


def test_opens_a_path_a_text_and_a_url(tmp_path):
    path = tmp_path / "new" / "ledger.db"
    with Ledger.open(path) as ledger:
        register(ledger)
    for same in (str(path), f"sqlite:///{path}"):
        with Ledger.open(same, create=False) as ledger:
            assert list(ledger.studies()) == [STUDY]


def test_a_closed_ledger_is_one_file(path):
    with Ledger.open(path) as ledger:
        register(ledger)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_refuses_what_is_not_there(path):
    with pytest.raises(UserError, match=r"ledger\.db: there is no ledger"):
        Ledger.open(path, create=False)
    assert not path.exists()


def test_refuses_what_is_no_ledger(path, tmp_path):
    with pytest.raises(UserError, match="cannot be opened as a ledger"):
        Ledger.open(tmp_path)
    path.write_text("credits,1,2,3\n" * 100)
    with pytest.raises(UserError, match=r"ledger\.db: cannot be opened as a ledger"):
        Ledger.open(path)
    assert path.read_text() == "credits,1,2,3\n" * 100
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(UserError, match=r"ledger\.db: is a database but no ledger"):
        Ledger.open(path)


def test_refuses_what_is_no_database_url():
    with pytest.raises(UserError, match="unknown kind of database"):
        Ledger.open("gopher://host/name")
    with pytest.raises(UserError, match="no database URL") as refused:
        Ledger.open("post gres://me:secret@host:port")
    assert "secret" not in str(refused.value)


def test_several_may_create_it_at_once(path):
    with ThreadPoolExecutor(8) as openers:
        for ledger in openers.map(lambda _: Ledger.open(path), range(8)):
            register(ledger)
            ledger.close()


def test_a_switch_that_others_make_at_once_is_tried_again():
    class Connection:
        answers: ClassVar = [sqlite3.OperationalError("database is locked")] * 3

        def execute(self, statement):
            if self.answers:
                raise self.answers.pop()

    connection = Connection()
    switch_to_wal(connection)
    assert connection.answers == []
    connection.answers.append(sqlite3.OperationalError("disk I/O error"))
    with pytest.raises(sqlite3.OperationalError, match="disk"):
        switch_to_wal(connection)


def test_the_database_itself_refuses_a_second_success_and_a_partial_row(path):
    with Ledger.open(path) as ledger:
        register(ledger)
        ledger.record(STUDY, RECIPE.name, evaluation())
        copied = "recipe_id, coalition, replicate, purpose, error, numerics, seconds, versions, worker, started"
        again = f"INSERT INTO evaluations ({copied}, finished, status) SELECT {copied}, finished, "
        with ledger._database.engine.begin() as connection:
            with pytest.raises(IntegrityError, match="UNIQUE"):
                connection.execute(text(f"{again} 'done' FROM evaluations"))
            with pytest.raises(IntegrityError, match="failed_has_error"):
                connection.execute(text(f"{again} 'failed' FROM evaluations"))
            with pytest.raises(IntegrityError, match="FOREIGN KEY"):
                connection.execute(
                    text("INSERT INTO property_values (evaluation_id, property_id, value) VALUES (99, 1, 0.5)")
                )
            with pytest.raises(IntegrityError, match="value_or_error"):
                connection.execute(text("INSERT INTO property_values (evaluation_id, property_id) VALUES (1, 1)"))


def test_is_durable(path):
    """WAL with a full synchronisation at each commit: what was acknowledged survives a power cut."""
    with Ledger.open(path) as ledger, ledger._database.engine.connect() as connection:
        settings = [
            connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert settings == ["wal", 2, 1]


def test_numpy_numbers_are_recorded_as_numbers(path):
    item = replace(evaluation(), values=(Value("quality", np.float32(0.1), np.float64(0.2)),))
    with Ledger.open(path) as ledger:
        register(ledger)
        ledger.record(STUDY, RECIPE.name, item)
        assert not ledger.record(STUDY, RECIPE.name, item)
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT value, standard_error FROM property_values").fetchall()
    assert rows == [(0.10000000149011612, 0.2)]


def with_standard_error(error):
    return replace(evaluation(), values=(Value("quality", 0.5, error),))


@pytest.mark.parametrize(("first", "second"), [(None, 0.1), (0.1, None), (None, None), (0.1, 0.1), (0.0, -0.0)])
def test_a_standard_error_that_was_not_told_contradicts_none(path, first, second):
    with Ledger.open(path) as ledger:
        register(ledger)
        assert ledger.record(STUDY, RECIPE.name, with_standard_error(first))
        assert not ledger.record(STUDY, RECIPE.name, with_standard_error(second))
        assert ledger.evaluations(STUDY, RECIPE.name) == [with_standard_error(first)]


@pytest.mark.parametrize(
    ("first", "value", "second", "said"),
    [(a, 0.5 + 2e-16, b, r"quality was 0\.5") for a, b in ((None, None), (None, 0.1), (0.1, None), (0.1, 0.1))]
    + [(0.1, 0.5, 0.2, r"0\.5 ± 0\.1 and is 0\.5 ± 0\.2 now")],
)
def test_another_value_or_standard_error_contradicts(path, first, value, second, said):
    other = replace(evaluation(), values=(Value("quality", value, second),))
    with Ledger.open(path) as ledger:
        register(ledger)
        ledger.record(STUDY, RECIPE.name, with_standard_error(first))
        with pytest.raises(NonDeterminism, match=said):
            ledger.record(STUDY, RECIPE.name, other)


def test_a_reader_is_not_held_up_by_a_writer(path):
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        register(ledger)
        ledger.record(STUDY, RECIPE.name, failure())
        with ledger._database.write():
            assert other.evaluations(STUDY, RECIPE.name) == [failure()]
