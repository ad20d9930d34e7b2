"""A study on a pipeline that we do not serve, with the user's own denoiser beside the study file."""

import shutil
import sys
from pathlib import Path

import pytest

from diffcredit.diffusion.pipeline import pipeline
from diffcredit.util import consent
from diffcredit.util.consent import ALLOW_PLUGINS
from diffusion import tiny_pipelines
from testing.test_denoisers import pixart_alpha
from tiny_study import recorded_values, run_here, write_study

CODE = Path(__file__).parents[1] / "testing" / "own_denoiser.py"
CAPTIONS = {"ann": ["a cat", "a dog"], "bob": ["a cat", "the sea"], "cem": ["the sea", "a dog"]}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A study on a computer whose user has allowed no code yet."""
    home = tmp_path / "study"
    pixart_alpha(home / "pipeline")
    tiny_pipelines.captioned_folder(home / "images", CAPTIONS)
    shutil.copy(CODE, home / "my_denoiser.py")
    written(home)
    monkeypatch.delenv(ALLOW_PLUGINS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("DIFFCREDIT_NOTES", str(tmp_path / "notes"))
    monkeypatch.delitem(sys.modules, "my_denoiser", raising=False)
    monkeypatch.chdir(tmp_path)
    pipeline.cache_clear()
    return home


def written(folder: Path, denoiser: str = "my_denoiser:Mine") -> Path:
    model = {"family": "lora", "pretrained": "pipeline", "rank": 2, "base": "float32", "denoiser": denoiser}
    changes = {
        "contributions": {"source": "imagefolder", "path": "images", "resolution": 32},
        "model": {**model, "train": {"steps": 2, "batch_size": 4, "learning_rate": 0.01}},
        "retraining": {"method": "sparsified", "parameters": 0.5, "recover_steps": 1, "steps": 1},
        "sampling": {"steps": 2, "images": 3, "guidance": 2.0},
        "properties": ["colourfulness"],
        "stop": {"evaluations": 5},
    }
    return write_study(folder, changes)


@pytest.mark.slow
def test_a_users_own_denoiser_runs_in_workers(folder, diffcredit):
    """Each of them imports the file, for which the user gave consent by its hash."""
    consent.trust([folder / "my_denoiser.py"])
    diffcredit.printed("run", folder, "--workers", "2", warned=True)
    assert len(recorded_values(folder)) == 7  # both ends beside the five
    assert (folder / "results" / "report.html").exists()


def test_a_study_with_a_users_own_denoiser(folder, diffcredit):
    file = folder / "my_denoiser.py"
    said = diffcredit.refused("run", folder)
    assert said.startswith(f"error: {folder / 'study.yaml'}: model.denoiser: 'my_denoiser:Mine' would run {file}")
    assert "my_denoiser" not in sys.modules
    diffcredit.printed("trust", file)
    run_here(folder / "study.yaml")
    assert len(recorded_values(folder)) == 7  # both ends beside the five
    assert "7 of 7" in diffcredit.printed("status", folder)
    diffcredit.printed("credits", folder)

    # another program is another model
    file.write_text(CODE.read_text() + "\n# changed\n")
    assert "my_denoiser.py" in diffcredit.refused("credits", folder)
    file.write_text(CODE.read_text())
    diffcredit.printed("credits", folder)


def test_another_class_of_the_same_file_is_another_model(folder, diffcredit):
    file = folder / "my_denoiser.py"
    file.write_text(CODE.read_text() + "\n\nclass Other(Mine):\n    guidance = 1.0\n")
    consent.trust([file])
    run_here(folder / "study.yaml")
    written(folder, "my_denoiser:Other")
    said = diffcredit.refused("credits", folder)
    assert "denoiser.name" in said
    assert "my_denoiser:Other" in said


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("class Mine: pass", "'my_denoiser:Mine' is no PipelineDenoiser; a class that inherits from TextDenoiser"),
        ("Mine = 3", "'my_denoiser:Mine' is 3; a class is expected"),
        ("import nothing_of_the_kind", "'my_denoiser:Mine' cannot be loaded (ModuleNotFoundError"),
        (
            "from diffcredit.diffusion.denoisers.base import PipelineDenoiser\n"
            "class Mine(PipelineDenoiser):\n    network = 'DiTTransformer2DModel'\n",
            "is not accepted by my_denoiser:Mine; Can't instantiate abstract class Mine with abstract method predict",
        ),
        (CODE.read_text().replace("    guidance = 4.5\n", ""), "'my_denoiser:Mine' has no guidance"),
        (CODE.read_text().replace("PixArtTransformer2DModel", "PixArtXL"), "accepted: PixArtXL"),
    ],
    ids=["no denoiser", "no class", "import", "abstract", "no guidance", "another network"],
)
def test_what_is_no_denoiser_is_refused_in_one_line(folder, diffcredit, monkeypatch, code, complaint):
    (folder / "my_denoiser.py").write_text(code)
    monkeypatch.setenv(ALLOW_PLUGINS, "1")
    said = diffcredit.refused("plan", folder)
    assert complaint in said
    assert "study.yaml" in said
