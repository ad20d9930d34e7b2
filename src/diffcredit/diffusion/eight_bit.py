"""Frozen linear layers in 8 bits: LLM.int8 (Dettmers et al. 2022), computed by bitsandbytes on a GPU or a CPU.

A weight row w is stored as the integers round(127 w / max|w|) and its scale max|w|. Both are ordinary frozen
parameters: copies of the network share them, and they move between devices with it. bitsandbytes' own layer keeps them
in a state beside the parameters, which copies would duplicate. The inputs are not kept for the backward pass, which
needs the weight alone.
"""

import logging
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.errors import UserError

OUTLIER = 6.0  # inputs of this size and more are multiplied in 16 bits, as the authors do


class Linear8bit(nn.Linear):
    """A frozen linear layer: ``weight`` (out, in) of int8, ``scale`` (out,) and perhaps ``bias`` (out,)."""

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.shape[1], weight.shape[0], bias=False, device="meta")
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, input: Tensor) -> Tensor:
        rows = input.reshape(-1, input.shape[-1])
        return _Product.apply(rows, self.weight, self.scale, self.bias).view(*input.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """x (m, in) → x Wᵀ + b."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:  # ty: ignore[invalid-method-override]
        library = import_module("bitsandbytes")
        state = library.MatmulLtState()  # a new one for each call: it would be written to
        state.CB, state.SCB, state.threshold, state.has_fp16_weights = weight, scale, OUTLIER, False
        state.is_training = False  # else a CPU would multiply without rounding the inputs, in training alone
        return library.matmul(x, weight, bias=None if bias is None else bias.to(x.dtype), state=state)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        _, weight, scale, _ = inputs
        ctx.save_for_backward(weight, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,), (weight, scale) = gradients, ctx.saved_tensors
        return gradient @ (weight.to(gradient.dtype) * (scale / 127)[:, None].to(gradient.dtype)), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        """Multiply the inputs of several samples at once: the weight is the same for all."""
        x, *frozen = args
        several = x.movedim(in_dims[0] or 0, 0)
        return _Product.apply(several.flatten(0, 1), *frozen).unflatten(0, several.shape[:2]), 0


def in_8_bits(network: nn.Module) -> nn.Module:
    """Replace the linear layers of ``network`` by 8-bit ones, in place, one after the other."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it reports each multiplication of bf16 inputs
    try:
        quantised = import_module("bitsandbytes.functional").int8_vectorwise_quant
    except ImportError as error:
        raise UserError(
            f'model.base: 8bit needs the package bitsandbytes ({error}); pip install "diffcredit[8bit]"'
        ) from None
    for name, layer in list(network.named_modules()):
        if type(layer) is nn.Linear:
            with torch.no_grad():
                weight, scale, _ = quantised(layer.weight.to(torch.float16).contiguous())
            network.set_submodule(name, Linear8bit(weight, scale, layer.bias))
    return network


def eight_bit_bytes(layer: nn.Linear) -> int:
    """Return the bytes that a linear layer has as a :class:`Linear8bit`."""
    bias = 0 if layer.bias is None else layer.bias.nbytes
    return layer.weight.numel() + 4 * layer.out_features + bias
