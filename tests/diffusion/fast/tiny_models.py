"""Models of every architecture with tiny networks and made-up conditions, whole or as adapters on a frozen base."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from diffcredit.diffusion.adapters import fresh, projections
from diffcredit.diffusion.conditions import ClassLabels, Conditioner, Conditions
from diffcredit.diffusion.denoisers.base import Denoiser
from diffcredit.diffusion.denoisers.dit import DiT
from diffcredit.diffusion.denoisers.flux import Flux
from diffcredit.diffusion.denoisers.flux_2 import Flux2Klein
from diffcredit.diffusion.denoisers.pixart import PixArtSigma
from diffcredit.diffusion.denoisers.qwen_image import QwenImage
from diffcredit.diffusion.denoisers.sana import Sana
from diffcredit.diffusion.denoisers.stable_diffusion import StableDiffusion
from diffcredit.diffusion.denoisers.stable_diffusion_3 import StableDiffusion3
from diffcredit.diffusion.denoisers.stable_diffusion_xl import StableDiffusionXL
from diffcredit.diffusion.denoisers.z_image import ZImage
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.model import Batch
from diffcredit.diffusion.objectives import FlowMatching, NoiseSchedule

from .. import tiny_pipelines, tiny_transformers
from ..tiny_transformers import SIDE, TEXT, TOKENS

TEXTS = ("boat", "tree", "a red harbour")
IMAGES = 12


def hidden(draw: Callable[..., Tensor]) -> Conditions:
    return {"encoder_hidden_states": draw(TOKENS, TEXT)}


def pooled(draw: Callable[..., Tensor]) -> Conditions:
    return hidden(draw) | {"pooled_projections": draw(TEXT)}


def masked(name: str) -> Callable[[Callable[..., Tensor]], Conditions]:
    """Of texts of different lengths."""

    def made(draw: Callable[..., Tensor]) -> Conditions:
        states = hidden(draw)
        return states | {name: torch.arange(TOKENS) < 3 + int(draw().abs() * 9) % 3}

    return made


def listed(draw: Callable[..., Tensor]) -> Conditions:
    states, mask = masked("mask")(draw).values()
    return {"hidden_states": states, "mask": mask}


def sized(draw: Callable[..., Tensor]) -> Conditions:
    return hidden(draw) | {"text_embeds": draw(10), "time_ids": torch.tensor([16, 16, 0, 0, 16, 16])}


def sdxl_unet() -> Any:
    return tiny_pipelines.conditional_unet(
        attention_head_dim=(2, 4),
        transformer_layers_per_block=(1, 2),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=4,
        projection_class_embeddings_input_dim=6 * 4 + 10,
    )


def transformer(name: str, **changes: Any) -> Callable[[], Any]:
    return lambda: tiny_transformers.build(f"{name}Transformer2DModel", **changes)


@dataclass(frozen=True)
class Kind:
    denoiser: Denoiser
    network: Callable[[], Any]
    condition: Callable[[Callable[..., Tensor]], Conditions] | None  # None: a label
    shape: tuple[int, int, int] = (4, SIDE, SIDE)
    flow: bool = True


KINDS = {
    "sd": Kind(StableDiffusion(), tiny_pipelines.conditional_unet, hidden, flow=False),
    "sdxl": Kind(StableDiffusionXL(), sdxl_unet, sized, flow=False),
    "sd3": Kind(StableDiffusion3(), transformer("SD3"), pooled),
    "flux": Kind(Flux(), transformer("Flux"), pooled),
    "flux-told": Kind(Flux(), transformer("Flux", guidance_embeds=True), pooled),
    "flux2": Kind(Flux2Klein(), transformer("Flux2"), hidden, shape=(16, 4, 4)),
    "qwen": Kind(QwenImage(), transformer("QwenImage"), masked("encoder_hidden_states_mask")),
    "z-image": Kind(ZImage(), transformer("ZImage"), listed),
    "sana": Kind(Sana(), transformer("Sana"), masked("encoder_attention_mask")),
    "pixart": Kind(PixArtSigma(), transformer("PixArt"), masked("encoder_attention_mask"), flow=False),
    "dit": Kind(DiT(), transformer("DiT", num_embeds_ada_norm=len(TEXTS)), None),
}


class MadeUp(Conditioner):
    """Conditions that follow from a text's hash."""

    fingerprint = "made up"

    def __init__(self, make: Callable[[Callable[..., Tensor]], Conditions]) -> None:
        super().__init__()
        self._make = make

    def encode(self, texts: Sequence[str | None], pixels: int, device: torch.device) -> Iterable[Conditions]:
        for text in texts:
            generator = torch.Generator().manual_seed(sum((text or "").encode()))
            yield self._make(lambda *shape, generator=generator: torch.randn(shape, generator=generator))


