"""Commands that read refuse a study file that no longer describes its ledger, whatever this machine has noted."""

import shutil
import sys

import pytest
import yaml

from diffcredit.contributions import loading
from diffcredit.errors import UserError
from diffcredit.study import recorded
from diffcredit.study.stated import Stated
from diffcredit.study.study import Study
from tiny_study import changed, files_below, run_here, write_small

WARMTH = "import numpy as np\n\ndef warmth(images, level=1.0):\n    return float(level * images[..., 0].mean())\n"
OTHER = "\ndef other(images):\n    return float(images.max())\n"
PLUGIN = {"properties": ["colourfulness", {"name": "tints:warmth", "level": 2.0}, "tints:other"]}


@pytest.fixture(params=["noted", "nothing noted"])
def notes(request, tmp_path, monkeypatch):
    """With the notes of the run, and as on another machine."""
    return lambda: request.param == "noted" or monkeypatch.setenv("DIFFCREDIT_NOTES", str(tmp_path / "notes"))


@pytest.fixture
def tinted(tmp_path, monkeypatch):
    """A finished study with two plug-ins of one file."""
    monkeypatch.delitem(sys.modules, "tints", raising=False)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "tints.py").write_text(WARMTH + OTHER)
    run_here(write_small(tmp_path / "study", PLUGIN))
    return tmp_path / "study"


def change(folder, **changes):
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(changed(yaml.safe_load(file.read_text()), changes)))
    return file


@pytest.mark.parametrize(
    ("command", "changes", "said"),
    [
        ("credits", {"retraining.steps": 3}, "recipe 'fine_tune' changed: retraining.steps 1 → 3 (recorded → stated"),
        ("status", {"retraining.learning_rate": 0.5}, "retraining.learning_rate null → 0.5"),
        ("report", {"model.train.batch_size": None}, "model.train.batch_size 8 → 64"),  # its default
        ("credits", {"model.preset": "mini"}, 'model.preset "tiny" → "mini"'),
        ("status", {"seed": 4}, "seed 0 → 4"),
        ("report", {"sampling.images": 5}, "sampling.images 4 → 5"),
        ("baselines", {"contributions.resolution": 20}, "data.resolution 16 → 20"),
        ("explain", {"properties": [{"name": "colourfulness", "percentile": 95}]}, "percentile null → 95.0"),
        ("credits", {"contributions.holdout": 0.2}, "data.images.ada 6 → 5; data.images.bob 6 → 5"),
        ("credits", {"contributions.lots": 3}, "data.images.ada 6 → (absent); data.images.ada · lot 1 (absent) → 3"),
        ("report", {"contributions.identities": {"bob": ["ada", "bob"]}}, "data.images.bob 6 → 12"),
        ("report", {"contributions.path": "others"}, "data.images.bob 6 → (absent); data.images.dan (absent) → 6"),
    ],
)  # fmt: skip
def test_changes_are_refused(command, changes, said, small, notes, diffcredit):
    shutil.copytree(small / "images", small / "others")
    (small / "others" / "bob").rename(small / "others" / "dan")
    file, before = change(small, **changes), files_below(small)
    notes()
    err = diffcredit.refused(command, file, *(["0"] if command == "explain" else []))
    assert err.startswith(f"error: {file}: ")
    assert said in err
    assert "another name or restore the settings" in err
    assert files_below(small) - {"results/log.jsonl"} == before
    assert not (small / "results" / "credits.csv").exists()


@pytest.mark.parametrize("command", ["credits", "status", "report"])
def test_what_states_the_same_passes(command, small, notes, diffcredit):
    """Defaults written out, whole numbers for fractions, another place: the settings are the same."""
    same = {
        "retraining.schedule": "cosine",
        "sampling.batch_size": 256,
        "stop.evaluations": 6,
        "model.train.weight_decay": 0,
    }
    folder = shutil.copytree(small, small.parent / "moved")
    change(folder, **same, **{"contributions.seed": 0, "design.full_replicates": 2})
    notes()
    assert diffcredit(command, folder, warned=True)[0] == 0


