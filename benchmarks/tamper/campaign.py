"""The kinds of change, and how a campaign goes through them: each change is drawn by its own seed."""

import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from tests.postgres_server import binaries, running_server

from benchmarks.tamper import archives, artifacts, images, links, pages, rows, schema, server, statements, study_files
from benchmarks.tamper.commands import Commands
from benchmarks.tamper.copies import Databases, Files, Folders
from benchmarks.tamper.judging import HARMLESS, TRACEBACK, Judgement, Read, judge
from benchmarks.tamper.shown import Shown, shown, shown_payout
from benchmarks.tamper.untouched import Untouched, make
from benchmarks.tamper.values import Impossible

DRAWS = 60  # of a change that is possible


@dataclass(frozen=True)
class Kind:
    """A kind of change: ``count`` of them in a whole campaign, to copies of one ``place``. ``noted``: only a head that
    was noted before can show it. ``plans``: it may change what is still to be done, and so the status."""

    count: int
    place: str
    change: Callable[[Any, Random], str]
    noted: bool = False
    plans: bool = False


IN_LEDGER: dict[str, Kind] = {
    "values of rows": Kind(420, "file", rows.change_value),
    "JSON of rows": Kind(300, "file", rows.change_json),
    "rows removed": Kind(60, "file", rows.remove_row),
    "rows inserted": Kind(80, "file", rows.insert_row),
    "rows moved": Kind(60, "file", rows.move_row),
    "rows' keys exchanged": Kind(60, "file", rows.exchange_keys),
    "rows' values exchanged": Kind(60, "file", rows.exchange_values),
    "rows of another study": Kind(60, "file", rows.give_away),
    "links of the chain": Kind(200, "file", links.change_link),
    "the chain written anew": Kind(160, "file", links.rewrite, noted=True),
    "rows cut off the end": Kind(20, "file", links.cut_end, noted=True),
    "the schema": Kind(240, "file", schema.change_schema),
    "root pages": Kind(80, "file", pages.move_root),
    "doctored indices": Kind(40, "file", pages.doctor_index),
    "doctored tables": Kind(20, "file", pages.doctor_table),
    "bytes of the file": Kind(300, "file", pages.change_bytes),
    "pages of the file": Kind(80, "file", pages.change_pages),
    "bytes of the log": Kind(60, "file", pages.change_log, noted=True),
    "PostgreSQL: values of rows": Kind(60, "server", rows.change_value),
    "PostgreSQL: JSON of rows": Kind(50, "server", rows.change_json),
    "PostgreSQL: other rows": Kind(
        50,
        "server",
        lambda copy, random: random.choice(
            [rows.remove_row, rows.insert_row, rows.move_row, rows.exchange_keys, rows.exchange_values, rows.give_away]
        )(copy, random),
    ),
    "PostgreSQL: links": Kind(30, "server", links.change_link),
    "PostgreSQL: rows cut off": Kind(10, "server", links.cut_end, noted=True),
    "PostgreSQL: the schema": Kind(120, "server", server.change_server),
    "archives: rows": Kind(80, "archive", archives.change_member_rows),
    "archives: rows and head": Kind(40, "archive", archives.change_with_head, noted=True),
    "archives: bytes": Kind(60, "archive", archives.change_bytes),
    "archives: files": Kind(60, "archive", archives.change_members),
}
"""Changes to what the head covers."""

BESIDE: dict[str, Kind] = {
    "study files: settings": Kind(150, "folder", study_files.change_study, plans=True),
    "study files: text": Kind(50, "folder", study_files.change_study_text, plans=True),
    "archives: study file": Kind(50, "archive", study_files.change_archived_study, plans=True),
    "images": Kind(50, "folder", images.change_images),
    "baselines": Kind(60, "artifact", artifacts.change_baselines),
    "validation": Kind(60, "artifact", artifacts.change_validation),
    "statements": Kind(80, "statement", statements.change_statement),
}
"""Changes to what lies beside the ledger."""

BY_COMMANDS = ("values of rows", "JSON of rows", "links of the chain", "the chain written anew", "the schema")
BY_COMMANDS = (*BY_COMMANDS, "root pages", "bytes of the file", "pages of the file", "rows of another study")
"""Kinds that the command line is tried with."""

