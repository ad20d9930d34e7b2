"""TRAK and its relatives: projected gradients of generated images against those of training images.

With φ_j (k,) the projected gradient of training image j, the rows of Φ (m, k), and g (k,) that of a generated image,
both means over time steps at fixed noises. With S models, the base model and S − 1 that were trained as it was, each
has its own φ, g and λ, and scores are the mean of theirs (Park et al. 2023; S = 1 for diffusion models as published).
"""

from dataclasses import dataclass
from functools import reduce
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from diffcredit.baselines.gradients.settings import DIMENSIONS, GradientSettings, Kind
from diffcredit.baselines.kernels import Kernel, Rows, chosen_lambda, kernel, mean_row, products, row_norms
from diffcredit.baselines.protocol import Category, Evidence, How
from diffcredit.util.arrays import FloatArray


@dataclass
class Gradients:
    """The options of all that compare gradients: ``time_steps`` they are averaged over, ``dimensions`` k of the random
    projection (None: 2048, or as many as there are parameters where these are fewer, which ``chosen`` then tells),
    ``layers``: only parameters whose names contain one of these texts (None: all that are trained),
    ``precision`` of the network on a GPU, ``models`` S whose scores are averaged."""

    time_steps: Annotated[int, Ge(1)] = 10
    dimensions: Annotated[int, Ge(1)] | None = None
    layers: list[str] | None = None
    precision: Literal["float32", "bf16"] = "float32"
    models: Annotated[int, Ge(1)] = 1

    name: ClassVar[str]

    def scores(self, evidence: Evidence) -> FloatArray:
        """(m,): the mean of :meth:`scores_of` over the models."""
        if self.models > 1:
            evidence.replicates(self.name)  # before any work
        self.chosen: dict[str, float] = {}
        return reduce(np.add, (self.scores_of(evidence, replicate) for replicate in range(self.models))) / self.models

    def scores_of(self, evidence: Evidence, replicate: int) -> FloatArray:
        """(m,), of one model: 0 is the base model."""
        raise NotImplementedError

    def settings(self, kind: Kind, evidence: Evidence) -> GradientSettings:
        layers = None if self.layers is None else tuple(self.layers)
        return GradientSettings(kind, self.time_steps, self.dimensions, layers, evidence.seed, self.precision)

    def training_rows(self, evidence: Evidence, kind: Kind, replicate: int) -> Rows:
        """Φ (m, k) of one model, in the order of the contributions' images."""
        return self._rows(evidence, kind, "training", replicate)

    def query_rows(self, evidence: Evidence, kind: Kind, replicate: int) -> Rows:
        """(q, k) of one model, one of each generated image."""
        return self._rows(evidence, kind, "generated", replicate)

    def _rows(self, evidence: Evidence, kind: Kind, of: Literal["training", "generated"], replicate: int) -> Rows:
        from diffcredit.baselines.gradients.rows import gradient_rows  # brings torch

        rows = gradient_rows(evidence, self.settings(kind, evidence), of, self.name, replicate)
        if self.dimensions is None and rows.shape[1] < DIMENSIONS:
            self.chosen["dimensions"] = rows.shape[1]
        return rows


@dataclass
class GradientSimilarity(Gradients):
    """The cosine of the loss gradients, φ_jᵀg / (‖φ_j‖ ‖g‖), averaged over the generated images (Charpiat et al.
    2019). A gradient of length 0 is similar to nothing."""

    name: ClassVar[str] = "gradient_similarity"
    title: ClassVar[str] = "Gradient similarity"
    category: ClassVar[Category] = "gradient"
    aggregations: ClassVar[tuple[How, ...]] = ("mean", "max")

    def scores_of(self, evidence: Evidence, replicate: int) -> FloatArray:
        queries = self.query_rows(evidence, "loss", replicate)
        phi = self.training_rows(evidence, "loss", replicate)
        weights = _over(np.ones(len(queries)), row_norms(queries)) / len(queries)
        mean_direction = products(queries.T, weights[:, None])
        return _over(products(phi, mean_direction)[:, 0], row_norms(phi))


