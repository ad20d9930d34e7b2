"""A ledger whose database goes away, or whose disk is full."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from sqlalchemy import event

from diffcredit.errors import DiffcreditError
from diffcredit.ledger import Evaluation, Ledger, retries
from diffcredit.ledger import postgres as ledger_postgres
from diffcredit.testing.ledgers import RECIPE, STUDY, evaluation, register
from running_study import wait_until


def test_a_server_that_is_restarted_loses_nothing(postgres, postgres_server):
    """Four writers record without a pause while the server crashes and comes back, twice."""
    with Ledger.open(postgres) as ledger:
        register(ledger)
        restarted = threading.Event()
        written: list[Evaluation] = []

        def write(part: int) -> None:
            for index in count():
                if restarted.is_set():
                    return
                item = evaluation(f"{part:02b}{index:020b}", quality=index / 3)
                claim = ledger.claim(STUDY, RECIPE.name, item.coalition, 0, str(part), 60)
                assert claim is not None
                ledger.renew([claim], 60)
                ledger.record(STUDY, RECIPE.name, item)
                written.append(item)

        with ThreadPoolExecutor(4) as writers:
            done = [writers.submit(write, part) for part in range(4)]
            for so_many in (8, 16):
                wait_until(lambda so_many=so_many: len(written) >= so_many)
                postgres_server.stop()
                postgres_server.start()
            restarted.set()
            for each in done:
                each.result()
        recorded = ledger.evaluations(STUDY, RECIPE.name)
        assert sorted(each.coalition for each in recorded) == sorted(each.coalition for each in written)
        assert all(each in recorded for each in written)
        assert ledger.audit(STUDY).problems == ()


def test_a_server_that_stays_away_is_an_error_without_its_password(postgres, postgres_server, monkeypatch):
    monkeypatch.setattr(retries, "PATIENCE", 0.0)
    with Ledger.open(postgres) as ledger:
        register(ledger)
        postgres_server.stop()
        try:
            with pytest.raises(DiffcreditError, match="postgresql") as refused:
                ledger.record(STUDY, RECIPE.name, evaluation())
        finally:
            postgres_server.start()
        assert "secret" not in str(refused.value)
        assert "\n" not in str(refused.value)
        assert ledger.record(STUDY, RECIPE.name, evaluation())


@pytest.mark.parametrize("after", ["FOR UPDATE", "INSERT INTO chain"])
def test_a_writer_that_sleeps_in_the_middle_holds_nobody_up(postgres, monkeypatch, after):
    """It has the lock that every writer takes; the server takes it back, and the sleeper writes when it wakes."""
    monkeypatch.setattr(ledger_postgres, "MOST_IDLE", 1)
    sleepy, asleep, awake = threading.Event(), threading.Event(), threading.Event()
    with Ledger.open(postgres) as sleeper, Ledger.open(postgres) as other, ThreadPoolExecutor(2) as writers:
        register(sleeper)

        @event.listens_for(sleeper._database.engine, "after_cursor_execute")
        def sleep(connection, cursor, statement, *_):
            if sleepy.is_set() and after in statement and not asleep.is_set():
                asleep.set()
                awake.wait(60)

        sleepy.set()
        try:
            late = writers.submit(sleeper.record, STUDY, RECIPE.name, evaluation("0001"))
            assert asleep.wait(60)
            assert writers.submit(other.record, STUDY, RECIPE.name, evaluation("0010")).result(30)
        finally:
            awake.set()
        assert late.result(30)
        assert [each.coalition for each in other.evaluations(STUDY, RECIPE.name)] == ["0010", "0001"]
        assert other.audit(STUDY).problems == ()


def test_a_full_disk_is_said_in_a_line_and_what_was_there_stays(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        register(ledger)
        ledger.record(STUDY, RECIPE.name, evaluation("0001"))
        ledger.close()

        @event.listens_for(ledger._database.engine, "connect")
        def fill(connection, _record):
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")

        def record_many():
            for index in range(2, 200):
                ledger.record(STUDY, RECIPE.name, evaluation(f"{index:08b}"))

        with pytest.raises(DiffcreditError, match=r"^\S*ledger\.db: database or disk is full$"):
            record_many()
        there = len(ledger.evaluations(STUDY, RECIPE.name))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.audit(STUDY).problems == ()
        assert ledger.record(STUDY, RECIPE.name, evaluation("1110"))
        assert len(ledger.evaluations(STUDY, RECIPE.name)) == there + 1
