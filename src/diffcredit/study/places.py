"""Where a study may write: in the project that encloses it, and where its user says otherwise.

A study file may be a stranger's, and so may the folder around it. Its results, its artifacts and a ledger in a file
must lie in the repository that holds the study file, else in the study file's folder or the one above; links must not
lead out of that. ``--outside DIR`` (:data:`OUTSIDE`) adds folders. Artifacts and ledgers at a URL are limited to known
kinds.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diffcredit.errors import UserError, located
from diffcredit.util.links import real_path
from diffcredit.util.sanitize import shortened, single_line
from diffcredit.util.store import check_url, is_url

if TYPE_CHECKING:
    from diffcredit.study.config import StudyConfig

OUTSIDE = "DIFFCREDIT_OUTSIDE"
"""The environment variable that lists folders outside of any project, in which studies may write."""

LEDGERS = ("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg")
WRITTEN = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal")
FOLDERS = (".locks", "baselines", "kept", "models", "statements", "validation")
"""What lies in a results folder and is written in place. Other files there are replaced, links included."""


def check_places(config: "StudyConfig", file: Path) -> None:
    """Refuse a study that would write elsewhere than it may."""
    stated = filter(None, os.environ.get(OUTSIDE, "").split(os.pathsep))
    roots = [project_of(file), *(real_path(Path(each)) for each in stated)]
    with located(file):
        ledger = None if config.ledger is None else _ledger_file(config.ledger)
        artifacts = None if config.artifacts is None else _folder(config.artifacts)
        places = {"results": config.results_folder, "artifacts": artifacts, "ledger": ledger}
        for key, place in places.items():
            if place is not None:
                _check_within(key, place, roots)
        for key, folder in (("results", config.results_folder), ("artifacts", artifacts)):
            for link in () if folder is None else _links(folder):
                _check_within(key, link, roots)


def project_of(file: Path) -> Path:
    """Return the folder that encloses a study: its repository, else the one above the study file's folder."""
    folder = real_path(file.parent)
    for each in (folder, *folder.parents):
        if (each / ".git").exists() and each != Path.home():
            return each
    return folder.parent if folder.parent != Path(folder.anchor) else folder


def _check_within(key: str, place: Path, roots: Sequence[Path]) -> None:
    there = real_path(place)
    if not any(there.is_relative_to(root) for root in roots):
        shown = single_line(str(place))
        led = f", through the link {shown}" if place.is_symlink() else ""
        raise UserError(
            f"{key}: {single_line(str(there))} is outside the study's project {single_line(str(roots[0]))}{led}; "
            f"--outside DIR, or {OUTSIDE}, allows what lies in DIR"
        )


def _links(folder: Path) -> Iterator[Path]:
    """Yield the links among what is written in place in a folder of results or artifacts."""
    for name in (*WRITTEN, *FOLDERS):
        if (folder / name).is_symlink():
            yield folder / name
    for name in FOLDERS:
        for above, folders, files in os.walk(folder / name):
            yield from (Path(above, each) for each in (*folders, *files) if Path(above, each).is_symlink())
            if Path(above) == folder / "kept":  # whose folders hold a file for each evaluation, and are not written in
                folders.clear()


def _folder(artifacts: str) -> Path | None:
    """Return the folder of artifacts; None where they lie on a server."""
    if not is_url(artifacts):
        return Path(artifacts)
    check_url(artifacts)
    scheme, _, path = artifacts.partition("://")
    return Path(path).expanduser() if scheme == "file" else None


def _ledger_file(ledger: str) -> Path | None:
    """Return the file of a ledger; None where it is on a server."""
    if "://" not in ledger:
        return Path(ledger)
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(ledger)
    except (ArgumentError, ValueError):
        return None  # opening it says what is wrong
    if url.drivername not in LEDGERS:
        raise UserError(
            f"ledger: {shortened(url.drivername)}://… is not accepted; a file is, or a URL that begins with "
            f"{', '.join(f'{name}://' for name in LEDGERS)}"
        )
    if "plugin" in url.query or (url.query and url.get_backend_name() == "sqlite"):
        raise UserError(f"ledger: {url.drivername}://…?{next(iter(url.query))}=… is not accepted; leave it out")
    on_disk = url.get_backend_name() == "sqlite" and url.database not in ("", ":memory:", None)
    return Path(str(url.database)) if on_disk else None
