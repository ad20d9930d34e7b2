"""How many models a fleet has best: as measured on this kind of GPU, or else by the number of their weights."""

import dataclasses
import json
import time
from pathlib import Path

import torch

from diffcredit.artifacts import atomic_file
from diffcredit.diffusion.draws import plan
from diffcredit.diffusion.fast.eligibility import dtype_of, trains_fast
from diffcredit.diffusion.fast.fleet import Fleet
from diffcredit.diffusion.fast.functional import architecture, cache_folder, functions_of
from diffcredit.diffusion.fast.stacking import CannotStack, stacked
from diffcredit.diffusion.protocol import Batch, DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.diffusion.unet import UNetModel

# Below so many trained weights, so many models: one alone leaves a large GPU idle most of the time (benchmarks/gpu).
SIZES = ((2_500_000, 16), (8_000_000, 8))
STEPS = 20  # timed


def fleet_size(like: DiffusionModel, settings: Training) -> int:
    """How many models as ``like`` are best trained at once as ``settings`` say; 1 without a GPU."""
    if not trains_fast(like, settings):
        return 1
    measured = _measured().get(_key(like, settings))
    return _guess(like) if measured is None else measured


def measure_sizes(like: UNetModel, data: Batch, settings: Training) -> dict[int, float]:
    """The seconds of a training step of one model, in fleets of one and of the likely best size, measured here. The
    best is taken from now on."""
    found = {}
    for size in sorted({1, _guess(like)}):
        try:
            found[size] = _seconds(like, data, settings, size)
        except torch.OutOfMemoryError:
            if size == 1:
                raise
    best = min(found, key=found.__getitem__)
    with atomic_file(_file()) as temporary:
        temporary.write_text(json.dumps({**_measured(), _key(like, settings): best}, indent=1) + "\n", encoding="utf-8")
    return found


def _seconds(like: UNetModel, data: Batch, settings: Training, size: int) -> float:
    few = dataclasses.replace(settings, steps=STEPS, warmup_steps=0)
    functions = functions_of(like, size, dtype_of(settings.precision, like.device))
    fleet = Fleet(like, functions, data, few)
    crew = [like] * size
    plans = [plan(data.rows, few, seed, like.time_steps) for seed in range(size)]
    taken = []
    for _ in range(3):
        fleet.load(crew, plans)  # nothing is unloaded: the model stays as it is
        torch.cuda.synchronize(like.device)
        clock = time.perf_counter()
        for _ in range(STEPS):
            fleet.step()
        torch.cuda.synchronize(like.device)
        taken.append(time.perf_counter() - clock)
    return sorted(taken)[1] / STEPS / size


def _guess(like: UNetModel) -> int:
    trained = sum(weight.numel() for weight in like.network.parameters() if weight.requires_grad)
    size = next((size for most, size in SIZES if trained < most), 1)
    if size > 1:
        try:
            stacked(like.network, size, cuda=False)
        except CannotStack:
            return 1
    return size


def _key(like: UNetModel, settings: Training) -> str:
    dtype = dtype_of(settings.precision, like.device)
    device = torch.cuda.get_device_name(like.device)
    return f"{device} {dtype} {settings.batch_size} {architecture(like)}"


def _measured() -> dict[str, int]:
    try:
        return json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a cache that is not there or not readable is none
        return {}


def _file() -> Path:
    return cache_folder() / "fleets.json"
