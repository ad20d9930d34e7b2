"""The base class of our three families: a U-Net of diffusers with deterministic sampling."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel, Images
from diffcredit.errors import DiffcreditError


class UNetModel(DiffusionModel):
    """A U-Net of diffusers that predicts noise in pixels or latents of one shape."""

    family: ClassVar[str]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """(c, h, w) of the network's inputs."""

    @abstractmethod
    def decode(self, x: Tensor) -> Images:
        """Return the images of the network's outputs (m, c, h, w)."""

    def predict(self, x_t: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        return self.network(x_t, t).sample

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        return self.losses(batch.x, t, noise, batch.condition)

    def losses(self, x: Tensor, t: Tensor, noise: Tensor, condition: Tensor | None) -> Tensor:
        """Return the loss of each of the images x (m, c, h, w), (m,)."""
        x_t = self.noise_schedule.add_noise(x, noise, t)
        target = self.noise_schedule.target(x, noise, t)
        return (self.predict(x_t, t, condition).to(target.dtype) - target).square().mean(dim=(1, 2, 3))

    @torch.no_grad()
    def sample(
        self,
        seeds: Sequence[int],
        steps: int,
        batch_size: int = 256,
        scheduler: str = "ddim",
        guidance: float | None = None,
    ) -> Images:
        self.network.eval()

        def images_of(places: range) -> Images:
            x = self.denoise(seeds[places.start : places.stop], steps, scheduler, guidance)
            with torch.autocast(self.device.type, enabled=False):  # autocast is for the network alone
                return self.decode(x.float())

        return np.concatenate(in_smaller_batches(images_of, len(seeds), batch_size))

    def denoise(
        self,
        seeds: Sequence[int],
        steps: int,
        scheduler: str,
        guidance: float | None,
        on_step: Callable[[int, Tensor], None] | None = None,
    ) -> Tensor:
        """Sample (m, c, h, w) from the noise of each seed; ``on_step(k, x̂₀)`` receives the k-th step's estimate."""
        x = initial_noise(self.shape, seeds).to(self.device)
        sampler = self.noise_schedule.sampler(scheduler, steps)
        for k, t in enumerate(sampler.timesteps):
            prediction = self.guided(x, t.expand(len(x)).to(x.device), seeds, guidance)
            if on_step is not None:
                on_step(k, self.noise_schedule.predicted_x0(prediction, x, t))
            x = sampler.step(prediction, t, x)
        check_finite(x)
        return x

    def guided(self, x: Tensor, t: Tensor, seeds: Sequence[int], guidance: float | None) -> Tensor:
        """Return the prediction that sampling follows; models with prompts override it."""
        return self.predict(x, t)


def initial_noise(shape: tuple[int, int, int], seeds: Sequence[int]) -> Tensor:
    """Return the noises that images start from, (m, c, h, w) on the CPU; each follows from its seed alone."""
    return torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def check_finite(x: Tensor) -> None:
    """Raise a DiffcreditError unless all of x, which a model generated, is finite."""
    if not torch.isfinite(x).all():
        raise DiffcreditError("the model's images are not finite numbers; a lower learning rate usually helps")


def to_unit(images: Images, device: torch.device | str = "cpu") -> Tensor:
    """uint8 (m, h, w, 3) → [−1, 1] (m, 3, h, w)."""
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 127.5 - 1.0
    return x.contiguous().to(device)


def to_pixels(x: Tensor) -> Images:
    """[−1, 1] (m, 3, h, w), clipped → uint8 (m, h, w, 3)."""
    pixels = ((x.float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return pixels.permute(0, 2, 3, 1).cpu().numpy()
