"""Files written whole or not at all, even where a process is killed, and the fingerprints that name them."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffcredit.errors import DiffcreditError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """Yield a temporary path beside ``path``; on success it replaces ``path`` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    # the umask decides on a new file's permissions; a file that is replaced keeps its own
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield temporary
        if path.is_file() and not path.is_symlink():
            temporary.chmod(path.stat().st_mode & 0o777)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class AlreadyThere(DiffcreditError):
    """A folder that was to be made exists already; artifacts are never overwritten."""


@contextmanager
def atomic_folder(path: Path) -> Generator[Path]:
    """Yield a temporary folder beside ``path``; on success it becomes ``path``, which must not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    temporary.mkdir()  # not tempfile's, which is always private: the umask decides
    try:
        yield temporary
        if path.exists():
            raise AlreadyThere(f"{path}: already exists; artifacts are never overwritten")
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """Return a hidden name beside ``path`` that nothing has."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")


@contextmanager
def exclusive_lock(file: Path, wait: Callable[[], object]) -> Generator[bool]:
    """Hold a lock that one process at a time can hold, by its ``file``; yield whether it had to be waited for. ``wait``
    is called before waiting. The lock ends with its holder, however that ends."""
    from filelock import FileLock, Timeout

    file.parent.mkdir(parents=True, exist_ok=True)
    lock, waited = FileLock(file), False
    try:
        lock.acquire(timeout=0)
    except Timeout:
        wait()
        waited = True
        lock.acquire()
    try:
        yield waited
    finally:
        lock.release()


def write_text(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_arrays(path: Path, arrays: "Mapping[str, NDArray[Any]]") -> None:
    """Write named arrays as one safetensors file."""
    import numpy as np  # here, because checking a statement needs none
    from safetensors.numpy import save_file

    with atomic_file(path) as temporary:
        save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, temporary)


def read_arrays(path: Path) -> "dict[str, NDArray[Any]]":
    from safetensors.numpy import load_file

    with intact(path):
        return load_file(path)


@contextmanager
def intact(path: Path) -> Generator[None]:
    """Turn an error of safetensors while reading ``path`` into one that names the file."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise DiffcreditError(f"{path}: damaged ({error}); remove it to have it made anew") from error


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of a JSON value's canonical text."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def fingerprint_arrays(arrays: "Mapping[str, NDArray[Any]]") -> str:
    """Return the SHA-256 of named arrays: names, types, shapes and bytes, in the order of the names."""
    import numpy as np

    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"{name}\x1f{array.dtype.str}\x1f{array.shape}\x1f".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
