"""The weights of training images in the optimal denoising of an image's patches, by convolutions."""

from functools import partial
from itertools import groupby, product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from diffcredit.diffusion.micro_batches import in_smaller_batches

NUMBERS = 2**23  # distances in memory at a time: 32 MiB, with a few copies
KERNELS = 1024  # patches at a time: with few, a convolution spends its time copying the images


class PatchWeights:
    """Training images (m, c, h, w), compared by patches of ``patch`` pixels a side with noisy images
    √ᾱ x + √(1 − ᾱ) ε; ``signal`` is ᾱ.

    Patches are compared by their sums over ``cell`` × ``cell`` pixels, divided by ``cell``: an orthonormal projection,
    which keeps the variance of noise. It is a convolution of the summed images with taps ``cell`` pixels apart. With
    p = ⌊(patch − 1)/2⌋ pixels around an image, there are h + 2p − patch + 1 patches in a column.
    """

    def __init__(self, training: Tensor, patch: int, cell: int, signal: float) -> None:
        self._patch, self._cell, self._taps, self._variance = patch, cell, patch // cell, 1 - signal
        self._numbers = NUMBERS
        self._images = self._summed(training) * signal**0.5
        ones = self._images.new_ones(1, 1, self._taps, self._taps)
        squares = self._images.square().sum(dim=1, keepdim=True)
        self._squares = functional.conv2d(squares, ones, dilation=cell)[:, 0]
        self._groups = list(product(_runs(training.shape[2], patch), _runs(training.shape[3], patch)))

    def mean_weights(self, noisy: Tensor, nearest: int | None) -> NDArray[np.float64]:
        """Return (m,): the mean over the patches u of ``noisy`` (1, c, h, w) of Σ_v w_u(j, v).

        v are the ``nearest`` patches of image j, or all of them (None); w_u sums to 1 over all j and v.
        """
        query = self._summed(noisy)
        weights = torch.zeros(len(self._images), dtype=torch.float64, device=query.device)
        for group in self._groups:
            window = self._window(group)
            taps = functional.unfold(query[(..., *window)], self._taps, dilation=self._cell)[0].T
            for kernels in taps.reshape(len(taps), -1, self._taps, self._taps).split(KERNELS):
                every, best = self._log_sums(kernels, group, nearest)
                weights += (best - every.logsumexp(dim=0)).exp().sum(dim=1, dtype=torch.float64)
        return (weights / self._squares[0].numel()).cpu().numpy()

    def _log_sums(self, kernels: Tensor, group: tuple[slice, slice], nearest: int | None) -> tuple[Tensor, Tensor]:
        """Return log Σ_v exp(−‖x[u] − y_j[v]‖² / 2σ²), (m, k) for k patches: over all v in the group, and nearest."""
        compared = len(kernels) * self._squares[(0, *group)].numel()
        of_one = max(compared, self._images[(0, ..., *self._window(group))].numel())
        asked = min(len(self._images), max(1, self._numbers // of_one))
        found = in_smaller_batches(partial(self._compared, kernels, group, nearest), len(self._images), asked)
        fits = max(piece.shape[1] for piece in found)
        if fits < asked:  # the memory ran out: use smaller batches from now on
            self._numbers = fits * of_one
        every, best = torch.cat(found, dim=1)
        return every, best

    def _compared(self, kernels: Tensor, group: tuple[slice, slice], nearest: int | None, places: range) -> Tensor:
        """Return both sums, (2, b, k), for the b images at ``places``."""
        some = slice(places.start, places.stop)
        distances = functional.conv2d(self._images[(some, ..., *self._window(group))], kernels, dilation=self._cell)
        distances.mul_(-2).add_(self._squares[(some, None, *group)])
        distances.add_(kernels.square().sum(dim=(1, 2, 3))[:, None, None])
        logs = distances.clamp_(min=0).div_(-2 * self._variance).flatten(2)
        every = logs.logsumexp(dim=2)
        if nearest is None or nearest >= logs.shape[2]:
            return torch.stack([every, every])
        return torch.stack([every, logs.topk(nearest, dim=2, sorted=False).values.logsumexp(dim=2)])

    def _summed(self, images: Tensor) -> Tensor:
        """Return the sums over the cell at every place, of images with a border of zeros."""
        border = (self._patch - 1) // 2
        padded = functional.pad(images, (border,) * 4)
        return functional.avg_pool2d(padded, self._cell, stride=1) * self._cell

    def _window(self, group: tuple[slice, slice]) -> tuple[slice, slice]:
        """Return the part of the summed images that the patches of a group cover."""
        reach = (self._taps - 1) * self._cell
        rows, columns = (slice(run.start, run.stop + reach) for run in group)
        return rows, columns


def _runs(length: int, patch: int) -> list[slice]:
    """Group the patches along one side of an image by how far they reach beyond its two ends."""
    border = (patch - 1) // 2
    places = range(length + 2 * border - patch + 1)

    def beyond(place: int) -> tuple[int, int]:
        return max(0, border - place), max(0, place - border + patch - length)

    runs = [list(run) for _, run in groupby(places, beyond)]
    return [slice(run[0], run[-1] + 1) for run in runs]
