"""Files written whole or not at all, even where a process is killed, and the fingerprints that name them."""

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from diffcredit.errors import DiffcreditError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FINGERPRINT = "fingerprint"  # by which a file of arrays has the one of its content

T = TypeVar("T")


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """Yield a temporary path beside ``path``; on success it replaces ``path`` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    # the umask decides on a new file's permissions; a file that is replaced keeps its own
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        with _naming(path):
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
        with _naming(path):
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
def _naming(path: Path) -> Generator[None]:
    """Have the system's errors name the file that could not be written, such as where the disk is full; safetensors
    has errors of its own for them."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:  # the others are of a network, such as a time-out
            error.filename = str(path)
        raise
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error)) if type(error).__name__ == "SafetensorError" else None
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


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
    """Write named arrays as one safetensors file, with their fingerprint."""
    import numpy as np  # here, because checking a statement needs none
    from safetensors.numpy import save_file

    with atomic_file(path) as temporary:
        ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        save_file(ordered, temporary, {FINGERPRINT: fingerprint_arrays(ordered)})


def read_arrays(path: Path) -> "dict[str, NDArray[Any]]":
    """Return the arrays that :func:`write_arrays` wrote to ``path``; refuse a damaged file."""
    from safetensors import safe_open

    with intact(path), safe_open(path, "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        written = (file.metadata() or {}).get(FINGERPRINT)  # older releases wrote none
    if written is not None and written != fingerprint_arrays(arrays):
        raise _damaged(path, "its arrays are not those that were written")
    return arrays


@contextmanager
def intact(path: Path) -> Generator[None]:
    """Turn an error of safetensors while reading ``path`` into one that names the file."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise _damaged(path, error) from error


def read_json(path: Path, content: Callable[[Any], T]) -> T:
    """Return ``content`` of the JSON in ``path``, which diffcredit wrote; whatever it raises of the kind is an error
    that calls the file damaged."""
    try:
        return content(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: Path, why: object) -> DiffcreditError:
    return DiffcreditError(f"{path}: damaged ({why}); remove it to have it made anew")


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
