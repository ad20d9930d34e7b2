"""What all families share: a U-Net of diffusers, a noise schedule, deterministic sampling."""

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.noise import NoiseSchedule
from diffcredit.diffusion.protocol import Batch, Images
from diffcredit.errors import DiffcreditError


class UNetModel:
    """A network that predicts noise in what it sees: (c, h, w) of ``shape``, pixels or latents."""

    family: ClassVar[str]

    network: nn.Module
    noise_schedule: NoiseSchedule
    made: Mapping[str, Any] = MappingProxyType({})
    """What the last bits of its weights depend on beside the device: how they were trained."""

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def time_steps(self) -> int:
        return self.noise_schedule.time_steps

    @property
    def shape(self) -> tuple[int, int, int]:
        raise NotImplementedError

    def predict(self, x_t: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        return self.network(x_t, t).sample

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        return self.losses(batch.x, t, noise, batch.condition)

    def losses(self, x: Tensor, t: Tensor, noise: Tensor, condition: Tensor | None) -> Tensor:
        """Of images x (m, c, h, w), (m,)."""
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
            with torch.autocast(self.device.type, enabled=False):  # which is the network's alone
                return self.decode(x.float())

        return np.concatenate(in_smaller_batches(images_of, len(seeds), batch_size))

    def decode(self, x: Tensor) -> Images:
        """(m, c, h, w) as the network makes it → images."""
        raise NotImplementedError

    def denoise(
        self,
        seeds: Sequence[int],
        steps: int,
        scheduler: str,
        guidance: float | None,
        on_step: Callable[[int, Tensor], None] | None = None,
    ) -> Tensor:
        """From the noise of each seed to (m, c, h, w); ``on_step(k, x̂₀)`` hears what the k-th step foresees."""
        x = initial_noise(self.shape, seeds).to(self.device)
        sampler = self.noise_schedule.sampler(scheduler, steps)
        for k, t in enumerate(sampler.timesteps):
            prediction = self.guided(x, t.expand(len(x)).to(x.device), seeds, guidance)
            if on_step is not None:
                on_step(k, self.noise_schedule.foreseen(prediction, x, t))
            x = sampler.step(prediction, t, x)
        check_finite(x)
        return x

    def guided(self, x: Tensor, t: Tensor, seeds: Sequence[int], guidance: float | None) -> Tensor:
        """The prediction that sampling follows; an unconditional model has nothing to be guided by."""
        return self.predict(x, t)

    def clone(self) -> Self:
        clone = copy.copy(self)
        frozen = {id(parameter): parameter for parameter in self.network.parameters() if not parameter.requires_grad}
        clone.network = copy.deepcopy(self.network, frozen)  # what is never trained is shared
        return clone

    def to(self, device: torch.device | str) -> Self:
        self.network.to(device)
        return self


def initial_noise(shape: tuple[int, int, int], seeds: Sequence[int]) -> Tensor:
    """Where images begin, (m, c, h, w) on the CPU: each follows from its seed alone, whatever the batch and device."""
    return torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def check_finite(x: Tensor) -> None:
    """Refuses what a model made where it is not finite."""
    if not torch.isfinite(x).all():
        raise DiffcreditError("the model's images are not finite numbers; a lower learning rate usually helps")


def to_unit(images: Images, device: torch.device | str = "cpu") -> Tensor:
    """uint8 (m, h, w, 3) → [−1, 1] (m, 3, h, w)."""
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 127.5 - 1.0
    return x.contiguous().to(device)


def to_pixels(x: Tensor) -> Images:
    """[−1, 1] (m, 3, h, w), what is beyond cut off → uint8 (m, h, w, 3)."""
    pixels = ((x.float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return pixels.permute(0, 2, 3, 1).cpu().numpy()
