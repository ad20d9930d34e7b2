"""Seconds per training step and per 1,000 images, and peak memory, of the paper's models, dense and pruned.

    python -m benchmarks models

Weights are random, which costs the same. A training step and a sampling step are timed on this machine (the median of
several, after a warm-up) and scaled to 1,000 images of 100 steps; decoding is timed on its own. On a machine without
a GPU nothing is measured.
"""

import dataclasses
import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.models.page import write_page
from benchmarks.models.subjects import SUBJECTS, Subject
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.stepwise import train_stepwise
from diffcredit.execution.timing.calibration import blank_batch
from diffcredit.execution.versions import package_versions
from diffcredit.retraining.pruning import Sparsity

RESULTS = Path(__file__).parent / "results.json"
STEPS = 10


def main() -> None:
    if not torch.cuda.is_available():
        print("benchmarks models: needs a CUDA device, and none is here; nothing measured")
        return
    results = {
        "device": torch.cuda.get_device_name(),
        "versions": package_versions(),
        "models": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        for subject in SUBJECTS:
            rows = results["models"][subject.name] = measure(subject, Path(scratch))
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            write_page(results, RESULTS.with_suffix(".md"))
            for kind, row in rows.items():
                print(f"{subject.name}, {kind}: {row}", flush=True)


def measure(subject: Subject, scratch: Path) -> dict[str, dict[str, Any]]:
    dense = subject.make(scratch)
    start = time.perf_counter()
    sparse = Sparsity(parameters=subject.parameters).outline(dense)
    pruning_seconds = time.perf_counter() - start
    rows: dict[str, dict[str, Any]] = {}
    for kind, model in (("dense", dense), ("pruned", sparse)):
        model.to("cuda")
        trainable = sum(p.numel() for p in model.network.parameters() if p.requires_grad)
        rows[kind] = {"parameters": parameter_count(model.network), "trained parameters": trainable}
        for precision in ("float32", "bf16"):
            training = dataclasses.replace(subject.training, precision=precision)
            rows[kind][f"training step, {precision}"] = training_step(model, training)
        rows[kind]["1,000 images"] = sampling(model, subject)
        model.to("cpu")
        gc.collect()
        torch.cuda.empty_cache()
    rows["pruned"]["pruning seconds"] = round(pruning_seconds, 1)
    return rows


def training_step(model: DiffusionModel, training: Training) -> dict[str, float]:
    """Milliseconds of one step at the study's batch, and the largest memory in GB."""
    data, few = blank_batch(model, training.batch_size), dataclasses.replace(training, steps=STEPS)
    torch.cuda.reset_peak_memory_stats()
    options = {"checkpoint": None, "on_step": None, "on_batch": None, "ascend": False}
    milliseconds = 1000 * seconds(lambda: train_stepwise(model, data, few, seed=0, **options)) / STEPS
    return {"ms": round(milliseconds, 1), "GB": memory()}


def sampling(model: DiffusionModel, subject: Subject) -> dict[str, float]:
    """Seconds of 1,000 images: denoising in the study's steps, and decoding."""
    batch, steps = subject.sampling.batch_size, 4
    torch.cuda.reset_peak_memory_stats()
    sample = lambda count: model.sample(range(batch), count, batch, scheduler=subject.sampling.scheduler)  # noqa: E731
    few, many = seconds(lambda: sample(steps)), seconds(lambda: sample(2 * steps))
    one_step = (many - few) / steps
    scale = 1000 / batch
    denoising, decoding = scale * one_step * subject.sampling.steps, scale * max(0.0, few - steps * one_step)
    return {"denoising s": round(denoising, 1), "decoding s": round(decoding, 1), "GB": memory()}


def memory() -> float:
    return round(torch.cuda.max_memory_allocated() / 1e9, 1)


def seconds(work: Callable[[], object]) -> float:
    """The median of three after a warm-up."""
    times = []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))
