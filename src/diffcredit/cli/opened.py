"""Opening a study for a command, with a log of what happens."""

import logging
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import typer

from diffcredit.errors import DiffcreditError

if TYPE_CHECKING:
    from diffcredit.study.study import Study
    from diffcredit.util.progress import Progress


@contextmanager
def opened(path: str, progress: "Progress", *, logged: bool = True) -> "Generator[Study]":
    """Load a study; until the context ends, events are logged to ``log.jsonl`` in its results folder."""
    from diffcredit.study.study import Study

    study = Study.load(path, progress)
    with _logging(study) if logged else nullcontext():
        yield study


@contextmanager
def _logging(study: "Study") -> Generator[None]:
    from diffcredit.execution.tasks import worker_name
    from diffcredit.execution.versions import package_versions
    from diffcredit.study.tally import LOG_NAME
    from diffcredit.util.artifacts import fingerprint
    from diffcredit.util.events import LOGGER, LogFile, event

    log = LogFile(study.folder / LOG_NAME, driver=worker_name(), study=study.name)
    level = LOGGER.level
    LOGGER.addHandler(log)
    LOGGER.setLevel(logging.INFO)
    settings = study.config.model_dump(mode="json", exclude={"ledger", "results"})  # these change no number
    try:
        event(
            "study opened",
            command=sys.argv[1] if len(sys.argv) > 1 else "",
            version=package_versions().get("diffcredit"),
            file=str(study.file),
            ledger=study.config.ledger or str(study.folder / "ledger.db"),
            settings=fingerprint(settings),
        )
        yield
        event("finished")
    except typer.Exit as end:
        event("finished", code=end.exit_code)
        raise
    except KeyboardInterrupt:
        event("interrupted", level=logging.WARNING)
        raise
    except Exception as error:
        expected = isinstance(error, DiffcreditError | OSError)
        event("failed", level=logging.ERROR, error=str(error) if expected else traceback.format_exc())
        raise
    finally:
        LOGGER.setLevel(level)
        LOGGER.removeHandler(log)
        log.close()
