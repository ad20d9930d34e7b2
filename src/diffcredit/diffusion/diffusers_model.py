"""The base class of our families: a network of diffusers, how it is called, and deterministic sampling."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from diffcredit.diffusion.conditions import NOTHING, Conditioner, Conditions, joined
from diffcredit.diffusion.denoisers.base import Denoiser
from diffcredit.diffusion.first_stage import FirstStage, Pixels
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel, Images
from diffcredit.errors import DiffcreditError, UserError

RESIDENT = 2 * 2**30  # bytes of conditions that stay on the device; more stay on the CPU and are moved as needed


class DiffusersModel(DiffusionModel):
    """A network of diffusers in square inputs of ``size``: the pixels or latents of ``stage``. ``denoiser`` says how it
    is called, and ``conditioner``, if it has one, makes the conditions of captions, labels and prompts."""

    family: ClassVar[str]
    denoiser: Denoiser
    stage: FirstStage | Pixels
    size: int
    conditioner: Conditioner | None = None
    guidance: float | None = None
    """How strongly images follow their prompts unless a study says otherwise."""
    computes: torch.dtype | None = None
    """The type of numbers that the network is given, if not that of its inputs: a frozen base in bf16 needs it."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(c, h, w) of the network's inputs."""
        return self.stage.channels, self.size, self.size

    @property
    def pixels(self) -> int:
        """The side of the images."""
        return self.size * self.stage.factor

    @property
    def encoding(self) -> str:
        return self.stage.fingerprint

    def example(self) -> dict[str, Tensor]:
        condition = {} if self.conditioner is None else self.conditioner.embed(self.prompts[:1], self.pixels)
        return {"sample": torch.zeros(1, *self.shape), "timestep": torch.ones(1, dtype=torch.long), **condition}

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

    def conditions(self, captions: Sequence[str] | None, count: int) -> tuple[Conditions, Tensor] | tuple[()]:
        if self.conditioner is None:
            return ()
        if self.prompt is None and captions is None:
            raise UserError("the model follows texts, and these images have none; a text for every image is needed")
        texts = list(captions or ()) if self.prompt is None else [self.prompt] * count
        distinct: list[str | None] = [*dict.fromkeys(texts)]
        place = {text: index for index, text in enumerate(distinct)}
        condition_of = torch.tensor([place[text] for text in texts], dtype=torch.long, device=self.device)
        if self.condition_dropout:
            distinct.append(NOTHING)
        conditions = self.conditioner.embed(distinct, self.pixels)
        if sum(each.nbytes for each in conditions.values()) <= RESIDENT:
            conditions = {name: each.to(self.device) for name, each in conditions.items()}
        return conditions, condition_of

    def decode(self, x: Tensor) -> Images:
        """Return the images of the network's outputs (m, c, h, w)."""
        return self.stage.decode(x)

    def predict(self, x_t: Tensor, t: Tensor, condition: Conditions | None = None) -> Tensor:
        return self.call(x_t, self.objective.times(t), condition)

    def call(
        self, x: Tensor, time: Tensor, condition: Mapping[str, Tensor] | None, guidance: float | None = None
    ) -> Tensor:
        """Call the network at ``time`` (m,), as :attr:`Objective.times` gives it, which is never rounded."""
        if (kind := self.computes) is not None:
            x = x.to(kind)
            given = condition or {}
            condition = {name: each.to(kind) if each.is_floating_point() else each for name, each in given.items()}
        return self.denoiser.predict(self.network, x, time, condition or None, guidance)

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        return self.losses(batch.x, t, noise, batch.condition)

    def losses(self, x: Tensor, t: Tensor, noise: Tensor, condition: Conditions | None) -> Tensor:
        """Return the loss of each of the images x (m, c, h, w), (m,)."""
        x_t = self.objective.add_noise(x, noise, t)
        target = self.objective.target(x, noise, t)
        return (self.predict(x_t, t, condition).to(target.dtype) - target).square().mean(dim=(1, 2, 3))

    @torch.no_grad()
    def sample(
        self,
        seeds: Sequence[int],
        steps: int,
        batch_size: int = 256,
        scheduler: str = "ddim",
        guidance: float | None = None,
        prompts: Sequence[str] | None = None,
    ) -> Images:
        self.network.eval()

        def images_of(places: range) -> Images:
            x = self.denoise(seeds[places.start : places.stop], steps, scheduler, guidance, prompts)
            with torch.autocast(self.device.type, enabled=False):  # autocast is for the network alone
                return self.decode(x.float())

        return np.concatenate(in_smaller_batches(images_of, len(seeds), batch_size))

    def denoise(
        self,
        seeds: Sequence[int],
        steps: int,
        scheduler: str,
        guidance: float | None,
        prompts: Sequence[str] | None = None,
        on_step: Callable[[int, Tensor], None] | None = None,
    ) -> Tensor:
        """Sample (m, c, h, w) from the noise of each seed; ``on_step(k, x̂₀)`` receives the k-th step's estimate."""
        x = initial_noise(self.shape, seeds).to(self.device)
        sampler, guide = self.objective.sampler(scheduler, steps), self.guide(seeds, guidance, prompts)
        for k, time in enumerate(sampler.times):
            prediction = self.guided(x, time.expand(len(x)).to(x.device), guide)
            if on_step is not None:
                on_step(k, sampler.clean(k, prediction, x))
            x = sampler.step(k, prediction, x)
        check_finite(x)
        return x

    def guide(self, seeds: Sequence[int], guidance: float | None, prompts: Sequence[str] | None = None) -> "Guide":
        """Return what the images of ``seeds`` follow: that of seed s prompt s mod k of ``prompts``."""
        if self.conditioner is None:
            return Guide()
        texts = prompts or self.prompts
        scale = self.guidance if guidance is None else guidance
        condition = self.conditioner.embed([texts[seed % len(texts)] for seed in seeds], self.pixels, self.device)
        if self.denoiser.embeds_guidance(self.network):
            return Guide(condition, told=scale)
        if scale is None or scale == self.denoiser.unguided:
            return Guide(condition)
        nothing = self.conditioner.embed([NOTHING], self.pixels, self.device)
        return Guide(condition, {name: each.expand_as(condition[name]) for name, each in nothing.items()}, scale)

    def guided(self, x: Tensor, time: Tensor, guide: "Guide") -> Tensor:
        """Return the prediction that sampling follows at ``time`` (m,), as :attr:`Objective.times` gives it."""
        if guide.condition is None or guide.nothing is None:
            return self.call(x, time, guide.condition, guide.told)
        both = self.call(torch.cat([x, x]), torch.cat([time, time]), joined(guide.nothing, guide.condition))
        without, following = both.chunk(2)
        return self.denoiser.guide(without, following, guide.scale)


@dataclass(frozen=True)
class Guide:
    """The guidance of m images: the tensors (m, …) of their ``condition``, and for classifier-free guidance of
    ``scale`` those of ``nothing``. ``told`` is the guidance that the network itself is told."""

    condition: Mapping[str, Tensor] | None = None
    nothing: Mapping[str, Tensor] | None = None
    scale: float = 1.0
    told: float | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order."""
        return [each for part in (self.condition, self.nothing) for _, each in sorted((part or {}).items())]

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Guide":
        """Return a guide of the same kind with other :attr:`tensors`."""
        given = iter(tensors)
        condition, nothing = (
            None if part is None else {name: next(given) for name in sorted(part)}
            for part in (self.condition, self.nothing)
        )
        return replace(self, condition=condition, nothing=nothing)

    @property
    def outline(self) -> list[object]:
        """All but the tensors, as JSON."""
        parts = [None if part is None else sorted(part) for part in (self.condition, self.nothing)]
        return [*parts, self.scale, self.told]


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
