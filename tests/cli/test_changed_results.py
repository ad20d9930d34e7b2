"""Whoever changes what decides credits beside the ledger's rows is found, too: the study file, evidence, baselines,
images. Each case is an attack that once passed."""

import json
import shutil

import pytest
import yaml

from diffcredit.study.manifest import enter_file, enter_terms
from diffcredit.study.study import Study
from diffcredit.validation.presentation.sections import Section, Table
from diffcredit.validation.presentation.writing import files_of, write_section
from paid_study import evaluated, published, stated

BASELINES = "results/baselines/image_count-1.json"
LDS = Section("lds", "How good", ("It is 0.9.",), (Table("lds", "", ("a",), ((0.9,),)),), (), ())
BASELINE = {
    "study": "x",
    "made_from": "x",
    "method": "image_count",
    "options": {},
    "title": "Image count",
    "category": "control",
    "property": None,
    "higher_is_better": True,
    "rows": [{"how": "", "credits": [1.0, 2.0, 3.0, 4.0], "chosen": {}, "seconds": 0.0}],
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A study whose results are all in the ledger's manifest: credits, a baseline and a section of the evidence."""
    file = published(evaluated(stated(tmp_path_factory.mktemp("shown"))))
    study = Study.load(file)
    section, baseline = study.folder / "validation" / "lds", study.folder / "baselines" / "image_count-1.json"
    enter_file(study, section, files_of(LDS))
    write_section(LDS, section)
    baseline.parent.mkdir()
    baseline.write_text(json.dumps(BASELINE))
    enter_file(study, baseline, baseline.read_bytes())
    return file.parent


@pytest.fixture
def copy(shown, tmp_path):
    return shutil.copytree(shown, tmp_path / "copy")


def stating(**sections):
    """A change of the study file."""

    def change(folder):
        file = folder / "study.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | sections))

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (stating(design={"distribution": "half"}), 'design.distribution (absent) → "half"'),
        (stating(reference={"colourfulness": 900.0, "heldout_loss": 1.0}), "reference (absent) → {"),
        (stating(matters={"colourfulness": 1e-9}), "matters (absent) → {"),
        (stating(retired=["fid"]), "retired (absent) → "),
        (stating(surrogates=["evil:Surrogate"]), "surrogates (absent) → "),
        (stating(validation={"shares": [0.5], "coalitions": 12}), "validation (absent) → {"),
    ],
)
def test_a_changed_study_file(diffcredit, copy, change, words):
    """A3. Also of a study that was imported: its study file is the archive's."""
    before = diffcredit.printed("credits", copy)
    original = (copy / "study.yaml").read_bytes()
    change(copy)
    for command in ("credits", "report", "verify", "payout"):
        code, out, complaint = diffcredit(command, copy, *(["--pool", "100.00"] if command == "payout" else []))
        assert (code, complaint.count("\n")) == (2, 1), (command, out, complaint)
        assert words in complaint
        assert "restore it, or have diffcredit run enter the change" in complaint
    (copy / "study.yaml").write_bytes(original)
    assert diffcredit.printed("credits", copy) == before


def edited(name, old, new):
    def change(folder):
        file = folder / "results" / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return change


@pytest.mark.parametrize(
    "change",
    [
        edited("validation/lds/section.json", "0.9", "1.0"),
        edited("validation/lds/lds.csv", "0.9", "1.0"),
        edited("baselines/image_count-1.json", "4.0", "9.0"),
        lambda folder: (folder / "results/validation/lds/more.csv").write_text("a"),
    ],
)
def test_changed_evidence_and_baselines(diffcredit, copy, change):
    """A3: by ``verify``, and by ``report`` where it would show them; without a base model it shows no baselines."""
    assert "2 files of results, as entered in the ledger" in diffcredit.printed("verify", copy)
    change(copy)
    for command in ("verify",) if "4.0" not in (copy / BASELINES).read_text() else ("report", "verify"):
        code, out, complaint = diffcredit(command, copy, warned=True)
        assert code == 1, (command, out, complaint)
        (line,) = [line for line in complaint.splitlines() if line.startswith("error: ")]
        assert "the record was changed: " in line
        assert "is not as it was entered in the ledger" in line


def test_removed_evidence_and_baselines(diffcredit, copy):
    """Whoever removes what speaks against the credits cannot remove that it was there."""
    assert "not here" not in diffcredit.printed("verify", copy)
    shutil.rmtree(copy / "results/validation/lds")
    (copy / BASELINES).unlink()
    said = "Entered in the ledger, but not here: 'validation/lds', 'baselines/image_count-1.json'"
    assert said in " ".join(diffcredit.printed("verify", copy).split())


def test_evidence_that_nobody_entered_is_not_shown(diffcredit, copy):
    assert diffcredit("report", copy, warned=True)[0] == 0
    before = (copy / "results/report.html").read_text().count("It is 0.9.")
    shutil.copytree(copy / "results/validation/lds", copy / "results/validation/fidelity")
    code, _, complaint = diffcredit("report", copy, warned=True)
    assert code == 0, complaint
    assert "evidence (fidelity): not in the ledger; left out" in complaint
    assert (copy / "results/report.html").read_text().count("It is 0.9.") == before > 0


def test_an_auditor_needs_no_code_of_surrogates(diffcredit, copy):
    """All but the credits is verified without."""
    stating(surrogates=["gone:Mine"])(copy)
    study = Study.load(copy)
    with study.ledger() as ledger:
        enter_terms(study, ledger)
    out = " ".join(diffcredit.printed("verify", copy).split())
    assert "2 files of results, as entered in the ledger The published credits were not compared: " in out
    assert "surrogates.0: 'gone:Mine' cannot be loaded" in out


def test_swapped_images(diffcredit, copy):
    """A3: two contributors' folders change places."""
    images = copy / "images"
    for old, new in (("ann", "x"), ("bob", "ann"), ("x", "bob")):
        (images / old).rename(images / new)
    for command in ("credits", "report"):
        code, _, complaint = diffcredit(command, copy)
        assert code == 2, command
        assert "recipe 'sparsified' changed: data.fingerprint" in complaint


def test_a_lost_ledger_file_of_published_credits_is_found_by_the_head(diffcredit, copy):
    """What was published can be compared by anybody who kept the head."""
    out = diffcredit.printed("verify", copy)
    head = out.rpartition("Head: ")[2].split()[0]
    assert "The credits that were published on " in out
    assert diffcredit("verify", copy, "--head", head)[0] == 0
