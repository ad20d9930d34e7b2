"""The artifacts of a study: each made once, named by what it was made from, and found again.

``cache.get(kind, identity, make, read)`` returns ``read(path)`` of the artifact ``KIND-FINGERPRINT``. Where it is
missing, ``make(path)`` writes it first, in one process at a time. A changed setting changes the identity, hence the
name, so a stale artifact is never used. Artifacts lie in ``models/`` of one root. With a store they are shared with
machines that do not see that folder.
"""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from diffcredit.util.artifacts import exclusive_lock, fingerprint, read_arrays, write_arrays, write_text
from diffcredit.util.progress import Progress, silent
from diffcredit.util.store import Store, pull, push

T = TypeVar("T")

DIGITS = 12  # of the fingerprint in a name


def artifact_name(kind: str, identity: Any) -> str:
    """Return the name of the artifact of ``identity``, a fingerprint or a JSON value."""
    return f"{kind}-{(identity if isinstance(identity, str) else fingerprint(identity))[:DIGITS]}"


def cached_arrays(
    folder: Path | None, name: str, make: Callable[[], Mapping[str, NDArray[Any]]]
) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of the artifact ``name`` in ``folder``, made before where they are missing (None: always)."""
    if folder is None:
        return make()
    file = folder / f"{name}.safetensors"
    if not file.exists():
        write_arrays(file, make())
    return read_arrays(file)


@dataclass(frozen=True)
class ArtifactCache:
    """Artifacts under ``root``; with a ``store``, ``root`` holds copies of what lies there. Several processes and
    machines may use one cache: ``make`` must write whole files, as :func:`~diffcredit.util.artifacts.atomic_file`
    does."""

    root: Path
    store: Store | None = None
    progress: Progress = silent

    @property
    def folder(self) -> Path:
        """The folder that holds the artifacts themselves."""
        return self.root / "models"

    def path(self, kind: str, identity: Any, suffix: str = "") -> Path:
        """Return where the artifact of ``identity``, a fingerprint or a JSON value, lies or would lie."""
        return self.folder / f"{artifact_name(kind, identity)}{suffix}"

    def get(
        self, kind: str, identity: Any, make: Callable[[Path], object], read: Callable[[Path], T], **named: str
    ) -> T:
        """Return ``read`` of an artifact, made before where it is missing. ``named`` may hold ``suffix``, the end of
        the file's name, and ``what``, how messages call the artifact."""
        path = self.path(kind, identity, named.get("suffix", ""))
        if not path.exists():
            self.made_once(path.stem, named.get("what", kind), lambda: None if path.exists() else make(path))
        return read(path)

    def made_once(self, name: str, what: str, make: Callable[[], T]) -> T:
        """Return ``make()``, called while no other process that sees the root makes what is called ``name``."""
        waiting = f"another process prepares {what}"
        with exclusive_lock(self.root / ".locks" / f"{name}.lock", lambda: self.progress(waiting, 0, 1)) as waited:
            if waited:
                self.progress(waiting, 1, 1)
            return self._shared(make)

    @contextmanager
    def timed(self, name: str) -> Generator[None]:
        """Add the seconds that the body takes to those recorded for the artifact ``name``: a making that is interrupted
        and resumed counts as a whole. They lie beside the lock that is held for the making."""
        began = time.perf_counter()
        try:
            yield
        finally:
            write_text(self._seconds(name), repr((self.seconds(name) or 0.0) + time.perf_counter() - began))

    def seconds(self, name: str) -> float | None:
        """Return how long making the artifact ``name`` took; None where that was not recorded here."""
        with suppress(OSError, ValueError):
            return float(self._seconds(name).read_text(encoding="utf-8"))
        return None

    def _seconds(self, name: str) -> Path:
        return self.root / ".locks" / f"{name}.seconds"

    def share(self) -> None:
        """Fetch what the store has and the root misses, and put there what it misses."""
        self._shared(lambda: None)

    def _shared(self, make: Callable[[], T]) -> T:
        """Return ``make()`` with other machines' artifacts fetched before and ours put in the store afterwards. Where
        another machine was faster with the same artifact, its copy replaces ours and ``make`` is called again to read
        it."""
        if self.store is None:
            return make()
        pulled = pull(self.store, self.folder)
        made = make()
        return make() if push(self.store, self.folder, pulled) else made
