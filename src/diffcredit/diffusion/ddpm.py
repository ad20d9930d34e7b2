"""The pixel DDPM: a U-Net of diffusers on images in [−1, 1]."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from diffcredit.contributions import Contributions
from diffcredit.diffusion import networks
from diffcredit.diffusion.model import Batch, Family, Images
from diffcredit.diffusion.pretrained import PretrainedUNet, require_one
from diffcredit.diffusion.unconditional import Unconditional, preset_config
from diffcredit.diffusion.unet import to_pixels, to_unit

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

    @classmethod
    def create(cls, preset: str, resolution: int, seed: int) -> Self:
        """Return an untrained model of a preset's architecture for square RGB images."""
        config = preset_config(preset, 3, resolution, resolution=resolution)
        return cls(networks.build(config, seed), config)

    def encode(
        self,
        images: Images,
        captions: Sequence[str] | None = None,
        *,
        mirrored: bool = True,
        on_image: Callable[[int, int], None] | None = None,
    ) -> Batch:
        """uint8 (m, h, w, 3) → [−1, 1] (m, 3, h, w); captions are ignored."""
        x = to_unit(images, self.device)
        return Batch(x, x.flip(-1) if mirrored else x, torch.arange(len(x)))

    def decode(self, x: Tensor) -> Images:
        return to_pixels(x)


@dataclass(frozen=True)
class PixelFamily(Family):
    """``model: {family: ddpm}``: the architecture of a ``preset``, or a ``pretrained`` U-Net of diffusers (a folder
    that ``from_pretrained`` reads, or a hub id), which is then the base model without further training."""

    preset: str | None = None
    pretrained: str | None = None

    nobody: ClassVar[str] = "the untrained network of the same architecture"

    def __post_init__(self) -> None:
        require_one(preset=self.preset, pretrained=self.pretrained)

    @property
    def trained(self) -> bool:
        return self.pretrained is not None

    def identity(self) -> dict[str, Any]:
        return (
            {"pretrained": PretrainedUNet.find(self.pretrained).fingerprint}
            if self.pretrained
            else {"preset": self.preset}
        )

    def start(self, contributions: Contributions, seed: int) -> DDPM:
        resolution = contributions.images.shape[1]
        if self.pretrained is None:
            assert self.preset is not None
            return DDPM.create(self.preset, resolution, seed)
        unet = PretrainedUNet.find(self.pretrained)
        network, config = unet.load(channels=3, size=resolution, resolution=resolution)
        return DDPM(network, config, unet.noise_schedule(SCHEDULE))

    def load(self, directory: Path) -> DDPM:
        return DDPM.load(directory)
