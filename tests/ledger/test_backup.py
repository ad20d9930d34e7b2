"""The backup and restore drill of docs/ledger.md, performed while a driver writes."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

from diffcredit.cli import app
from diffcredit.errors import DiffcreditError
from diffcredit.ledger import Ledger, roles
from running_study import wait_until
from tiny_study import SMALL, write_study

NAME = "tiny"


@contextmanager
def writing(url: str) -> Iterator[list[int]]:
    """A driver that records one evaluation after the other; yields the list of what it has recorded."""
    done, enough = [], threading.Event()

    def write() -> None:
        with Ledger.open(url) as ledger:
            recipe = ledger.recipes(NAME)[0].name
            like = ledger.evaluations(NAME, recipe, status="done")[-1]
            while not enough.is_set():
                ledger.record(NAME, recipe, replace(like, replicate=1000 + len(done)))
                done.append(len(done))

    driver = threading.Thread(target=write)
    driver.start()
    try:
        yield done
    finally:
        enough.set()
        driver.join()


def drill(url: str, backup) -> tuple[str, str]:
    """Back a ledger up while a driver writes; return a head noted before and one noted after it."""
    with writing(url) as done, Ledger.open(url, create=False) as ledger:
        wait_until(lambda: len(done) > 5)
        before = ledger.head(NAME).hash
        backup()
        so_far = len(done)
        wait_until(lambda: len(done) > so_far + 5)
        return before, ledger.head(NAME).hash


def verified(study: Path, head: str) -> str:
    result = CliRunner().invoke(app, ["verify", str(study), "--head", head])
    if result.exception is not None:
        raise result.exception
    return result.output


def check(study: Path, before: str, after: str, restored: str) -> None:
    """The restored ledger has all up to the head noted before, shows that later rows are lost, and goes on."""
    write_study(study, {**SMALL, "ledger": restored})
    assert "rows, all unchanged" in verified(study, before)
    with pytest.raises(DiffcreditError, match="the ledger was changed: 1 problems"):
        verified(study, after)
    with writing(restored) as done:
        wait_until(lambda: done)
    assert "rows, all unchanged" in verified(study, before)


BACKUPS = {
    "sqlite3": ["sqlite3", "{file}", ".backup '{copy}'"],
    "python": [
        *(
            sys.executable,
            "-c",
            "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('VACUUM INTO ?', sys.argv[2:])",
        ),
        *("{file}", "{copy}"),
    ],
}


@pytest.mark.parametrize("command", BACKUPS.values(), ids=BACKUPS)
def test_a_file_is_backed_up_while_a_driver_writes(small, command, tmp_path):
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    file, copy = small / "results" / "ledger.db", tmp_path / "copy.db"
    command = [part.format(file=file, copy=copy) for part in command]
    before, after = drill(f"sqlite:///{file}", lambda: subprocess.run(command, check=True))
    check(small, before, after, str(copy))


def test_a_server_is_backed_up_by_a_reader_while_a_driver_writes(small, postgres, postgres_server, tmp_path):
    """The dump has owners and rights too."""
    with Ledger.open(small / "results" / "ledger.db") as file, Ledger.open(postgres) as server:
        server.restore(*file.export(NAME))
    writer, reader = postgres_server.new_user(), postgres_server.new_user()
    roles.grant(postgres, writers=[writer], readers=[reader])
    as_writer, schema, dump = postgres_server.as_user(postgres, writer), postgres.rpartition("%3D")[2], "ledger.dump"

    def program(name: str, *arguments: str) -> None:
        command = [postgres_server.programs / name, *arguments]
        subprocess.run([*map(str, command)], check=True, cwd=tmp_path)

    where = f"host={postgres_server.folder} user={{0}} password={{0}} dbname=postgres"
    before, after = drill(
        as_writer,
        lambda: program(
            *("pg_dump", "--format=custom", f"--file={dump}", f"--schema={schema}", f"--dbname={where.format(reader)}")
        ),
    )
    restored = make_url(as_writer).set(database=f"restored_{schema}")
    host = f"--host={postgres_server.folder}"
    program("createdb", host, "--username=tests", restored.database)
    program("pg_restore", host, "--username=tests", f"--dbname={restored.database}", dump)
    check(small, before, after, restored.render_as_string(hide_password=False))
