"""The interface of a denoiser: how one network architecture of diffusers is called.

A denoiser has no weights and no state. One small file an architecture; everything else is shared. A user's own class
inherits from :class:`Denoiser`, or from :class:`TextDenoiser` where it is part of a pipeline with texts, and a study
file names it, ``denoiser: "my_package.module:MyDenoiser"``. :func:`diffcredit.testing.check_denoiser` checks it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from diffcredit.diffusion.conditions import Conditions
from diffcredit.diffusion.objectives.flow import Density


class Denoiser(ABC):
    """How one architecture is called."""

    network: ClassVar[str]
    """The name of diffusers' class."""

    targets: ClassVar[tuple[str, ...]] = ("to_q", "to_k", "to_v", "to_out.0")
    """How the names of the linear layers end that an adapter changes by default."""

    component: ClassVar[str] = "transformer"
    """The network's folder in a pipeline, which is also the prefix of a saved adapter's weights."""

    unguided: ClassVar[float] = 1.0
    """The guidance at which :meth:`guide` returns the prediction with the condition."""

    ragged: ClassVar[bool] = False
    """Whether shapes within the network depend on numbers, as where texts are cut to their lengths. Such a network can
    neither be compiled nor take several samples by ``vmap``."""

    @abstractmethod
    def predict(
        self,
        network: nn.Module,
        x: Tensor,
        time: Tensor,
        condition: Mapping[str, Tensor] | None,
        guidance: float | None = None,
    ) -> Tensor:
        """Return what the objective wants of ``network`` for x (m, c, h, w), such as the noise or the velocity.

        ``time`` (m,) is what :meth:`Objective.times` gives: the integer time step of a noise schedule, or σ in [0, 1]
        of flow matching in float32, which is never rounded. The tensors of ``condition`` are (m, …). ``guidance`` is
        for networks that are told it (:attr:`embeds_guidance`).
        """

    # What a denoiser may have

    def embeds_guidance(self, network: nn.Module) -> bool:
        """Return whether the network is told how strongly to follow its condition, instead of being called twice."""
        return False

    def guide(self, without: Tensor, following: Tensor, scale: float) -> Tensor:
        """Return the guided prediction (Ho and Salimans 2022), given those without and with the condition."""
        return without + scale * (following - without)

    def check_size(self, network: nn.Module, side: int) -> None:  # noqa: B027
        """Raise a UserError if the network cannot take inputs (c, side, side)."""

    def prepared(self, network: nn.Module) -> nn.Module:
        """Return the loaded network, changed in place so that its results do not depend on unseeded numbers or on the
        precision of the time."""
        return network


class PipelineDenoiser(Denoiser):
    """How the network of a pipeline is called, whose conditions are class labels."""

    pipelines: ClassVar[tuple[str, ...]]
    """The classes of diffusers' pipelines that it serves, as ``_class_name`` in ``model_index.json``."""

    guidance: ClassVar[float]
    """The pipeline's own guidance."""

    density: ClassVar[Density] = Density()
    """The usual training density of σ, for pipelines of flow matching."""

    precision: ClassVar[Literal["float32", "bf16"]] = "bf16"
    """The type in which the frozen network is kept unless a study says otherwise."""

    loads_adapters: ClassVar[bool] = True
    """Whether the pipeline has ``load_lora_weights``."""

    def check(self, folder: Path, index: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Raise a UserError if the pipeline in ``folder`` cannot be trained, given its ``model_index.json`` and the
        network's config: inpainting, distilled few-step models."""

    def sigmas(self, scheduler: Any, steps: int, side: int) -> Tensor:
        """Return the σ (steps + 1,) at which the pipeline samples latents (c, side, side): flow matching alone.
        ``scheduler`` is a fresh FlowMatchEulerDiscreteScheduler with the pipeline's config."""
        scheduler.set_timesteps(steps)
        return torch.as_tensor(scheduler.sigmas).cpu()


class TextDenoiser(PipelineDenoiser):
    """How the network of a text-to-image pipeline is called, and how the pipeline encodes a text."""

    parts: ClassVar[Mapping[str, tuple[str, ...]]]
    """The pipeline's parts that encode a text: the accepted classes of transformers by folder."""

    told: ClassVar[tuple[str, ...]] = ()
    """The settings in ``model_index.json`` that a condition depends on."""

    def text_pipeline(self, kind: type, parts: Mapping[str, Any], index: Mapping[str, Any]) -> Any:
        """Return the pipeline of class ``kind`` with nothing but its text ``parts``, for :meth:`encode`."""
        import inspect

        known = inspect.signature(kind.__init__).parameters
        settings = {name: value for name, value in index.items() if name in known and not isinstance(value, list)}
        missing = {name: None for name, each in known.items() if name != "self" and each.default is each.empty}
        return kind(**(missing | settings | dict(parts)))

    @abstractmethod
    def encode(self, pipeline: Any, text: str, pixels: int) -> Conditions:
        """Return the condition of one text, without a leading dimension, computed by a ``pipeline`` that has nothing
        but its ``parts``. ``pixels`` is the side of the images."""

    def outline(self, config: Mapping[str, Any]) -> Conditions | None:
        """Return the condition of a text without numbers (device ``meta``), given the network's ``config``. Needed only
        where :meth:`encode` cannot compute on that device, to estimate the memory of a study."""
        return None

    def nothing(self, pipeline: Any, pixels: int) -> Conditions:
        """Return the condition of no text, which guidance starts from."""
        return self.encode(pipeline, "", pixels)
