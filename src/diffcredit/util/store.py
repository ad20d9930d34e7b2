"""Artifacts that several machines share: put once, whole, under a name, at any fsspec URL.

An artifact, a file or a folder, is put as its files, each named after its content, and then as one small record that
lists them with their sizes and SHA-256. The record is written in one step and never over another: an artifact is there
whole or not at all, the first that is put stays, and what an interrupted upload leaves is taken for nothing.
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
from diffcredit.util.sanitize import HIDDEN, in_one_line, last_line, without_passwords

WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts while the place cannot be reached; then it counts as away."""

LARGEST_RECORD = 10_000_000  # bytes
RECORD, FILES = ".artifact.json", "files"
SINGLE_PUT = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci", "memory"}  # what is put is there at once

_NAME = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FINGERPRINTED = re.compile(r".*-[0-9a-f]{12}")

_T = TypeVar("_T")
_Record = dict[str, tuple[int, str]]  # a file's name below the artifact ("": the artifact itself), bytes and SHA-256


class StoreAway(DiffcreditError):
    """The place cannot be reached now; it says nothing of what was to be done there."""


def is_url(place: str) -> bool:
    return "://" in place


def is_name(text: str) -> bool:
    """Whether an artifact may be called so: it leads out of no folder, and is hidden in none."""
    return _NAME.fullmatch(text) is not None


def shown_url(url: str) -> str:
    """``url`` without what may be secret: a user with or without password, and all that follows a question mark."""
    scheme, _, rest = url.partition("://")
    _, at, rest = rest.rpartition("@")  # first: a password may hold a question mark
    place, question, _ = rest.partition("?")
    return in_one_line(f"{scheme}://{HIDDEN if at else ''}{at}{place}{question}{HIDDEN if question else ''}")


@dataclass(frozen=True)
class Store:
    """The artifacts at ``url``; names have parts of letters, digits and ``_.+-``, divided by slashes."""

    url: str = field(repr=False)

    def put(self, path: Path, name: str, *, replace: bool = False) -> bool:
        """Puts a file or folder, unless there is one of this name with other content: False. ``replace``: over it."""
        files = {"": path} if path.is_file() else {each: path / each for each in _below(path)}
        record = {each: (file.stat().st_size, _sha256(file)) for each, file in files.items()}
        if not replace and (there := self._record(name)) is not None:
            return there == record
        for each, file in files.items():
            self._upload(file, f"{FILES}/{record[each][1]}")
        self._commit(canonical_json(record).encode(), f"{name}{RECORD}", replace)
        return self._record(name) == record

    def fetch(self, name: str, path: Path) -> bool:
        """Brings an artifact to ``path``, which is not there yet, and checks its content; False where there is none."""
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
        """The names of all artifacts below ``folder``, relative to it; what this program cannot have put is left
        out."""
        place = f"{self._root}/{folder}/"
        found = self._patiently(lambda files: files.find(place))
        names = [path[len(place) : -len(RECORD)] for path in found if path.endswith(RECORD) and path.startswith(place)]
        return sorted(filter(is_name, names))

    @cached_property
    def _files(self) -> Any:
        """fsspec's file system."""
        return _opened(self.url)[0]

    @cached_property
    def _root(self) -> str:
        return _opened(self.url)[1].rstrip("/")

    def _record(self, name: str) -> _Record | None:
        where = f"{self._root}/{_safe(name)}{RECORD}"
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
        raise DiffcreditError(f"{shown_url(self.url)}: the record of {name!r} is damaged; remove {name}{RECORD} there")

    def _upload(self, file: Path, name: str) -> None:
        final = f"{self._root}/{name}"

        def upload(files: Any) -> None:
            place = final if _puts_at_once(files) else _temporary(final)
            if place == final:
                files.put_file(str(file), place)
                return
            files.makedirs(files._parent(place), exist_ok=True)
            files.put_file(str(file), place)
            files.mv(place, final)

        self._patiently(upload)

    def _commit(self, content: bytes, name: str, replace: bool) -> None:
        """Writes a small file in one step; one that is there stays, unless it is to be replaced."""
        final = f"{self._root}/{name}"

        def commit(files: Any) -> None:
            if _puts_at_once(files):
                files.pipe_file(final, content, mode="overwrite" if replace else "create")
                return
            temporary = _temporary(final)
            files.makedirs(files._parent(final), exist_ok=True)
            files.pipe_file(temporary, content)
            if not replace and "file" in files.protocol:
                os.link(temporary, final)  # where there is one this fails, which a move would not
                files.rm_file(temporary)
            elif replace or not files.exists(final):
                files.mv(temporary, final)

        with suppress(FileExistsError):  # the caller looks what is there now
            self._patiently(commit)

    def _download(self, name: str, content: tuple[int, str], path: Path) -> None:
        size, sha256 = content
        try:
            self._patiently(lambda files: files.get_file(f"{self._root}/{FILES}/{sha256}", str(path)))
        except FileNotFoundError:
            raise DiffcreditError(f"{shown_url(self.url)}: {name!r} lacks its file {FILES}/{sha256}") from None
        if path.stat().st_size != size or _sha256(path) != sha256:
            raise DiffcreditError(
                f"{shown_url(self.url)}: {name!r} is damaged: {FILES}/{sha256} has another content; remove "
                f"{name}{RECORD} there to have it made anew"
            )

    def _patiently(self, action: Callable[[Any], _T]) -> _T:
        """What ``action`` gives, tried again while the place cannot be reached."""
        for wait in (*WAITS, None):
            try:
                self._files.invalidate_cache()  # others write there too
                return action(self._files)
            except (FileNotFoundError, FileExistsError, DiffcreditError):
                raise
            except PermissionError as error:
                raise UserError(f"{shown_url(self.url)}: no permission ({self._told(error)})") from None
            except Exception as error:  # every file system raises its own
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):  # of this machine
                    raise
                if type(error).__name__ == "NoCredentialsError":
                    raise UserError(f"{shown_url(self.url)}: no permission ({self._told(error)})") from None
                if wait is None:
                    raise StoreAway(f"{shown_url(self.url)}: cannot be reached ({self._told(error)})") from None
                time.sleep(wait)
        raise AssertionError  # the last attempt returns or raises

    def _told(self, error: Exception) -> str:
        """What went wrong, without the URL's secrets."""
        text = f"{type(error).__name__}: {last_line(str(error))}".replace(self.url, shown_url(self.url))
        parts = urlsplit(self.url)
        for secret in (parts.password, parts.username, parts.query, *re.split("[=&]", parts.query)):
            if secret and len(secret) > 3:
                text = text.replace(secret, HIDDEN)
        return in_one_line(without_passwords(text))


