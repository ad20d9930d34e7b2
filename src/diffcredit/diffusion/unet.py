"""The base class of our three families: a U-Net of diffusers with deterministic sampling."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from diffcredit.diffusion.first_stage import FirstStage, Pixels
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel, Images
from diffcredit.errors import DiffcreditError


class UNetModel(DiffusionModel):
    """A U-Net of diffusers that predicts noise in square inputs of ``size``: the pixels or latents of ``stage``."""

    family: ClassVar[str]
    stage: FirstStage | Pixels
    size: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(c, h, w) of the network's inputs."""
        return self.stage.channels, self.size, self.size

    @property
    def encoding(self) -> str:
        return self.stage.fingerprint

    def example(self) -> dict[str, Tensor]:
        return {"sample": torch.zeros(1, *self.shape), "timestep": torch.ones(1, dtype=torch.long)}

    def encode(
        self,
        images: Images,
        captions: Sequence[str] | None = None,
        *,
        mirrored: bool = True,
        on_image: Callable[[int, int], None] | None = None,
    ) -> Batch:
        conditions = self.conditions(captions, len(images))
        total = len(images) * (2 if mirrored else 1)

        def progress(before: int) -> Callable[[int], None] | None:
            return None if on_image is None else lambda done: on_image(before + done, total)

        x = self.stage.encode(images, self.device, progress(0))
        # the latents of a mirrored image are not mirrored latents
        flipped = self.stage.encode(images[:, :, ::-1], self.device, progress(len(images))) if mirrored else x
        return Batch(x, flipped, torch.arange(len(x)), *conditions)

    def conditions(self, captions: Sequence[str] | None, count: int) -> tuple[Tensor, Tensor] | tuple[()]:
        """Return the distinct conditions and each image's index among them; models with prompts override it."""
        return ()

    def decode(self, x: Tensor) -> Images:
        """Return the images of the network's outputs (m, c, h, w)."""
        return self.stage.decode(x)

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
        raise DiffcreditError(
            "the model's images are not finite numbers: its training diverged, and a lower learning rate "
            "usually helps; or its file is damaged"
        )
