"""What one coalition costs on a GPU, and what fleets of small models gain.

    python -m benchmarks gpu
    CIFAR20=cifar20.npz python -m benchmarks.gpu.measure coalition large-fleet fleets agreement start

Parts that are named are measured, or all; what was measured before stays. On a machine without a GPU nothing is
measured, and the page is written again from the results.
"""

import copy
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import floor, plain
from benchmarks.gpu.page import write_page
from benchmarks.gpu.profile import shares
from benchmarks.gpu.start import start
from benchmarks.gpu.subjects import images_for, paper, preset, weights
from benchmarks.gpu.turns import Job, in_turns
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.draws import plan
from diffcredit.diffusion.fast import functional
from diffcredit.diffusion.fast.fleet import Fleet, fleet_for
from diffcredit.diffusion.fast.functional import functions_of
from diffcredit.diffusion.fast.sampling import FastSampler
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.diffusion.stepwise import train_stepwise
from diffcredit.diffusion.training import train, train_each
from diffcredit.execution.versions import package_versions
from diffcredit.properties.colourfulness import colourfulness

RESULTS = Path(__file__).parent / "results.json"
STEPS, BATCH = 1000, 64  # of a coalition's fine-tuning, as in the paper
IMAGES, SAMPLING_STEPS, SAMPLING_BATCH = 10_240, 100, 1024
CHEAPER = Sampling(images=2_048, steps=20, scheduler="dpm", batch_size=1024)
PAPER_FLEET = 4
FLEETS = {"mini": (1, 4, 8, 16, 32), "light": (1, 4, 8, 16)}
Measure = Callable[[], dict[str, Any]]
TRAINING = Training(steps=STEPS, batch_size=BATCH, schedule="cosine", average_tail=0.25)


def main() -> None:
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if torch.cuda.is_available():
        results |= {"device": torch.cuda.get_device_name(), "versions": package_versions()}
        asked = sys.argv[1:] if __name__ == "__main__" and sys.argv[1:] else list(PARTS)

        failed = []

        def told(name: str, found: Any) -> None:
            print(name, found.get("error") or json.dumps(found), flush=True)
            if "error" in found:
                failed.append(name)
            else:
                results.setdefault("found", {})[name] = found
                RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

        in_turns({name: job for part in asked for name, job in PARTS[part].items()}, told)
        if failed:
            raise SystemExit(f"benchmarks gpu: {', '.join(failed)} failed; the page is as it was")
    else:
        print("benchmarks gpu: needs a CUDA device, and none is here; nothing measured")
    if results:
        write_page(results, RESULTS.with_suffix(".md"))


def _allow_tf32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def plain_coalition() -> Measure:
    """The plain loop's seconds for one coalition of the paper's CIFAR-20 study, from some of its steps."""
    _allow_tf32()
    model = paper()
    data, _ = images_for(model)
    sampled = IMAGES * SAMPLING_STEPS / SAMPLING_BATCH  # steps of a batch

    def measure() -> dict[str, Any]:
        return {
            name: {
                "training": STEPS * plain.training_seconds(model.clone(), data, BATCH, 50, autocast=autocast),
                "sampling": sampled * plain.sampling_seconds(model, SAMPLING_BATCH, 10, autocast=autocast),
            }
            for name, autocast in (("plain, TF32", False), ("plain, autocast", True))
        }

    return measure


def our_coalition() -> Measure:
    """All of a coalition, as an evaluation does it once what is compiled and recorded is there, in seconds."""
    model = paper()
    data, images = images_for(model)
    trained, places = model.clone(), [_half(data)]
    fleet = fleet_for(current_session(), trained, data, TRAINING, 1)
    fleet.load([trained], [plan(data.rows, TRAINING, 0, trained.time_steps)])
    whole = Sampling(images=IMAGES, steps=SAMPLING_STEPS, batch_size=SAMPLING_BATCH)
    samplings = {"single": whole, "single, cheaper sampling": CHEAPER}
    functions = functions_of(current_session(), trained, 1, torch.bfloat16)
    samplers = {name: FastSampler(trained, functions, sampling) for name, sampling in samplings.items()}
    for sampler in samplers.values():
        sampler.record()

    def measure() -> dict[str, Any]:
        training = _clocked(lambda: train_each([trained], data, places, TRAINING, seeds=[1]))
        times = {
            name: {"training": training, "sampling": _clocked(lambda sampler=sampler: sampler.sample(trained))}
            for name, sampler in samplers.items()
        }
        fleet.load([trained], [plan(data.rows, TRAINING, 0, trained.time_steps)])
        return {
            "images": images,
            "parameters": parameter_count(model.network),
            "times": times
            | {
                "floor": {
                    "training": STEPS * floor.training_floor(model, BATCH),
                    "sampling": IMAGES * SAMPLING_STEPS * floor.sampling_floor(model),
                }
            },
            "a training step": shares(fleet.step),
            "a batch of 20 sampling steps": shares(samplers["single, cheaper sampling"].denoise),
        }

    return measure


