"""Do the demo's numbers mean something? The demo itself, again with other seeds, and with planted contributors.

Four studies with the demo's settings: as it is; all seeds changed; a thirteenth contributor who gives pure noise;
a thirteenth who gives copies of another's images. Resumable: a study that is done is only read. Writes
``results.json`` beside this file.
"""

import json
import os
import platform
from importlib.resources import files
from pathlib import Path

import numpy as np
import yaml
from scipy.stats import spearmanr

from diffcredit import LocalWorkers, Study, load_contributions
from diffcredit.contributions import Contributions, with_copies, with_noise
from diffcredit.execution.versions import package_versions

FOLDER = Path("results") / "benchmarks" / "demo"
COPIED, COPIER, NOISE = "Emily Jäger", "Emily Jäger's copier", "pure noise"
SEED = 1000  # of the second run: base model, pruning recovery, initial noises, coalitions, all of it


def main() -> None:
    demo = yaml.safe_load((files("diffcredit.cli") / "demo.yaml").read_text(encoding="utf-8"))
    bundled = load_contributions(source="openmoji", resolution=demo["contributions"]["resolution"])
    other = {"seed": SEED, "sampling": {**demo["sampling"], "seed": SEED}, "design": {**demo["design"], "seed": SEED}}
    studies = {
        "demo": run("demo", demo),
        "other seeds": run("other-seeds", demo | other),
        "noise": run("noise", demo | planted("noise", with_noise(bundled, NOISE))),
        "copies": run("copies", demo | planted("copies", with_copies(bundled, of=COPIED, name=COPIER))),
    }
    results = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": package_versions(),
        "differ_from_average": differ_from_average(studies["demo"]),
        "spearman_between_seeds": between_seeds(studies["demo"], studies["other seeds"]),
        "noise_contributor": noise_contributor(studies["noise"]),
        "copies": copies(studies["copies"]),
    }
    Path(__file__).with_name("results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(results, indent=2, ensure_ascii=False))


def planted(name: str, contributions: Contributions) -> dict[str, object]:
    """The study file's section for contributions that were planted: kept as .npz, the held-out images apart."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    owners = np.array(contributions.contributors)[contributions.owner]
    np.savez_compressed(folder / "contributions.npz", images=contributions.images, contributor=owners)
    np.savez_compressed(folder / "heldout.npz", images=contributions.heldout)
    section = {"source": "npz", "path": "contributions.npz", "holdout": "heldout.npz"}
    house = {"source": "openmoji", "part": "house"}  # as the demo has it
    return {"contributions": {**section, "resolution": contributions.images.shape[1], "house": house}}


def run(name: str, settings: dict[str, object]) -> Study:
    """The study, run to its end."""
    file = FOLDER / name / "study.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump({**settings, "name": name}, allow_unicode=True), encoding="utf-8")
    study = Study.load(file)
    for index, _ in enumerate(study.evaluate(LocalWorkers(2)), start=1):
        print(f"\r{name}: {index} evaluations", end="", flush=True)
    print()
    return study


def differ_from_average(study: Study) -> dict[str, str]:
    """How many contributors have a difference from the average credit whose interval excludes 0."""
    return {
        name: f"{int((abs(c.values - c.average) > c.contrast_half_width).sum())} of {len(c.values)}"
        for name, c in study.credits().items()
    }


def between_seeds(one: Study, other: Study) -> dict[str, float]:
    first, second = one.credits(), other.credits()
    return {name: round(float(spearmanr(first[name].values, second[name].values).statistic), 3) for name in first}


def noise_contributor(study: Study) -> dict[str, str]:
    """The noise contributor's rank by held-out loss, of all."""
    credits = study.credits()["heldout_loss"]
    rank = credits.rank(higher_is_better=False)[study.contributions.contributors.index(NOISE)]
    return {"heldout_loss": f"rank {rank} of {len(credits.values)}"}


def copies(study: Study) -> dict[str, dict[str, object]]:
    """The credits of who was copied and who copied, and whether each lies in the other's interval."""
    one, other = (study.contributions.contributors.index(name) for name in (COPIED, COPIER))
    found = {}
    for name, c in study.credits().items():
        within = c.low[other] <= c.values[one] <= c.high[other] and c.low[one] <= c.values[other] <= c.high[one]
        pair = {
            who: [round(float(x[i]), 5) for x in (c.values, c.low, c.high)]
            for who, i in ((COPIED, one), (COPIER, other))
        }
        found[name] = {**pair, "within_each_other": bool(within)}
    return found