def pull(store: Store, folder: Path) -> list[str]:
    """Fetches what the store has of ``folder``, under the folder's name, and ``folder`` lacks; the names of all that
    the store has."""
    names = store.list(folder.name)
    for name in names:
        if not (folder / name).exists():
            store.fetch(f"{folder.name}/{name}", folder / name)
    return names


def push(store: Store, folder: Path, pulled: Collection[str]) -> bool:
    """Puts what ``folder`` has beside what was ``pulled`` before; where another has put the same meanwhile, its
    artifact comes into the place of ours: True."""
    other = False
    for name in artifacts_in(folder):
        if name not in pulled and not store.put(folder / name, f"{folder.name}/{name}"):
            other = True
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
            store.fetch(f"{folder.name}/{name}", folder / name)
    return other


def artifacts_in(folder: Path) -> Iterator[str]:
    """The names of the whole artifacts in ``folder``, relative to it: folders that carry a fingerprint, and files
    beside them and in other folders. Half-written files and checkpoints are none."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name.startswith(".") or path.name.endswith(".checkpoint.safetensors") or path.is_symlink():
            continue
        if path.is_file() or _FINGERPRINTED.fullmatch(path.name):
            yield path.name
        else:
            yield from (f"{path.name}/{name}" for name in artifacts_in(path))


def _opened(url: str) -> tuple[Any, str]:
    """fsspec's file system, and the place in it."""
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(url)
    except ImportError as error:
        package = getattr(error.__cause__ or error, "name", None)
        advice = f"pip install {package}" if package else str(error)
        raise UserError(f"artifacts: {shown_url(url)}: needs a package that is not installed; {advice}") from None
    except ValueError as error:
        if "rotocol not known" not in str(error):
            raise UserError(f"artifacts: {shown_url(url)}: is not accepted; a URL that fsspec knows is") from None
        raise UserError(
            f"artifacts: {shown_url(url)}: unknown kind of URL; accepted: a folder, or what fsspec knows, such as "
            "s3://bucket/prefix, gs://bucket/prefix, file:///folder"
        ) from None


def _puts_at_once(files: Any) -> bool:
    return not SINGLE_PUT.isdisjoint([files.protocol] if isinstance(files.protocol, str) else files.protocol)


def _temporary(final: str) -> str:
    return f"{final}.{uuid.uuid4().hex}.part"


def _safe(name: str) -> str:
    if not is_name(name):
        raise UserError(f"artifacts: {name!r} is no name; letters, digits and _ . + - are accepted, the first no sign")
    return name


def _below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
