"""Models without numbers: everything of a model but the values of its weights, made from the configs of its files."""

import copy
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion.captions import CaptionEncoder
from diffcredit.diffusion.conditions import ClassLabels, Conditioner, Conditions
from diffcredit.diffusion.denoisers.base import TextDenoiser
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.memory.live_bytes import LiveBytes
from diffcredit.diffusion.model import Family
from diffcredit.diffusion.pipeline import Pipeline
from diffcredit.diffusion.pretrained import convert, loading
from diffcredit.diffusion.text_to_image import LoRAFamily, TextToImageLoRA
from diffcredit.diffusion.texts import TextEncoders

Network = TypeVar("Network", bound=nn.Module)

EMPTY = "meta"  # the device of tensors without numbers


class PipelineOutline(Pipeline):
    """A pipeline whose network and text encoders have no numbers."""

    @cached_property
    def _network(self) -> nn.Module:
        return self.outline

    def _make_conditioner(self) -> Conditioner:
        if not isinstance(self.denoiser, TextDenoiser):
            return super()._make_conditioner()
        return TextsOutline(self.folder, self.denoiser, self.index, self.computes or torch.float32)


class TextsOutline(TextEncoders):
    """Text encoders without numbers, beside real tokenizers."""

    def _loaded(self, kind: Any, folder: Path) -> Any:
        return empty_encoder(kind, folder, self.dtype)

    @cached_property
    def encoders(self) -> list[nn.Module]:
        return [each for each in self.pipeline.components.values() if isinstance(each, nn.Module)]

    @cached_property
    def pipeline(self) -> Any:
        return self._load()

    def condition(self, config: dict[str, Any], pixels: int) -> Conditions | None:
        """Return a condition of the network with this ``config``; None if its shape is not known."""
        known = self.denoiser.outline(config)
        if known is None:
            try:
                with torch.no_grad(), LiveBytes():
                    known = self.denoiser.encode(self.pipeline, "a text", pixels)
            except (RuntimeError, NotImplementedError):  # it depends on numbers
                return None
        return {name: each.to(self.dtype) if each.is_floating_point() else each for name, each in known.items()}


def empty_encoder(kind: Any, folder: Path, dtype: torch.dtype) -> nn.Module:
    """Return the text encoder of transformers' class ``kind`` in ``folder``, without numbers."""
    with loading(kind, folder), _numbers_of(dtype), torch.device(EMPTY):
        return convert(kind(kind.config_class.from_pretrained(folder, local_files_only=True)), dtype)


@contextmanager
def _numbers_of(dtype: torch.dtype) -> Generator[None]:
    """Make tensors of ``dtype`` by default, as transformers does while it loads."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def outline_of(family: Family, contributions: Contributions) -> DiffusersModel | None:
    """Return a model of ``family`` without numbers, before its training; None for a family of another make. Networks
    that are trained whole are made, and their numbers forgotten."""
    if isinstance(family, LoRAFamily) and isinstance(family.frozen, Pipeline):
        base = PipelineOutline(family.frozen.folder, family.frozen.denoiser, family.base)
        side = contributions.images.shape[1]
        return TextToImageLoRA.create(base, family.first_adapter, ["a text"], family.prompt, side, 0, family.density)
    model = family.start(contributions, 0)
    if not isinstance(model, DiffusersModel):
        return None
    outline = copy.copy(model)
    outline.network = emptied(model.network)  # a frozen base is not ours to change
    return outline


def emptied(network: Network) -> Network:
    """Return a copy of ``network`` without numbers; none are copied."""
    parameters = {id(each): nn.Parameter(each.to(EMPTY), each.requires_grad) for each in network.parameters()}
    buffers = {id(each): each.to(EMPTY) for each in network.buffers()}
    return copy.deepcopy(network, {**parameters, **buffers})


def condition_of(outline: DiffusersModel) -> Conditions | None:
    """Return the condition of one image, without numbers; None if its shape is not known. Empty without conditions."""
    match outline.conditioner:
        case None:
            return {}
        case ClassLabels():
            return {"class_labels": torch.empty((), dtype=torch.long, device=EMPTY)}
        case CaptionEncoder() as encoder:
            hidden, pooled = encoder.widths["hidden"], encoder.widths["pooled"]
            return {
                "encoder_hidden_states": torch.empty(encoder.tokens, hidden, device=EMPTY),
                "pooled_projections": torch.empty(pooled, device=EMPTY),
            }
        case TextsOutline() as texts:
            config: Any = outline.network.config
            return texts.condition(dict(config), outline.pixels)
        case _:
            return None


def encoders_of(outline: DiffusersModel) -> Sequence[nn.Module]:
    """Return the text encoders of a model, without numbers."""
    match outline.conditioner:
        case TextsOutline() as texts:
            return texts.encoders
        case CaptionEncoder() as encoder:
            return [empty_encoder(encoder.network, encoder.reference, torch.float32)]
        case _:
            return []


def batch_of(condition: Conditions, size: int) -> dict[str, Tensor]:
    """Return the conditions of a batch, one for each image."""
    return {name: torch.empty(size, *each.shape, dtype=each.dtype, device=EMPTY) for name, each in condition.items()}
