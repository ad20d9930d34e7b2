"""Gradient rows a second and peak memory, beside a plain backward pass of as many samples and the floor of arithmetic.

    python -m benchmarks gradients

On a GPU: the paper's CIFAR-20 DDPM at 32 px with random weights, which cost the same; 100 time steps, 4,096 dimensions,
256 images, which is one round of the projection; float32 (with TF32 convolutions, as torch has them) and bf16. On a CPU
something tiny. Results of both are kept side by side.
"""

import dataclasses
import json
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gradients.page import write_page
from diffcredit.baselines.base import Evidence
from diffcredit.baselines.gradients import GradientSettings
from diffcredit.baselines.gradients.per_image import PerImage, Samples, digests, noises, time_steps
from diffcredit.baselines.gradients.rows import gradient_rows, project
from diffcredit.contributions import Contributions
from diffcredit.diffusion.ddpm import DDPM
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.execution.threads import limited_threads
from diffcredit.execution.versions import package_versions

RESULTS = Path(__file__).parent / "results.json"
ALONE, TOGETHER = 1, 64
"""Samples that keep a device busy, as :class:`PerImage` is told: one image at a time, or several."""


@dataclass(frozen=True)
class Size:
    preset: str
    resolution: int
    time_steps: int
    dimensions: int
    images: int
    precisions: tuple[Literal["float32", "bf16"], ...]


SIZES = {
    "cuda": Size("ddpm-cifar", 32, 100, 4096, 256, ("float32", "bf16")),
    "cpu": Size("tiny", 16, 20, 512, 16, ("float32",)),
}


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = SIZES[device]
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with limited_threads(1):
        model = DDPM.create(size.preset, size.resolution, seed=0).to(device)
        parameters = sum(parameter.numel() for parameter in model.network.parameters())
        row: dict[str, Any] = {
            "device": torch.cuda.get_device_name() if device == "cuda" else "CPU, one thread",
            "versions": package_versions(),
            "size": {**dataclasses.asdict(size), "parameters": parameters},
            "operations a row": operations(model, size),
            "projection s": projection(model, size, parameters),
        }
        results[device] = row
        for precision in size.precisions:
            row[precision] = measured(model, size, precision)
            print(precision, row[precision], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            write_page(results, RESULTS.with_suffix(".md"))


def measured(model: DiffusionModel, size: Size, precision: Literal["float32", "bf16"]) -> dict[str, Any]:
    settings = GradientSettings("loss", size.time_steps, size.dimensions, precision=precision)
    found: dict[str, Any] = {"plain samples a second": plain(model, size, precision), "plain GB": memory()}
    for count in (1, 10, size.time_steps):
        for name, busy in (("alone", ALONE), ("together", TOGETHER))[: 1 if precision == "bf16" else 2]:
            of_few = dataclasses.replace(settings, time_steps=count)
            found[f"{count} time steps, {name}: rows a second"] = few_rows(model, size, of_few, busy)
    everything = evidence(model, size)
    reset_memory()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        rows = gradient_rows(dataclasses.replace(everything, folder=Path(folder)), settings, "training", "benchmark")
        found["rows a second"] = len(rows) / (time.perf_counter() - start)
    return {**found, "GB": memory()}


def plain(model: DiffusionModel, size: Size, precision: str) -> float:
    """Samples a second of one backward pass of as many samples as a row has time steps."""
    reset_memory()
    return size.time_steps / seconds(lambda: backward(model, size.time_steps, precision == "bf16"))


def backward(model: DiffusionModel, count: int, bf16: bool = False) -> None:
    x = torch.randn(count, *model.shape, device=model.device)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        loss = model.loss(Batch(x, x, torch.arange(count)), time_steps(model, count), torch.randn_like(x)).mean()
    torch.autograd.grad(loss, list(model.network.parameters()))


def few_rows(model: DiffusionModel, size: Size, settings: GradientSettings, busy: int) -> float:
    """Rows a second, not projected, of as many images as go together."""
    per_image = PerImage(model, settings, busy=busy)
    images = pictures(per_image.images_at_once, size.resolution)
    x, t = model.encode(images, mirrored=False).x[:, None], time_steps(model, settings.time_steps)
    noise = noises(digests(images), len(t), x.shape[2:], seed=0).to(model.device)
    samples = Samples(x.expand_as(noise), noise, t.expand(len(x), -1))
    return len(images) / seconds(lambda: per_image.gradients(samples))


def projection(model: DiffusionModel, size: Size, parameters: int) -> dict[str, float]:
    """Seconds of projecting one gradient, for which all signs are made, and as many as are projected together."""
    gradients = torch.randn(size.images, parameters, device=model.device)
    return {
        str(rows): seconds(lambda rows=rows: project(gradients[:rows], size.dimensions, 0)) for rows in (1, size.images)
    }


def operations(model: DiffusionModel, size: Size) -> dict[str, float]:
    """Multiplications and additions of one row: of the network forwards and backwards, and of the projection."""
    with FlopCounterMode(display=False) as counter:
        backward(model, size.time_steps)
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    return {"network": counter.get_total_flops(), "projection": 2 * parameters * size.dimensions}


def evidence(model: DiffusionModel, size: Size) -> Evidence:
    names = tuple(f"{index:05d}" for index in range(size.images))
    images, owner = pictures(size.images, size.resolution), np.zeros(size.images, dtype=np.int64)
    contributions = Contributions(images, owner, ("everybody",), names, pictures(0, size.resolution))
    return Evidence(contributions, images[:0], load_model=lambda: model)


def pictures(count: int, resolution: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, resolution, resolution, 3), dtype=np.uint8)


def reset_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def memory() -> float:
    """The largest memory in GB: of tensors on a GPU, or of this process so far."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def seconds(work: Callable[[], object]) -> float:
    """The median of three after a warm-up."""
    times = []
    for _ in range(4):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