PLACES: dict[str, Any] = {
    "file": Files,
    "folder": Folders,
    "archive": archives.Archives,
    "artifact": artifacts.Artifacts,
    "statement": statements.Statements,
}
"""Beside a server, which is started when it is needed."""
OWN = ("artifact", "statement")
"""Places whose untouched copies show something of their own."""


@dataclass(frozen=True)
class Case:
    """One change and what became of it."""

    kind: str
    number: int
    words: str
    judgement: Judgement


class Campaign:
    """An untouched study, and the places where its copies are changed."""

    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        self._seed, self._folder, self._stack = seed, folder, stack
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.untouched: Untouched = make(folder)
            self._expected: dict[str, Shown] = {}
            self._places: dict[str, Any] = {}
            self._commands: Commands | None = None

    def run(self, kind: str, number: int) -> Case:
        """Make one change of a kind and read the study; the same number makes the same change."""
        chosen, random = (IN_LEDGER | BESIDE)[kind], Random(f"{self._seed} {kind} {number}")
        copy, words = self._changed(chosen, random)
        reads = [partial(_without_status, read) for read in copy.reads()] if chosen.plans else copy.reads()
        judgement = judge(reads, self.expected(chosen.place), copy.audit if chosen.noted else None)
        return Case(kind, number, words, judgement)

    def run_command(self, number: int) -> Case:
        """Make a change, and run one or two commands on the study."""
        random = Random(f"{self._seed} commands {number}")
        kind = random.choice(BY_COMMANDS)
        chosen = IN_LEDGER[kind]
        if self._commands is None:
            self._commands = Commands(self.place("file").fresh())
        copy, words = self._changed(chosen, random)
        names, judgement = self._commands.judge(copy, random, noted=chosen.noted)
        return Case("commands", number, f"{names}: {kind}: {words}", judgement)

    def controls(self) -> Iterator[Case]:
        """Read an untouched copy of each place."""
        for number, name in enumerate(dict.fromkeys(kind.place for kind in (IN_LEDGER | BESIDE).values())):
            if self.has(name):
                copy = self.place(name).fresh()
                judgement = judge(copy.reads(), self.expected(name), copy.audit)
                harmless = judgement.outcome == HARMLESS
                yield Case("untouched", number, name, judgement if harmless else Judgement(TRACEBACK, judgement.words))

    def has(self, place: str) -> bool:
        """Return whether there are such places here: PostgreSQL may not be installed."""
        return place != "server" or binaries() is not None

    def expected(self, place: str) -> Mapping[str, str]:
        """Return what an untouched copy shows; in every place the same, but for what is not there."""
        if place not in self._expected:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = self.place(place)
                self._expected[place] = made.expected() if place in OWN else self._shown
        return self._expected[place]

    @cached_property
    def _shown(self) -> Shown:
        """What the untouched study shows, also where its images are not at hand."""
        without = self._folder / "without images"
        shutil.copytree(self.untouched.file.parent, without)
        shutil.rmtree(without / "images")
        return shown_payout(without / "study.yaml") | shown(self.untouched.file)

    def place(self, name: str) -> Any:
        if name not in self._places:
            self._places[name] = self._made(name)
        return self._places[name]

    def _made(self, name: str) -> Any:
        folder = self._folder / f"changed {name}"
        if name == "server":
            programs = binaries()
            assert programs is not None
            running = self._stack.enter_context(running_server(programs))
            address = f"postgresql+psycopg://tests:secret@/{{}}?host={running.folder}"
            return Databases(self.untouched, folder, address)
        return PLACES[name](self.untouched, folder)

    def _changed(self, kind: Kind, random: Random) -> tuple[Any, str]:
        """Return a copy with a change, and the change in words; draw again what the database does not let happen."""
        for _ in range(DRAWS):
            copy = self.place(kind.place).fresh()
            try:
                return copy, kind.change(copy, random)
            except (Impossible, SQLAlchemyError, *pages.REFUSALS):
                continue
        raise RuntimeError(f"no change of {kind.change.__name__} is possible")


def _without_status(read: Read) -> Shown:
    return {name: text for name, text in read().items() if name != "status"}


@contextmanager
def campaign(folder: Path, seed: int) -> Iterator[Campaign]:
    with ExitStack() as stack:
        yield Campaign(folder, seed, stack)
