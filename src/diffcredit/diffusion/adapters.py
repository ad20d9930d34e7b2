"""LoRA adapters: updates W + s B A of chosen layers of a frozen network.

s = α/r is a layer's scale. It is a factor of the update and, since an optimizer's steps on B do not depend on it, also
of the speed at which the layer learns. So a network keeps the scales that its adapter was trained with. A file has s B
in place of B, which every program reads alike, and scales are powers of two, so that nothing is rounded on the way.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from diffcredit.diffusion.digests import tensors_fingerprint
from diffcredit.diffusion.frozen import FrozenBase
from diffcredit.diffusion.texts import MISSING_PACKAGES
from diffcredit.errors import UserError
from diffcredit.util.artifacts import canonical_json

WEIGHTS = "pytorch_lora_weights.safetensors"  # where diffusers looks for an adapter
METADATA = "lora_adapter_metadata"  # where diffusers looks for ranks and scales in such a file
NAME = "default"  # of the adapter on a network of peft
A, B = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True)
class Adapter:
    """An adapter as files have it: ``tensors`` are A (r, in, …) and s B (out, r, …) of each layer, named
    ``LAYER.lora_A.weight`` and ``LAYER.lora_B.weight``. ``scales`` are the s of layers where it is not 1."""

    tensors: Mapping[str, Tensor]
    scales: Mapping[str, float] = field(default_factory=dict)

    @property
    def ranks(self) -> dict[str, int]:
        return {name.removesuffix(A): len(a) for name, a in self.tensors.items() if name.endswith(A)}

    @property
    def fingerprint(self) -> str:
        return tensors_fingerprint(self.tensors, canonical_json(dict(self.scales)) if self.scales else "")


def projections(network: nn.Module, targets: tuple[str, ...]) -> list[str]:
    """Return the names of the linear layers of ``network`` that end like one of ``targets``."""
    linear = (name for name, module in network.named_modules() if isinstance(module, nn.Linear))
    return [name for name in linear if name.endswith(targets)]


def fresh(base: FrozenBase, ranks: Mapping[str, int], scales: Mapping[str, float], seed: int) -> nn.Module:
    """Return the pipeline's network with a fresh adapter, A normal and B zero, which changes nothing."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UserError(MISSING_PACKAGES) from None
    network: Any = base.network()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LoraConfig(**ranks_and_scales(ranks, scales), init_lora_weights="gaussian")
        config.target_modules = _exactly(ranks)
        if hasattr(network, "add_adapter"):
            network.add_adapter(config, NAME)
        else:  # some networks of diffusers have no loader of their own
            inject_adapter_in_model(config, network, NAME)
    for parameter in network.parameters():
        if parameter.requires_grad:  # a base in bf16 gives adapters in bf16, which small steps would not change
            parameter.data = parameter.data.float()
    return network


def with_adapter(base: FrozenBase, adapter: Adapter) -> nn.Module:
    """Return the pipeline's network with ``adapter``, which fits it."""
    network = fresh(base, adapter.ranks, adapter.scales, seed=0)  # peft draws weights, which the given ones replace
    with torch.no_grad():
        for name, layer in _layers(network):
            layer.lora_A[NAME].weight.copy_(adapter.tensors[name + A])
            layer.lora_B[NAME].weight.copy_(adapter.tensors[name + B] / layer.scaling[NAME])
    return network


def adapter_of(network: nn.Module) -> Adapter:
    """Return the adapter on ``network``, its tensors on the CPU."""
    tensors, scales = {}, {}
    for name, layer in _layers(network):
        if (scale := layer.scaling[NAME]) != 1:
            scales[name] = scale
        tensors[name + A] = layer.lora_A[NAME].weight.detach().cpu().contiguous()
        tensors[name + B] = (layer.lora_B[NAME].weight.detach() * scale).cpu().contiguous()
    return Adapter(tensors, scales)


def write_adapter(adapter: Adapter, component: str, file: Path) -> None:
    """Write ``adapter`` as diffusers does, so that any pipeline of its base loads it into ``component``."""
    # without it, older versions of diffusers give layers of unusual rank another scale
    described = ranks_and_scales(adapter.ranks, {})
    metadata = canonical_json({f"{component}.{key}": value for key, value in described.items()})
    tensors = {f"{component}.{name}": tensor for name, tensor in adapter.tensors.items()}
    save_file(tensors, file, {"format": "pt", METADATA: metadata})


def fitting(tensors: Mapping[str, Tensor], base: FrozenBase, file: Path) -> list[str]:
    """Return the layers of the adapter ``tensors``, which was read from ``file``; raise a UserError about the first one
    that does not fit the pipeline's network."""
    if strange := [name for name in tensors if not name.endswith((A, B))]:
        raise UserError(
            f"{file}: {strange[0]} is no factor of LoRA; their names end in lora_A.weight and lora_B.weight"
        )
    names = [*dict.fromkeys(name.removesuffix(A).removesuffix(B) for name in tensors)]
    network = base.outline
    there, known = f"{base.folder / base.denoiser.component}", dict(network.named_modules())
    for name in names:
        layer, factors = known.get(name), [tensors.get(name + factor) for factor in (A, B)]
        if layer is None:
            kind = type(network).__name__
            raise UserError(f"{file}: not an adapter of this network: {there} ({kind}) has no layer {name}")
        if not isinstance(layer, nn.Linear) and not (isinstance(layer, nn.Conv2d) and layer.groups == 1):
            kind = type(layer).__name__
            raise UserError(f"{file}: {name} is a {kind} in {there}; accepted: linear layers and convolutions")
        if None in factors:
            missing = "lora_A" if factors[0] is None else "lora_B"
            raise UserError(f"{file}: not a whole adapter; {missing} of {name} is missing")
        a, b = (tuple(cast(Tensor, factor).shape) for factor in factors)
        if (a, b) != (expected := _shapes(layer, max(1, *a[:1]))):
            raise UserError(
                f"{file}: not an adapter of this network: {name} has lora_A {a} and lora_B {b}; for {there} they are "
                f"{expected[0]} and {expected[1]}"
            )
    return names


def ranks_and_scales(ranks: Mapping[str, int], scales: Mapping[str, float]) -> dict[str, Any]:
    """Return the arguments of peft's LoraConfig for layers of these ranks and scales (1 unless given)."""
    # whole numbers stay whole, as programs write them
    alphas = {name: rank if scales.get(name, 1) == 1 else rank * scales[name] for name, rank in ranks.items()}
    rank, other_ranks = _usual(ranks)
    alpha, other_alphas = _usual(alphas)
    return {
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": other_ranks,
        "alpha_pattern": other_alphas,
        "target_modules": list(ranks),
    }


def _usual(numbers: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """Return the most common number, and the others by the pattern of their layer's name."""
    usual = Counter(numbers.values()).most_common(1)[0][0]
    return usual, {f"^{re.escape(name)}$": number for name, number in numbers.items() if number != usual}


def _exactly(names: Iterable[str]) -> str:
    """Return the pattern of these layers; by a list, peft would also find layers that end like one of them."""
    return "|".join(re.escape(name) for name in names)


def _layers(network: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, layer in network.named_modules():
        if NAME in getattr(layer, "lora_A", {}):
            yield name, layer


def _shapes(layer: nn.Linear | nn.Conv2d, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(layer, nn.Linear):
        return (rank, layer.in_features), (layer.out_features, rank)
    return (rank, layer.in_channels, *layer.kernel_size), (layer.out_channels, rank, 1, 1)
