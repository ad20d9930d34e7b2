"""A study as one file, and back."""

import copy
import json
import shutil
import zipfile
from dataclasses import replace

import pyarrow.parquet
import pytest

from diffcredit.errors import DiffcreditError, UserError
from diffcredit.ledger import Ledger, Value
from diffcredit.ledger.archive import read_archive, restore_models, write_archive

from .contract import HEAD, RECIPE, STUDY, check_the_chain_is_the_same_everywhere, evaluation


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The file of the ledger whose head is known."""
    file = tmp_path_factory.mktemp("original") / "first.db"
    check_the_chain_is_the_same_everywhere(lambda: Ledger.open(file))
    return file


@pytest.fixture(scope="module")
def exported(original):
    with Ledger.open(original) as ledger:
        return ledger.export(STUDY)


@pytest.fixture
def ledger(original, tmp_path):
    with Ledger.open(shutil.copy(original, tmp_path / "first.db")) as opened:
        yield opened


@pytest.fixture
def archive(exported, tmp_path):
    file = tmp_path / "study.zip"
    write_archive(file, *exported, {"name": STUDY})
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


CHANGES = {
    "not those that were exported": [lambda rows: rows[5][1].update(value=0.75)],
    "no rows of a study": [lambda rows: rows.clear(), lambda rows: rows.pop(0)],
    "is no row of a study": [
        lambda rows: rows.pop(1),
        lambda rows: rows[4][1].pop("coalition"),
        lambda rows: rows[4][1].update(coalition=7),
        lambda rows: rows[5][1].update(evaluation=99),
        lambda rows: rows[5][1].update(surprise=1),
        lambda rows: rows[0][1].update(surprise=1),
        lambda rows: rows[1][1].update(name=["a"]),
        lambda rows: rows.append(("song", {"title": "x"})),
        lambda rows: rows.append(rows[0]),
        lambda rows: rows.append(rows[1]),
    ],
}


def test_a_changed_archive_restores_nothing(archive, database):
    with Ledger.open(database) as other:
        for message, changes in CHANGES.items():
            for change in changes:
                rows, head, _ = read_archive(archive)
                change(rows)
                with pytest.raises(DiffcreditError, match=message):
                    other.restore(rows, head)
                assert other.studies() == []


def test_a_tampered_ledger_is_not_exported(ledger):
    with ledger._database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE property_values SET value = 9 WHERE id = 1")
    with pytest.raises(DiffcreditError, match="is not as it was written; diffcredit verify"):
        ledger.export(STUDY)


@pytest.mark.parametrize(
    "description",
    ["", "[]", "{}", "nonsense", '{"format": 2}', '{"format": 1, "head": "", "study": {}, "rows": [{"number": 1}]}'],
)
def test_whatever_is_no_archive_is_refused(tmp_path, description):
    with pytest.raises(UserError, match=r"none\.zip: cannot be read"):
        read_archive(tmp_path / "none.zip")
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
        try:
            rows, head, _ = read_archive(archive)
        except UserError:
            continue
        with Ledger.open(tmp_path / f"{place}.db") as other:
            try:
                other.restore(rows, head)
            except DiffcreditError:
                assert other.studies() == []
            else:
                assert other.head(STUDY).hash == HEAD


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    for name, content in MODEL_FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for unfinished in (".base.part", "base.checkpoint.safetensors"):
        (folder / unfinished).write_bytes(b"no")
    return folder


MODEL_FILES = {
    "base-0123456789ab/network.safetensors": b"weights" * 1000,
    "base-0123456789ab/settings.json": b"{}",
    "gradients/one.safetensors": b"1",
    "property-1.safetensors": b"",
}


def test_models_go_along_if_wanted(exported, archive, models, tmp_path):
    assert restore_models(archive, tmp_path / "none") == 0
    assert not (tmp_path / "none").exists()
    write_archive(tmp_path / "with.zip", *exported, {}, models)
    assert read_archive(tmp_path / "with.zip")[1] == HEAD
    assert restore_models(tmp_path / "with.zip", tmp_path / "back") == len(MODEL_FILES)
    back = {path for path in (tmp_path / "back").rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path / "back").as_posix(): path.read_bytes() for path in back} == MODEL_FILES


def test_code_goes_into_no_archive(exported, models, tmp_path):
    (models / "base-0123456789ab" / "weights.pkl").touch()
    with pytest.raises(UserError, match=r"weights\.pkl: does not go into an archive; \.safetensors, \.json, \.txt"):
        write_archive(tmp_path / "with.zip", *exported, {}, models)
    assert not (tmp_path / "with.zip").exists()


@pytest.mark.parametrize(
    ("name", "packed", "reason"),
    [
        ("models/../out.json", zipfile.ZIP_STORED, "names of"),
        ("models//out.json", zipfile.ZIP_STORED, "names of"),
        ("models/a/../../../out.json", zipfile.ZIP_STORED, "names of"),
        ("models/weights.pkl", zipfile.ZIP_STORED, "names of"),
        ("models/code.py", zipfile.ZIP_STORED, "names of"),
        ("models/.hidden.json", zipfile.ZIP_STORED, "names of"),
        ("models/there.json", zipfile.ZIP_STORED, "twice"),
        ("models/bomb.json", zipfile.ZIP_DEFLATED, "without compression"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_strangers_models_lead_nowhere(name, packed, reason, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("models/there.json", "{}")
        file.writestr(name, "0" * 1000, packed)
    with pytest.raises(UserError, match=reason):
        restore_models(tmp_path / "a.zip", tmp_path / "inside" / "models")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.zip"]


def test_models_that_share_their_bytes_are_refused(tmp_path):
    """Many entries that lead to the same bytes would unpack to more than the archive has."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("models/a.json", "0" * 1000)
        for name in "bcdef":
            twin = copy.copy(file.filelist[0])
            twin.filename = f"models/{name}.json"
            file.filelist.append(twin)
    with pytest.raises(UserError, match="larger than the archive itself"):
        restore_models(tmp_path / "a.zip", tmp_path / "models")


def test_damaged_models_are_not_restored(exported, models, tmp_path):
    file = tmp_path / "with.zip"
    write_archive(file, *exported, {}, models)
    content = bytearray(file.read_bytes())
    content[content.index(b"weights" * 1000) + 3] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="a damaged one"):
        restore_models(file, tmp_path / "back")
    assert not (tmp_path / "back").exists()
