"""Latent diffusion: a U-Net of diffusers on the latents of a frozen autoencoder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion import networks
from diffcredit.diffusion.first_stage import FirstStage, first_stage
from diffcredit.diffusion.model import Batch, Family, Images
from diffcredit.diffusion.noise_schedule import NoiseSchedule
from diffcredit.diffusion.pretrained import PretrainedUNet, require_one
from diffcredit.diffusion.unconditional import Unconditional, preset_config

SCHEDULE = {
    "num_train_timesteps": 1000,
    "beta_start": 0.0015,
    "beta_end": 0.0195,
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
}


class LatentDiffusion(Unconditional):
    """ε-prediction in the latent space of ``stage`` (Rombach et al. 2022)."""

    family = "latent"
    schedule = SCHEDULE

    def __init__(
        self,
        network: nn.Module,
        config: Mapping[str, Any],
        stage: FirstStage,
        noise_schedule: NoiseSchedule | None = None,
    ) -> None:
        super().__init__(network, config, noise_schedule)
        self.stage = stage

    @classmethod
    def create(cls, preset: str, resolution: int, stage: FirstStage, seed: int) -> Self:
        """Return an untrained model of a preset's architecture for latents of square RGB images."""
        size = stage.size_of(resolution)
        config = preset_config(preset, stage.channels, size, resolution=resolution)
        return cls(networks.build(config, seed), config, stage)

    @property
    def encoding(self) -> str:
        return self.stage.fingerprint

    def frozen_parts(self) -> dict[str, Any]:
        return {"autoencoder": self.stage.fingerprint}

    def encode(
        self,
        images: Images,
        captions: Sequence[str] | None = None,
        *,
        mirrored: bool = True,
        on_image: Callable[[int, int], None] | None = None,
    ) -> Batch:
        """Return the latents of the images and of their mirror images; captions are ignored."""
        x, flipped = encode_both(self.stage, images, self.device, mirrored, on_image)
        return Batch(x, flipped, torch.arange(len(x)))

    def decode(self, x: Tensor) -> Images:
        return self.stage.decode(x)


def encode_both(
    stage: FirstStage, images: Images, device: torch.device, mirrored: bool, on_image: Callable[[int, int], None] | None
) -> tuple[Tensor, Tensor]:
    """Return the latents of ``images`` and, if ``mirrored``, of their mirror images, which are not mirrored latents."""
    total = len(images) * (2 if mirrored else 1)

    def progress(before: int) -> Callable[[int], None] | None:
        return None if on_image is None else lambda done: on_image(before + done, total)

    x = stage.encode(images, device, progress(0))
    return x, stage.encode(images[:, :, ::-1], device, progress(len(images))) if mirrored else x


@dataclass(frozen=True)
class LatentFamily(Family):
    """``model: {family: latent}``: the architecture of a ``preset``, or a ``pretrained`` U-Net, which is then the base
    model without further training. ``autoencoder`` is a folder or hub id; a pretrained pipeline may have its own."""

    preset: str | None = None
    pretrained: str | None = None
    autoencoder: str | None = None

    nobody: ClassVar[str] = "the untrained network of the same architecture"

    def __post_init__(self) -> None:
        require_one(preset=self.preset, pretrained=self.pretrained)
        if self.preset is not None and self.autoencoder is None:
            raise ValueError("autoencoder is missing: a folder or hub id of AutoencoderKL, AutoencoderTiny or VQModel")

    @property
    def trained(self) -> bool:
        return self.pretrained is not None

    @property
    def stage(self) -> FirstStage:
        return first_stage(str(self.autoencoder or self.pretrained))

    def identity(self) -> dict[str, Any]:
        network = (
            {"pretrained": PretrainedUNet.find(self.pretrained).fingerprint}
            if self.pretrained
            else {"preset": self.preset}
        )
        return {**network, "autoencoder": self.stage.fingerprint}

    def start(self, contributions: Contributions, seed: int) -> LatentDiffusion:
        resolution, stage = contributions.images.shape[1], self.stage
        if self.pretrained is None:
            assert self.preset is not None
            return LatentDiffusion.create(self.preset, resolution, stage, seed)
        unet = PretrainedUNet.find(self.pretrained)
        network, config = unet.load(channels=stage.channels, size=stage.size_of(resolution), resolution=resolution)
        return LatentDiffusion(network, config, stage, unet.noise_schedule(SCHEDULE))

    def load(self, directory: Path) -> LatentDiffusion:
        return LatentDiffusion.load(directory, self.stage)
