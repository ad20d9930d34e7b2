"""Patch similarity: attribution by the optimal denoiser of a generated image's patches."""

import dataclasses
import time
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Le, Lt, MultipleOf
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.settings import PositiveInt
from diffcredit.features import Images
from diffcredit.features.torch_features import inference
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import fingerprint_arrays, read_arrays, write_arrays
from diffcredit.util.cache import artifact_name
from diffcredit.util.seeds import derive_seed

TIME_STEPS = 1000
NUMBERS = 2**23  # distances in memory at a time: 32 MiB, with a few copies
FEW = 64  # training images that are timed
KERNELS = 1024  # patches at a time: with few, a convolution spends its time copying the images


@dataclass
class PatchSimilarity(Scoring):
    """How much each training image contributes to the optimal denoising of a generated image's patches.

    This is NDA with two scales (Zhao et al. 2025, arXiv 2510.14269). It needs no model.

    With noise, x̃_t = √ᾱ_t x̃ + √(1 − ᾱ_t) ε, pixels on the scale −1 to 1. The optimal denoiser of a patch u of x̃_t
    gives each patch v of each training image x⁽ʲ⁾ the weight

        w_u(j, v) = exp(−‖x̃_t[u] − √ᾱ_t x⁽ʲ⁾[v]‖² / 2(1 − ᾱ_t)) / (the sum of the same over all j and v),

    and the score of j is the mean over u of Σ_v w_u(j, v). On the coarse scale, sums over 2 × 2 pixels, halved, are
    compared, so that noise has the same variance.

    There is a patch around every pixel. One that reaches over the border is only compared with patches that do so by
    the same distance: the published code gives pixels beyond the border the value 10, which leaves other patches a
    weight of e^−1000 or less. Where this class has means over patches, the published code has sums.

    The time grows with the number of generated images times that of training images times size⁴.
    """

    patch: PositiveInt = 7
    """The side of a patch in pixels."""
    coarse_patch: Annotated[int, Ge(2), MultipleOf(2)] = 14
    """The side of a patch on the coarse scale."""
    fine_weight: Annotated[float, Ge(0), Le(1)] = 0.5
    """The weight of the fine scale's score; the coarse one has 1 − ``fine_weight``."""
    nearest: PositiveInt | None = 100
    """Count only that many nearest patches of each image; None: all, so that the scores of all images sum to 1."""
    time_step: Annotated[int, Ge(10), Lt(TIME_STEPS)] = 100  # with less noise float32 cannot distinguish patches
    """One of 1,000 time steps, with β from 10⁻⁴ to 0.02 (Ho et al. 2020)."""
    size: Annotated[int, Ge(2)] = 32
    """Larger images are first resized to this side."""
    images: PositiveInt | None = None
    """Use only the first so many generated images; by default all."""

    name = "patch_similarity"
    title = "Patch similarity (NDA)"
    category = "similarity"
    aggregations = ("sum", "mean", "max")

    def check(self, evidence: Evidence) -> None:
        evidence.comparable_queries(self.name)

    def seconds(self, evidence: Evidence, a_pass: float) -> dict[str, float]:
        """Time one generated image against a few training images."""
        training, size = len(evidence.contributions.images), min(self.size, *evidence.generated.shape[1:3])
        few, device = min(FEW, training), torch.device(evidence.extractors.device)
        alpha, blank = signal(self.time_step), torch.zeros(1, 3, size, size, device=device)
        with inference():
            start = time.perf_counter()
            for share, patch, cell in self._scales:
                if share:
                    known = PatchWeights(blank.expand(few, 3, size, size), patch, cell, alpha)
                    known.mean_weights(blank, self.nearest)
            spent = time.perf_counter() - start
        return {f"{self.name}, {self}": spent * training / few * len(evidence.generated[: self.images])}

    def scores(self, evidence: Evidence) -> FloatArray:
        queries = evidence.comparable_queries(self.name)[: self.images]
        training = self._pixels(evidence, evidence.contributions.images, "the training images")
        generated = self._pixels(evidence, queries, "the base model's images")
        # the sum of the scores for the first so many generated images is kept in a file after each of them
        file, total, done = self._file(evidence, queries), np.zeros(len(training)), 0
        if file is not None and file.exists():
            kept = read_arrays(file)
            total, done = kept["total"], int(kept["images"][0])
        if done < len(generated):
            alpha = signal(self.time_step)
            device = torch.device(evidence.extractors.device)
            with inference():
                known = _as_tensor(training).to(device)
                parts = [
                    (share, PatchWeights(known, patch, cell, alpha)) for share, patch, cell in self._scales if share
                ]
                for place in range(done, len(generated)):
                    image = generated[place]
                    noisy = alpha**0.5 * image + (1 - alpha) ** 0.5 * noise_of(image, evidence.seed)
                    query = _as_tensor(noisy[None]).to(device)
                    total = total + sum(share * part.mean_weights(query, self.nearest) for share, part in parts)
                    if file is not None:
                        write_arrays(file, {"total": total, "images": np.array([place + 1])})
                    evidence.progress("patches of the generated images", place + 1, len(generated))
        return total / len(generated)

    @property
    def _scales(self) -> tuple[tuple[float, int, int], ...]:
        """The weight, the patch's side and the cell's side of each scale."""
        return (self.fine_weight, self.patch, 1), (1 - self.fine_weight, self.coarse_patch, 2)

    def _pixels(self, evidence: Evidence, images: Images, what: str) -> NDArray[np.float32]:
        """Return (m, s, s, 3) on the scale −1 to 1."""
        size = min(self.size, *images.shape[1:3])
        seen = evidence.extractors.kept({"name": "pixels", "size": size}, images, what)
        return 2 * seen.vectors.reshape(-1, size, size, 3) - 1

    def _file(self, evidence: Evidence, queries: Images) -> Path | None:
        if evidence.folder is None:
            return None
        settings = {"options": dataclasses.asdict(self), "seed": evidence.seed}
        images = {"training": evidence.contributions.images, "generated": queries}
        name = artifact_name("patches", [settings, fingerprint_arrays(images)])
        return evidence.folder / f"{name}.safetensors"


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


def signal(time_step: int) -> float:
    """Return ᾱ_t = Π_{s ≤ t} (1 − β_s), β linear from 10⁻⁴ to 0.02."""
    return float(np.prod(1 - np.linspace(1e-4, 0.02, TIME_STEPS)[: time_step + 1]))


def noise_of(image: NDArray[np.float32], seed: int) -> FloatArray:
    """Return noise of the image's shape, derived from its content, so that the order of the images does not matter."""
    drawn = derive_seed("baselines", "patch_similarity", seed, fingerprint_arrays({"image": image}))
    return np.random.Generator(np.random.PCG64(drawn)).standard_normal(image.shape)


def _as_tensor(images: NDArray[Any]) -> Tensor:
    """Convert (m, h, w, c) to (m, c, h, w), float32."""
    return torch.from_numpy(images.astype(np.float32, copy=False)).permute(0, 3, 1, 2).contiguous()
