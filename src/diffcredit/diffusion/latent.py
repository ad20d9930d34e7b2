"""Latent diffusion: a U-Net of diffusers on the latents of a frozen autoencoder."""

from dataclasses import dataclass
from typing import Any, ClassVar

from diffcredit.diffusion.ddpm import DDPM, PixelFamily
from diffcredit.diffusion.first_stage import FirstStage, first_stage


class LatentDiffusion(DDPM):
    """ε-prediction in the latent space of ``stage`` (Rombach et al. 2022)."""

    family = "latent"
    schedule: ClassVar = {
        **DDPM.schedule,
        "beta_start": 0.0015,
        "beta_end": 0.0195,
        "beta_schedule": "scaled_linear",
        "clip_sample": False,
    }


@dataclass(frozen=True)
class LatentFamily(PixelFamily):
    """``model: {family: latent}``, with a ``preset`` or a ``pretrained`` U-Net. ``autoencoder`` is a folder or hub id;
    a pretrained pipeline may have its own."""

    autoencoder: str | None = None

    model: ClassVar[type[DDPM]] = LatentDiffusion

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset is not None and self.autoencoder is None:
            raise ValueError("autoencoder is missing: a folder or hub id of AutoencoderKL, AutoencoderTiny or VQModel")

    @property
    def stage(self) -> FirstStage:
        return first_stage(str(self.autoencoder or self.pretrained))

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"autoencoder": self.stage.fingerprint}
