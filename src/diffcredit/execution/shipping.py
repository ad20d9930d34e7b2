"""Files for nodes that do not see the driver's: whatever evaluators read is sent once to each node, into a folder named
after its content, where the next run finds it."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from diffcredit.errors import DiffcreditError
from diffcredit.util.artifacts import AlreadyThere, atomic_folder, exclusive_lock

PIECE = 64 * 2**20  # bytes that are in memory at a time


@dataclass(frozen=True)
class WorkerFiles:
    """The files that workers read.

    ``roots`` maps each folder or file that settings name to the files and whole folders that are needed of it.
    ``folder`` is where the driver leaves a marker file: a node that sees it shares the driver's files. ``written``
    says what workers would write there, which would be lost on other machines; empty if they only read. ``allowed``
    are the hashes of the plug-ins' code that the driver's user allowed to run.
    """

    folder: Path
    roots: Mapping[Path, Sequence[Path]]
    written: str = ""
    allowed: tuple[str, ...] = ()


@contextmanager
def marker_file(folder: Path) -> Generator[Path]:
    """Create a file in ``folder`` whose name no other machine has by chance; remove it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".driver-")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def pack(files: WorkerFiles, put: Callable[[bytes], object], piece: int = PIECE) -> str:
    """Call ``put`` with all bytes, ``piece`` at a time (the last may be fewer). Return the manifest, which is JSON: the
    ``roots``, the ``files`` in the order of their bytes (number of the root, name below it, size, time in ns) and the
    ``sha256`` of all bytes. The name is empty where the file is the root itself."""
    packed, digest, buffer = [], hashlib.sha256(), bytearray()
    for number, (root, members) in enumerate(files.roots.items()):
        for path in sorted({file for member in members for file in _files_below(member)}):
            status, size = path.stat(), 0
            with path.open("rb") as file:
                while block := file.read(piece - len(buffer)):
                    size += len(block)
                    digest.update(block)
                    buffer += block
                    if len(buffer) == piece:
                        put(bytes(buffer))
                        buffer.clear()
            name = "" if path == root else path.relative_to(root).as_posix()
            packed.append((number, name, size, status.st_mtime_ns))
    if buffer:
        put(bytes(buffer))
    return json.dumps({"roots": [*map(str, files.roots)], "files": packed, "sha256": digest.hexdigest()})


def _files_below(path: Path) -> list[Path]:
    """Return all files in a folder, or the file itself; nothing if neither exists."""
    if path.is_file():
        return [path]
    found = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return [file for file in found if file.is_file() and file.parent.name != "__pycache__"]


def unpack(manifest: str, pieces: Iterable[bytes], parent: Path | None = None) -> dict[str, str]:
    """Unpack into a folder below ``parent`` (by default a temporary folder of this user), unless another worker of
    this machine has. Return where each root is now."""
    parent = _own_folder() if parent is None else parent
    folder = parent / hashlib.sha256(manifest.encode()).hexdigest()[:24]
    content = json.loads(manifest)
    # a root keeps its name, which may carry meaning
    places = [Path(str(number), PurePosixPath(root).name or "root") for number, root in enumerate(content["roots"])]
    with exclusive_lock(parent / f"{folder.name}.lock", lambda: None):
        if not folder.exists():
            with suppress(AlreadyThere), atomic_folder(folder) as temporary:
                _write_files(content, [temporary / place for place in places], iter(pieces))
    return {root: str(folder / place) for root, place in zip(content["roots"], places, strict=True)}


def _write_files(content: Mapping[str, Any], places: Sequence[Path], pieces: Iterator[bytes]) -> None:
    digest, rest = hashlib.sha256(), memoryview(b"")
    for root, name, left, modified in content["files"]:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise DiffcreditError(f"a file sent to this node is called {name!r}, which leads out of its folder")
        path = places[root] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as opened:
            while left:
                rest = rest or memoryview(next(pieces, b""))
                if not rest:
                    raise DiffcreditError("the files sent to this node are incomplete")
                block, rest = rest[:left], rest[left:]
                digest.update(block)
                opened.write(block)
                left -= len(block)
        os.utime(path, ns=(modified, modified))
    if digest.hexdigest() != content["sha256"]:
        raise DiffcreditError("the files sent to this node arrived damaged")


def _own_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"diffcredit-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        raise DiffcreditError(f"{folder}: is not this user's own; remove it, or set TMPDIR to another folder")
    return folder
