"""What one coalition costs on a GPU, and what fleets of small models gain.

    python -m benchmarks gpu
    CIFAR20=cifar20.npz python -m benchmarks.gpu.measure coalition fleets agreement

Parts that are named are measured, or all; what was measured before stays. On a machine without a GPU nothing is
measured, and the page is written again from the results.
"""

import dataclasses
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import floor, plain
from benchmarks.gpu.page import write_page
from benchmarks.gpu.subjects import images_for, paper, preset, weights
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.draws import plan
from diffcredit.diffusion.fast.fleet import Fleet
from diffcredit.diffusion.fast.functional import functions_of
from diffcredit.diffusion.fast.sampling import FastSampler, sampler_for
from diffcredit.diffusion.fast.training import fleet_for
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.diffusion.stepwise import train_stepwise
from diffcredit.diffusion.training import train, train_each
from diffcredit.execution.versions import package_versions
from diffcredit.properties.colourfulness import colourfulness

RESULTS = Path(__file__).parent / "results.json"
STEPS, BATCH = 1000, 64  # of a coalition's fine-tuning, as in the paper
IMAGES, SAMPLING_STEPS, SAMPLING_BATCH = 10_240, 100, 1024
CHEAPER = Sampling(images=2_048, steps=20, scheduler="dpm", batch_size=1024)
FLEETS = {"mini": (1, 4, 8, 16, 32), "light": (1, 4, 8, 16)}
TRAINING = Training(steps=STEPS, batch_size=BATCH, schedule="cosine", average_tail=0.25)


def main() -> None:
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        results |= {"device": torch.cuda.get_device_name(), "versions": package_versions()}
        for name in sys.argv[1:] if __name__ == "__main__" and sys.argv[1:] else PARTS:
            results[name] = PARTS[name]()
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(name, json.dumps(results[name]), flush=True)
    else:
        print("benchmarks gpu: needs a CUDA device, and none is here; nothing measured")
    if results:
        write_page(results, RESULTS.with_suffix(".md"))


def coalition() -> dict[str, Any]:
    """One coalition of the paper's CIFAR-20 study: its fine-tuning and its images, in seconds."""
    model = paper()
    data, images = images_for(model)
    found: dict[str, Any] = {"images": images, "parameters": parameter_count(model.network)}
    sampled = IMAGES * SAMPLING_STEPS / SAMPLING_BATCH  # steps of a batch
    for name, autocast in (("plain, TF32", False), ("plain, autocast", True)):
        found[name] = {
            "training": STEPS * plain.training_seconds(model.clone(), data, BATCH, 50, autocast=autocast),
            "sampling": sampled * plain.sampling_seconds(model, SAMPLING_BATCH, 10, autocast=autocast),
        }
        print(name, found[name], flush=True)
    # all of it, as an evaluation does it once what is compiled and recorded is there
    trained, places = model.clone(), [_half(data)]
    fleet_for(trained, data, TRAINING, 1).load([trained], [plan(data.rows, TRAINING, 0, trained.time_steps)])
    training = _clocked(lambda: train_each([trained], data, places, TRAINING, seeds=[1]))
    whole = Sampling(images=IMAGES, steps=SAMPLING_STEPS, batch_size=SAMPLING_BATCH)
    for name, sampling in (("single", whole), ("single, cheaper sampling", CHEAPER)):
        sampler_for(trained, sampling).record()
        found[name] = {
            "training": training,
            "sampling": _clocked(lambda sampling=sampling: generate(trained, sampling, often=True)),
        }
        print(name, found[name], flush=True)
    found["floor"] = {
        "training": STEPS * floor.training_floor(model, BATCH),
        "sampling": IMAGES * SAMPLING_STEPS * floor.sampling_floor(model),
    }
    return found