def fleet_of(name: str, size: int) -> Measure:
    """Milliseconds of a training step of one model, and memory."""
    like = paper() if name == "paper" else preset(name)
    data, _ = images_for(like)
    settings = dataclasses.replace(TRAINING, steps=60)
    fleet = Fleet(like, functions_of(current_session(), like, size, torch.bfloat16), data, settings)
    plans = [plan(data.rows, settings, seed, like.time_steps) for seed in range(size)]
    fleet.load([like] * size, plans)

    def steps() -> float:
        fleet.load([like] * size, plans)
        return _clocked(lambda: [fleet.step() for _ in range(settings.steps)]) / settings.steps

    def measure() -> dict[str, Any]:
        found = {"ms": 1e3 * float(np.median([steps() for _ in range(3)])) / size}
        fleet.load([like] * size, plans)
        return found | {"GiB": torch.cuda.max_memory_allocated() / 2**30, "a training step": shares(fleet.step)}

    return measure


def undone(name: str) -> Measure:
    """The same of one model with the layers as diffusers has them: compiled and recorded, without our kernels."""
    functional.stacked = lambda network, count, *, cuda: copy.deepcopy(network).eval()  # ty: ignore[invalid-assignment]
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()  # where the other one is not found
    return fleet_of(name, 1)


def images_of(name: str) -> Measure:
    """Seconds of a small model's images, and what else its table needs."""
    like = preset(name)
    sampler = FastSampler(like, functions_of(current_session(), like, 1, torch.bfloat16), CHEAPER)
    sampler.sample(like)
    return lambda: {
        "parameters": parameter_count(like.network),
        "sampling": _clocked(lambda: sampler.sample(like)),
        "floor ms": 1e3 * floor.training_floor(like, BATCH),
    }


def agreement() -> Measure:
    """How much the paths differ, beside how much another seed does: distances of the weights after a fine-tuning, over
    how far they moved, and the difference in a property of 1,024 images."""
    torch.backends.cudnn.allow_tf32 = False  # which rounds otherwise, and not the same way in every kernel
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

    def measure() -> dict[str, Any]:
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
            "tf32": torch.backends.cudnn.allow_tf32,
            "rows": {
                name: {
                    "weights": float((weights(model) - weights(reference)).norm() / moved),
                    "colourfulness, float32 images": values[name, "float32"],
                    "colourfulness, bf16 images": values[name, "bf16"],
                }
                for name, model in paths.items()
            },
        }

    return measure


def _half(data: Any) -> torch.Tensor:
    return torch.arange(0, len(data), 2)


def _clocked(work: Any) -> float:
    torch.cuda.synchronize()
    clock = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - clock


PARTS: dict[str, dict[str, Job]] = {
    "coalition": {
        "plain coalition": (plain_coalition, ()),
        "our coalition": (our_coalition, ()),
    },
    "large-fleet": {f"paper {PAPER_FLEET}": (fleet_of, ("paper", PAPER_FLEET))},
    "fleets": {
        **{f"{name} {size}": (fleet_of, (name, size)) for name, sizes in FLEETS.items() for size in sizes},
        **{f"{name} undone": (undone, (name,)) for name in FLEETS},
        **{f"{name} images": (images_of, (name,)) for name in FLEETS},
    },
    "agreement": {"agreement": (agreement, ())},
    "start": {"start": (start, ())},
}

if __name__ == "__main__":
    main()
