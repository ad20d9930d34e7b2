"""Pruning of LoRA adapters.

An update ΔW = s · B A of rank r is a sum of r rank-one updates s · b_i a_iᵀ. Each is a *rank pair*: a row of A and a
column of B. The least important pairs of all layers are removed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from diffcredit.retraining.pruning.channels import GRADIENT_THRESHOLD, Importance
from diffcredit.retraining.pruning.structure import check_reached, target_count
from diffcredit.util.seeds import derive_seed


@dataclass(frozen=True)
class _Adapter:
    """The adapter ``name`` of one LoRA layer of peft: A has one row, B one column per pair."""

    layer: Any
    layer_name: str
    name: str

    @property
    def a(self) -> nn.Linear | nn.Conv2d:
        return self.layer.lora_A[self.name]

    @property
    def b(self) -> nn.Linear | nn.Conv2d:
        return self.layer.lora_B[self.name]

    @property
    def rank(self) -> int:
        return self.layer.r[self.name]

    @property
    def pair_size(self) -> int:
        """The parameters of one pair."""
        return (self.a.weight.numel() + self.b.weight.numel()) // self.rank


def has_adapters(network: nn.Module) -> bool:
    return next(_adapters(network), None) is not None


def prune_ranks(network: nn.Module, parameters: float, *, importance: Importance = "magnitude", seed: int = 0) -> None:
    """Keep ``parameters``, a share or a count, of the LoRA parameters of ``network``, in place.

    The importance of a pair is, for ``magnitude``, its update's Frobenius norm |s| · ‖a_i‖ · ‖b_i‖; for ``taylor`` and
    ``diff-pruning``, the first-order change of the loss without it, |⟨a_i, ∂L/∂a_i⟩| (equal to |⟨b_i, ∂L/∂b_i⟩|), from
    the parameters' ``grad``; for ``random``, a random number. ``reinitialised`` chooses by magnitude and draws the
    remaining pairs anew. The least important pairs of all layers are removed first, but every layer keeps one. The
    scale s stays the same, so alpha and the adapter's configuration change with the rank.
    """
    adapters = [*_adapters(network)]
    total = sum(adapter.rank * adapter.pair_size for adapter in adapters)
    target = target_count(parameters, total)
    going = _least(adapters, [_scores(adapter, importance, seed) for adapter in adapters], total - target)
    left = total - sum(len(pairs) * adapter.pair_size for adapter, pairs in zip(adapters, going, strict=True))
    if all(len(pairs) == adapter.rank - 1 for adapter, pairs in zip(adapters, going, strict=True)):
        check_reached(target, total, [left])
    for adapter, pairs in zip(adapters, going, strict=True):
        _remove(adapter, pairs)
    _describe(network, adapters)
    if importance == "reinitialised":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "weights"))
            for adapter in adapters:
                adapter.layer.reset_lora_parameters(adapter.name, init_lora_weights=True)


def _adapters(network: nn.Module) -> Iterator[_Adapter]:
    for layer_name, layer in network.named_modules():
        # recognised by its attributes, not its class, so that peft is needed only where there is an adapter
        if hasattr(layer, "lora_A") and hasattr(layer, "lora_B"):
            for name in layer.lora_A:
                yield _Adapter(layer, layer_name.removeprefix("base_model.model."), name)


def _scores(adapter: _Adapter, importance: Importance, seed: int) -> Tensor:
    a, b = adapter.a.weight, adapter.b.weight
    if importance == "random":
        generator = torch.Generator().manual_seed(derive_seed(seed, adapter.layer_name))
        return torch.rand(adapter.rank, generator=generator)
    if importance in GRADIENT_THRESHOLD:
        return (a * cast(Tensor, a.grad)).flatten(1).sum(dim=1).abs()
    return (
        abs(adapter.layer.scaling[adapter.name]) * a.flatten(1).norm(dim=1) * b.transpose(0, 1).flatten(1).norm(dim=1)
    )


def _least(adapters: list[_Adapter], scores: list[Tensor], excess: int) -> list[set[int]]:
    """Return each adapter's pairs to remove, lowest scores first, so that about ``excess`` parameters are removed."""
    # among equal scores (a fresh adapter updates nothing) the last pairs of every layer come first, hence evenly
    order = sorted(
        (score, -pair, row) for row, values in enumerate(scores) for pair, score in enumerate(values.tolist())
    )
    going: list[set[int]] = [set() for _ in adapters]
    for _, pair, row in order:
        size = adapters[row].pair_size
        if excess < size / 2:
            break
        if len(going[row]) < adapters[row].rank - 1:
            going[row].add(-pair)
            excess -= size
    return going


def _remove(adapter: _Adapter, pairs: set[int]) -> None:
    keep = [pair for pair in range(adapter.rank) if pair not in pairs]
    a, b = adapter.a, adapter.b
    a.weight = nn.Parameter(a.weight.detach()[keep].clone(), requires_grad=a.weight.requires_grad)
    b.weight = nn.Parameter(b.weight.detach()[:, keep].clone(), requires_grad=b.weight.requires_grad)
    setattr(a, "out_features" if isinstance(a, nn.Linear) else "out_channels", len(keep))
    setattr(b, "in_features" if isinstance(b, nn.Linear) else "in_channels", len(keep))
    layer, name = adapter.layer, adapter.name
    divisor = math.sqrt(len(keep)) if layer.use_rslora[name] else len(keep)
    layer.r[name], layer.lora_alpha[name] = len(keep), layer.scaling[name] * divisor


def _describe(network: nn.Module, adapters: list[_Adapter]) -> None:
    """Write every layer's rank and alpha to the adapters' configurations, from which peft and diffusers load."""
    for name, config in cast(Any, network).peft_config.items():
        own = [adapter for adapter in adapters if adapter.name == name]
        # all layers, since peft takes the first of several patterns that match
        config.rank_pattern = {adapter.layer_name: adapter.rank for adapter in own}
        config.alpha_pattern = {adapter.layer_name: adapter.layer.lora_alpha[name] for adapter in own}
