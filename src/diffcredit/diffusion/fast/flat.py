"""All weights of a model in one row of a matrix, so that an optimizer's step is a few operations for all models."""

import math
from collections.abc import Mapping

from torch import Tensor

ALIGNED = 64  # numbers; weights start at multiples, so that kernels can load many at once


class Layout:
    """The position of each of ``weights`` in a row of ``size`` numbers; convolutions are channels last."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.names = list(weights)
        self._shapes = [weight.shape for weight in weights.values()]
        self._starts = [0]
        for shape in self._shapes:
            self._starts.append(self._starts[-1] + -(-math.prod(shape) // ALIGNED) * ALIGNED)
        self.size = self._starts[-1]

    def views(self, lines: Tensor) -> list[Tensor]:
        """Return the rows ``lines`` (K, size) as the weights (K, …), in their order, without a copy."""
        return [
            _view(lines[:, start : start + math.prod(shape)], tuple(shape))
            for shape, start in zip(self._shapes, self._starts, strict=False)
        ]


def _view(piece: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) != 4:
        return piece.unflatten(1, shape)
    out, into, height, width = shape
    return piece.unflatten(1, (out, height, width, into)).permute(0, 1, 4, 2, 3)
