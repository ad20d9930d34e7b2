"""What several rooms' tests share."""

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from paid_study import evaluated, stated
from postgres_server import Server, binaries, running_server
from tiny_study import run_here, write_small, write_study

if TYPE_CHECKING:
    from diffusion.ways import Ways

# Notes of this machine are not the tests'.
NOTES = TemporaryDirectory()
os.environ["DIFFCREDIT_NOTES"] = NOTES.name
# Nor what this user trusts; the tests' own plug-ins may run, but where consent itself is tested.
os.environ["XDG_CONFIG_HOME"] = str(Path(NOTES.name) / "configuration")
os.environ["DIFFCREDIT_ALLOW_PLUGINS"] = "1"

# A busy machine is slow; nothing is timed within a test.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    # All that was imported stays: nobody need look through it for garbage again and again.
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run_here(write_study(folder))
    return folder


@pytest.fixture
def finished(_finished: Path, tmp_path: Path) -> Path:
    """The folder of the tiny study, evaluated to its end; the test's own copy."""
    return shutil.copytree(_finished, tmp_path / "study")


@pytest.fixture(scope="session")
def _small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    run_here(write_small(folder))
    return folder


@pytest.fixture
def small(_small: Path, tmp_path: Path) -> Path:
    """The folder of the small study, evaluated to its end; the test's own copy."""
    return shutil.copytree(_small, tmp_path / "small")


@pytest.fixture(scope="session")
def _paying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paying")
    evaluated(stated(folder))
    return folder


@pytest.fixture
def paying(_paying: Path, tmp_path: Path) -> Path:
    """The folder of a study with a payout policy and made-up evaluations, to its end; the test's own copy."""
    return shutil.copytree(_paying, tmp_path / "paying")


@pytest.fixture(scope="session")
def ways(tmp_path_factory: pytest.TempPathFactory) -> "Ways":
    """Every kind of model that a study may start from."""
    from diffusion.ways import Ways  # it brings torch

    return Ways(tmp_path_factory.mktemp("ways"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A PostgreSQL server; whoever asks for it is skipped where there is none, or fails where one is required."""
    programs = binaries()
    if programs is None:
        without = pytest.fail if os.environ.get("DIFFCREDIT_TEST_REQUIRES_POSTGRES") else pytest.skip
        without("no PostgreSQL server here (Debian's package postgresql)")
    with running_server(programs) as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Server) -> str:
    """The URL of an empty PostgreSQL database."""
    return postgres_server.new_schema()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of every kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return request.getfixturevalue("postgres")


# A shell's background jobs ignore Ctrl-C, and so would all that these tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
