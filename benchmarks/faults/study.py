"""The study of a campaign: everything of ``diffcredit run`` but torch, without which a driver starts in a second."""

from pathlib import Path
from typing import Any

import yaml

from benchmarks.faults.evaluator import PROPERTIES, FaultyEvaluator
from benchmarks.faults.model import CONTRIBUTORS
from diffcredit.ledger import PropertyRecord, RecipeRecord
from diffcredit.study.config import read_config
from diffcredit.study.recipe import Recipe
from diffcredit.study.study import Study

NAME = "faults"


class FaultyStudy(Study):
    """A study that has nothing to prepare, and whose evaluations wait for ``seconds`` and meet faults."""

    def __init__(self, file: Path, seconds: float) -> None:
        super().__init__(read_config(file), file)
        url = self.config.artifacts
        assert url is not None  # write_study gives one
        self.recipe = FaultyRecipe(self, FaultyEvaluator(file.parent, url, seconds))


class FaultyRecipe(Recipe):
    """A recipe with nothing to prepare."""

    def __init__(self, study: Study, evaluator: FaultyEvaluator) -> None:
        super().__init__(study, study.config.retraining)
        self.evaluator: Any = evaluator

    def prepare(self) -> None:
        study = self.study
        with study.ledger() as ledger:
            ledger.register_study(study.name, {"contributors": list(CONTRIBUTORS)})
            ledger.register_recipe(study.name, RecipeRecord(self.name, {}))
            for prop in PROPERTIES:
                ledger.register_property(study.name, PropertyRecord(prop, {"name": prop}, higher_is_better=True))


def write_study(folder: Path, evaluations: int, ledger: str | None = None) -> Path:
    """``study.yaml`` in ``folder``, which stops at so many evaluations beside the endpoints."""
    settings = {
        "name": NAME,
        "results": "results",
        "device": "cpu",
        "artifacts": f"file://{folder}/shared",
        "keep": "images",
        "contributions": {"source": "openmoji", "resolution": 16},
        "model": {"preset": "tiny", "train": {"steps": 1}},
        "retraining": {"method": "fine_tune", "steps": 1},
        "sampling": {"steps": 1, "images": 1},
        "properties": list(PROPERTIES),
        "design": {"full_replicates": 1},
        "stop": {"evaluations": evaluations},
    } | ({"ledger": ledger} if ledger else {})
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return file
