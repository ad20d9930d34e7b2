"""The fixed cost of one evaluation: what is left of its time when it trains no step and generates no image.

    python -m benchmarks overhead

An evaluation of k steps and m images takes T = a + b·k + c·m. Three timings give a, the overhead (copying the start,
choosing the coalition's images, a fresh optimizer, measuring), beside b, a training step of 16 images, and c. Each is
the median of several, all in one run; what counts is the ratio a/b, in steps.
"""

import json
import time
from pathlib import Path

import numpy as np
import torch

from diffcredit.coalitions import encode
from diffcredit.contributions import Contributions
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.settings import Sampling, Training
from diffcredit.execution.evaluator import ModelEvaluator, RetrainedModels
from diffcredit.execution.tasks import Task, evaluate_all
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.versions import package_versions
from diffcredit.features.extractors import Extractors
from diffcredit.properties.colourfulness import Colourfulness
from diffcredit.retraining.base import RetrainingContext
from diffcredit.retraining.fine_tune import FineTune
from diffcredit.util.progress import silent

RESULTS = Path(__file__).parent / "results.json"
ROUNDS = 5
STEPS, IMAGES = (1, 5), (2, 10)
CONTRIBUTORS, EACH = 20, 100


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    presets = (("tiny", 16), ("small", 32), ("ddpm-cifar", 32)) if device == "cuda" else (("tiny", 16), ("small", 32))
    results = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU, one thread",
        "versions": package_versions(),
        "models": {},
    }
    with limited_threads(1):
        for preset, resolution in presets:
            results["models"][preset] = row = overhead(preset, resolution, device)
            print(preset, row, flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def overhead(preset: str, resolution: int, device: str) -> dict[str, float]:
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(CONTRIBUTORS), EACH)
    images = random.integers(0, 256, (len(owner), resolution, resolution, 3), dtype=np.uint8)
    names = tuple(f"{index:04d}" for index in range(len(owner)))
    contributions = Contributions(images, owner, tuple(f"{i:02d}" for i in range(CONTRIBUTORS)), names, images[:0])
    base = DDPM.create(preset, resolution, seed=0).to(device)
    context = RetrainingContext(base, contributions, Training(steps=1, batch_size=16), 0, Path(), DDPM.load, silent)
    coalition = encode(np.arange(CONTRIBUTORS) % 2 == 0)

    def timed(steps: int, count: int) -> float:
        retraining = FineTune(steps=steps)
        retraining.prepare(context)
        sampling = Sampling(images=count, steps=10, batch_size=count)
        evaluator = ModelEvaluator(RetrainedModels(retraining, sampling, 0, Extractors()), [Colourfulness()])
        times = []
        for replicate in range(ROUNDS + 1):
            start = time.perf_counter()
            (evaluation,) = evaluate_all(evaluator, [Task(coalition, replicate, "estimate")])
            times.append(time.perf_counter() - start)
            assert evaluation.status == "done", evaluation.error
        return float(np.median(times[1:]))

    short, more_steps, more_images = timed(STEPS[0], IMAGES[0]), timed(STEPS[1], IMAGES[0]), timed(STEPS[0], IMAGES[1])
    step = (more_steps - short) / (STEPS[1] - STEPS[0])
    image = (more_images - short) / (IMAGES[1] - IMAGES[0])
    fixed = short - STEPS[0] * step - IMAGES[0] * image
    return {
        "overhead s": round(fixed, 3),
        "training step s": round(step, 3),
        "overhead in steps": round(fixed / step, 2),
        "share of an evaluation of 1,000 steps": round(fixed / (fixed + 1000 * step), 4),
    }


if __name__ == "__main__":
    main()
