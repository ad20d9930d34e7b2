"""Measure `credits` and `status` on ledgers of many contributors and of many evaluations.

    python -m benchmarks.scale.shapes

Each command is a process of its own, from the start of Python on, with as many threads as it takes by itself. The
ledgers hold three properties with made-up values: additive games, whose credits are known. What is measured is entered
into the record of ``benchmarks.scale.measure``, which has the page.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image

from benchmarks.scale import measure
from diffcredit.coalitions import encode, make_design
from diffcredit.ledger import Evaluation, PropertyRecord, RecipeRecord, Value
from diffcredit.study.study import Study
from diffcredit.util.seeds import derive_seed

SHAPES = ((2000, 3000), (258, 20_000))  # contributors and evaluations
COMMANDS = ("credits", "status")
PERCENTILES = {"colourfulness": None, "vivid": 90.0, "pale": 10.0}  # of three properties
NOISE = 3.0  # standard deviation; a contributor's credit has 1
STARTER = """
import json, os, sys, time
began, out = time.perf_counter(), os.open(os.devnull, os.O_WRONLY)
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, out, 1)])
_, status, usage = os.wait4(child, 0)
if status:
    sys.exit(f"{sys.argv[4]} failed")
cpu, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
print(json.dumps({"seconds": time.perf_counter() - began, "cpu": cpu, "memory": memory}))
"""


def main() -> None:
    results = json.loads((measure.HERE / "results.json").read_text(encoding="utf-8"))
    results["shapes"] = []
    for contributors, evaluations in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["DIFFCREDIT_NOTES"] = str(Path(folder) / "notes")
            study = write_ledger(Path(folder), contributors, evaluations)
            shape = {"contributors": contributors, "evaluations": evaluations, "correlation": correlation(study)}
            results["shapes"].append(shape | {name: of_command(name, study) for name in COMMANDS})
    measure.write(results)


def true_credits(prop: str, contributors: int) -> NDArray[np.float64]:
    return np.random.default_rng(derive_seed("shapes", prop)).normal(0.3, 1, contributors)


def write_ledger(folder: Path, contributors: int, evaluations: int) -> Path:
    """``study.yaml`` in ``folder`` with an image of each contributor, and its ledger, to which nothing is missing."""
    study, chance = write_study(folder, contributors, evaluations), np.random.default_rng(0)
    rows = make_design("uniform", study.config.design.seed).draw(contributors, 0, evaluations)
    ends = [(np.zeros(contributors, bool), 0)] + [(np.ones(contributors, bool), replicate) for replicate in range(3)]
    worth = {prop: true_credits(prop, contributors) for prop in PERCENTILES}
    with study.ledger() as ledger:
        ledger.register_study(study.name, {"contributors": list(study.contributions.contributors)})
        ledger.register_recipe(study.name, RecipeRecord(study.recipe.name, study.recipe.settings))
        for prop, percentile in PERCENTILES.items():
            settings = {"name": "colourfulness", "percentile": percentile}
            ledger.register_property(study.name, PropertyRecord(prop, settings, higher_is_better=True))
        for purpose, tasks in (("endpoint", ends), ("estimate", [(row, 0) for row in rows])):
            for row, replicate in tasks:
                noise = NOISE * chance.normal(size=len(worth)) * row.any()  # the empty coalition is known exactly
                pairs = zip(worth.items(), noise, strict=True)
                values = tuple(Value(prop, float(row @ each + error), 0.1, 64) for (prop, each), error in pairs)
                ledger.record(study.name, study.recipe.name, _evaluation(encode(row), replicate, purpose, values))
    return study.file


def write_study(folder: Path, contributors: int, evaluations: int) -> Study:
    chance = np.random.default_rng(0)
    for index in range(contributors):
        place = folder / "images" / f"person{index:05d}"
        place.mkdir(parents=True)
        Image.fromarray(chance.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(place / "image.png")
    properties = [{"name": "colourfulness", "percentile": each, "as": name} for name, each in PERCENTILES.items()]
    settings = {
        "name": "shapes",
        "results": "results",
        "contributions": {"path": "images", "resolution": 16},
        "model": {"preset": "tiny", "train": {"steps": 1}},
        "retraining": {"method": "fine_tune", "steps": 1},
        "sampling": {"steps": 1, "images": 1},
        "properties": properties,
        "design": {"full_replicates": 3},
        "stop": {"evaluations": evaluations},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return Study.load(folder)


def _evaluation(coalition: str, replicate: int, purpose: str, values: tuple[Value, ...]) -> Evaluation:
    return Evaluation(
        coalition=coalition,
        replicate=replicate,
        purpose=purpose,
        status="done",
        values=values,
        error=None,
        numerics={"device": "cuda", "dtype": "float32", "threads": 1},
        seconds={"training": 30.0, "sampling": 10.0, "measuring": 1.0},
        worker="simulated:0",
        started="2025-01-01T00:00:00+00:00",
        finished="2025-01-01T00:00:41+00:00",
    )


def correlation(study: Path) -> float:
    """The least correlation of any property's credits with the game's own."""
    found = Study.load(study).credits().items()
    return min(float(np.corrcoef(each.values, true_credits(name, len(each.values)))[0, 1]) for name, each in found)


def of_command(name: str, study: Path) -> dict[str, Any]:
    """``diffcredit NAME`` on a study: seconds by the clock and of CPU, and the bytes of memory taken at the most."""
    command = [sys.executable, "-m", "diffcredit", name, str(study)]
    # from a small process: a child's memory begins with what the process that starts it has
    measured = subprocess.run(
        [sys.executable, "-S", "-c", STARTER, *command], check=True, capture_output=True, text=True
    )
    return json.loads(measured.stdout)


if __name__ == "__main__":
    main()
