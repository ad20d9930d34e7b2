"""Which settings make another study: identities of data, models and retrainings, without training anything."""

from pathlib import Path
from typing import Any

import pytest

from guards import names
from guards.golden import golden
from guards.made_up import FAMILIES, RETRAININGS, retraining_of, write_models, write_study

EVERY_SAMPLING = {"images": 6, "steps": 3, "scheduler": "dpm", "seed": 5, "batch_size": 2, "precision": "float32"}
GUIDED = {"images": 4, "steps": 2, "guidance": 2.0}


def found(folder: Path) -> dict[str, Any]:
    write_models(folder)
    families, recipes = {}, {}
    for family, model in FAMILIES.items():
        for case in RETRAININGS:
            if family.startswith("text") and case.startswith("lora"):
                continue  # refused: such a model has an adapter already
            study = _study(folder, model=model, retraining=retraining_of(case))
            settings = names.recipe_settings(study)
            recipes[f"{family}, {case}"] = _recipe(study, settings)
            families[family] = {key: value for key, value in settings.items() if key != "retraining"}
    others = {
        "sampling": {"sampling": EVERY_SAMPLING},
        "guidance": {"sampling": GUIDED, "model": FAMILIES["text"]},
        "seed": {"seed": 7},
        "a recipe's name": {"retraining": {"method": "fine_tune", "name": "mine"}},
    }
    for what, changes in others.items():
        study = _study(folder, **changes)
        recipes[what] = _recipe(study, names.recipe_settings(study))
    return {"families": families, "recipes": recipes}


def _study(folder: Path, **changes: Any) -> names.Study:
    return names.Study.load(write_study(folder, **changes))


def _recipe(study: names.Study, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "recipe": study.recipe.name,
        "fingerprint": names.fingerprint(settings),
        "base": names.base_identity(study),
        "retraining": settings["retraining"],
    }


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return found(tmp_path_factory.mktemp("identities"))


def test_data_models_and_sampling(identities):
    assert identities["families"] == golden("identities")["families"]


@pytest.mark.parametrize("case", golden("identities")["recipes"])
def test_recipe(identities, case):
    assert identities["recipes"][case] == golden("identities")["recipes"][case]


def test_every_retraining_is_guarded(identities):
    assert identities["recipes"].keys() == golden("identities")["recipes"].keys()
    assert {retraining_of(case)["method"] for case in RETRAININGS} == set(names.RETRAININGS)
