"""The tiny autoencoders of TAESD (Ollin Boer Bohan, MIT) in their author's file layout.

Those for newer latent spaces, such as TAEF2's of 32 channels, have a pooling branch in their middle blocks, which
diffusers' AutoencoderTiny does not support. An encoder or decoder is one sequence of layers. Its file has the weights
by position; the layers at positions without weights follow from the rest.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.errors import UserError

POOL_GROUPS = 4
LARGEST_LATENT = 3.0  # the decoder's input is limited softly to ± this


class _Block(nn.Module):
    """relu(x' + conv(relu(conv(relu(conv(x')))))), with x' = x + pool(x) where there is a pooling branch."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        convolutions = [_convolution(tensors, f"conv.{index}") for index in (0, 2, 4)]
        self.conv = nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU(), convolutions[2])
        self.pool: nn.Module | None = None
        if "pool.0.weight" in tensors:
            wide = tensors["pool.0.weight"].shape[0]
            norm = nn.GroupNorm(POOL_GROUPS, wide)
            self.pool = nn.Sequential(_convolution(tensors, "pool.0"), norm, nn.ReLU(), _convolution(tensors, "pool.3"))

    def forward(self, x: Tensor) -> Tensor:
        if self.pool is not None:
            x = x + self.pool(x)
        return torch.relu(x + self.conv(x))


class _SoftLimit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x / LARGEST_LATENT) * LARGEST_LATENT


def _convolution(tensors: Mapping[str, Tensor], name: str, stride: int = 1) -> nn.Conv2d:
    wide, narrow, side, _ = tensors[f"{name}.weight" if name else "weight"].shape
    bias = f"{name}.bias" if name else "bias"
    return nn.Conv2d(narrow, wide, side, stride=stride, padding=side // 2, bias=bias in tensors)


def _layers(tensors: Mapping[str, Tensor], *, decoder: bool) -> nn.Sequential:
    by_place: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        place, _, rest = name.partition(".")
        by_place.setdefault(int(place), {})[rest] = tensor
    layers: list[nn.Module] = []
    for place in range(max(by_place) + 1):
        own = by_place.get(place)
        if own is None:  # the decoder's layers without weights: the limit, its activation, upsamplings
            layers.append(_SoftLimit() if place == 0 else nn.ReLU() if place == 2 else nn.Upsample(scale_factor=2))
        elif "conv.0.weight" in own:
            layers.append(_Block(own))
        else:
            # the encoder halves its sides in the convolutions without bias
            layers.append(_convolution(own, "", stride=1 if decoder or "bias" in own else 2))
    sequence = nn.Sequential(*layers)
    sequence.load_state_dict(dict(tensors))
    return sequence


class TAESD(nn.Module):
    """Images in [−1, 1] ↔ latents, with the interface of diffusers' autoencoders."""

    config: Mapping[str, Any] = {}

    def __init__(self, encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.encoder, self.decoder = _layers(encoder, decoder=False), _layers(decoder, decoder=True)
        self.fingerprint = ""

    def encode(self, x: Tensor) -> SimpleNamespace:
        return SimpleNamespace(latents=self.encoder((x + 1) / 2))

    def decode(self, z: Tensor) -> SimpleNamespace:
        return SimpleNamespace(sample=self.decoder(z) * 2 - 1)


def find_pair(folder: Path) -> tuple[Path, Path] | None:
    """Return the encoder's and the decoder's file in ``folder``, if it has one pair."""
    pairs = [
        (encoder, encoder.with_name(encoder.name.replace("_encoder", "_decoder")))
        for encoder in sorted(folder.glob("*_encoder.pth"))
    ]
    there = [pair for pair in pairs if pair[1].is_file()]
    if len(there) > 1:
        raise UserError(f"{folder}: holds {len(there)} pairs of *_encoder.pth and *_decoder.pth; one is accepted")
    return there[0] if there else None


def load(encoder: Path, decoder: Path) -> TAESD:
    digest = hashlib.sha256()
    tensors = []
    for file in (encoder, decoder):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
        try:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # an untrusted file may make torch raise anything
            raise UserError(f"{file}: not readable weights ({' '.join(str(error).split())[:200]})") from None
        if not isinstance(loaded, dict) or not all(
            isinstance(tensor, Tensor) and re.match(r"\d+\.", str(name)) for name, tensor in loaded.items()
        ):
            raise UserError(f"{file}: not the weights of a tiny autoencoder; layers named by their place are expected")
        tensors.append(loaded)
    try:
        autoencoder = TAESD(*tensors)
    except (RuntimeError, KeyError, ValueError) as error:
        raise UserError(
            f"{encoder}: not the weights of a tiny autoencoder ({' '.join(str(error).split())[:200]})"
        ) from None
    autoencoder.fingerprint = digest.hexdigest()
    return autoencoder
