import errno
import hashlib
import math
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from diffcredit.errors import DiffcreditError
from diffcredit.util.artifacts import (
    atomic_file,
    atomic_folder,
    canonical_json,
    fingerprint,
    fingerprint_arrays,
    read_arrays,
    write_arrays,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail_after(path: Path, error: type[BaseException]) -> None:
    path.write_text("half")
    raise error


def test_a_file_is_there_whole(tmp_path):
    target = tmp_path / "deep" / "er" / "file.txt"
    with atomic_file(target) as temporary:
        assert temporary.parent == target.parent, "a rename across disks would not be one step"
        temporary.write_text("half")
        assert not target.exists()
        temporary.write_text("whole")
    assert target.read_text() == "whole"
    assert names(target.parent) == ["file.txt"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_what_was_there(tmp_path, error):
    (tmp_path / "file").write_text("old")
    with pytest.raises(error), atomic_file(tmp_path / "file") as temporary:
        fail_after(temporary, error)
    with pytest.raises(error), atomic_folder(tmp_path / "folder") as temporary:
        fail_after(temporary / "file", error)
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_file_is_replaced_in_one_step(tmp_path):
    target = tmp_path / "file"
    target.write_text("old")
    target.chmod(0o600)
    with target.open() as reader:
        with atomic_file(target) as temporary:
            temporary.write_text("new")
            assert target.read_text() == "old"
        # who has the old file open reads it to its end: another file took the name
        assert reader.read() == "old"
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600  # what was private stays so
    write_text(target, "Größe\r\nline\n")
    assert target.read_bytes() == "Größe\r\nline\n".encode()


def test_a_folder_is_there_whole_and_never_overwritten(tmp_path):
    target = tmp_path / "models" / "base"
    with atomic_folder(target) as temporary:
        (temporary / "a").write_text("1")
        assert not target.exists()
    assert names(target) == ["a"]
    with pytest.raises(DiffcreditError, match="base: already exists"), atomic_folder(target) as temporary:
        (temporary / "a").write_text("2")
    assert (target / "a").read_text() == "1"
    assert names(target.parent) == ["base"]


ARRAYS = {
    "matrix": np.arange(6, dtype=np.int64).reshape(2, 3),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "stepped": np.arange(10, dtype=np.uint8)[::3],
    "single": np.array(2.5),
    "one": np.array([2.5]),
    "none": np.zeros((0, 4)),
    "truth": np.array([True, False]),
}


def test_arrays_come_back_as_they_were(tmp_path):
    write_arrays(tmp_path / "arrays", ARRAYS)
    again = read_arrays(tmp_path / "arrays")
    assert again.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert again[name].shape == array.shape
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize("left", [0, 5, 50, -1])
def test_a_damaged_file_of_arrays_names_itself(tmp_path, left):
    file = tmp_path / "arrays.safetensors"
    write_arrays(file, ARRAYS)
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(DiffcreditError, match=f"{file}: damaged .*; remove it"):
        read_arrays(file)


def test_a_changed_byte_is_noticed(tmp_path):
    """Whatever it belongs to: numbers, names, shapes or the fingerprint itself."""
    file = tmp_path / "arrays.safetensors"
    write_arrays(file, ARRAYS)
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with suppress(DiffcreditError):  # or it changes nothing, such as a space
            assert fingerprint_arrays(read_arrays(file)) == fingerprint_arrays(ARRAYS)
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DiffcreditError, match=r"damaged \(its arrays are not those that were written\)"):
        read_arrays(file)


def test_arrays_of_older_releases_have_no_fingerprint(tmp_path):
    save_file({"a": np.arange(3)}, tmp_path / "arrays.safetensors")
    assert read_arrays(tmp_path / "arrays.safetensors")["a"].tolist() == [0, 1, 2]


FILLING = """
import resource, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from diffcredit.util.artifacts import atomic_file, atomic_folder, write_arrays

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
place, arrays = Path(sys.argv[1]) / "artifact", {"a": np.zeros(1000)}

def in_folder():
    with atomic_folder(place) as folder:
        save_file(arrays, folder / "model.safetensors")

def in_file():
    with atomic_file(place) as file, file.open("wb") as opened:
        opened.write(bytes(2000))

for write in (in_folder, in_file, lambda: write_arrays(place, arrays)):
    try:
        write()
    except OSError as error:
        print(error.errno, error.filename)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of sizes")
def test_what_cannot_be_written_is_named(tmp_path):
    """Whoever finds that out: the system or safetensors. Here a file may only have 1,000 bytes."""
    told = subprocess.run([sys.executable, "-c", FILLING, str(tmp_path)], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == [f"{errno.EFBIG} {tmp_path / 'artifact'}"] * 3
    assert names(tmp_path) == []


def test_canonical_json():
    assert canonical_json({"b": [1, 2.5, None, True], "a": "ü"}) == '{"a":"ü","b":[1,2.5,null,true]}'
    for value in (math.nan, math.inf, {"a": [-math.inf]}):
        with pytest.raises(ValueError, match="JSON"):
            canonical_json(value)


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans())))
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(value):
    turned = dict(reversed(value.items()))
    assert fingerprint({"deep": value}) == fingerprint({"deep": turned})


def test_a_fingerprint_is_the_hash_of_the_canonical_text():
    assert fingerprint({"b": 1, "a": "ü"}) == hashlib.sha256('{"a":"ü","b":1}'.encode()).hexdigest()
    assert len({fingerprint(value) for value in (1, "1", 1.0, [1], True, None, {"1": 1})}) == 7


def test_array_fingerprints_depend_on_names_types_shapes_and_content_alone():
    one = fingerprint_arrays(ARRAYS)
    assert fingerprint_arrays(dict(reversed(ARRAYS.items()))) == one
    assert fingerprint_arrays({name: np.array(array, order="F") for name, array in ARRAYS.items()}) == one
    base = np.arange(4, dtype=np.int32)
    variants = [
        {"a": base},
        {"b": base},
        {"a": base.astype(np.int64)},
        {"a": base.view(np.uint32)},
        {"a": base.view(np.float32)},
        {"a": base.reshape(2, 2)},
        {"a": base.reshape(4, 1)},
        {"a": base[::-1]},
        {"a": base.astype(">i4")},
        {"a": base[:2], "b": base[2:]},
        {"a": base, "b": base[:0]},
        {"a": np.array(5)},
        {"a": np.array([5])},
        {},
    ]
    assert len({fingerprint_arrays(variant) for variant in variants}) == len(variants)
