"""The files that an evaluator reads, for nodes that do not see the driver's: sent once to each node, into a folder of
its own that is named after their content, so that the next run finds them there."""

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from diffcredit.errors import DiffcreditError
from diffcredit.util.artifacts import AlreadyThere, atomic_folder

PIECE = 64 * 2**20  # bytes that are in memory at a time


@dataclass(frozen=True)
class WorkerFiles:
    """What workers read: by each folder or file that settings name, the files and whole folders that are needed of it.

    ``folder`` is where the driver may leave a mark: who sees it shares the driver's files. ``written`` says what
    workers would write there, which nobody would find on other machines; empty where they only read.
    """

    folder: Path
    roots: Mapping[Path, Sequence[Path]]
    written: str = ""


@dataclass(frozen=True)
class Packed:
    """One file: the number of its root, its name below that (empty: the root itself), bytes, and time in ns."""

    root: int
    name: str
    size: int
    modified: int


@dataclass(frozen=True)
class Waybill:
    """What is in the pieces, one file after another: from which ``roots``, and the SHA-256 of all of it."""

    roots: tuple[str, ...]
    files: tuple[Packed, ...]
    sha256: str

    @property
    def text(self) -> str:
        files = [[file.root, file.name, file.size, file.modified] for file in self.files]
        return json.dumps({"roots": self.roots, "files": files, "sha256": self.sha256})

    @classmethod
    def of(cls, text: str) -> "Waybill":
        fields = json.loads(text)
        return cls(tuple(fields["roots"]), tuple(Packed(*file) for file in fields["files"]), fields["sha256"])


@contextmanager
def marked(folder: Path) -> Generator[Path]:
    """A file in ``folder`` with a name that no other machine's has by chance."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".driver-")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def pack(files: WorkerFiles, piece: int = PIECE) -> Generator[bytes, None, Waybill]:
    """All bytes, ``piece`` at a time (the last may be fewer); returns what is in them."""
    packed, digest, buffer = [], hashlib.sha256(), bytearray()
    for number, (root, members) in enumerate(files.roots.items()):
        for path in sorted({file for member in members for file in _below(member)}):
            status, size = path.stat(), 0
            with path.open("rb") as file:
                while block := file.read(piece - len(buffer)):
                    size += len(block)
                    digest.update(block)
                    buffer += block
                    if len(buffer) == piece:
                        yield bytes(buffer)
                        buffer.clear()
            name = "" if path == root else path.relative_to(root).as_posix()
            packed.append(Packed(number, name, size, status.st_mtime_ns))
    if buffer:
        yield bytes(buffer)
    return Waybill(tuple(map(str, files.roots)), tuple(packed), digest.hexdigest())


def _below(path: Path) -> list[Path]:
    """All files in a folder, or the file itself; nothing where there is neither."""
    if path.is_file():
        return [path]
    found = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return [file for file in found if file.is_file() and file.parent.name != "__pycache__"]


def settle(waybill: Waybill, pieces: Iterable[bytes], shelf: Path | None = None) -> dict[str, str]:
    """Unpacks into a folder on the ``shelf`` (by default one of this user's for temporary files), unless another worker
    of this machine has: where each root lies now."""
    shelf = _own_shelf() if shelf is None else shelf
    folder = shelf / hashlib.sha256(waybill.text.encode()).hexdigest()[:24]
    with _alone(shelf / f"{folder.name}.lock"):
        if not folder.exists():
            with suppress(AlreadyThere), atomic_folder(folder) as temporary:
                _unpack(waybill, iter(pieces), temporary)
    return {root: str(_place(folder, number, waybill)) for number, root in enumerate(waybill.roots)}


def _place(folder: Path, number: int, waybill: Waybill) -> Path:
    """Where a root lies: its own name is kept, for it may carry meaning."""
    return folder / str(number) / (PurePosixPath(waybill.roots[number]).name or "root")


def _unpack(waybill: Waybill, pieces: Iterator[bytes], folder: Path) -> None:
    digest, rest = hashlib.sha256(), memoryview(b"")
    for number in range(len(waybill.roots)):
        _place(folder, number, waybill).parent.mkdir(parents=True)
    for file in waybill.files:
        name = PurePosixPath(file.name)
        if name.is_absolute() or ".." in name.parts:
            raise DiffcreditError(f"a file sent to this node is called {file.name!r}, which leads out of its folder")
        path = _place(folder, file.root, waybill) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        left = file.size
        with path.open("wb") as opened:
            while left:
                rest = rest or memoryview(next(pieces, b""))
                if not rest:
                    raise DiffcreditError("the files sent to this node are incomplete")
                block, rest = rest[:left], rest[left:]
                digest.update(block)
                opened.write(block)
                left -= len(block)
        os.utime(path, ns=(file.modified, file.modified))
    if digest.hexdigest() != waybill.sha256:
        raise DiffcreditError("the files sent to this node arrived damaged")


def _own_shelf() -> Path:
    shelf = Path(tempfile.gettempdir()) / f"diffcredit-{os.getuid()}"
    shelf.mkdir(mode=0o700, exist_ok=True)
    status = shelf.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or shelf.is_symlink():
        raise DiffcreditError(f"{shelf}: is not this user's own; remove it, or set TMPDIR to another folder")
    return shelf


@contextmanager
def _alone(file: Path) -> Generator[None]:
    """Only one process of this machine at a time is within."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
