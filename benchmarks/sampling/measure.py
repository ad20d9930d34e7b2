"""Sampling: how the scheduler, its steps and the number of images change a finished study's values and credits.

    diffcredit run benchmarks/sampling/study.yaml
    python -m benchmarks sampling

The models that the study kept (``keep: model``) are sampled again with each setting; fewer images are the first of all,
from the same seeds, so that one sampling gives all numbers of images. Nothing is trained. The study is the one beside
this file, or the file or folder in DIFFCREDIT_STUDY; results of several studies are kept side by side.
DIFFCREDIT_COALITIONS says how many of the design's first coalitions take part, if not all. Each model's values are
written as soon as they are there, and a run that was cut off goes on from them.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice, product
from math import isnan
from pathlib import Path
from typing import Any

from benchmarks.sampling.agreement import Values, agreement, key
from benchmarks.sampling.page import write_page
from benchmarks.sampling.settings import REFERENCES, SETTINGS, SHARES, Setting
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Sampling
from diffcredit.execution.keeping import Keeper
from diffcredit.execution.tasks import Task
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.versions import package_versions
from diffcredit.features.extractors import Extractors
from diffcredit.ledger import Evaluation
from diffcredit.properties.base import needs_features, needs_model
from diffcredit.properties.measuring import Observation, measure_all
from diffcredit.study.study import Study
from diffcredit.util.artifacts import write_text

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"


def main() -> None:
    study = Study.load(os.environ.get("DIFFCREDIT_STUDY", HERE / "study.yaml"))
    most = os.environ.get("DIFFCREDIT_COALITIONS")
    evaluations = chosen(study, int(most) if most else None)
    if not evaluations:
        print(f"benchmarks sampling: {study.file} has no evaluations; diffcredit run makes them")
        return
    properties = [prop for prop in study.prepared.properties if not needs_model(prop)]
    keeper, load = study.recipe.keeper(), study.prepared.load
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    what = {"recipe": study.recipe.record.fingerprint, "properties": [prop.name for prop in properties]}
    found = results.get(study.name, {})
    if any(found.get(name) != known for name, known in what.items()):
        found = {**what, "values": {}}
    found |= {
        "device": evaluations[-1].numerics["device"],
        "versions": package_versions(),
        "images": study.config.sampling.images,
        "contributors": len(evaluations[0].coalition),
        "coalitions": sum(each.purpose == "estimate" for each in evaluations),
    }
    results[study.name] = found
    sampling, start = study.config.sampling, time.perf_counter()
    with limited_threads(study.config.threads):
        for setting in SETTINGS:  # one after another: what a GPU records of a setting serves all models
            for evaluation in evaluations:
                rows = found["values"].setdefault(key(evaluation), {})
                if setting.name in rows:
                    continue
                model = kept_model(keeper, study.prepared.extractors, load, evaluation)
                rows[setting.name] = values_of(model, sampling, setting, properties, study.prepared.extractors)
                write_text(RESULTS, json.dumps(results, indent=0) + "\n")
            print(f"{setting.name}: {len(evaluations)} models, {time.perf_counter() - start:.0f} s", flush=True)
    found["agreement"] = {prop.name: table(study, evaluations, found["values"], prop.name) for prop in properties}
    write_text(RESULTS, json.dumps(results, indent=0) + "\n")
    write_page(results, RESULTS.with_suffix(".md"))


def chosen(study: Study, most: int | None) -> list[Evaluation]:
    """What is done of the endpoints and of the design's first ``most`` coalitions; None: of all."""
    done = [each for each in study.evaluations("done") if each.purpose in ("estimate", "endpoint")]
    if most is None:
        return done
    first = {task.key for task in islice(study.schedule().coalitions(), most)}
    return [each for each in done if each.purpose == "endpoint" or each.key in first]


def table(study: Study, evaluations: Sequence[Evaluation], values: Values, prop: str) -> dict[str, Any]:
    """A property's agreements by setting, share of the images and reference; None for what cannot be said."""
    found: dict[str, Any] = {}
    for setting, share, reference in product(SETTINGS, SHARES, REFERENCES):
        row = asdict(agreement(evaluations, values, study.config, prop, setting, share, reference))
        found.setdefault(setting.name, {}).setdefault(str(share), {})[reference.name] = {
            name: None if isnan(number) else round(number, 6) for name, number in row.items()
        }
    return found


def kept_model(keeper: Keeper, extractors: Extractors, load: Any, evaluation: Evaluation) -> DiffusionModel:
    """The model of an evaluation, as it was kept."""
    observation = keeper.find(Task(evaluation.coalition, evaluation.replicate, evaluation.purpose), extractors, load)
    if observation is None or observation.model is None:
        raise SystemExit(f"benchmarks sampling: coalition {evaluation.coalition} has no model; keep: model keeps them")
    return observation.model


def values_of(
    model: DiffusionModel, sampling: Sampling, setting: Setting, properties: list[Any], extractors: Extractors
) -> dict[str, dict[str, float | None]]:
    """Each property's value of each share of the images; None where there are too few for it."""
    images = generate(model, replace(sampling, scheduler=setting.scheduler, steps=setting.steps), often=True)
    whole = Observation(extractors, images)
    for prop in properties:
        if needs_features(prop):
            whole.extracted(prop.features)
    values = {}
    for share in SHARES:
        count = sampling.images // share
        features = {key: seen.select(slice(count)) for key, seen in whole.features.items()}
        measured = measure_all(properties, Observation(extractors, images[:count], features=features))
        values[str(share)] = {each.property: each.value for each in measured}
    return values
