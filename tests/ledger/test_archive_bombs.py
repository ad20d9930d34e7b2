"""Archives of a megabyte or two that would fill the memory."""

import io
import subprocess
import sys
import zipfile

import pyarrow
import pyarrow.parquet
import pytest

from diffcredit.errors import UserError
from diffcredit.ledger import Ledger, parquet
from diffcredit.ledger.archive import read_archive, write_archive

from .contract import STUDY, check_the_chain_is_the_same_everywhere

LARGEST = 2_000_000  # bytes of an archive
MEMORY = 2_000_000_000  # bytes that reading one may take


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    file = tmp_path_factory.mktemp("ledger") / "first.db"
    check_the_chain_is_the_same_everywhere(lambda: Ledger.open(file))
    with Ledger.open(file) as ledger:
        return ledger.export(STUDY)


@pytest.fixture
def archive(rows, tmp_path):
    """Make an archive with other members than it should have."""

    def made(name="bomb", **members):
        whole, file = tmp_path / "whole.zip", tmp_path / f"{name}.zip"
        write_archive(whole, *rows, {"name": STUDY})
        with zipfile.ZipFile(whole) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
            for member in old.namelist():
                new.writestr(member, members.get(member.partition(".")[0], old.read(member)))
        assert file.stat().st_size < LARGEST
        return file

    return made


def repeated(value, count):
    """Return one value so many times, which takes four bytes each."""
    if not isinstance(value, str):
        return pyarrow.repeat(pyarrow.scalar(value), count)
    return pyarrow.DictionaryArray.from_arrays(pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), count), [value])


def evaluations(count=1, *, types=None, options=None, **changes):
    """Return a Parquet file of equal rows."""
    row = dict.fromkeys(parquet.COLUMNS["evaluation"].split(), "x") | {"number": 5, "replicate": 0}
    row |= {"numerics": "{}", "seconds": "{}", "versions": "{}"} | changes
    table = pyarrow.table({name: repeated(value, count) for name, value in row.items()})
    if types:
        table = table.cast(pyarrow.schema([(name, types.get(name, table.schema.field(name).type)) for name in row]))
    sink = io.BytesIO()
    # without Arrow's own schema, a reader takes dictionaries of texts for texts
    pyarrow.parquet.write_table(table, sink, store_schema=False, **(options or {}))
    return sink.getvalue()


PLAIN = {name: pyarrow.string() for name in parquet.COLUMNS["evaluation"].split() if name not in parquet.WHOLE}
DELTA = {"types": PLAIN, "options": {"use_dictionary": False, "column_encoding": {"error": "DELTA_BYTE_ARRAY"}}}
BOMBS = {
    "bytes of text; at most 1,000,000,000": lambda: {"evaluations": evaluations(500_000, error="x" * 1_000_000)},
    "5,000,000 rows; at most 500,000": lambda: {"evaluations": evaluations(5_000_000)},
    r"versions has 1\d,\d+,\d+ values; at most 10,000,000": lambda: {
        "evaluations": evaluations(versions="[" + "[]," * 5_000_000 + "0]", options={"compression": "snappy"})
    },
    "study.json has 20,000,001 values": lambda: {"study": "[" + "[]," * 10_000_000 + "0]"},
    "study.json would have 200,000,000 bytes": lambda: {"study": " " * 200_000_000},
    "evaluations.parquet would have 600,000,000 bytes": lambda: {"evaluations": bytes(600_000_000)},
}

READER = r"""
import re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, 6_000_000_000))
from pathlib import Path
from diffcredit.errors import UserError
from diffcredit.ledger.archive import read_archive
for file in sys.argv[1:]:
    try:
        read_archive(Path(file))
    except UserError as error:
        print(error)
if sys.platform == "darwin":
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
else:  # getrusage counts the process that this one was forked from
    print(1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]))
"""


def test_bombs_are_refused_before_they_fill_the_memory(archive):
    files = [archive(f"{number}", **members()) for number, members in enumerate(BOMBS.values())]
    reader = subprocess.run([sys.executable, "-c", READER, *map(str, files)], capture_output=True, text=True)
    assert reader.returncode == 0, reader.stderr
    *messages, memory = reader.stdout.splitlines()
    for file, message, said in zip(files, messages, BOMBS, strict=True):
        with pytest.raises(UserError, match=rf"{file.name}: is no archive of diffcredit export, or .*{said}"):
            raise UserError(message)
    assert int(memory) < MEMORY


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda: evaluations(10, **DELTA), "a page of encoding 7; PLAIN, "),
        (lambda: evaluations(10, options={"compression": "zstd"}), "a column packed by codec 6; Snappy or none"),
        (lambda: evaluations(10, number="5"), "its columns are not those of the kind evaluation"),
        (lambda: evaluations(10).replace(b"parquet-cpp-arrow", b"parquet-mr version"[:17]), "written by b'parquet-mr"),
        (lambda: evaluations(1, versions=None), "its columns are not"),
        (lambda: evaluations(1)[:-8] + b"\xff\xff\xff\x7fPAR1", "no Parquet file"),
    ],
)
def test_what_export_does_not_write_is_refused(archive, content, said):
    with pytest.raises(UserError, match=said):
        read_archive(archive(evaluations=content()))


CHANGER = """
import random, sys
from pathlib import Path
from diffcredit.ledger.parquet import rows_of
whole, changes, refused = Path(sys.argv[1]).read_bytes(), random.Random(0), 0
footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
for _ in range(2000):
    place = changes.randrange(footer, len(whole))
    changed = whole[:place] + bytes([changes.randrange(256)]) + whole[place + 1 :]
    try:
        rows_of("evaluation", changed)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError):
        refused += 1
print(refused)
"""


def test_no_footer_ends_the_process(tmp_path):
    """pyarrow ends it where the footer names a codec that it does not know, and is asked for its name."""
    (tmp_path / "evaluations.parquet").write_bytes(evaluations(3))
    command = [sys.executable, "-c", CHANGER, str(tmp_path / "evaluations.parquet")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 1000


def test_pages_are_added_up(archive, monkeypatch):
    """Two texts, each within the limit."""
    monkeypatch.setattr(parquet, "MOST_BYTES", 1_500_000)
    content = evaluations(1, error="x" * 1_000_000, coalition="y" * 1_000_000)
    with pytest.raises(UserError, match="pages unpack to more than 1,500,000 bytes"):
        read_archive(archive(evaluations=content))


def test_too_many_rows_are_not_exported(rows, monkeypatch, tmp_path):
    """An archive that import would refuse is not written."""
    monkeypatch.setitem(parquet.MOST_ROWS, "evaluation", 1)
    with pytest.raises(UserError, match="2 rows of the kind evaluation; an archive has at most 1"):
        write_archive(tmp_path / "study.zip", *rows, {"name": STUDY})
    assert not (tmp_path / "study.zip").exists()


def test_many_row_groups_keep_their_texts(rows, tmp_path, monkeypatch):
    """Each has a dictionary of its own."""
    write, small = pyarrow.parquet.write_table, {"row_group_size": 1, "data_page_size": 64}
    monkeypatch.setattr(pyarrow.parquet, "write_table", lambda table, sink: write(table, sink, **small))
    write_archive(tmp_path / "study.zip", *rows, {"name": STUDY})
    assert read_archive(tmp_path / "study.zip")[0] == rows[0]
