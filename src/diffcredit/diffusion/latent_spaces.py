"""Autoencoders whose latents are not simply (mean − shift) · scale: how each is called, by its class in diffusers.

``SPACES[kind].encode(autoencoder, x)`` returns the latents z (m, c, h/f, w/f) that a network is trained on, given
images x (m, 3, h, w) in [−1, 1]; ``SPACES[kind].decode(autoencoder, z)`` returns images.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor


class LatentSpace(ABC):
    """The latents of one kind of autoencoder."""

    @abstractmethod
    def encode(self, autoencoder: Any, x: Tensor) -> Tensor:
        """Return the latents (m, c, h/f, w/f) of images x (m, 3, h, w) in [−1, 1]."""

    @abstractmethod
    def decode(self, autoencoder: Any, z: Tensor) -> Tensor:
        """Return images (m, 3, h, w), in [−1, 1] but for overshoot, given latents z."""


class QwenImageSpace(LatentSpace):
    """A video autoencoder, given a single frame, with a mean and a deviation for each channel of its latents."""

    def encode(self, autoencoder: Any, x: Tensor) -> Tensor:
        mean, std = self._statistics(autoencoder, x)
        return (autoencoder.encode(x[:, :, None]).latent_dist.mode()[:, :, 0] - mean) / std

    def decode(self, autoencoder: Any, z: Tensor) -> Tensor:
        mean, std = self._statistics(autoencoder, z)
        return autoencoder.decode((z * std + mean)[:, :, None]).sample[:, :, 0]

    def _statistics(self, autoencoder: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (torch.tensor(autoencoder.config[key]).to(like) for key in ("latents_mean", "latents_std"))
        return mean[:, None, None], std[:, None, None]


class DeepCompressionSpace(LatentSpace):
    """A deterministic encoder, as Sana's."""

    def encode(self, autoencoder: Any, x: Tensor) -> Tensor:
        return autoencoder.encode(x).latent * autoencoder.config["scaling_factor"]

    def decode(self, autoencoder: Any, z: Tensor) -> Tensor:
        return autoencoder.decode(z / autoencoder.config["scaling_factor"]).sample


SPACES: dict[str, LatentSpace] = {
    "AutoencoderKLQwenImage": QwenImageSpace(),
    "AutoencoderDC": DeepCompressionSpace(),
}
