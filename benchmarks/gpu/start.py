"""From `diffcredit run` on a prepared study to its first finished evaluation, and how long its evaluations took against
what `diffcredit plan` had foreseen."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from diffcredit.study.study import Study

FLEET = 16  # evaluations that are made together
STUDY = """
name: start
results: results
contributions: {source: npz, path: images.npz, contributor: labels, heldout: split, resolution: 32}
model: {family: ddpm, preset: mini, train: {steps: 3000, batch_size: 64, learning_rate: 4.0e-4, schedule: cosine}}
retraining: {method: fine_tune, steps: 300, learning_rate: 2.0e-4, schedule: cosine, average_tail: 0.25}
sampling: {scheduler: dpm, steps: 20, images: 1024, batch_size: 1024}
properties: [{name: colourfulness}, {name: heldout_loss}, {name: cluster_entropy, clusters: 20}]
stop: {evaluations: EVALUATIONS}
"""


def start() -> Callable[[], dict[str, Any]]:
    """Seconds to the first evaluation with nothing compiled and with everything, and of evaluations."""
    folder = Path(tempfile.mkdtemp())
    _write_images(folder / "images.npz")
    done = FLEET - 4  # beside the endpoints, which are four evaluations
    _run(folder, done, folder / "cache")

    def first(kept: Path) -> float:
        nonlocal done
        done += FLEET
        began = _run(folder, done, kept)
        return _recorded(folder, began)[0] - began

    def measure() -> dict[str, Any]:
        nonlocal done
        found = {"first evaluation, everything compiled": first(folder / "cache")}
        print(found, flush=True)
        done += 2 * FLEET
        _write_study(folder, done)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        evaluations = Study.load(folder).plan().evaluations
        began = _run(folder, done, folder / "cache")
        recorded = _recorded(folder, began)
        assert len(recorded) == 2 * FLEET
        found |= {"evaluations, foreseen": evaluations.seconds, "evaluations": recorded[-1] - _given(folder, began)}
        print(found, flush=True)
        return found | {"first evaluation, nothing compiled": first(folder / "nothing")}

    return measure


def _write_images(file: Path) -> None:
    if os.environ.get("CIFAR20"):
        file.symlink_to(Path(os.environ["CIFAR20"]).resolve())
        return
    images = np.random.default_rng(0).integers(0, 256, (12_000, 32, 32, 3), dtype=np.uint8)
    np.savez(file, images=images, labels=np.arange(12_000) % 20, split=np.arange(12_000) % 6 == 0)


def _write_study(folder: Path, evaluations: int) -> None:
    (folder / "study.yaml").write_text(STUDY.replace("EVALUATIONS", str(evaluations)), encoding="utf-8")


def _run(folder: Path, evaluations: int, cache: Path) -> float:
    """Runs the study as a user does, with what is compiled kept in ``cache``; when it began."""
    _write_study(folder, evaluations)
    places = {"XDG_CACHE_HOME": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    known = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}  # of the plan's
    began = time.time()
    subprocess.run([sys.executable, "-m", "diffcredit", "run", str(folder)], env=known | places, check=True)
    return began


def _recorded(folder: Path, after: float) -> list[float]:
    return [when for when, event in _events(folder) if event == "evaluation recorded" and when > after]


def _given(folder: Path, after: float) -> float:
    return next(when for when, event in _events(folder) if event == "task given" and when > after)


def _events(folder: Path) -> list[tuple[float, str]]:
    lines = (folder / "results" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return [(datetime.fromisoformat(each["time"]).timestamp(), each["event"]) for each in events]
