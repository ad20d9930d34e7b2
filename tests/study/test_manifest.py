"""Tests of the manifest: a change to anything that decides a credit is refused in one line."""

import json
import shutil

import numpy as np
import pytest
import yaml

from diffcredit.baselines.study import kept_baselines
from diffcredit.errors import DiffcreditWarning, UserError
from diffcredit.ledger import ChangedRecord, Entry, Ledger
from diffcredit.study import published
from diffcredit.study.manifest import check_files, check_terms, enter_file, enter_images, enter_terms, is_entered
from diffcredit.study.study import Study
from planted_study import additive, plant
from tiny_study import write_small

NAMES = ("ann", "bob", "cy", "dee")
HUGE = {"contributors": list(NAMES), "method": "shapley", "values": [10**400] * 4}
GAME = {"colourfulness": additive([4.0, 3.0, 2.0, 1.0], noise=0.1)}


@pytest.fixture
def planted(tmp_path):
    """A study with known values, whose terms are entered."""
    study = one_property(tmp_path / "planted")
    with study.ledger() as ledger:
        enter_terms(study, ledger)
    return study


def one_property(folder):
    study = Study.load(plant(folder, NAMES, GAME))
    return changed(study, properties=["colourfulness"])


def changed(study, **sections):
    """The study with a changed study file."""
    content = yaml.safe_load(study.file.read_text()) | sections
    study.file.write_text(yaml.safe_dump(content))
    return Study.load(study.file)


def entries(study, kind):
    with study.ledger() as ledger:
        return ledger.entries(study.name, kind)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"design": {"distribution": "kernel"}}, r'design\.distribution \(absent\) → "kernel"'),
        ({"reference": {"colourfulness": 7.0}}, r'reference \(absent\) → {"colourfulness":7\.0}'),
        ({"matters": 0.001}, r"matters \(absent\) → 0\.001"),
        ({"surrogates": ["real_data"]}, r'surrogates \(absent\) → \[{"name":"real_data"}\]'),
        ({"retired": ["fid"]}, r'retired \(absent\) → \["fid"\]'),
        ({"validation": {"shares": [0.25]}}, r'validation \(absent\) → {"shares":\[0\.25\]}'),
    ],
)
def test_a_changed_study_file_shows_nothing(planted, sections, said):
    planted.credits()
    other = changed(planted, **sections)
    for shows in (other.credits, lambda: check_terms(other)):
        with pytest.raises(
            UserError, match=rf"^\S*study\.yaml: {said} \(in the ledger → stated now\).* restore it, or"
        ):
            shows()
    with other.ledger() as ledger:
        enter_terms(other, ledger)
        enter_terms(other, ledger)  # once
    check_terms(other)
    assert [each.name for each in entries(other, "terms")] == ["terms"] * 2


def test_what_decides_no_credit_may_change(planted):
    design = {"full_replicates": 7, "seed": 3}
    changed(planted, stop={"evaluations": 3}, keep="images", threads=2, design=design).credits()


def test_a_default_that_is_written_out_is_no_change(planted):
    changed(planted, design={"distribution": "uniform", "seed": 0, "full_replicates": 1}, retired=[]).credits()


def test_a_ledger_without_terms_has_nothing_to_compare(tmp_path):
    study = one_property(tmp_path)
    changed(study, matters=3.0).credits()
    (study.folder / "validation").mkdir(parents=True)
    assert is_entered(study, study.folder / "validation/lds", b"anything")


def test_files(planted):
    place = planted.folder / "baselines/x.json"
    assert not is_entered(planted, place, b"1")
    enter_file(planted, place, b"1")
    enter_file(planted, place, b"1")
    assert is_entered(planted, place, b"1")
    with pytest.raises(ChangedRecord, match=r"the record was changed: \S*baselines/x\.json is not as it was entered"):
        is_entered(planted, place, b"2")
    enter_file(planted, place, b"2")
    assert is_entered(planted, place, b"2")
    with pytest.raises(ChangedRecord):  # an earlier one in its place is a change, too
        is_entered(planted, place, b"1")
    assert len(entries(planted, "file")) == 2
    assert check_files(planted) == (0, ["baselines/x.json"])  # none is here
    place.parent.mkdir()
    place.write_bytes(b"2")
    assert check_files(planted) == (1, [])
    place.write_bytes(b"3")
    with pytest.raises(ChangedRecord):
        check_files(planted)


@pytest.mark.parametrize(
    "name", ["../../secret", "/dev/zero", "/", "..", "a/..", "a", "a/b/c", "a/\0", "a/" + "b" * 255]
)
def test_a_file_elsewhere_is_not_read(planted, name):
    """Of a stranger's archive: what it names might have no end."""
    with planted.ledger() as ledger:
        entry = Entry("file", name, {"sha256": "0" * 64}, "2026-01-01T00:00:00+00:00")
        ledger.enter(planted.name, entry, lambda known, evaluated: True)
    with pytest.raises(ChangedRecord, match=r"the record was changed: .* is no file of results$"):
        check_files(planted)