class Latents:
    """In the place of an autoencoder: what is decoded is the latents themselves."""

    factor, fingerprint = 1, ""

    def __init__(self, channels: int) -> None:
        self.channels = channels

    def decode(self, x: Tensor) -> Any:
        return x.permute(0, 2, 3, 1).cpu().numpy().copy()


class TinyModel(DiffusersModel):
    family = "tiny"
    fingerprint = "tiny"

    def __init__(self, kind: Kind, network: nn.Module, *, dropout: float = 0.0) -> None:
        self.network, self.denoiser = network.eval(), kind.denoiser
        self.conditioner = ClassLabels(TEXTS) if kind.condition is None else MadeUp(kind.condition)
        self.objective = FlowMatching() if kind.flow else NoiseSchedule({"clip_sample": False})
        self.stage, self.size = Latents(kind.shape[0]), kind.shape[1]
        self.prompts, self.guidance, self.condition_dropout = TEXTS, 2.0, dropout

    def untrained(self, seed: int) -> Any:
        raise NotImplementedError

    def save(self, directory: Any) -> None:
        raise NotImplementedError


def whole(name: str, seed: int, *, dropout: float = 0.3) -> TinyModel:
    """A model of which all weights are trained."""
    kind = KINDS[name]
    network = kind.denoiser.prepared(kind.network())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    return TinyModel(kind, network, dropout=dropout)


class Base:
    """A frozen network, shared by all adapters on it."""

    def __init__(self, name: str, dtype: torch.dtype = torch.float32) -> None:
        self.kind, self.dtype = KINDS[name], dtype
        network = nn.Module.to(self.kind.network(), dtype)
        self._network = self.kind.denoiser.prepared(network).requires_grad_(False)

    def network(self) -> Any:
        return copy.deepcopy(self._network, {id(weight): weight for weight in self._network.parameters()})

    def adapted(self, seed: int) -> TinyModel:
        """A model with an adapter of rank 2 that changes the base's predictions; its weights are in float32, or float64
        if the base's are."""
        ranks = dict.fromkeys(projections(self._network, self.kind.denoiser.targets), 2)
        network = fresh(SimpleNamespace(network=self.network), ranks, {}, seed)
        draws = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in network.parameters():
                if weight.requires_grad:
                    weight.copy_(0.1 * torch.randn(weight.shape, generator=draws))
                    weight.data = weight.data.double() if self.dtype == torch.float64 else weight.data
        model = TinyModel(self.kind, network)
        model.computes = torch.bfloat16 if self.dtype == torch.bfloat16 else None
        return model


def data_of(like: DiffusersModel, dtype: torch.dtype = torch.float32) -> Batch:
    """Latents with the texts of TEXTS in turn."""
    x = torch.randn(IMAGES, *like.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    conditions, condition_of = like.conditions([TEXTS[place % len(TEXTS)] for place in range(IMAGES)], IMAGES)
    wide = {name: each.to(dtype) if each.is_floating_point() else each for name, each in conditions.items()}
    return Batch(x, x.flip(-1), torch.arange(IMAGES), wide, condition_of)


def moved(batch: Batch, device: str) -> Batch:
    conditions = {name: each.to(device) for name, each in (batch.conditions or {}).items()}
    assert batch.condition_of is not None
    return Batch(batch.x.to(device), batch.flipped.to(device), batch.rows, conditions, batch.condition_of.to(device))


def trained_weights(of: DiffusersModel) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in of.network.parameters() if weight.requires_grad])


def latents(found: np.ndarray) -> Tensor:
    return torch.from_numpy(found).permute(0, 3, 1, 2)
