"""Patch similarity: attribution by the optimal denoiser of a generated image's patches."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Le, Lt, MultipleOf
from numpy.typing import NDArray

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.baselines.queries import comparable_queries
from diffcredit.diffusion.settings import PositiveInt
from diffcredit.features import Images
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import fingerprint, fingerprint_arrays, read_arrays, write_arrays
from diffcredit.util.seeds import derive_seed

if TYPE_CHECKING:
    from torch import Tensor

TIME_STEPS = 1000


@dataclass
class PatchSimilarity(Scoring):
    """How much each training image contributes to the optimal denoising of a generated image's patches.

    This is NDA with two scales (Zhao et al. 2025, “Nonparametric Data Attribution for Diffusion Models”, arXiv
    2510.14269). It needs no model.

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

    def scores(self, evidence: Evidence) -> FloatArray:
        import torch

        from diffcredit.baselines.patch_weights import PatchWeights
        from diffcredit.features.torch_features import inference

        queries = comparable_queries(evidence, self.name)[: self.images]
        training = self._pixels(evidence, evidence.contributions.images, "the training images")
        generated = self._pixels(evidence, queries, "the base model's images")
        kept = _Sums.of(self._file(evidence, queries), len(training))
        if kept.images < len(generated):
            alpha = signal(self.time_step)
            device = torch.device(evidence.extractors.device)
            scales = ((self.fine_weight, self.patch, 1), (1 - self.fine_weight, self.coarse_patch, 2))
            with inference():
                known = _as_tensor(training).to(device)
                parts = [(share, PatchWeights(known, patch, cell, alpha)) for share, patch, cell in scales if share]
                for image in generated[kept.images :]:
                    noisy = alpha**0.5 * image + (1 - alpha) ** 0.5 * noise_of(image, evidence.seed)
                    query = _as_tensor(noisy[None]).to(device)
                    found = sum(share * part.mean_weights(query, self.nearest) for share, part in parts)
                    kept.add(np.asarray(found))
                    evidence.progress("patches of the generated images", kept.images, len(generated))
        return kept.total / kept.images

    def _pixels(self, evidence: Evidence, images: Images, what: str) -> NDArray[np.float32]:
        """Return (m, s, s, 3) on the scale −1 to 1."""
        size = min(self.size, *images.shape[1:3])
        seen = evidence.extractors.kept({"name": "pixels", "size": size}, images, what)
        return 2 * seen.vectors.reshape(-1, size, size, 3) - 1

    def _file(self, evidence: Evidence, queries: Images) -> Path | None:
        """Return the file of the sums, named after everything that determines them."""
        if evidence.folder is None:
            return None
        settings = {"options": dataclasses.asdict(self), "seed": evidence.seed}
        images = {"training": evidence.contributions.images, "generated": queries}
        return evidence.folder / f"patches-{fingerprint([settings, fingerprint_arrays(images)])[:12]}.safetensors"


@dataclass
class _Sums:
    """The sum (m,) of the scores for the first ``images`` generated images, kept in a file after each of them."""

    file: Path | None
    total: FloatArray
    images: int = 0

    @classmethod
    def of(cls, file: Path | None, count: int) -> "_Sums":
        if file is None or not file.exists():
            return cls(file, np.zeros(count))
        kept = read_arrays(file)
        return cls(file, kept["total"], int(kept["images"][0]))

    def add(self, scores: FloatArray) -> None:
        self.total, self.images = self.total + scores, self.images + 1
        if self.file is not None:
            write_arrays(self.file, {"total": self.total, "images": np.array([self.images])})


def signal(time_step: int) -> float:
    """Return ᾱ_t = Π_{s ≤ t} (1 − β_s), β linear from 10⁻⁴ to 0.02."""
    return float(np.prod(1 - np.linspace(1e-4, 0.02, TIME_STEPS)[: time_step + 1]))


def noise_of(image: NDArray[np.float32], seed: int) -> FloatArray:
    """Return noise of the image's shape, derived from its content, so that the order of the images does not matter."""
    drawn = derive_seed("baselines", "patch_similarity", seed, fingerprint_arrays({"image": image}))
    return np.random.Generator(np.random.PCG64(drawn)).standard_normal(image.shape)


def _as_tensor(images: NDArray[Any]) -> "Tensor":
    """Convert (m, h, w, c) to (m, c, h, w), float32."""
    import torch

    return torch.from_numpy(images.astype(np.float32, copy=False)).permute(0, 3, 1, 2).contiguous()