def fleets() -> dict[str, Any]:
    """Milliseconds of a training step of one model, and memory, over the size of the fleet; and how fast images are
    made."""
    found: dict[str, Any] = {}
    for name, sizes in FLEETS.items():
        like = preset(name)
        data, _ = images_for(like)
        rows = {}
        for size in sizes:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            seconds = _step_seconds(like, data, size)
            rows[size] = {"ms": 1e3 * seconds / size, "GiB": torch.cuda.max_memory_allocated() / 2**30}
            print(name, size, rows[size], flush=True)
        sampler = FastSampler(like, functions_of(like, 1, torch.bfloat16), CHEAPER)
        sampler.sample(like)
        found[name] = {
            "parameters": parameter_count(like.network),
            "fleets": rows,
            "sampling": _clocked(lambda sampler=sampler, like=like: sampler.sample(like)),
            "floor ms": 1e3 * floor.training_floor(like, BATCH),
        }
    return found


def agreement() -> dict[str, Any]:
    """How much the paths differ, beside how much another seed does: distances of the weights after a fine-tuning, over
    how far they moved, and the difference in a property of 1,024 images."""
    like = preset("mini")
    data, images = images_for(like)
    base = like.clone()
    train(base, data, Training(steps=2000, batch_size=BATCH, schedule="cosine", ema=0.999), seed=0)
    settings = dataclasses.replace(TRAINING, steps=300)
    sampling = Sampling(images=1024, steps=50, batch_size=1024)
    options: dict[str, Any] = {"checkpoint": None, "on_step": None, "on_batch": None, "ascend": False}

    def eager(seed: int, precision: str) -> DDPM:
        model = base.clone()
        chosen = dataclasses.replace(settings, precision=precision)  # ty: ignore[invalid-argument-type]
        train_stepwise(model, data.select(_half(data)), chosen, seed=seed, **options)
        return model

    def together(size: int, precision: str) -> DDPM:
        models = [base.clone() for _ in range(size)]
        chosen = dataclasses.replace(settings, precision=precision)  # ty: ignore[invalid-argument-type]
        seeds = list(range(1, size + 1))
        errors = train_each(models, data, [_half(data)] * size, chosen, seeds=seeds, at_once=size)
        assert errors == [None] * size
        return models[0]

    paths = {
        "eager, float32": eager(1, "float32"),
        "eager, float32, another seed": eager(2, "float32"),
        "eager, bf16 autocast": eager(1, "bf16"),
        "graph, float32": together(1, "float32"),
        "graph, bf16": together(1, "bf16"),
        "fleet of 16, bf16": together(16, "bf16"),
        "fleet of 16, bf16, again": together(16, "bf16"),
    }
    reference = paths["eager, float32"]
    moved = (weights(reference) - weights(base)).norm()
    values = {
        (name, numbers): float(
            np.mean(colourfulness(generate(model, dataclasses.replace(sampling, precision=numbers))))  # ty: ignore
        )
        for name, model in paths.items()
        for numbers in ("float32", "bf16")
    }
    return {
        "images": images,
        "rows": {
            name: {
                "weights": float((weights(model) - weights(reference)).norm() / moved),
                "colourfulness, float32 images": values[name, "float32"],
                "colourfulness, bf16 images": values[name, "bf16"],
            }
            for name, model in paths.items()
        },
    }


def _step_seconds(like: DDPM, data: Any, size: int) -> float:
    settings = dataclasses.replace(TRAINING, steps=60)
    fleet = Fleet(like, functions_of(like, size, torch.bfloat16), data, settings)
    plans = [plan(data.rows, settings, seed, like.time_steps) for seed in range(size)]
    taken = []
    for _ in range(3):
        fleet.load([like] * size, plans)
        taken.append(_clocked(lambda: [fleet.step() for _ in range(settings.steps)]) / settings.steps)
    return float(np.median(taken))


def _half(data: Any) -> torch.Tensor:
    return torch.arange(0, len(data), 2)


def _clocked(work: Any) -> float:
    torch.cuda.synchronize()
    clock = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - clock


PARTS = {"coalition": coalition, "fleets": fleets, "agreement": agreement}

if __name__ == "__main__":
    main()
