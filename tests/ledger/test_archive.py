"""A study as one file, and back."""

import json
import zipfile
from dataclasses import replace

import pyarrow.parquet
import pytest

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.ledger import Ledger, Value
from diffcredit.ledger.archive import read_archive, write_archive
from diffcredit.testing.ledgers import HEAD, RECIPE, STUDY, check_the_chain_is_the_same_everywhere, evaluation


@pytest.fixture
def ledger(tmp_path):
    """The ledger whose head is known."""
    check_the_chain_is_the_same_everywhere(lambda: Ledger.open(tmp_path / "first.db"))
    with Ledger.open(tmp_path / "first.db") as opened:
        yield opened


@pytest.fixture
def archive(ledger, tmp_path):
    file = tmp_path / "study.zip"
    write_archive(file, *ledger.export(STUDY), {"name": STUDY})
    return file


def test_a_study_is_the_same_elsewhere(ledger, archive, database):
    rows, head, study = read_archive(archive)
    assert (head, study) == (HEAD, {"name": STUDY})
    with Ledger.open(database) as other:
        other.register_study("there before", {})
        other.restore(rows, head)
        assert other.audit(STUDY, HEAD).problems == ()
        assert other.head(STUDY).hash == HEAD
        assert other.evaluations(STUDY, RECIPE.name) == ledger.evaluations(STUDY, RECIPE.name)
        assert other.recipes(STUDY) == ledger.recipes(STUDY)
        assert other.properties(STUDY) == ledger.properties(STUDY)
        for each in (ledger, other):  # and goes on as the first would
            each.record(STUDY, RECIPE.name, evaluation("1010"))
        assert other.head(STUDY) == ledger.head(STUDY)
        with pytest.raises(UserError, match="has a study 'openmoji' already"):
            other.restore(rows, head)


def test_any_tool_reads_the_tables(archive, tmp_path):
    with zipfile.ZipFile(archive) as file:
        assert sorted(file.namelist()) == ["evaluations.parquet", "study.json", "values.parquet"]
        file.extractall(tmp_path)
    evaluations = pyarrow.parquet.read_table(tmp_path / "evaluations.parquet").to_pylist()
    assert [(row["number"], row["coalition"], row["status"]) for row in evaluations] == [
        (5, "0110", "done"),
        (8, "1111", "failed"),
    ]
    assert json.loads(evaluations[0]["numerics"]) == {"device": "cpu", "threads": 1}
    values = pyarrow.parquet.read_table(tmp_path / "values.parquet").to_pylist()
    assert [(row["evaluation"], row["property"], row["value"]) for row in values] == [
        (5, "quality", 0.5),
        (5, "diversité «½»", None),
        (5, "diversité «½»", 2.5),
    ]


def test_numbers_keep_their_bits(ledger, tmp_path):
    numbers = [0.1 + 0.2, -1 / 3, 5e-324, 1.7976931348623157e308, 3.0, 2.0**53 + 2]
    for index, number in enumerate(numbers):
        item = replace(evaluation(), replicate=1 + index, values=(Value("quality", number, images=64),))
        ledger.record(STUDY, RECIPE.name, item)
    write_archive(tmp_path / "study.zip", *ledger.export(STUDY), {})
    with Ledger.open(tmp_path / "second.db") as other:
        other.restore(*read_archive(tmp_path / "study.zip")[:2])
        back = [each.values[0] for each in other.evaluations(STUDY, RECIPE.name) if each.replicate]
    assert [value.value.hex() for value in back] == [number.hex() for number in numbers]
    assert {value.images for value in back} == {64}


def test_a_changed_archive_restores_nothing(archive, tmp_path):
    rows, head, _ = read_archive(archive)
    rows[5][1]["value"] = 0.75
    with Ledger.open(tmp_path / "second.db") as other:
        with pytest.raises(DiffcreditError, match="not those that were exported"):
            other.restore(rows, head)
        assert other.studies() == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.clear(),
        lambda rows: rows.pop(0),
        lambda rows: rows.pop(1),
        lambda rows: rows[4][1].pop("coalition"),
        lambda rows: rows[4][1].update(coalition=7),
        lambda rows: rows[5][1].update(evaluation=99),
        lambda rows: rows[5][1].update(surprise=1),
        lambda rows: rows.append(("song", {"title": "x"})),
        lambda rows: rows.append(rows[1]),
        lambda rows: rows[0][1].update(settings=[1]),
    ],
)
def test_rows_that_are_no_study_are_refused(archive, tmp_path, change):
    rows, head, _ = read_archive(archive)
    change(rows)
    with Ledger.open(tmp_path / "second.db") as other:
        with pytest.raises(DiffcreditError):
            other.restore(rows, head)
        assert other.studies() == {}


def test_a_tampered_ledger_is_not_exported(ledger):
    with ledger._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE property_values SET value = 9 WHERE id = 1")
    with pytest.raises(DiffcreditError, match="is not as it was written; diffcredit verify"):
        ledger.export(STUDY)


@pytest.mark.parametrize(
    "description",
    ["", "[]", "{}", "nonsense", '{"format": 2}', '{"format": 1, "head": "", "study": {}, "rows": [{"number": 1}]}'],
)
def test_whatever_is_no_archive_is_refused(tmp_path, description):
    file = tmp_path / "study.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("study.json", description)
        for name in ("evaluations.parquet", "values.parquet"):
            archive.writestr(name, b"PAR1")
    with pytest.raises(UserError, match=r"study\.zip: is no archive of diffcredit export"):
        read_archive(file)


def test_a_damaged_archive_restores_the_study_or_nothing(archive, tmp_path):
    whole = archive.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        archive.write_bytes(whole[:cut])
        with pytest.raises(UserError, match="is no archive"):
            read_archive(archive)
    for place in range(7, len(whole), 211):  # one byte is another
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with Ledger.open(tmp_path / f"{place}.db") as other:
            try:
                other.restore(*read_archive(archive)[:2])
            except DiffcreditError:
                assert other.studies() == {}
            else:
                assert other.head(STUDY).hash == HEAD


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.zip: cannot be read"):
        read_archive(tmp_path / "none.zip")
