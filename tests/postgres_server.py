"""A PostgreSQL server of the tests' own, in a temporary folder, without a network."""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text


def binaries() -> Path | None:
    """Where ``initdb`` and ``pg_ctl`` are; Debian keeps them off the path."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent  # where pg_dump is too
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


@dataclass(frozen=True)
class Server:
    """A running server; ``folder`` has its data and its socket."""

    folder: Path
    programs: Path

    def new_schema(self) -> str:
        """The URL of an empty schema, which is as good as a database and takes a moment."""
        name = f"test_{uuid.uuid4().hex}"
        url = f"postgresql+psycopg://tests:secret@/postgres?host={self.folder}"
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {name}"))
        engine.dispose()
        return f"{url}&options=-csearch_path%3D{name}"

    def new_user(self) -> str:
        """The name of a new user, whose password is its name; others need none."""
        name = f"user_{uuid.uuid4().hex}"
        with (self.folder / "data" / "pg_hba.conf").open("r+") as rules:
            others = rules.read()
            rules.seek(0)
            rules.write(f"local all {name} scram-sha-256\n{others}")
        engine = create_engine(f"postgresql+psycopg://tests:secret@/postgres?host={self.folder}")
        with engine.begin() as connection:
            connection.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'"))
            connection.execute(text("SELECT pg_reload_conf()"))
        engine.dispose()
        return name

    @staticmethod
    def as_user(url: str, name: str) -> str:
        """``url`` for one of the new users."""
        return url.replace("//tests:secret@", f"//{name}:{name}@")

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off"
        self.control("start", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        """Ends it as a crash does: every connection breaks, and it recovers when it starts again."""
        self.control("stop", "-m", "immediate")

    def control(self, *arguments: str) -> None:
        _run([self.programs / "pg_ctl", "-D", self.folder / "data", "-w", *arguments])


@contextmanager
def running_server(programs: Path) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="diffcredit-postgres-"))  # a socket's path must be short
    server = Server(folder, programs)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        _run([programs / "initdb", "-D", folder / "data", "-U", "tests", "-A", "trust", "--no-sync"])
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[object]) -> None:
    # the server refuses to be root's; and what it leaves running must not hold a pipe of ours open
    user = "postgres" if os.geteuid() == 0 else None
    subprocess.run([*map(str, command)], check=True, user=user, cwd="/", stdout=subprocess.DEVNULL)