@dataclass
class TRAK(Gradients):
    """Φ (ΦᵀΦ + λI)⁻¹ g with gradients of the training loss on both sides (Park et al. 2023; for diffusion models
    Georgiev et al. 2023, Zheng et al. 2024), averaged over the generated images.

    ``lam`` is λ; None: by generalised cross-validation over the k projected coordinates, which knows no retrained
    model. ``chosen`` tells it: ``lambda`` of the base model, ``lambda[s]`` of model s.
    """

    lam: Annotated[float, Ge(0)] | None = None

    name: ClassVar[str] = "trak"
    title: ClassVar[str] = "TRAK"
    category: ClassVar[Category] = "gradient"
    aggregations: ClassVar[tuple[How, ...]] = ("sum", "mean")
    training_kind: ClassVar[Kind] = "loss"
    query_kind: ClassVar[Kind] = "loss"

    def scores_of(self, evidence: Evidence, replicate: int) -> FloatArray:
        queries = self.query_rows(evidence, self.query_kind, replicate)
        phi = self.training_rows(evidence, self.training_kind, replicate)
        ridge, lam = self.prepared(evidence, phi, queries, replicate)
        # scores are linear in g: their mean is the score of the mean
        return self.scaled(ridge.scores(mean_row(queries), lam)[:, 0], phi, ridge, lam)

    def prepared(self, evidence: Evidence, phi: Rows, queries: Rows, replicate: int) -> tuple[Kernel, float]:
        """(ΦᵀΦ + λI)⁻¹ and λ, which ``chosen`` tells from now on."""
        ridge = kernel(phi, evidence.folder, evidence.progress)
        lam = chosen_lambda(ridge, queries) if self.lam is None else self.lam
        self.chosen[f"lambda[{replicate}]" if replicate else "lambda"] = lam
        return ridge, lam

    def scaled(self, scores: FloatArray, phi: Rows, ridge: Kernel, lam: float) -> FloatArray:
        """(m,): the scores as this method reports them."""
        return scores


@dataclass
class DTRAK(TRAK):
    """D-TRAK: TRAK with gradients of the mean square of the predicted noise, ‖ε_θ(x_t, t)‖², in place of the loss, on
    both sides (Zheng et al. 2024)."""

    name: ClassVar[str] = "d_trak"
    title: ClassVar[str] = "D-TRAK"
    training_kind: ClassVar[Kind] = "prediction_norm"
    query_kind: ClassVar[Kind] = "prediction_norm"


@dataclass
class JourneyTRAK(TRAK):
    """Journey-TRAK: TRAK whose query gradients come from the noisy images on the generated image's own sampling path,
    averaged over its time steps; training gradients are TRAK's (Georgiev et al. 2023). The path is the base model's,
    which generated the image, in whichever model the gradients are taken."""

    name: ClassVar[str] = "journey_trak"
    title: ClassVar[str] = "Journey-TRAK"
    query_kind: ClassVar[Kind] = "journey_loss"


@dataclass
class RelativeInfluence(TRAK):
    """TRAK's score of image j divided by ‖(ΦᵀΦ + λI)⁻¹ φ_j‖, how far it moves the parameters: influence where every
    image may move them equally far (θ-RelatIF; Barshan et al. 2020). With more than 8192 images and as many dimensions
    that length is an estimate with a standard error of 4 %."""

    name: ClassVar[str] = "relative_influence"
    title: ClassVar[str] = "Relative influence"

    def scaled(self, scores: FloatArray, phi: Rows, ridge: Kernel, lam: float) -> FloatArray:
        return _over(scores, ridge.direction_norms(lam))


@dataclass
class RenormalisedInfluence(TRAK):
    """TRAK's score of image j divided by ‖φ_j‖, so that images with large losses do not dominate (Hammoudeh and Lowd
    2022)."""

    name: ClassVar[str] = "renormalised_influence"
    title: ClassVar[str] = "Renormalised influence"

    def scaled(self, scores: FloatArray, phi: Rows, ridge: Kernel, lam: float) -> FloatArray:
        return _over(scores, row_norms(phi))


def _over(numerators: FloatArray, lengths: FloatArray) -> FloatArray:
    """Their quotients; 0 where a length is 0, for a gradient of 0 has no direction."""
    return np.divide(numerators, lengths, out=np.zeros_like(numerators), where=lengths > 0)
