"""Settings that suit a set of images and this machine: what a first study file proposes, and why."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from diffcredit.contributions.images import UnreadableImage
from diffcredit.contributions.sources import detect, source_class
from diffcredit.diffusion.denoisers.base import Denoiser
from diffcredit.diffusion.first_stage import first_stage, has_first_stage
from diffcredit.diffusion.pipeline import empty_network, find_denoiser
from diffcredit.diffusion.pretrained import read_json
from diffcredit.errors import UserError

USUAL = 64  # side of the latents of a pipeline whose config does not tell it
LOOKED_AT = 100  # images whose sizes are read
LATENTS = (32, 16)  # sides that the preset latent-small is for


@dataclass(frozen=True)
class Proposal:
    """The settings of a study's model, training, retraining and sampling, with the ``reason`` for them and their cost.
    ``autoencoder`` is that of a latent model; None: pixels. ``rank`` is that of an adapter."""

    reason: str
    resolution: int
    preset: str
    steps: int
    batch: int
    rate: float
    ema: float | None
    kept: float
    recover: int
    tune: int
    tune_rate: float
    ddim: int
    images: int
    autoencoder: Path | None = None
    rank: int = 16


def propose(side: int, *, gpu: bool, autoencoder: Path | None = None) -> Proposal:
    """Propose settings for images of so many pixels a ``side``, with an ``autoencoder`` at hand or without.

    Costs are the floating-point operations of an evaluation beside those of the 32-pixel proposal (737 · 10¹²).
    """
    small = f"Images are {side} px"
    if autoencoder is None and not gpu:
        reason = f"{small}; 16 px is what a CPU trains in minutes, and detail is lost. On a GPU, init proposes more"
        return Proposal(reason, 16, "tiny", 3000, 32, 2e-3, 0.995, 0.4, 800, 60, 5e-4, 10, 160)
    if autoencoder is not None:
        factor = first_stage(str(autoencoder)).factor
        for latent in LATENTS:
            if latent * factor <= side:
                cost = "about a third of what 32 pixels cost" if latent == 16 else "about what 32 pixels cost"
                reason = f"{small}; latents of {latent} px keep their detail, at {cost}"
                settings = ("latent-small", 20000, 64, 3e-4, 0.9995, 0.5, 5000, 500, 1e-4, 50, 512, autoencoder)
                return Proposal(reason, latent * factor, *settings)
        raise UserError(
            f"--autoencoder {autoencoder}: {small}; an autoencoder that shrinks them by {factor} needs at least "
            f"{LATENTS[-1] * factor} px"
        )
    settings = ("small", 20000, 64, 2e-4, 0.9995, 0.55, 10000, 1000, 1e-4, 50, 1024)
    if side < 64:
        return Proposal(f"{small}; 32 px keep most of their detail", 32, *settings)
    reason = f"{small}; 64 px cost about four times as much as 32, which is accepted too"
    if side > 64:
        reason += ". A latent model keeps more detail for less: name an autoencoder's folder by --autoencoder"
    return Proposal(reason, 64, *settings)


def propose_adapter(side: int, folder: Path) -> Proposal:
    """Propose settings for adapters on the pipeline in ``folder``, at its own resolution or the largest smaller one."""
    index, factor = read_json(folder / "model_index.json"), first_stage(str(folder)).factor
    denoiser = find_denoiser(folder, index)
    config = read_json(folder / denoiser.component / "config.json")
    denoiser.check(folder, index, config)
    network = empty_network(denoiser.network, config)
    sides = config.get("sample_size")
    own = (sides if isinstance(sides, int) else USUAL) * factor
    resolution = min(own, side // factor * factor)
    while resolution > 0 and not _fits(denoiser, network, resolution // factor):
        resolution -= factor
    if resolution <= 0:
        raise UserError(f"--pipeline {folder}: images of {side} px are too small for it; its own size is {own} px")
    kind = index["_class_name"]
    reason = f"Images are {side} px, and this {kind} makes {own}" if resolution < own else f"The size of this {kind}"
    return Proposal(reason, resolution, "a LoRA adapter", 2000, 8, 1e-4, None, 0.5, 200, 200, 5e-5, 30, 128)


def _fits(denoiser: Denoiser, network: nn.Module, side: int) -> bool:
    with suppress(UserError):
        denoiser.check_size(network, side)
        return True
    return False


def side_of(path: Path) -> int:
    """Return the median of the shorter sides of some of the images at ``path``."""
    if not path.exists():  # loading says so
        return 0
    records = source_class(detect(path))()(path, None)
    chosen = np.unique(np.linspace(0, len(records) - 1, LOOKED_AT).astype(int)) if records else []
    sides = []
    for place in chosen:
        try:
            with records[place].open() as image:
                sides.append(min(image.size))
        except UnreadableImage:  # loading says which
            continue
    return int(np.median(sides)) if sides else 0


def find_autoencoder(places: Iterable[Path]) -> Path | None:
    """Return the first folder among ``places`` and what they hold that has an autoencoder; None if none has."""
    for place in places:
        for folder in [place, *sorted(each for each in place.iterdir() if each.is_dir())] if place.is_dir() else []:
            if has_first_stage(folder):
                return folder
    return None
