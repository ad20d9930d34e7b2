"""Artifacts at URLs: whole or not at all, the first stays, nothing is trusted that was not put."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import fsspec
import pytest

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util import store as stores
from diffcredit.util.store import Store, StoreAway, artifacts_in, pull, push, redacted_url
from s3_server import ACCOUNT, Server, stalling_line


@pytest.fixture(scope="module")
def s3_server():
    pytest.importorskip("s3fs", reason="needs s3fs and moto[server]")
    pytest.importorskip("moto", reason="needs s3fs and moto[server]")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    server = Server()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (ACCOUNT | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}"}).items():
            patch.setenv(name, value)
        yield server
    server.stop()


@pytest.fixture
def s3(s3_server):
    """The URL of an empty prefix."""
    bucket = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(bucket)
    return f"s3://{bucket}/studies/one"


@pytest.fixture(params=["file", "memory", "s3"])
def url(request, tmp_path):
    if request.param == "s3":
        return request.getfixturevalue("s3")
    return f"file://{tmp_path}/there" if request.param == "file" else f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def store(url):
    return Store(url)


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def model(path: Path, weights: bytes = b"weights") -> Path:
    written(path / "network" / "weights.safetensors", weights)
    written(path / "settings.json", b"{}")
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def remote(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    return fsspec.core.url_to_fs(url)


def test_files_and_folders_come_back(store, tmp_path):
    assert not store.exists("models/base-1")
    assert not store.fetch("models/base-1", tmp_path / "nothing")
    assert store.list("models") == []
    assert store.put(model(tmp_path / "a"), "models/base-1")
    assert store.put(written(tmp_path / "b", b"1234"), "models/gradients/property-2.safetensors")
    assert store.put(written(tmp_path / "c", b""), "kept/empty")
    assert store.list("models") == ["base-1", "gradients/property-2.safetensors"]
    assert store.list("kept") == ["empty"]
    assert store.exists("models/base-1")
    assert store.fetch("models/base-1", tmp_path / "back")
    assert contents(tmp_path / "back") == {"network/weights.safetensors": b"weights", "settings.json": b"{}"}
    assert store.fetch("models/gradients/property-2.safetensors", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"1234"
    assert store.fetch("kept/empty", tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""
    assert not (tmp_path / "nothing").exists()


def test_the_first_stays(store, tmp_path):
    assert store.put(model(tmp_path / "a", b"first"), "models/base-1")
    assert store.put(model(tmp_path / "same", b"first"), "models/base-1")
    assert not store.put(model(tmp_path / "b", b"second"), "models/base-1")
    assert store.fetch("models/base-1", tmp_path / "back")
    assert contents(tmp_path / "back")["network/weights.safetensors"] == b"first"
    assert store.put(tmp_path / "b", "models/base-1", replace=True)
    assert store.fetch("models/base-1", tmp_path / "newer")
    assert contents(tmp_path / "newer")["network/weights.safetensors"] == b"second"


def test_of_many_at_once_one_is_first(store, tmp_path):
    """Also where all have seen that there is nothing yet."""
    files = [written(tmp_path / str(index), b"%d" % index) for index in range(4)]
    looked, answers = threading.Barrier(len(files)), {}
    write = Store._write

    def wait(self, content, *arguments, **named):
        if isinstance(content, Path):  # the artifact itself, not its record
            looked.wait(timeout=30)
        write(self, content, *arguments, **named)

    def put(file: Path) -> None:
        answers[file] = Store(store.url).put(file, "models/one")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_write", wait)
        threads = [threading.Thread(target=put, args=(file,)) for file in files]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(answers.values()) == [False] * 3 + [True]
    store.fetch("models/one", tmp_path / "back")
    assert answers[tmp_path / (tmp_path / "back").read_text()]


def test_what_is_damaged_is_not_taken(store, tmp_path):
    store.put(written(tmp_path / "a", b"whole"), "models/a")
    files, root = remote(store.url)
    place = f"{root}/files/{hashlib.sha256(b'whole').hexdigest()}"
    for content in (b"wrong", b"who", b"whole and more"):
        files.pipe_file(place, content)
        with pytest.raises(DiffcreditError, match="'models/a' is damaged"):
            store.fetch("models/a", tmp_path / "back")
    files.rm_file(place)
    with pytest.raises(DiffcreditError, match="'models/a' misses its file"):
        store.fetch("models/a", tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "there") == ["a"]


@pytest.mark.parametrize(
    "record",
    [b"", b'{"": [4, ', b"[]", b"{}", b'{"": 3}', b"\xff", b'{"": [4, "../../secret"]}']
    + [
        json.dumps({name: [4, "0" * 64]}).encode()
        for name in ("../out", "/etc/x", "a/../../b", ".hidden", "a//b", "a\\..\\b", "C:x")
    ],
)
def test_a_strangers_record_leads_nowhere(record, tmp_path):
    store = Store(f"memory://{uuid.uuid4().hex}")
    files, root = remote(store.url)
    files.pipe_file(f"{root}/files/{'0' * 64}", b"evil")
    files.pipe_file(f"{root}/models/a.artifact.json", record)
    with pytest.raises(DiffcreditError, match="the record of 'models/a' is damaged"):
        store.fetch("models/a", tmp_path / "inside" / "back")
    assert contents(tmp_path) == {}


def test_a_strangers_listing_leads_nowhere(tmp_path):
    class Hostile(Store):
        @property
        def _files(self):
            return self

        _root = "root"
        invalidate_cache = staticmethod(lambda: None)

        def find(self, place):
            names = ("../out", "a/../../b", "/abs", ".hidden", "good", "a\nb")
            return [f"{place}{name}.artifact.json" for name in names] + ["elsewhere/models/x.artifact.json"]

    assert Hostile("memory://x").list("models") == ["good"]
    with pytest.raises(UserError, match="is no name"):
        Store("memory://x").fetch("../secret", tmp_path / "a")


def test_folders_are_shared_whole_and_who_comes_second_takes_the_firsts(store, tmp_path):
    here, there = tmp_path / "here" / "models", tmp_path / "elsewhere" / "models"
    name = "base-0123456789ab"
    model(here / name)
    written(here / "gradients" / "one.safetensors", b"1")
    for unfinished in (f".{name}.x.part/half", "base-1.checkpoint.safetensors", ".property.part"):
        written(here / unfinished, b"no")
    whole = {f"{name}/network/weights.safetensors": b"weights", f"{name}/settings.json": b"{}"}
    assert list(artifacts_in(here)) == [name, "gradients/one.safetensors"]
    assert not push(store, here, ())
    assert pull(store, there) == [name, "gradients/one.safetensors"]
    assert contents(there) == whole | {"gradients/one.safetensors": b"1"}
    written(there / "gradients" / "two.safetensors", b"2")
    assert not push(store, there, [name, "gradients/one.safetensors"])
    pull(store, here)
    assert (here / "gradients" / "two.safetensors").read_bytes() == b"2"
    second = "base-ba9876543210"
    model(here / second, b"first")
    model(there / second, b"second")
    pulled = [pull(store, folder) for folder in (here, there)]  # both look before either puts
    assert not push(store, here, pulled[0])
    assert push(store, there, pulled[1])
    assert contents(there / second)["network/weights.safetensors"] == b"first"


PUT = """
import sys
from pathlib import Path
from diffcredit.util.store import Store
print(Store(sys.argv[1]).put(Path(sys.argv[2]), "models/large"), flush=True)
"""


def test_killed_in_the_middle_of_an_upload(s3, s3_server, tmp_path):
    large = written(tmp_path / "large", os.urandom(8_000_000))
    with stalling_line(s3_server.port, 3_000_000) as (port, stalled):
        environment = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        process = subprocess.Popen([sys.executable, "-c", PUT, s3, str(large)], env=environment)
        try:
            assert stalled.wait(timeout=60)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    store = Store(s3)
    assert store.list("models") == []
    assert not store.fetch("models/large", tmp_path / "back")
    assert store.put(large, "models/large")
    assert store.fetch("models/large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large.read_bytes()


def test_a_server_that_is_away_for_a_moment_is_waited_for(s3, s3_server, tmp_path):
    store = Store(s3)
    assert store.put(written(tmp_path / "a", b"1"), "models/a")
    s3_server.stop()
    back = threading.Timer(0.3, s3_server.start)
    back.start()
    began = time.monotonic()
    assert store.put(written(tmp_path / "b", b"2"), "models/b")
    assert time.monotonic() - began > 0.3  # or it was never away
    back.join()
    assert store.list("models") == ["a", "b"]


def test_a_server_that_stays_away_is_named_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "WAITS", (0.0, 0.0))
    tried = []

    class Away:
        protocol = "away"
        invalidate_cache = staticmethod(lambda: None)

        def cat_file(self, path, **_):
            tried.append(path)
            raise ConnectionError("https://user:hush-hush@host/x?token=tokentoken refused hush-hush tokentoken")

    monkeypatch.setattr(stores, "_opened", lambda url: (Away(), "root"))
    with pytest.raises(StoreAway) as raised:
        Store("sftp://user:hush-hush@host/x?token=tokentoken").exists("models/a")
    assert str(raised.value).startswith("sftp://***@host/x?***: cannot be reached (ConnectionError: ")
    assert "hush" not in str(raised.value)
    assert "tokentoken" not in str(raised.value)
    assert raised.value.__suppress_context__  # a traceback must not tell it either
    assert len(tried) == 3


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("sftp://user:pass@host/x", "sftp://***@host/x"),
        ("sftp://user:p@ss@host/x", "sftp://***@host/x"),
        ("sftp://token@host/x", "sftp://***@host/x"),
        ("gs://b/p?token=abc&x=1", "gs://b/p?***"),
        ("sftp://u:p?w@host/x", "sftp://***@host/x"),
        ("gs://b/\x1b[2J", "gs://b/\\x1b[2J"),
    ],
)
def test_secrets_of_urls_are_hidden(url, shown):
    assert redacted_url(url) == shown
    assert url not in repr(Store(url)) or url == shown


def test_urls_that_nobody_can_open():
    with pytest.raises(UserError, match=r"artifacts: gs://\*\*\*@h/x: needs a package .* pip install gcsfs"):
        Store("gs://me:secret@h/x").exists("a")
    with pytest.raises(UserError, match="artifacts: nonsense://x: unknown kind of URL; accepted: a folder"):
        Store("nonsense://x").exists("a")


@pytest.mark.parametrize(
    "url",
    [
        *("reference://?fo=x.json", "simplecache::s3://b/p", "file::memory://x", "file://x::reference://y"),
        *("sftp://me@h/x", "github://o:r@/x", "http://h/x", "FILE://x", "s3 ://x", "://x"),
    ],
)
def test_other_kinds_of_url_are_refused(url):
    """fsspec has some that run code, as `reference` did, and chains of them."""
    with pytest.raises(UserError, match="unknown kind of URL; accepted: a folder, or one URL that begins with file://"):
        Store(url).exists("a")
