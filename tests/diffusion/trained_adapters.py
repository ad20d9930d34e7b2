"""Adapters as trainers leave them: trained by plain peft, and written under the names of each trainer."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor, nn


@dataclass(frozen=True)
class Factors:
    """The update (α/r) B A of a layer."""

    a: Tensor
    b: Tensor
    alpha: float

    @property
    def rank(self) -> int:
        return len(self.a)

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @property
    def update(self) -> Tensor:
        flat = self.b.flatten(1) @ self.a.flatten(1)
        return self.scale * flat.reshape(len(self.b), *self.a.shape[1:])


Trained = Mapping[str, Factors]  # by layer


def adaptable(network: nn.Module, *parts: str) -> list[str]:
    """The linear layers and convolutions with one of ``parts`` in their names."""
    layers = (name for name, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d))
    return [name for name in layers if any(part in name for part in parts)]


def trained(network: Any, layers: Iterable[str], rank: int, alpha: float, *, narrow: str = "ff", **options: Any) -> Any:
    """``network`` with an adapter by plain peft, of half the rank in layers named ``narrow``. A few steps on noise
    train it, from a B that is far enough from zero to change images."""
    layers = list(layers)
    ranks = {f"^{name.replace('.', '[.]')}$": rank // 2 for name in layers if narrow in name}
    config = LoraConfig(r=rank, lora_alpha=alpha, rank_pattern=ranks, target_modules=layers, **options)
    network.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network.add_adapter(config)
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.data = torch.randn(parameter.shape) * 0.4 / math.sqrt(alpha)
        weights = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            torch.stack([(w * torch.randn(w.shape)).sum() for w in weights]).sum().backward()
            optimizer.step()
    return network


def factors_of(network: nn.Module) -> dict[str, Factors]:
    return {
        name: Factors(layer.lora_A["default"].weight.detach(), layer.lora_B["default"].weight.detach(), alpha)
        for name, layer in network.named_modules()
        if hasattr(layer, "lora_A")
        for alpha in [float(layer.lora_alpha["default"])]
    }


def random_factors(shapes: Mapping[str, tuple[int, int]], rank: int, alpha: float) -> dict[str, Factors]:
    """Factors of layers (into, out of which so many numbers go), such as trainers have that fuse layers."""
    draws = torch.Generator().manual_seed(2)
    return {
        name: Factors(
            torch.randn(rank, into, generator=draws) / math.sqrt(into),
            torch.randn(out, rank, generator=draws) / math.sqrt(alpha),
            alpha,
        )
        for name, (into, out) in shapes.items()
    }


def by_diffusers(file: Path, kind: Any, component: str, network: Any) -> Path:
    """As diffusers' training scripts write it, with the ranks and α in the file's metadata."""
    kind.save_lora_weights(
        file.parent,
        **{f"{component}_lora_layers": get_peft_model_state_dict(network, adapter_name="default")},
        **{f"{component}_lora_adapter_metadata": network.peft_config["default"].to_dict()},
        weight_name=file.name,
    )
    return file


def by_kohya(file: Path, factors: Trained, start: str = "lora_unet_") -> Path:
    """As sd-scripts writes it: flat names, and an α for each layer."""
    tensors = {}
    for name, each in factors.items():
        own = start + name.replace(".", "_")
        tensors[f"{own}.lora_down.weight"] = each.a.clone()
        tensors[f"{own}.lora_up.weight"] = each.b.clone()
        tensors[f"{own}.alpha"] = torch.tensor(each.alpha)
    save_file(tensors, file, {"ss_network_module": "networks.lora"})
    return file


def by_ai_toolkit(file: Path, factors: Trained, start: str, dtype: torch.dtype = torch.float32) -> Path:
    """As ai-toolkit writes it: peft's names without α, which is the rank."""
    tensors = {}
    for name, each in factors.items():
        tensors[f"{start}.{name}.lora_A.weight"] = each.a.to(dtype).clone()
        tensors[f"{start}.{name}.lora_B.weight"] = (each.scale * each.b).to(dtype)
    save_file(tensors, file, {"format": "pt"})
    return file


def in_sgm(layer: str, layers_per_block: int) -> str:
    """The name that Stable Diffusion XL's own code has for a layer of diffusers' U-Net."""
    parts, each = layer.split("."), layers_per_block + 1
    if parts[0] == "mid_block":
        return ".".join(["middle_block.1", *parts[3:]])
    (block, place), rest = (int(parts[1]), int(parts[3])), parts[4:]
    start = (
        f"input_blocks.{1 + block * each + place}"
        if parts[0] == "down_blocks"
        else f"output_blocks.{block * each + place}"
    )
    return ".".join([start, "1", *rest])
