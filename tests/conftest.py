"""What several rooms' tests share."""

import shutil
import signal
from pathlib import Path

import pytest

from tiny_study import run_here, write_study


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run_here(write_study(folder))
    return folder


@pytest.fixture
def finished(_finished: Path, tmp_path: Path) -> Path:
    """The folder of the tiny study, evaluated to its end; the test's own copy."""
    return shutil.copytree(_finished, tmp_path / "study")


# A shell's background jobs ignore Ctrl-C, and so would all that these tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