def test_images_are_decoded_once_and_never_by_status(small, diffcredit, monkeypatch):
    def credits():
        return diffcredit.printed("credits", small, "--format", "csv")

    def never(*_, **__):
        raise AssertionError("images are decoded")

    decode, before = loading.decode, credits()
    monkeypatch.setattr(loading, "decode", never)
    assert credits() == before
    image = small / "images/bob/0.png"
    image.touch()  # its pixels are the same
    _, _, err = diffcredit("status", small, warned=True)
    assert "not compared with the ledger: the images (no command has read them since their files changed)" in err
    monkeypatch.setattr(loading, "decode", decode)
    assert credits() == before
    image.unlink()
    assert "data.images.bob 6 → 5" in diffcredit.refused("credits", small)
    monkeypatch.setattr(loading, "decode", never)
    for command in ("credits", "status"):  # what is known to differ is refused without another look
        assert "data.images.bob 6 → 5" in diffcredit.refused(command, small)


def test_settings_newer_than_the_record_are_compared_where_they_are_stated(small):
    study = Study.load(small)
    with study.ledger() as ledger:
        old = study.recipe.recorded(ledger).settings
    del old["sampling"]["precision"], old["model"]["train"]["min_snr"]
    assert Stated(study).recipe(study.config.retraining, old) == old
    later = Study.load(change(small, **{"sampling.precision": "float32", "model.train.min_snr": 5.0}))
    now = Stated(later).recipe(later.config.retraining, old)
    assert (now["sampling"]["precision"], now["model"]["train"]["min_snr"]) == ("float32", 5.0)


def test_bundled_images_are_noted_by_their_files(tmp_path, monkeypatch):
    """Another version of the package may bring others."""
    file = write_small(tmp_path, {"contributions": {"source": "openmoji", "resolution": 16}})
    here = recorded._about_images(Study.load(file))
    monkeypatch.setattr(recorded, "BUNDLED", tmp_path / "images")
    assert here is not None
    assert recorded._about_images(Study.load(file)) != here


def test_without_the_images_all_else_is_compared(small, notes, diffcredit):
    shutil.rmtree(small / "images")
    notes()
    code, out, err = diffcredit("credits", small, warned=True)
    assert (code, err.count("\n"), "colourfulness" in out) == (0, 1, True)
    assert err.endswith(f"study.yaml: not compared with the ledger: the images ({small / 'images'} is not here)\n")
    assert "retraining.steps 1 → 2" in diffcredit.refused("credits", change(small, **{"retraining.steps": 2}))


def test_plugins_are_known_by_their_options(tinted, notes, diffcredit):
    notes()
    diffcredit.printed("credits", tinted)
    change(tinted, properties=["colourfulness", {"name": "tints:warmth", "level": 3.0}, "tints:other"])
    assert "property 'warmth' changed: level 2.0 → 3.0" in diffcredit.refused("status", tinted)


def test_an_option_that_is_gone_is_its_default(tinted, diffcredit):
    change(tinted, properties=["colourfulness", "tints:warmth", "tints:other"])
    assert "property 'warmth' changed: level 2.0 → (absent)" in diffcredit.refused("credits", tinted)


MORE = "\ndef more(images):\n    return 1.0\n"
SAME = "warmth, other did not change: restore tints.py and put what is new into another file)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WARMTH.replace("0]", "1]") + OTHER, "(warmth changed; other did not change: restore tints.py and put"),
        (WARMTH + OTHER + MORE, f"(more is new; {SAME}"),
        (WARMTH, "(other is gone; warmth did not change: restore tints.py"),
        (WARMTH.replace("np", "numpy") + OTHER, f"(code outside its functions and classes changed; {SAME}"),
        (WARMTH + OTHER + "# end\n", f"(only comments or spaces changed; {SAME}"),
        ("def", "(code outside its functions and classes is gone, other is gone, warmth is gone)"),
    ],
)
def test_changed_code_names_the_file_and_the_function(text, said, tinted, diffcredit, monkeypatch, tmp_path):
    (tinted / "tints.py").write_text(text)
    err = diffcredit.refused("status", tinted)
    assert "property 'warmth' changed: code of tints.py " in err
    assert said in err
    with pytest.raises(UserError, match=r"property 'warmth' changed: code of tints\.py"):
        run_here(tinted / "study.yaml")
    monkeypatch.setenv("DIFFCREDIT_NOTES", str(tmp_path / "notes"))
    unnoted = "(of which this study uses warmth, other; which of its functions changed is not noted here)"
    assert unnoted in diffcredit.refused("credits", tinted)


def test_without_the_code_the_rest_is_compared(tinted, notes, diffcredit):
    (tinted / "tints.py").rename(tinted / "away.py.txt")
    notes()
    code, _, err = diffcredit("credits", tinted, warned=True)
    assert (code, err.count("\n")) == (0, 1)
    assert "not compared with the ledger: the code of tints:warmth; the code of tints:other" in err
