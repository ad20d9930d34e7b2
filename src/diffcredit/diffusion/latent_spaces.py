"""Latent spaces that are more than a scale and a shift of what an autoencoder gives.

``SPACES`` has them by the class of diffusers' autoencoder; :class:`~diffcredit.diffusion.first_stage.FirstStage` treats
all others.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor


class LatentSpace(ABC):
    """How images become what the network is trained on, and back."""

    @abstractmethod
    def encode(self, autoencoder: Any, x: Tensor) -> Tensor:
        """Return the latents (m, c, h/f, w/f) of images in [−1, 1] (m, 3, h, w)."""

    @abstractmethod
    def decode(self, autoencoder: Any, z: Tensor) -> Tensor:
        """Return images, about in [−1, 1]."""


class Flux2(LatentSpace):
    """Patches of 2 × 2 as channels, each normalised by the autoencoder's statistics of its training images."""

    def encode(self, autoencoder: Any, x: Tensor) -> Tensor:
        z = autoencoder.encode(x).latent_dist.mode()
        mean, std = self._statistics(autoencoder, z)
        m, c, h, w = z.shape
        patches = z.reshape(m, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
        return (patches.reshape(m, 4 * c, h // 2, w // 2) - mean) / std

    def decode(self, autoencoder: Any, z: Tensor) -> Tensor:
        mean, std = self._statistics(autoencoder, z)
        m, c, h, w = z.shape
        patches = (z * std + mean).reshape(m, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3)
        return autoencoder.decode(patches.reshape(m, c // 4, 2 * h, 2 * w)).sample

    @staticmethod
    def _statistics(autoencoder: Any, z: Tensor) -> tuple[Tensor, Tensor]:
        norm = autoencoder.bn
        std = (norm.running_var + autoencoder.config.batch_norm_eps).sqrt()
        return norm.running_mean.to(z)[:, None, None], std.to(z)[:, None, None]


class QwenImage(LatentSpace):
    """A video autoencoder, given a single frame, with a mean and a deviation for each channel of its latents."""

    def encode(self, autoencoder: Any, x: Tensor) -> Tensor:
        mean, std = self._statistics(autoencoder, x)
        return (autoencoder.encode(x[:, :, None]).latent_dist.mode()[:, :, 0] - mean) / std

    def decode(self, autoencoder: Any, z: Tensor) -> Tensor:
        mean, std = self._statistics(autoencoder, z)
        return autoencoder.decode((z * std + mean)[:, :, None]).sample[:, :, 0]

    @staticmethod
    def _statistics(autoencoder: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (torch.tensor(autoencoder.config[key]).to(like) for key in ("latents_mean", "latents_std"))
        return mean[:, None, None], std[:, None, None]


class DeepCompression(LatentSpace):
    """A deterministic encoder, as Sana's."""

    def encode(self, autoencoder: Any, x: Tensor) -> Tensor:
        return autoencoder.encode(x).latent * autoencoder.config["scaling_factor"]

    def decode(self, autoencoder: Any, z: Tensor) -> Tensor:
        return autoencoder.decode(z / autoencoder.config["scaling_factor"]).sample


SPACES: dict[str, LatentSpace] = {
    "AutoencoderKLFlux2": Flux2(),
    "AutoencoderKLQwenImage": QwenImage(),
    "AutoencoderDC": DeepCompression(),
}
