"""Images a second of each feature extractor, seconds of each property's arithmetic, and what measuring is of an
evaluation in the paper's studies.

    python -m benchmarks extractors

On a CPU with one thread, and on a GPU where there is one; results of both are kept side by side. Networks that would
have to be downloaded have random weights, which cost the same. Resizing is timed on its own: Pillow does it on the CPU
in any case.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.extractors.page import write_page
from benchmarks.extractors.subjects import noise, subjects
from diffcredit.contributions import Contributions
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.versions import package_versions
from diffcredit.features import Features, FeaturesOption
from diffcredit.features.extractors import Extractors
from diffcredit.features.resizing import as_pillow
from diffcredit.properties import Context
from diffcredit.properties.classes import InceptionScore
from diffcredit.properties.distances import FrechetDistance, KernelDistance
from diffcredit.properties.manifolds import Coverage, Density, Precision, Recall

RESULTS = Path(__file__).parent / "results.json"
RESOLUTIONS = (32, 256)
ENOUGH = 2.0  # seconds a timing should take
MOST = 2048  # images of one timing
IMAGES, REFERENCE, DIMENSIONS, CLASSES = 10_240, 10_000, 2048, 1008


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    row: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU, one thread",
        "versions": package_versions(),
        "images a second": {},
    }
    results[device] = row

    def keep() -> None:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        write_page(results, RESULTS.with_suffix(".md"))

    with limited_threads(1), tempfile.TemporaryDirectory() as folder:
        extractors = Extractors(device)
        for name, option in subjects(Path(folder)).items():
            rates = row["images a second"][name] = {}
            for resolution in RESOLUTIONS:
                rates[str(resolution)] = throughput(lambda x, option=option: extractors.extract(option, x), resolution)
            print(name, rates, flush=True)
            keep()
        row["resized a second"] = {
            f"{resolution} → {size} px, {method}": throughput(
                lambda x, size=size, method=method: as_pillow(x, size, method), resolution
            )
            for resolution in RESOLUTIONS
            for size, method in ((224, "bicubic"), (299, "bilinear"))
        }
        row["arithmetic s"] = arithmetic()
        keep()


class Given(Extractors):
    """Sees the same in all images."""

    def __init__(self, features: Features) -> None:
        super().__init__()
        self._features = features

    def kept(self, option: FeaturesOption, images: np.ndarray, what: str) -> Features:
        return self._features


def throughput(work: Callable[[np.ndarray], Any], resolution: int) -> float:
    """Images a second: the best of three, of as many images as take a while."""
    count = 4
    work(noise(count, resolution))  # warms up
    while (seconds := _seconds(work, noise(count, resolution))) < ENOUGH / 2 and count < MOST:
        count = min(MOST, max(2 * count, int(count * ENOUGH / max(seconds, 1e-3))))
    times = [seconds, *(_seconds(work, noise(count, resolution)) for _ in range(2))]
    return round(count / min(times), 2)


def arithmetic() -> dict[str, dict[str, float]]:
    """Seconds of value and standard error, of random features as many as the paper's CIFAR-20 study has."""
    random = np.random.default_rng(0)
    generated = Features(
        random.normal(size=(IMAGES, DIMENSIONS)).astype(np.float32),
        random.normal(size=(IMAGES, CLASSES)).astype(np.float32) * 3,
    )
    reference = Given(Features(random.normal(size=(REFERENCE, DIMENSIONS)).astype(np.float32)))
    owner = np.zeros(REFERENCE, dtype=np.int64)
    names = tuple(f"{index:05d}" for index in range(REFERENCE))
    contributions = Contributions(noise(REFERENCE, 4), owner, ("everybody",), names, noise(0, 4))
    context = Context(noise(2, 4), contributions, reference)
    found = {}
    for prop in (InceptionScore(), FrechetDistance(), KernelDistance(), Precision(), Recall(), Density(), Coverage()):
        if not isinstance(prop, InceptionScore):  # which is fitted to nothing
            prop.restore(prop.fit(context))
        start = time.perf_counter()
        prop.measure_features(generated)
        middle = time.perf_counter()
        prop.standard_error(generated)
        found[prop.name] = {"value": middle - start, "standard error": time.perf_counter() - middle}
        print(prop.name, found[prop.name], flush=True)
    return found


def _seconds(work: Callable[[np.ndarray], Any], images: np.ndarray) -> float:
    start = time.perf_counter()
    work(images)  # ends on the CPU, so that a GPU is waited for
    return time.perf_counter() - start
