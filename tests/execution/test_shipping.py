"""Files arrive as they were, once, and only below their folder."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from diffcredit.errors import DiffcreditError
from diffcredit.execution.shipping import WorkerFiles, marker_file, pack, unpack


def packed(files: WorkerFiles, piece: int) -> tuple[str, list[bytes]]:
    pieces: list[bytes] = []
    return pack(files, pieces.append, piece), pieces


@pytest.fixture
def files(tmp_path) -> WorkerFiles:
    data, single = tmp_path / "there" / "data", tmp_path / "there" / "weights.bin"
    for name, content in (("a/1.png", b"x" * 100), ("a/empty", b""), ("b/2.png", bytes(range(256)))):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)
    single.write_bytes(b"weights")
    os.utime(data / "a/1.png", ns=(1, 1_234_567_890_123_456_789))
    (data / "unwanted").write_bytes(b"unwanted")
    (data / "a/__pycache__").mkdir()
    (data / "a/__pycache__/x.pyc").write_bytes(b"")
    return WorkerFiles(tmp_path, {data: [data / "a", data / "b/2.png", data / "nothing"], single: [single]})


@pytest.mark.parametrize("piece", [1, 7, 100, 10**6])
def test_files_arrive_as_they_were(files, tmp_path, piece):
    manifest, pieces = packed(files, piece)
    assert {len(each) for each in pieces[:-1]} <= {piece}
    places = unpack(manifest, pieces, tmp_path / "shelf")
    data, single = files.roots
    there = Path(places[str(data)])
    assert there.name == "data"
    assert {p.relative_to(there).as_posix(): p.read_bytes() for p in there.rglob("*") if p.is_file()} == {
        "a/1.png": b"x" * 100,
        "a/empty": b"",
        "b/2.png": bytes(range(256)),
    }
    assert (there / "a/1.png").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert Path(places[str(single)]).read_bytes() == b"weights"


def _unpack_and_count(manifest: str, pieces: list[bytes], shelf: Path, folder: Path) -> None:
    def fetched():
        (folder / str(os.getpid())).touch()
        yield from pieces

    unpack(manifest, fetched(), shelf)


def test_of_workers_that_start_at_once_one_fetches(files, tmp_path):
    manifest, pieces = packed(files, 50)
    (tmp_path / "fetched").mkdir()
    arguments = (manifest, pieces, tmp_path / "shelf", tmp_path / "fetched")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_unpack_and_count, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(list((tmp_path / "fetched").iterdir())) == 1


def test_damaged_or_incomplete_files_leave_nothing(files, tmp_path):
    manifest, pieces = packed(files, 50)
    with pytest.raises(DiffcreditError, match="incomplete"):
        unpack(manifest, pieces[:-1], tmp_path / "shelf")
    with pytest.raises(DiffcreditError, match="damaged"):
        unpack(manifest, [bytes(len(piece)) for piece in pieces], tmp_path / "shelf")
    assert [path.suffix for path in (tmp_path / "shelf").iterdir()] == [".lock"]


@pytest.mark.parametrize("name", ["../../../outside", "/outside", "a/../../../../outside"])
def test_no_file_leaves_its_folder(tmp_path, name):
    manifest = json.dumps({"roots": ["/data"], "files": [(0, name, 1, 0)], "sha256": ""})
    with pytest.raises(DiffcreditError, match="leads out of its folder"):
        unpack(manifest, [b"x"], tmp_path / "a" / "b" / "shelf")
    assert not list(tmp_path.rglob("outside"))


def test_a_mark_is_there_within_and_gone_afterwards(tmp_path):
    with marker_file(tmp_path / "results") as mark, marker_file(tmp_path / "results") as other:
        assert mark.exists()
        assert mark != other
    assert list((tmp_path / "results").iterdir()) == []