def test_a_strangers_baseline_is_left_out(planted):
    place = planted.folder / "baselines/image_count-0.json"
    place.parent.mkdir()
    place.write_text("{}")
    with pytest.warns(DiffcreditWarning, match=r"image_count-0\.json: not in the ledger; left out, and made again by"):
        assert kept_baselines(planted) == []


def test_every_file_of_a_folder_counts(planted):
    folder = planted.folder / "validation/lds"
    whole = {"section.json": b"{}", "lds.csv": b"1,2"}
    enter_file(planted, folder, whole)
    assert is_entered(planted, folder, whole)
    for other in ({**whole, "lds.csv": b"1,3"}, {**whole, "more.csv": b""}, {"section.json": b"{}"}):
        with pytest.raises(ChangedRecord):
            is_entered(planted, folder, other)


def test_hidden_files_of_a_folder_do_not_count(planted):
    """A file manager's, which nobody reads."""
    folder = planted.folder / "validation/lds"
    enter_file(planted, folder, {"section.json": b"{}"})
    folder.mkdir(parents=True)
    for name, content in (("section.json", "{}"), (".DS_Store", "x")):
        (folder / name).write_text(content)
    assert check_files(planted) == (1, [])
    (folder / "section.json").rename(folder / ".section.json")
    with pytest.raises(ChangedRecord):
        check_files(planted)


def test_each_contributors_images(tmp_path):
    study = Study.load(write_small(tmp_path))
    with study.ledger() as ledger:
        ledger.register_study(study.name, {"contributors": list(study.contributions.contributors)})
        for _ in range(2):
            enter_images(study, ledger, study.contributions)
        (entry,) = ledger.entries(study.name, "images")
    givers = study.contributions.givers
    assert entry.content["contributors"] == {name: study.contributions.works(name).digest for name in givers}
    assert len(set(entry.content["contributors"].values())) == len(givers)


def test_published_credits_are_entered_once_and_followed(planted):
    published.publish(planted)
    published.publish(planted)
    (entry,) = entries(planted, "credits")
    found, credits = entry.content["properties"]["colourfulness"], planted.credits()["colourfulness"]
    assert found["contributors"] == list(NAMES)
    np.testing.assert_array_equal(found["values"], credits.values)
    np.testing.assert_array_equal(found["help"], credits.help())
    assert found["verdict"] == planted.verdicts()["colourfulness"].level
    assert published.published(planted) == entry.entered
    assert published.published(changed(planted, matters=2.0)) == ""


def test_credits_that_no_longer_follow_are_not_shown(planted):
    """As where somebody had changed what the chain does not hold, such as diffcredit itself."""
    published.publish(planted)
    (entry,) = entries(planted, "credits")
    content = json.loads(json.dumps(entry.content))
    content["properties"]["colourfulness"]["values"][0] += 0.01
    with planted.ledger() as ledger:
        ledger.enter(planted.name, Entry("credits", "credits", content, entry.entered), lambda known, evaluated: True)
    with pytest.raises(ChangedRecord, match=r"the credits of colourfulness that were published on .* no longer follow"):
        planted.credits()
    planted.credits("unshrunk")  # not what was published


@pytest.mark.parametrize(
    "content",
    [
        *({}, {"estimator": 1}),
        *({"properties": each} for each in (3, None, ["colourfulness"], {"colourfulness": 3}, {"colourfulness": HUGE})),
    ],
)
def test_a_publication_that_is_none_is_a_line(planted, content):
    published.publish(planted)
    (entry,) = entries(planted, "credits")
    with planted.ledger() as ledger:
        made = Entry("credits", "credits", {**entry.content, **content}, entry.entered)
        ledger.enter(planted.name, made, lambda known, evaluated: True)
    if "properties" in content:
        with pytest.raises(ChangedRecord):
            planted.credits()
    else:
        planted.credits()


def test_the_manifest_travels(planted, tmp_path):
    published.publish(planted)
    with planted.ledger() as ledger:
        rows, head = ledger.export(planted.name)
    copy = shutil.copytree(planted.file.parent, tmp_path / "copy")
    (copy / "results/ledger.db").unlink()
    with Ledger.open(copy / "results/ledger.db") as ledger:
        ledger.restore(rows, head)
    other = Study.load(copy)
    assert published.published(other)
    with pytest.raises(UserError, match="matters"):
        changed(other, matters=2.0).credits()


def test_an_older_studys_files_are_taken_over_once(tmp_path):
    study = one_property(tmp_path)
    place, section = study.folder / "baselines" / "x.json", study.folder / "validation" / "lds"
    place.parent.mkdir()
    section.mkdir(parents=True)
    place.write_bytes(b"{}")
    (section / "section.json").write_bytes(b"{}")
    with study.ledger() as ledger:
        enter_terms(study, ledger)
    assert {each.name for each in entries(study, "file")} == {"baselines/x.json", "validation/lds"}
    assert check_files(study) == (2, [])
    later = place.with_name("later.json")
    later.write_bytes(b"1")
    with study.ledger() as ledger:
        enter_terms(study, ledger)
    assert not is_entered(study, later, b"1")
    with pytest.warns(DiffcreditWarning, match=r"later\.json: not in the ledger"):
        kept_baselines(study)
