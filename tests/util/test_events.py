"""The log: whole lines whoever writes, nothing secret, and never in the way of the work."""

import json
import logging
import os
import re
import subprocess
import sys
import warnings
from datetime import UTC, datetime, timedelta

import pytest

from diffcredit.errors import DiffcreditWarning
from diffcredit.util import events
from diffcredit.util.events import LOGGER, LogFile, event, stage


@pytest.fixture
def log(tmp_path):
    """The path of a log that hears all events."""
    path = tmp_path / "log.jsonl"
    handler = LogFile(path, driver="machine:1", study="tiny")
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield path
    LOGGER.setLevel(logging.NOTSET)
    LOGGER.removeHandler(handler)
    handler.close()


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_says_when_who_and_what(log):
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    event("worker lost", worker="a:2", seconds=1.5, replicate=0, cause=None, again=True)
    event("trouble", level=logging.ERROR, study="another", error="disk")
    first, second = lines_of(log)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert before <= datetime.fromisoformat(first.pop("time")) <= datetime.now(UTC)
    assert first == {
        "level": "info",
        "event": "worker lost",
        "driver": "machine:1",
        "study": "tiny",
        **{"worker": "a:2", "seconds": 1.5, "replicate": 0, "cause": None, "again": True},
    }
    assert (second["level"], second["study"], second["error"]) == ("error", "tiny", "disk")


def test_values_of_strangers_are_harmless(log):
    url = "postgresql+psycopg://ann:se cret@host/db"
    event(
        "x",
        url=url,
        long=f"{url} {'y' * 10_000}",
        cut=f"{'z' * 1990}//u:secret@h",
        shown="\x1b[2J\u202e",
        nan=float("nan"),
    )
    assert "secret" not in log.read_text()
    assert "se cret" not in log.read_text()
    (record,) = lines_of(log)
    assert record["url"] == "postgresql+psycopg://ann:***@host/db"
    assert len(record["long"]) == events.LONGEST_FIELD
    assert record["shown"] == "\\x1b[2J\\u202e"
    assert record["nan"] == "nan"


def test_stages_tell_their_ends(log):
    with stage("one"):
        pass
    with pytest.raises(ZeroDivisionError), stage("two"):
        _ = 1 / 0
    told = [(each["event"], each["stage"]) for each in lines_of(log)]
    assert told == [
        ("stage started", "one"),
        ("stage finished", "one"),
        ("stage started", "two"),
        ("stage broken off", "two"),
    ]
    assert 0 <= lines_of(log)[1]["seconds"] < 60


def test_records_wait_for_the_folder(tmp_path):
    handler = LogFile(tmp_path / "results" / "log.jsonl", "machine:1", "tiny")
    for number in range(3):
        handler.handle(logging.makeLogRecord({"msg": f"event {number}"}))
        assert (tmp_path / "results").exists() == (number == 2)
        if number == 1:
            (tmp_path / "results").mkdir()
    handler.close()
    assert [each["event"] for each in lines_of(tmp_path / "results/log.jsonl")] == ["event 0", "event 1", "event 2"]


def test_it_rotates_and_keeps_three(log, monkeypatch):
    monkeypatch.setattr(events, "MOST_BYTES", 1000)
    for number in range(100):
        event("x", number=number)
    files = [log.with_name(f"log.jsonl.{number}") for number in (3, 2, 1)]
    assert sorted(path.name for path in log.parent.iterdir()) == sorted(path.name for path in (*files, log))
    assert all(path.stat().st_size <= 1000 for path in (*files, log))
    kept = [each["number"] for path in (*files, log) for each in lines_of(path)]
    assert kept == list(range(kept[0], 100))  # the latest, none lost between two files


WRITER = """
import sys
from pathlib import Path
from diffcredit.util import events
events.MOST_BYTES = 40_000
events.KEPT_FILES = 1000
log = events.LogFile(Path(sys.argv[1]), sys.argv[2], "tiny")
events.LOGGER.addHandler(log)
events.LOGGER.setLevel("INFO")
for number in range(500):
    events.event("x", number=number, filling="y" * (number % 300))
"""


def test_several_processes_write_whole_lines_and_lose_none(tmp_path):
    path = tmp_path / "log.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, str(number)]) for number in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    records = [each for file in tmp_path.iterdir() for each in lines_of(file)]
    assert len(list(tmp_path.iterdir())) > 3
    for number in range(3):
        assert sorted(each["number"] for each in records if each["driver"] == str(number)) == list(range(500))


def test_what_cannot_be_written_costs_one_warning(log):
    log.mkdir()  # in the way of the file
    with pytest.warns(DiffcreditWarning, match=r"log\.jsonl: cannot be written .*; the work goes on"):
        event("lost")
    with warnings.catch_warnings(action="error"):
        event("lost too")
    log.rmdir()
    event("there again")
    assert [each["event"] for each in lines_of(log)] == ["there again"]


def test_a_full_disk_spoils_no_later_record(log, monkeypatch):
    event("before")
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:20]))
    with pytest.warns(DiffcreditWarning, match="no room"):
        event("cut off")
    monkeypatch.setattr(os, "write", write)
    event("after")
    first, torn, last = log.read_text().splitlines()
    assert json.loads(first)["event"] == "before"
    assert len(torn) == 20
    assert json.loads(last)["event"] == "after"
