"""Artifacts that several machines share, at any fsspec URL.

An artifact is a file or a folder with a name. Its files are uploaded first, each named after its content, then one
small record that lists them with their sizes and SHA-256. The record is written in one step and never over another.
An artifact is therefore there as a whole or not at all, the first one uploaded stays, and what an interrupted upload
leaves behind is ignored.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util.artifacts import AlreadyThere, atomic_file, atomic_folder, canonical_json
from diffcredit.util.sanitize import HIDDEN, last_line, single_line, without_passwords

WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts while the URL cannot be reached; after the last it counts as away."""

LARGEST_RECORD = 10_000_000  # bytes
RECORD, FILES = ".artifact.json", "files"
SCHEMES = ("file", "s3", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""The kinds of URL that are accepted. fsspec knows many more: some run code that lies at the URL, some stand for any
other."""

SINGLE_PUT = {"s3", "gs", "gcs", "abfs", "abfss", "az", "memory"}  # an upload appears at once

_NAME = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FINGERPRINTED = re.compile(r".*-[0-9a-f]{12}")

_T = TypeVar("_T")
_Record = dict[str, tuple[int, str]]  # size and SHA-256 by name below the artifact; "" where it is one file


class StoreAway(DiffcreditError):
    """The URL cannot be reached now; whether the operation would succeed is unknown."""


def is_url(place: str) -> bool:
    return "://" in place


def check_url(url: str) -> None:
    """Refuse a URL of another kind than :data:`SCHEMES`, or one that is chained (``simplecache::s3://…``)."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES or "::" in rest:
        accepted = ", ".join(f"{each}://" for each in SCHEMES)
        raise UserError(
            f"artifacts: {redacted_url(url)}: unknown kind of URL; accepted: a folder, or one URL that begins with "
            f"{accepted}, such as s3://bucket/prefix"
        )


def is_name(text: str) -> bool:
    """Return whether an artifact may have this name: it leads out of no folder and is hidden in none."""
    return _NAME.fullmatch(text) is not None


def redacted_url(url: str) -> str:
    """Return ``url`` without what may be secret: user, password and all that follows a question mark."""
    scheme, _, rest = url.partition("://")
    _, at, rest = rest.rpartition("@")  # first, since a password may contain a question mark
    place, question, _ = rest.partition("?")
    return single_line(f"{scheme}://{HIDDEN if at else ''}{at}{place}{question}{HIDDEN if question else ''}")


@dataclass(frozen=True)
class Store:
    """The artifacts at ``url``. Parts of names consist of letters, digits and ``_.+-``, separated by slashes."""

    url: str = field(repr=False)

    def put(self, path: Path, name: str, *, replace: bool = False) -> bool:
        """Upload a file or folder; return False where the name has other content, which stays unless ``replace``."""
        below = {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("*")) if file.is_file()}
        files = {"": path} if path.is_file() else below
        record = {each: (file.stat().st_size, _sha256(file)) for each, file in files.items()}
        if not replace and (there := self._record(name)) is not None:
            return there == record
        for each, file in files.items():
            self._write(file, f"{FILES}/{record[each][1]}")
        self._write(canonical_json(record).encode(), f"{name}{RECORD}", replace=replace)
        return self._record(name) == record

    def fetch(self, name: str, path: Path) -> bool:
        """Download an artifact to ``path``, which must not exist, and check it; return False where there is none."""
        record = self._record(name)
        if record is None:
            return False
        if record.keys() == {""}:
            with atomic_file(path) as temporary:
                self._download(name, record[""], temporary)
        else:
            with suppress(AlreadyThere), atomic_folder(path) as folder:  # another process may have fetched it meanwhile
                for each, content in record.items():
                    (folder / each).parent.mkdir(parents=True, exist_ok=True)
                    self._download(name, content, folder / each)
        return True

    def exists(self, name: str) -> bool:
        return self._record(name) is not None

    def list(self, folder: str) -> list[str]:
        """Return the names of all artifacts below ``folder``, relative to it. Other programs' files are ignored."""
        place = f"{self._root}/{folder}/"
        found = self._patiently(lambda files: files.find(place))
        names = [path[len(place) : -len(RECORD)] for path in found if path.endswith(RECORD) and path.startswith(place)]
        return sorted(filter(is_name, names))

    @cached_property
    def _shown(self) -> str:
        return redacted_url(self.url)

    @cached_property
    def _files(self) -> Any:
        """fsspec's file system."""
        return _opened(self.url)[0]

    @cached_property
    def _root(self) -> str:
        return _opened(self.url)[1].rstrip("/")

    def _record(self, name: str) -> _Record | None:
        if not is_name(name):
            raise UserError(f"artifacts: {name!r} is no name; letters, digits and, not first, . + - are accepted")
        where = f"{self._root}/{name}{RECORD}"
        try:
            content = self._patiently(lambda files: files.cat_file(where, end=LARGEST_RECORD))
        except FileNotFoundError:
            return None
        try:
            record = {each: (size, sha256) for each, (size, sha256) in json.loads(content).items()}
            named = record.keys() == {""} or all(map(is_name, record))
            if record and named and all(type(size) is int and _SHA256.fullmatch(sha) for size, sha in record.values()):
                return record
        except (ValueError, AttributeError, TypeError):
            pass
        raise DiffcreditError(f"{self._shown}: the record of {name!r} is damaged; remove {name}{RECORD} there")

    def _write(self, content: bytes | Path, name: str, *, replace: bool = True) -> None:
        """Write bytes or a copy of a file in one step. A file that is there stays unless ``replace``."""
        final = f"{self._root}/{name}"

        def write(files: Any, place: str, mode: str) -> None:
            if isinstance(content, Path):
                files.put_file(str(content), place)
            else:
                files.pipe_file(place, content, mode=mode)

        def commit(files: Any) -> None:
            if not SINGLE_PUT.isdisjoint([files.protocol] if isinstance(files.protocol, str) else files.protocol):
                write(files, final, "overwrite" if replace else "create")
                return
            files.makedirs(files._parent(final), exist_ok=True)
            temporary = f"{final}.{uuid.uuid4().hex}.part"
            write(files, temporary, "overwrite")
            if not replace and "file" in files.protocol:
                os.link(temporary, final)  # fails where there is one already; a move would not
                files.rm_file(temporary)
            elif replace or not files.exists(final):
                files.mv(temporary, final)

        with suppress(FileExistsError):  # the caller reads what is there now
            self._patiently(commit)

    def _download(self, name: str, content: tuple[int, str], path: Path) -> None:
        size, sha256 = content
        try:
            self._patiently(lambda files: files.get_file(f"{self._root}/{FILES}/{sha256}", str(path)))
        except FileNotFoundError:
            raise DiffcreditError(f"{self._shown}: {name!r} misses its file {FILES}/{sha256}") from None
        if path.stat().st_size != size or _sha256(path) != sha256:
            raise DiffcreditError(
                f"{self._shown}: {name!r} is damaged: {FILES}/{sha256} has another content; remove "
                f"{name}{RECORD} there to have it made anew"
            )

    def _patiently(self, action: Callable[[Any], _T]) -> _T:
        """Return the result of ``action``, repeated while the URL cannot be reached."""
        for wait in (*WAITS, None):
            try:
                self._files.invalidate_cache()  # others write there, too
                return action(self._files)
            except (FileNotFoundError, FileExistsError, DiffcreditError):
                raise
            except Exception as error:  # every file system raises its own
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise  # this machine's disk is full
                if isinstance(error, PermissionError) or type(error).__name__ == "NoCredentialsError":
                    raise UserError(f"{self._shown}: no permission ({self._reason(error)})") from None
                if wait is None:
                    raise StoreAway(f"{self._shown}: cannot be reached ({self._reason(error)})") from None
                time.sleep(wait)
        raise AssertionError  # the last attempt returns or raises

    def _reason(self, error: Exception) -> str:
        """Return what went wrong, without the URL's secrets."""
        text = f"{type(error).__name__}: {last_line(str(error))}".replace(self.url, self._shown)
        parts = urlsplit(self.url)
        for secret in (parts.password, parts.username, parts.query, *re.split("[=&]", parts.query)):
            if secret and len(secret) > 3:
                text = text.replace(secret, HIDDEN)
        return single_line(without_passwords(text))


def pull(store: Store, folder: Path) -> list[str]:
    """Download what the store has under the folder's name and ``folder`` does not; return the names of all it has."""
    names = store.list(folder.name)
    for name in names:
        if not (folder / name).exists():
            store.fetch(f"{folder.name}/{name}", folder / name)
    return names


def push(store: Store, folder: Path, pulled: Collection[str]) -> bool:
    """Upload what ``folder`` has and was not ``pulled`` before. Where another machine has uploaded an artifact of the
    same name meanwhile, it replaces ours; return whether one did."""
    other = False
    for name in artifacts_in(folder):
        if name not in pulled and not store.put(folder / name, f"{folder.name}/{name}"):
            other = True
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
            store.fetch(f"{folder.name}/{name}", folder / name)
    return other


def artifacts_in(folder: Path) -> Iterator[str]:
    """Yield the names, relative to ``folder``, of the complete artifacts in it: folders whose names end in a
    fingerprint, and files anywhere else. Half-written files and checkpoints are none."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name.startswith(".") or path.name.endswith(".checkpoint.safetensors") or path.is_symlink():
            continue
        if path.is_file() or _FINGERPRINTED.fullmatch(path.name):
            yield path.name
        else:
            yield from (f"{path.name}/{name}" for name in artifacts_in(path))


def _opened(url: str) -> tuple[Any, str]:
    """Return fsspec's file system and the path in it."""
    check_url(url)
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(url)
    except ImportError as error:
        package = getattr(error.__cause__ or error, "name", None)
        advice = f"pip install {package}" if package else str(error)
        raise UserError(f"artifacts: {redacted_url(url)}: needs a package that is not installed; {advice}") from None
    except ValueError:
        raise UserError(f"artifacts: {redacted_url(url)}: is not accepted; a URL that fsspec knows is") from None


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
