"""What files are called, and what the ledger says of recipes and properties: studies of one or two training steps."""

from pathlib import Path
from typing import Any

import pytest

from guards import names
from guards.golden import files_below, golden
from guards.made_up import FAMILIES, FINE, SPARSE, write_models, write_study

PROPERTIES = [
    {"name": "colourfulness"},
    {"name": "heldout_loss", "time_steps": 1},
    {"name": "cluster_entropy", "clusters": 2},
    {"name": "fid", "features": {"name": "pixels", "size": 1}, "as": "pixel fid"},
    {"name": "kid", "features": "colours"},
    {"name": "precision", "features": "layout", "neighbours": 1},
    {"name": "nearest_distance", "features": "pixels"},
    {"name": "guarded_plugin:brightness"},
    {"name": "guarded_plugin:brightness", "as": "doubled", "scale": 2.0},
]
SURROGATES = [{"name": name, "coalitions": 16} for name in ("pools", "reweighting", "real_data")]
STEP = FINE | {"steps": 1}
TUNED = {"method": "fine_tune", **STEP}
INFLUENCE = {"method": "influence", "time_steps": 1}
PRETRAINED, LATENT, TEXT = (FAMILIES[name] for name in ("pretrained ddpm", "latent", "text"))
CASES: dict[str, dict[str, Any]] = {
    "properties": {"model": PRETRAINED, "retraining": TUNED, "properties": PROPERTIES},
    "whole": {"model": PRETRAINED, "retraining": TUNED, "properties": [PROPERTIES[0], PROPERTIES[-2]]}
    | {"surrogates": SURROGATES, "keep": "images", "stop": {"evaluations": 10}},
    "influence": {"model": PRETRAINED, "retraining": INFLUENCE},
    "soup": {"model": PRETRAINED, "retraining": {"method": "soup", **STEP}},
    "sparse soup": {"model": PRETRAINED, "retraining": {"method": "soup", **STEP, "sparse": SPARSE}},
    "lora": {"model": PRETRAINED, "retraining": {"method": "lora", **STEP}},
    "sparse gradient_ascent": {"model": PRETRAINED, "retraining": {"method": "gradient_ascent", "sparse": SPARSE}},
    "latent": {"model": LATENT, "retraining": TUNED},
    "text": {"model": TEXT, "retraining": TUNED, "properties": ["colourfulness"]}
    | {"surrogates": [{"name": "conditional", "coalitions": 16}]},
    "from_scratch": {"retraining": {"method": "from_scratch", "steps": 1}},
}
TRAINED = {  # names that hold a hash of weights or images of trained models
    "whole": ["reweighting-"],
    "influence": ["gradients/gram-"],
    "sparse soup": ["contributors/"],
    "text": ["conditional-"],
}
UNTRAINED = ("properties", "whole", "influence", "lora", "from_scratch")
"""Cases whose coalitions start from weights that no CPU trained."""
BASELINES = ("image_count", "random_ranking", "pixel_similarity", "feature_similarity", "training_property")


def found(case: str, folder: Path) -> dict[str, Any]:
    write_models(folder)
    study = names.Study.load(write_study(folder, **CASES[case]))
    if case == "whole":
        names.run(study)
        names.make_more(study, "10110111", BASELINES)
    else:
        names.prepare(study)
    if case == "from_scratch":
        names.make_replicate(study)
    recipes, properties = names.records(study)
    return {
        "files": files_below(study.folder, TRAINED.get(case, ())),
        "recipes": [_recipe(each, case in UNTRAINED) for each in recipes],
        "properties": [_property(each) for each in properties],
    }


def _recipe(recipe: Any, known: bool) -> dict[str, Any]:
    told = {"fingerprint": recipe.fingerprint, "weights": recipe.weights} if known else {}
    return {"name": recipe.name, "settings": names.fingerprint(recipe.settings), **told}


def _property(record: Any) -> dict[str, Any]:
    told = {} if record.state else {"fingerprint": record.fingerprint}
    return {
        "name": record.name,
        "settings": record.settings,
        "higher_is_better": record.higher_is_better,
        "fitted": bool(record.state),
        **told,
    }


@pytest.mark.parametrize("case", CASES)
def test_names_of_files_and_records(case, tmp_path):
    expected, now = golden("files")[case], found(case, tmp_path)
    assert now["files"] == expected["files"]
    assert now == expected
