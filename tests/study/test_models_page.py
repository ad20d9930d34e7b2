"""Every study file on the page of models names options that the families have."""

import re
from pathlib import Path

import pytest
import yaml

from diffcredit.diffusion import FAMILIES
from diffcredit.diffusion.denoisers import PIPELINES
from diffcredit.study.config import StudyConfig
from diffcredit.util.plugins import build

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
REST = {
    "name": "page",
    "contributions": {"path": "images"},
    "retraining": {"method": "fine_tune", "steps": 1},
    "properties": ["colourfulness"],
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block["model"].get("pretrained", block["model"])))
def test_a_study_file_of_the_page_is_one(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if str(block["model"].get("pretrained")).startswith("results/"):  # the model of another study
        folder = Path(block["model"]["pretrained"])
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"family": "latent"}')
    config = StudyConfig.model_validate(REST | block)
    built = build(config.model.family, config.model.options, FAMILIES, where="model", beside=tmp_path)
    assert built.nobody


def test_every_pipeline_that_is_served_is_on_the_page():
    pretrained = [block["model"]["pretrained"] for block in BLOCKS if block["model"]["family"] == "lora"]
    assert len({name for name in pretrained if "/" in name and not name.startswith("results")}) >= len(PIPELINES)
    assert f"Each of the {'ten' if len(PIPELINES) == 10 else len(PIPELINES)} pipelines" in PAGE
