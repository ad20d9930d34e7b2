"""Send the files that evaluators read to nodes that do not see the driver's files.

Each node gets them once, into a folder that is named after their content: the next run finds them there.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path, PurePosixPath

from diffcredit.errors import DiffcreditError
from diffcredit.util.artifacts import AlreadyThere, atomic_folder, exclusive_lock

PIECE = 64 * 2**20  # bytes that are in memory at a time


@dataclass(frozen=True)
class WorkerFiles:
    """The files that workers read.

    ``roots`` maps each folder or file that settings name to the files and whole folders that are needed of it.
    ``folder`` is where the driver leaves a marker file: a node that sees it shares the driver's files. ``written``
    says what workers would write there, which would be lost on other machines; empty if they only read.
    """

    folder: Path
    roots: Mapping[Path, Sequence[Path]]
    written: str = ""


@dataclass(frozen=True)
class PackedFile:
    """One file: the number of its root, its name below that (empty: the root itself), bytes, and time in ns."""

    root: int
    name: str
    size: int
    modified: int


@dataclass(frozen=True)
class Manifest:
    """The content of the pieces, one file after another: their ``roots``, and the SHA-256 of all bytes."""

    roots: tuple[str, ...]
    files: tuple[PackedFile, ...]
    sha256: str

    @property
    def text(self) -> str:
        return json.dumps({"roots": self.roots, "files": list(map(astuple, self.files)), "sha256": self.sha256})

    @classmethod
    def of(cls, text: str) -> "Manifest":
        fields = json.loads(text)
        return cls(tuple(fields["roots"]), tuple(PackedFile(*file) for file in fields["files"]), fields["sha256"])


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


def pack(files: WorkerFiles, put: Callable[[bytes], object], piece: int = PIECE) -> Manifest:
    """Call ``put`` with all bytes, ``piece`` at a time (the last may be fewer); return the manifest."""
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
            packed.append(PackedFile(number, name, size, status.st_mtime_ns))
    if buffer:
        put(bytes(buffer))
    return Manifest(tuple(map(str, files.roots)), tuple(packed), digest.hexdigest())


def _files_below(path: Path) -> list[Path]:
    """Return all files in a folder, or the file itself; nothing if neither exists."""
    if path.is_file():
        return [path]
    found = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return [file for file in found if file.is_file() and file.parent.name != "__pycache__"]


def unpack(manifest: Manifest, pieces: Iterable[bytes], parent: Path | None = None) -> dict[str, str]:
    """Unpack into a folder below ``parent`` (by default a temporary folder of this user), unless another worker of
    this machine has. Return where each root is now."""
    parent = _own_folder() if parent is None else parent
    folder = parent / hashlib.sha256(manifest.text.encode()).hexdigest()[:24]
    with exclusive_lock(parent / f"{folder.name}.lock", lambda: None):
        if not folder.exists():
            with suppress(AlreadyThere), atomic_folder(folder) as temporary:
                _write_files(manifest, iter(pieces), temporary)
    return {root: str(_place(folder, number, manifest)) for number, root in enumerate(manifest.roots)}


def _place(folder: Path, number: int, manifest: Manifest) -> Path:
    """Return where a root is; it keeps its name, which may carry meaning."""
    return folder / str(number) / (PurePosixPath(manifest.roots[number]).name or "root")


def _write_files(manifest: Manifest, pieces: Iterator[bytes], folder: Path) -> None:
    digest, rest = hashlib.sha256(), memoryview(b"")
    for number in range(len(manifest.roots)):
        _place(folder, number, manifest).parent.mkdir(parents=True)
    for file in manifest.files:
        name = PurePosixPath(file.name)
        if name.is_absolute() or ".." in name.parts:
            raise DiffcreditError(f"a file sent to this node is called {file.name!r}, which leads out of its folder")
        path = _place(folder, file.root, manifest) / name
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
    if digest.hexdigest() != manifest.sha256:
        raise DiffcreditError("the files sent to this node arrived damaged")


def _own_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"diffcredit-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        raise DiffcreditError(f"{folder}: is not this user's own; remove it, or set TMPDIR to another folder")
    return folder
