"""Train the studies' base models, look at what they make, and measure signal and noise by a pilot.

    python -m benchmarks.modern.measure --data DATA --text-encoder FOLDER [--scratch FOLDER] [dit] [emoji] [adapters]

DATA holds ``cifar20.npz``, ``openmoji_64.npz`` and ``taef2`` (its two files); FOLDER a text encoder of transformers,
such as MiniLM's. A training that is cut off continues from its checkpoint in the scratch folder, and every part writes
its results when it is done, so the parts can be made in several calls. On a GPU the models are large, on a CPU small.
"""

import argparse
import json
import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.modern.page import write_page
from benchmarks.modern.subjects import CPU, GPU, Scale, adapters, class_conditional, text_to_image
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.networks import parameter_count
from diffcredit.diffusion.settings import Sampling
from diffcredit.execution import InProcess
from diffcredit.execution.versions import package_versions
from diffcredit.study import Study
from diffcredit.study.pilot import COALITIONS, REPLICATES, read_signals, run_pilot
from diffcredit.util.events import LOGGER

HERE = Path(__file__).parent
SHOWN = 8  # images of each prompt
PROMPTS = 6  # of a text-to-image model's grid
LARGER = {16: 4, 32: 3, 64: 2, 128: 1}  # how often pixels are repeated in a grid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="dit, emoji or adapters; by default all")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--text-encoder", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, default=Path("results/modern"))
    parser.add_argument("--results", type=Path, default=HERE)
    options = parser.parse_args()
    scratch: Path = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    options.results.mkdir(parents=True, exist_ok=True)
    scale = GPU if torch.cuda.is_available() else CPU
    for part in options.parts or PARTS:
        row = PARTS[part](options.data.resolve(), scratch, options.text_encoder.resolve(), scale, options.results)
        record(options.results, part, row)
        print(f"{part}: {json.dumps(row)}", flush=True)


def dit(data: Path, scratch: Path, text_encoder: Path, scale: Scale, results: Path) -> dict[str, Any]:
    study = class_conditional(data, scratch, scale)
    row = trained(study, results / "dit-loss.json")
    model = study.prepared.base
    write_grid(model, list(model.prompts), 2.0, scale.dit["steps"], results / "dit.png")
    return row | piloted(study)


def emoji(data: Path, scratch: Path, text_encoder: Path, scale: Scale, results: Path) -> dict[str, Any]:
    study = text_to_image(data, scratch, text_encoder, scale)
    row = trained(study, results / "emoji-loss.json")
    model = study.prepared.base
    write_grid(model, list(model.prompts[:PROMPTS]), 3.0, scale.emoji["steps"], results / "emoji.png")
    return row


def adapted(data: Path, scratch: Path, text_encoder: Path, scale: Scale, results: Path) -> dict[str, Any]:
    base = text_to_image(data, scratch, text_encoder, scale).prepared.base_folder
    study = adapters(data, scratch, text_encoder, base, scale)
    row = trained(study, results / "adapters-loss.json")
    model = study.prepared.base
    write_grid(model, list(model.prompts[:PROMPTS]), 3.0, scale.emoji["steps"], results / "adapters.png")
    return row | piloted(study)


PARTS: dict[str, Callable[..., dict[str, Any]]] = {"dit": dit, "emoji": emoji, "adapters": adapted}


def trained(study: Study, file: Path) -> dict[str, Any]:
    """Train the base model; write its loss by step to ``file``, and return its size, time and memory."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    clock = time.perf_counter()
    with losses() as seen:
        model = study.prepared.base
    if seen:  # none where the model was there already
        file.write_text(json.dumps(seen) + "\n", encoding="utf-8")
    trainable = sum(weight.numel() for weight in model.network.parameters() if weight.requires_grad)
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "CPU, 2 cores",
        "versions": package_versions(),
        "parameters": parameter_count(model.network),
        "trained": trainable,
        "steps": study.config.model.train.steps,
        "batch": study.config.model.train.batch_size,
        "images": len(study.contributions.images),
        "contributors": study.contributions.n,
        "seconds": round(time.perf_counter() - clock, 1),
        "memory": torch.cuda.max_memory_allocated() if on_gpu else None,
    }


def piloted(study: Study) -> dict[str, Any]:
    """Evaluate a pilot; return each property's signal beside its noise, and the seconds of an evaluation."""
    recipe = study.recipe
    clock = time.perf_counter()
    recipe.prepare()
    prepared = time.perf_counter() - clock
    done = list(run_pilot(recipe, InProcess(study.config.threads), COALITIONS, REPLICATES))
    seconds = [sum(each.seconds.values()) for each in done]
    failed = [each.error for each in done if each.status != "done"]
    found = read_signals(recipe)
    return {
        "preparation": round(prepared, 1),
        "evaluation": round(float(np.median(seconds)), 1) if seconds else None,
        "failed": failed,
        "signals": {name: [each.ratio, each.low, each.high] for name, each in found.items()},
    }


@contextmanager
def losses() -> Generator[list[tuple[int, float]]]:
    """Yield a list that fills with the steps and losses that long trainings report."""
    seen: list[tuple[int, float]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "training loss":
                fields: Any = getattr(record, "fields", {})
                seen.append((fields["step"], round(fields["loss"], 5)))

    handler, level = Keep(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield seen
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


def write_grid(model: DiffusersModel, prompts: list[str], guidance: float, steps: int, file: Path) -> None:
    """Write images of the model as a PNG, one line for each of ``prompts``, which the page names."""
    sampling = Sampling(images=SHOWN * len(prompts), steps=steps, guidance=guidance, prompts=tuple(prompts))
    images = generate(model, sampling, often=True)
    side, times = images.shape[1], LARGER.get(images.shape[1], 1)
    lines = images.reshape(SHOWN, len(prompts), side, side, 3).transpose(1, 2, 0, 3, 4)
    whole = lines.reshape(len(prompts) * side, SHOWN * side, 3)
    Image.fromarray(whole.repeat(times, 0).repeat(times, 1)).save(file, optimize=True)
    file.with_suffix(".txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")


def record(folder: Path, part: str, row: dict[str, Any]) -> None:
    file = folder / "results.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps(known | {part: row}, indent=1) + "\n", encoding="utf-8")
    write_page(folder)


if __name__ == "__main__":
    main()
