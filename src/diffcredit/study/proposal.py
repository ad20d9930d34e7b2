"""Settings that suit a set of images and this machine: what a first study file proposes, and why."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diffcredit.contributions.images import UnreadableImage
from diffcredit.contributions.sources import detect, source_class
from diffcredit.diffusion.first_stage import first_stage, has_first_stage
from diffcredit.errors import UserError

LOOKED_AT = 100  # images whose sizes are read
LATENTS = (32, 16)  # sides that the preset latent-small is for


@dataclass(frozen=True)
class Proposal:
    """The settings of a study's model, training, retraining and sampling, with the ``reason`` for them and their cost.
    ``autoencoder`` is that of a latent model; None: pixels."""

    reason: str
    resolution: int
    preset: str
    steps: int
    batch: int
    rate: float
    ema: float
    kept: float
    recover: int
    tune: int
    tune_rate: float
    ddim: int
    images: int
    autoencoder: Path | None = None


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
