"""The ways to a coalition's model that are compared, on the demo's twelve designers and its tiny model."""

from pathlib import Path
from typing import Any

import yaml

STUDY = Path(__file__).parents[2] / "studies" / "demo.yaml"
STEPS = (15, 60, 240)
BASE = {"steps": 800, "batch_size": 16}  # half of the demo's both, so that truth is affordable on two cores
SPARSE = {"parameters": 0.55, "recover_steps": 400}
RATE = {"learning_rate": 5.0e-4}
PAPER = {"schedule": "constant", "average_tail": None}

TRUTH = "from_scratch"
RECIPES: dict[str, dict[str, Any]] = {
    TRUTH: {"method": "from_scratch"},
    **{f"fine_tune {k}": {"method": "fine_tune", "steps": k, **RATE} for k in STEPS},
    "fine_tune 60, the paper's recipe": {"method": "fine_tune", "steps": 60, **RATE, **PAPER},
    **{f"sparsified {k}": {"method": "sparsified", "steps": k, **RATE, **SPARSE} for k in STEPS},
    "sparsified 60, the paper's recipe": {"method": "sparsified", "steps": 60, **RATE, **SPARSE, **PAPER},
    **{f"lora {k}": {"method": "lora", "steps": k, **RATE} for k in STEPS},
    **{f"soup {k}": {"method": "soup", "steps": k, **RATE} for k in STEPS},
    "soup 60, sparse": {"method": "soup", "steps": 60, **RATE, "sparse": SPARSE},
    "gradient_ascent": {"method": "gradient_ascent"},
    "gradient_ascent, sparse": {"method": "gradient_ascent", "sparse": SPARSE},
    "influence": {"method": "influence"},
    "influence, sparse": {"method": "influence", "sparse": SPARSE},
}


def write_studies(folder: Path) -> dict[str, Path]:
    """A study file a recipe, all with one results folder, so that the base and the sparse model are made once."""
    study = yaml.safe_load(STUDY.read_text(encoding="utf-8"))
    study["model"]["train"].update(BASE)
    files = {}
    for index, (name, retraining) in enumerate(RECIPES.items()):
        files[name] = folder / f"{index:02d}.yaml"
        content = {**study, "results": "results", "device": "cpu", "retraining": retraining}
        files[name].write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return files
