"""Copies of the untouched study, each to be changed once."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import NullPool, create_engine, text

from benchmarks.tamper.judging import Read
from benchmarks.tamper.shown import PARTS, Shown, audited
from benchmarks.tamper.tables import Tables
from benchmarks.tamper.untouched import Untouched
from diffcredit.ledger import Ledger

SIDE = ("-wal", "-shm")


@dataclass(frozen=True)
class Copy:
    """A copy of the study in ``folder``; ``url`` is its ledger's, ``head`` that of the untouched one."""

    folder: Path
    url: str
    head: str

    @property
    def file(self) -> Path:
        return self.folder / "study.yaml"

    @property
    def ledger(self) -> Path:
        return self.folder / "results" / "ledger.db"

    def reads(self) -> list[Read]:
        """Return what reads it, part by part."""
        return [partial(part, self.file) for part in PARTS]

    def audit(self) -> Shown:
        return audited(self.file, self.head)

    @contextmanager
    def tables(self) -> Generator[Tables]:
        """Open the ledger past diffcredit's code; everything is committed at the end."""
        engine = create_engine(self.url, poolclass=NullPool)
        try:
            with engine.begin() as connection:
                yield Tables(connection)
        finally:
            engine.dispose()


class Files:
    """Copies of a study whose ledger is a file. They share one folder, in which only the ledger is made anew."""

    def __init__(self, untouched: Untouched, folder: Path) -> None:
        self._untouched, self._folder = untouched, folder
        shutil.copytree(untouched.file.parent, folder)
        self._content = untouched.ledger.read_bytes()

    def fresh(self) -> Copy:
        copy = Copy(self._folder, f"sqlite:///{self._folder / 'results' / 'ledger.db'}", self._untouched.head)
        for ending in SIDE:
            copy.ledger.with_name(copy.ledger.name + ending).unlink(missing_ok=True)
        copy.ledger.write_bytes(self._content)
        return copy


class Folders:
    """Copies of the whole folder of a study: its file, images, artifacts and statements too."""

    def __init__(self, untouched: Untouched, folder: Path) -> None:
        self._untouched, self._folder = untouched, folder

    def fresh(self) -> Copy:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._untouched.file.parent, self._folder)  # with times, by which images are known again
        return Copy(self._folder, f"sqlite:///{self._folder / 'results' / 'ledger.db'}", self._untouched.head)


class Databases:
    """Copies of a study whose ledger is a PostgreSQL database. The server makes each from a template."""

    TEMPLATE, COPY = "untouched", "tampered"

    def __init__(self, untouched: Untouched, folder: Path, address: str) -> None:
        """``address``: a URL with ``{}`` for the database's name."""
        self._untouched, self._folder, self._address = untouched, folder, address
        shutil.copytree(untouched.file.parent, folder)
        (folder / "results" / "ledger.db").unlink()
        with (folder / "study.yaml").open("a", encoding="utf-8") as file:
            file.write(f"ledger: {self.url}\n")
        self._run(f"CREATE DATABASE {self.TEMPLATE}")
        self._restore()

    @property
    def url(self) -> str:
        return self._address.format(self.COPY)

    def fresh(self) -> Copy:
        self._run(f"DROP DATABASE IF EXISTS {self.COPY} WITH (FORCE)")
        self._run(f"CREATE DATABASE {self.COPY} TEMPLATE {self.TEMPLATE}")
        return Copy(self._folder, self.url, self._untouched.head)

    def _restore(self) -> None:
        """Enter the studies of the file in the template, with the same heads."""
        source, target = self._untouched.ledger, self._address.format(self.TEMPLATE)
        with Ledger.open(source, create=False) as old, Ledger.open(target) as new:
            for name in old.studies():
                new.restore(*old.export(name))

    def _run(self, statement: str) -> None:
        engine = create_engine(self._address.format("postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()
