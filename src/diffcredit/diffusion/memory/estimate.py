"""The memory that a study's model needs on its device, before anything is loaded.

Bytes of weights, gradients, optimizers, latents and conditions are exact. What a computation needs beside them is an
estimate: it is counted on tensors without numbers, and kernels may need more or less.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.diffusers_model import RESIDENT, DiffusersModel
from diffcredit.diffusion.eight_bit import eight_bit_bytes
from diffcredit.diffusion.first_stage import at_once
from diffcredit.diffusion.memory.outlined_work import (
    activation_bytes,
    in_bf16,
    sampling_bytes,
    stage_bytes,
    weight_bytes,
)
from diffcredit.diffusion.memory.outlines import condition_of, encoders_of
from diffcredit.diffusion.settings import Sampling, Training

FEW_NUMBERS = 4096  # below so many the 8-bit optimizers keep the moments of a tensor in float32
BLOCK = 256  # numbers for which they keep one scale


@dataclass(frozen=True)
class Need:
    """The bytes that a stage of the work needs at its peak, by what needs them. ``unknown`` names what could not be
    counted."""

    stage: str
    parts: dict[str, int]
    unknown: str = ""

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Load:
    """The use of a model: ``images`` training images with ``texts`` distinct texts, trained and sampled with
    these settings. ``eight_bits``: the frozen linear layers are stored in 8 bits. ``computes_bf16``: the network
    computes in bf16, whatever its weights are stored in."""

    outline: DiffusersModel
    images: int
    texts: int
    training: Training
    sampling: Sampling
    eight_bits: bool = False
    computes_bf16: bool = False

    @cached_property
    def condition(self) -> Conditions | None:
        return condition_of(self.outline)

    @cached_property
    def computed(self) -> DiffusersModel:
        """The model in the type of numbers in which it computes."""
        return in_bf16(self.outline) if self.computes_bf16 and self.outline.computes is None else self.outline

    @cached_property
    def frozen(self) -> int:
        """Bytes of all that is not trained."""
        return frozen_bytes(self.outline.network, eight_bits=self.eight_bits)

    @property
    def trained(self) -> list[nn.Parameter]:
        return [each for each in self.outline.network.parameters() if each.requires_grad]

    @property
    def micro_batch(self) -> int:
        return min(self.training.micro_batch or self.training.batch_size, self.training.batch_size)

    def needs(self) -> list[Need]:
        """Return what each stage of the work needs on the device."""
        return [*self._encoding(), self.of_training(), *self._sampling()]

    def of_training(self) -> Need:
        """Return what a step of training needs."""
        weights = sum(each.nbytes for each in self.trained)
        parts = {
            **self._network(),
            "gradients": weights,
            "optimizer": sum(moment_bytes(each.numel(), self.training.optimizer) for each in self.trained),
            "average": weights if self.training.averages else 0,
            "encoded images": self.latents * (2 if self.training.flip else 1),
            "conditions": self.conditions_on_device,
        }
        if self.condition is None:
            return Need("a step of training", parts, "activations, since the shape of a condition is not known")
        twice = self.training.gradient_checkpointing
        try:
            self.computed.network.train()
            parts["activations"] = activation_bytes(self.computed, self.condition, self.micro_batch, twice=twice)
        except (RuntimeError, NotImplementedError):
            return Need("a step of training", parts, "activations, which depend on numbers")
        return Need(f"a step of training, {self.micro_batch} images at once", parts)

    @property
    def latents(self) -> int:
        channels, height, width = self.outline.shape
        return 4 * self.images * channels * height * width

    @property
    def conditions(self) -> int:
        """Bytes of the conditions of all texts."""
        each = sum(tensor.nbytes for tensor in (self.condition or {}).values())
        return (self.texts + bool(self.outline.condition_dropout)) * each

    @property
    def conditions_on_device(self) -> int:
        return self.conditions if self.conditions <= RESIDENT else 0

    def _network(self) -> dict[str, int]:
        return {"base": self.frozen, "trained weights": sum(each.nbytes for each in self.trained)}

    def _encoding(self) -> Iterator[Need]:
        encoders = sum(weight_bytes(each) for each in encoders_of(self.outline))
        if encoders:
            yield Need("encoding texts", {**self._network(), "text encoders": encoders})
        few = min(self.images, at_once(self.outline.pixels))
        weights, work, _ = self._stage(few)
        if weights:
            parts = {**self._network(), "autoencoder": weights, "activations": work}
            yield Need(f"encoding images, {few} at once", parts | {"encoded images": self.latents})

    def _sampling(self) -> Iterator[Need]:
        size, parts = min(self.sampling.batch_size, self.sampling.images), self._network()
        what = f"a step of sampling, {size} images at once"
        scale = self.outline.guidance if self.sampling.guidance is None else self.sampling.guidance
        denoiser = self.outline.denoiser
        guided = not (scale is None or scale == denoiser.unguided or denoiser.embeds_guidance(self.outline.network))
        if self.condition is None:
            yield Need(what, parts, "activations, since the shape of a condition is not known")
        else:
            try:
                guided = guided and bool(self.condition)
                parts["activations"] = sampling_bytes(self.computed, self.condition, size, guided=guided)
                yield Need(what, parts)
            except (RuntimeError, NotImplementedError):
                yield Need(what, parts, "activations, which depend on numbers")
        few = min(size, at_once(self.outline.pixels))
        weights, _, work = self._stage(few)
        if weights:
            latents = self.latents // self.images * size
            parts = {**self._network(), "autoencoder": weights, "activations": work, "latents": latents}
            yield Need(f"decoding images, {few} at once", parts)

    def _stage(self, few: int) -> tuple[int, int, int]:
        return stage_bytes(self.outline, few)


def frozen_bytes(network: nn.Module, *, eight_bits: bool) -> int:
    """Return the bytes of frozen parameters and of buffers, with linear layers in 8 bits or as they are."""
    total = sum(each.nbytes for each in network.buffers())
    for module in network.modules():
        own = [each for each in module.parameters(recurse=False) if not each.requires_grad]
        if eight_bits and type(module) is nn.Linear and own:
            total += eight_bit_bytes(module)
        else:
            total += sum(each.nbytes for each in own)
    return total


def moment_bytes(numbers: int, optimizer: str) -> int:
    """Return the bytes of an optimizer's state for a tensor of so many numbers."""
    if optimizer == "sgd":
        return 0
    if optimizer.endswith("8bit") and numbers >= FEW_NUMBERS:
        return 2 * (numbers + 4 * -(-numbers // BLOCK))
    return 8 * numbers


Precision = Literal["float32", "bf16", "8bit"]


def fitting(load: Load, available: int, precision: Precision | None) -> tuple[list[str], int]:
    """Return the settings, in the words of a study file, with which a step of training fits into ``available`` bytes,
    and the bytes that it then needs: too many, if nothing helps. Settings that change rounding alone come first.
    ``precision`` is that of a frozen base; None: the network is trained whole."""
    chosen: dict[str, object] = {}
    needed = load.of_training().total
    for key, value, changed in _savings(load, precision):
        if needed <= available:
            break
        load = changed(load)
        needed = load.of_training().total
        chosen[key] = value
    return [f"{key}: {value}" for key, value in chosen.items()], needed


def _savings(load: Load, precision: Precision | None) -> Iterator[tuple[str, object, Callable[[Load], Load]]]:
    """Yield settings that need less memory, and how they change a load; later ones add to earlier ones."""

    def trained_with(**settings: Any) -> Callable[[Load], Load]:
        return lambda load: replace(load, training=replace(load.training, **settings))

    if not load.training.gradient_checkpointing and getattr(
        load.outline.network, "_supports_gradient_checkpointing", False
    ):
        yield "model.train.gradient_checkpointing", "true", trained_with(gradient_checkpointing=True)
    size = load.micro_batch
    while size > 1:
        size //= 2
        yield "model.train.micro_batch", size, trained_with(micro_batch=size)
    if precision == "float32":
        yield "model.base", "bf16", lambda load: replace(load, outline=_frozen_in_bf16(load.outline))
    if precision in ("float32", "bf16"):
        yield "model.base", "8bit", lambda load: replace(load, eight_bits=True)


def _frozen_in_bf16(outline: DiffusersModel) -> DiffusersModel:
    """Return ``outline`` with a frozen base in bf16; what is trained stays in float32."""
    other = in_bf16(outline)
    for parameter in other.network.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.float32)
    return other
