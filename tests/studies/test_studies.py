"""The study files in the repository say what the software understands."""

from pathlib import Path

import pytest

from diffcredit.diffusion import FAMILIES
from diffcredit.properties import PROPERTIES
from diffcredit.retraining import RETRAININGS
from diffcredit.study.config import read_config
from diffcredit.util.plugins import build

STUDIES = Path(__file__).parents[2] / "studies"
FILES = sorted([*STUDIES.glob("*.yaml"), *STUDIES.glob("cifar20-*/*.yaml")])


def test_the_papers_three_and_a_small_variant_of_each():
    names = {file.stem for file in FILES}
    assert names >= {f"{study}{size}" for study in ("cifar20", "celebahq", "artbench") for size in ("", "-small")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_option_is_understood(file):
    config = read_config(file)
    for section, name, registry in (
        (config.model, config.model.family, FAMILIES),
        (config.retraining, config.retraining.method, RETRAININGS),
        *((section, section.name, PROPERTIES) for section in config.properties),
    ):
        build(name, section.options, registry, where=str(file), beside=file.parent)


@pytest.mark.parametrize("study", ["cifar20", "celebahq", "artbench"])
def test_the_papers_settings_are_the_papers(study):
    """Fine-tuning at a constant rate, the last iterate, no warm-up; truth of three shares and three seeds."""
    config = read_config(STUDIES / f"{study}.yaml")
    section = config.retraining
    method = build(section.method, section.options, RETRAININGS, where=study, beside=STUDIES)
    settings = method.training(config.model.train)
    assert (settings.schedule, settings.warmup_steps) == ("constant", 0)
    assert settings.average_tail is settings.ema is None
    assert settings.steps == {"cifar20": 1000, "celebahq": 500, "artbench": 200}[study]
    assert config.stop.evaluations == {"cifar20": 500, "celebahq": 500, "artbench": 1000}[study]
    assert config.sampling.images == {"cifar20": 10240, "celebahq": 1024, "artbench": 50}[study]
    truth = config.validation
    assert (truth.shares, truth.coalitions, truth.seeds, truth.steps) == ((0.25, 0.5, 0.75), 100, 3, None)
