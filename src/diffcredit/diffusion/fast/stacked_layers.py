"""Layers of transformers for K models: embeddings, norms with weights, and tables of shifts and scales.

As in :mod:`~diffcredit.diffusion.fast.stacking`, tensors (K·b, …) are ordered by model, and weights have a leading
dimension K.
"""

import copy
from typing import Any

import torch
from diffusers.models.normalization import FP32LayerNorm, RMSNorm
from torch import Tensor, nn

NORMS = (nn.LayerNorm, nn.RMSNorm, FP32LayerNorm, RMSNorm)
TABLE = "scale_shift_table"
"""The name of diffusers' tables that are added to projections of the time, ``table[None] + vectors``."""


class StackedEmbedding(nn.Module):
    """K embeddings, weights (K, n, d): indices (K·b, …) → (K·b, …, d). Or one, with weights (n, d).

    It is a matrix product with one-hot rows. So is its gradient, whose sums have a fixed order; the gradient of a
    look-up needs atomic additions.
    """

    def __init__(self, layer: nn.Embedding) -> None:
        super().__init__()
        self.weight = layer.weight

    @staticmethod
    def accepts(layer: nn.Embedding) -> bool:
        """Return whether it is a look-up and nothing else."""
        return layer.padding_idx is None and layer.max_norm is None and not layer.scale_grad_by_freq

    def forward(self, index: Tensor) -> Tensor:
        weight = self.weight if self.weight.ndim == 3 else self.weight[None]
        places = torch.arange(weight.shape[1], device=index.device)
        rows = index.reshape(len(weight), -1, 1) == places  # torch's own one_hot looks at the numbers
        return torch.bmm(rows.to(weight.dtype), weight).reshape(*index.shape, -1)


class StackedNorm(nn.Module):
    """K layer norms or RMS norms with weights and biases (K, …): (K·b, …) → (K·b, …). The original layer normalises,
    without its weights."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, getattr(norm, "bias", None)
        self.plain = copy.copy(norm)
        self.plain._parameters = dict.fromkeys(norm._parameters)

    def forward(self, x: Tensor) -> Tensor:
        kind = torch.promote_types(x.dtype, torch.float32)  # rounded once, at the end
        y = self.plain(x.to(kind)).unflatten(0, (len(self.weight), -1))
        y = y * self._beside(self.weight, y)
        if self.bias is not None:
            y = y + self._beside(self.bias, y)
        return y.flatten(0, 1).to(x.dtype)

    @staticmethod
    def _beside(weight: Tensor, y: Tensor) -> Tensor:
        """Return weights (K, …) in a shape that goes with y (K, b, …, …)."""
        return weight.reshape(len(weight), *[1] * (y.ndim - weight.ndim), *weight.shape[1:]).to(y.dtype)


class _Table:
    """K tables (K, r, d), in the place of one in diffusers' ``table[None] + vectors``."""

    def __init__(self, tables: Tensor) -> None:
        self._tables, self.device = tables, tables.device

    def __getitem__(self, index: None) -> "_Table":
        return self

    def __add__(self, vectors: Tensor) -> Tensor:
        """Return the sums (K·b, r, d) with vectors (K·b, r or 1, d) of the samples."""
        return (self._tables[:, None] + vectors.unflatten(0, (len(self._tables), -1))).flatten(0, 1)


def stack_table(module: nn.Module) -> None:
    """Make ``module``, in place, add to each sample's vectors the table of its model."""
    kind: Any = type(module)
    found = property(lambda self: _Table(self._parameters[TABLE]))
    module.__class__ = type(kind.__name__, (kind,), {TABLE: found})
