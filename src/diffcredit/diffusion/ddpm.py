"""The pixel DDPM: a U-Net of diffusers on images in [−1, 1]."""

from dataclasses import dataclass
from typing import ClassVar

from diffcredit.diffusion.unconditional import Unconditional, UnconditionalFamily

SCHEDULE = {
    "num_train_timesteps": 1000,
    "beta_start": 1e-4,
    "beta_end": 0.02,
    "beta_schedule": "linear",
    "clip_sample": True,
}


class DDPM(Unconditional):
    """ε-prediction in pixel space (Ho et al. 2020)."""

    family = "ddpm"
    schedule = SCHEDULE


@dataclass(frozen=True)
class PixelFamily(UnconditionalFamily):
    """``model: {family: ddpm}``, with a ``preset`` or a ``pretrained`` U-Net."""

    model: ClassVar[type[Unconditional]] = DDPM
