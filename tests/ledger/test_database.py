"""Opening a database, and one that goes away, sleeps, is full, or must not tell its password."""

import random
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError, OperationalError

from diffcredit.errors import DiffcreditError, DiffcreditWarning, UserError
from diffcredit.ledger import Evaluation, Ledger, database
from running_study import wait_until

from .contract import RECIPE, STUDY, evaluation, failure, register


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


def test_opens_a_path_a_text_and_a_url_and_is_one_file_when_closed(tmp_path):
    path = tmp_path / "new" / "ledger.db"
    with Ledger.open(path) as ledger:
        register(ledger)
    for same in (str(path), f"sqlite:///{path}"):
        with Ledger.open(same, create=False) as ledger:
            assert ledger.studies() == [STUDY]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_refuses_what_is_no_ledger(path, tmp_path):
    with pytest.raises(UserError, match=r"ledger\.db: there is no ledger"):
        Ledger.open(path, create=False)
    assert not path.exists()
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


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gopher://host/name", "unknown kind of database"),
        ("post gres://me:s3cret@host:port", "no database URL"),
        ("mysql+nothing://me:s3cret@127.0.0.1/name", "unknown kind of database"),
        ("postgresql+psycopg://me:s3cret@127.0.0.1:port/name", "no database URL"),
        ("postgresql+psycopg://me:s3cret@nowhere.invalid/name", r"me:\*\*\*@nowhere\.invalid/name: cannot be opened"),
        ("postgresql+psycopg://nowhere.invalid/name?user=me&password=s3cret", "cannot be opened"),
        ("postgresql+psycopg://me:s3cret@/name?host=/no/such/folder", "cannot be opened"),
        ("postgresql+psycopg://me:s3cret@127.0.0.1:1/name?no_such_option=1", "cannot be opened"),
        ("//me:s3cret@127.0.0.1/name?password=s3cret", "there is no ledger"),
    ],
)
def test_an_address_that_cannot_be_opened_is_named_without_its_password(url, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuse_to_wait(monkeypatch)
    with pytest.raises(UserError, match=said) as caught:
        Ledger.open(url, create=False)
    assert "s3cret" not in str(caught.value)


def refuse_to_wait(monkeypatch):
    monkeypatch.setattr(database.time, "sleep", lambda seconds: pytest.fail("waited"))


def test_texts_come_as_texts_whatever_encoding_is_asked_for(postgres, monkeypatch):
    with Ledger.open(postgres) as ledger:
        register(ledger)
    for encoding in ("SQL_ASCII", "LATIN1"):
        monkeypatch.setenv("PGCLIENTENCODING", encoding)
        with Ledger.open(postgres, create=False) as ledger:
            assert ledger.studies() == [STUDY]
            assert ledger.audit(STUDY).problems == ()


def test_what_a_server_refuses_for_good_is_said_at_once(postgres, postgres_server, monkeypatch):
    Ledger.open(postgres).close()
    user = postgres_server.new_user()
    refuse_to_wait(monkeypatch)
    for url, said in (
        (postgres.replace("tests:secret", f"{user}:wrong"), "password authentication failed"),
        (postgres.replace("tests:secret", "nobody:secret"), 'role "nobody" does not exist'),
        (postgres.replace("@/postgres", "@/missing"), 'database "missing" does not exist'),
    ):
        with pytest.raises(UserError, match=rf"^postgresql\S*: cannot be opened as a ledger \(.*{said}"):
            Ledger.open(url)


def test_a_server_that_is_away_while_a_ledger_is_opened_is_waited_for(postgres, postgres_server, monkeypatch, caplog):
    """It neither listens nor has a socket, as while it restarts."""
    caplog.set_level("INFO", logger="diffcredit")
    Ledger.open(postgres).close()
    monkeypatch.setattr(database, "PAUSE", 0.05)
    postgres_server.stop()
    with ThreadPoolExecutor(1) as others:
        starting = others.submit(lambda: (wait_until(lambda: caplog.records), postgres_server.start()))
        with pytest.warns(DiffcreditWarning, match=r"\?host=\S*: is away \(.*; trying"):
            ledger = Ledger.open(postgres, create=False)
        starting.result()
    assert ledger.studies() == []
    ledger.close()
    assert [each.getMessage() for each in caplog.records] == ["ledger away", "ledger back"]


def test_a_server_that_shuts_down_while_a_ledger_is_opened_is_waited_for(postgres, postgres_server, caplog):
    """It still listens and refuses new sessions, with SQLSTATE 57P03, until the last session has ended."""
    with Ledger.open(postgres) as ledger, ThreadPoolExecutor(1) as others:
        last = ledger._database.engine.connect()
        postgres_server.control("stop", "-m", "smart", "--no-wait")

        def restart():
            wait_until(lambda: caplog.records)
            last.close()
            ledger.close()
            wait_until(lambda: not (postgres_server.folder / "data" / "postmaster.pid").exists())
            postgres_server.start()

        restarting = others.submit(restart)
        with pytest.warns(DiffcreditWarning, match=r"is away \(.*shutting down"):
            Ledger.open(postgres).close()
        restarting.result()


def test_a_server_that_never_answers_is_an_error_after_a_while(monkeypatch):
    monkeypatch.setattr(database, "AWAY", 0.0)
    with pytest.raises(DiffcreditError, match=r"me:\*\*\*@127\.0\.0\.1:1/name: .*[Cc]onnection refused") as caught:
        Ledger.open("postgresql+psycopg://me:s3cret@127.0.0.1:1/name", create=False)
    assert "s3cret" not in str(caught.value)


def test_several_may_create_it_at_once(path):
    with ThreadPoolExecutor(8) as openers:
        for ledger in openers.map(lambda _: Ledger.open(path), range(8)):
            register(ledger)
            ledger.close()


def test_a_switch_that_others_make_at_once_is_tried_again():
    class Connection:
        def __init__(self, *answers):
            self.answers = list(answers)

        def execute(self, statement):
            if self.answers:
                raise sqlite3.OperationalError(self.answers.pop())

    connection = Connection(*["database is locked"] * 3)
    database.switch_to_wal(connection)
    assert connection.answers == []
    with pytest.raises(sqlite3.OperationalError, match="disk"):
        database.switch_to_wal(Connection("disk I/O error"))


def test_the_database_itself_refuses_a_second_success_and_a_partial_row(path):
    with Ledger.open(path) as ledger:
        register(ledger)
        ledger.record(STUDY, RECIPE.name, evaluation())
        copied = "recipe_id, coalition, replicate, purpose, error, numerics, seconds, versions, worker, started"
        again = f"INSERT INTO evaluations ({copied}, finished, status) SELECT {copied}, finished, "
        values = "INSERT INTO property_values (evaluation_id, property_id, value) VALUES"
        with ledger._database.engine.begin() as connection:
            for statement, refusal in (
                (f"{again} 'done' FROM evaluations", "UNIQUE"),
                (f"{again} 'failed' FROM evaluations", "failed_has_error"),
                (f"{values} (99, 1, 0.5)", "FOREIGN KEY"),
                (f"{values} (1, 1, NULL)", "value_or_error"),
            ):
                with pytest.raises(IntegrityError, match=refusal):
                    connection.execute(text(statement))


def test_a_reader_is_not_held_up_by_a_writer(path):
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        register(ledger)
        ledger.record(STUDY, RECIPE.name, failure())
        read = ledger._database.write(lambda _: other.evaluations(STUDY, RECIPE.name))
    assert read == [failure()]


@pytest.fixture
def waiting():
    """By statement, whether its transaction waits for the disk: what PostgreSQL is told applies to one transaction,
    what SQLite is told to all that follow."""
    found, state = {}, {"waits": None}

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


def test_records_wait_for_the_disk_and_claims_do_not(database, waiting):
    with Ledger.open(database) as ledger:
        register(ledger)
        claim = ledger.claim(STUDY, RECIPE.name, "0001", 0, "me", 60.0)
        assert waiting["INSERT INTO claims"] is False
        ledger.renew([claim], 60.0)
        assert waiting.pop("UPDATE claims SET") is False
        ledger.record(STUDY, RECIPE.name, evaluation())
        ledger.claim(STUDY, RECIPE.name, "0010", 0, "me", 60.0)
        for table in ("evaluations", "property_values", "chain"):
            assert waiting[f"INSERT INTO {table}"] is True
        assert waiting["INSERT INTO claims"] is False
        if "sqlite" in database:
            with ledger._database.engine.connect() as connection:
                assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"


RECORDER = """
import sys
sys.path.insert(0, sys.argv[3])
from diffcredit.ledger import Ledger
from contract import RECIPE, STUDY, evaluation, register

with Ledger.open(sys.argv[1]) as ledger:
    register(ledger)
    for index in range(int(sys.argv[2]), 2**20):
        ledger.record(STUDY, RECIPE.name, evaluation(f"{index:020b}", index / 3, -index / 7))
        print(index, flush=True)
"""


def test_a_recorder_that_is_killed_loses_and_halves_nothing_that_it_acknowledged(path):
    moments = random.Random(0)
    acknowledged: set[int] = set()
    for _ in range(2):
        command = [sys.executable, "-c", RECORDER, str(path), str(len(acknowledged)), str(Path(__file__).parent)]
        recorder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(moments.randrange(1, 30)):
            acknowledged.add(int(recorder.stdout.readline()))
        time.sleep(moments.uniform(0, 0.01))
        recorder.kill()
        acknowledged.update(int(line) for line in recorder.stdout.read().splitlines())
        recorder.wait()
        # before the next recorder comes, which would complete what this one left undone
        with Ledger.open(path) as ledger:
            recorded = ledger.evaluations(STUDY, RECIPE.name)
        indices = [int(item.coalition, 2) for item in recorded]
        assert len(set(indices)) == len(indices)
        assert acknowledged <= set(indices)
        assert recorded == [evaluation(f"{index:020b}", index / 3, -index / 7) for index in indices]


def test_a_server_that_is_restarted_loses_nothing(postgres, postgres_server, monkeypatch, caplog):
    """Four writers record without a pause while the server crashes and comes back; the log says so."""
    monkeypatch.setattr(database, "PAUSE", 0.05)
    caplog.set_level("INFO", logger="diffcredit")
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
            wait_until(lambda: len(written) >= 8)
            postgres_server.stop()
            postgres_server.start()
            restarted.set()
            for each in done:
                each.result()
        recorded = ledger.evaluations(STUDY, RECIPE.name)
        assert sorted(each.coalition for each in recorded) == sorted(each.coalition for each in written)
        assert all(each in recorded for each in written)
        assert ledger.audit(STUDY).problems == ()
    told = {(each.getMessage(), each.levelname) for each in caplog.records}
    assert told == {("ledger away", "WARNING"), ("ledger back", "INFO")}


def test_a_server_that_stays_away_is_an_error_without_its_password(postgres, postgres_server, monkeypatch):
    monkeypatch.setattr(database, "AWAY", 0.0)
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
    monkeypatch.setattr(database, "MOST_IDLE", 0.2)
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


def test_a_file_is_not_waited_for_and_a_full_disk_is_said_in_a_line(path, caplog):
    with Ledger.open(path) as ledger:
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

        with pytest.raises(DiffcreditError, match=r"^\S*ledger\.db: database or disk is full$") as raised:
            record_many()
        assert isinstance(raised.value.__cause__, OperationalError)
        there = len(ledger.evaluations(STUDY, RECIPE.name))
    assert caplog.records == []
    with Ledger.open(path) as ledger:
        assert ledger.audit(STUDY).problems == ()
        assert ledger.record(STUDY, RECIPE.name, evaluation("1110"))
        assert len(ledger.evaluations(STUDY, RECIPE.name)) == there + 1
