"""TRAK and its relatives: projected gradients of generated images against those of training images.

φ_j (k,) is the projected gradient of training image j, a row of Φ (m, k), and g (k,) that of a generated image; both
are means over time steps with fixed noises. With S models, the base model and S − 1 others trained like it, each has
its own φ, g and λ, and scores are the mean over the models (Park et al. 2023; S = 1 for diffusion models as published).
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.baselines.gradients import DIMENSIONS, GradientSettings, Kind
from diffcredit.baselines.gradients.rows import gradient_rows, per_image_gradients, root_errors
from diffcredit.baselines.kernels import QUERIES, Kernel, Rows, chosen_lambda, kernel, mean_row, products, row_norms
from diffcredit.util.arrays import FloatArray

# measured on a CPU: a gradient of one image, projected, in passes of an image in a batch
PASSES: dict[Kind, int] = {"loss": 3, "prediction_norm": 3, "journey_loss": 4, "prediction_mean": 8}


@dataclass
class Gradients(Scoring):
    """The options of all methods that compare gradients."""

    time_steps: Annotated[int, Ge(1)] = 10
    """The number of time steps that gradients are averaged over."""
    dimensions: Annotated[int, Ge(1)] | None = None
    """k of the random projection. By default 2048, or the number of parameters if that is smaller: see ``chosen``."""
    layers: list[str] | None = None
    """Use only parameters whose names contain one of these texts; by default all that are trained."""
    precision: Literal["float32", "bf16"] = "float32"
    """The network's precision on a GPU."""
    models: Annotated[int, Ge(1)] = 1
    """S, the number of models whose scores are averaged."""

    training_kind: ClassVar[Kind] = "loss"
    query_kind: ClassVar[Kind] = "loss"

    def check(self, evidence: Evidence) -> None:
        if self.models > 1:
            evidence.replicates(self.name)
        evidence.comparable_queries(self.name)
        per_image_gradients(evidence.model(self.name), self._settings(evidence, self.training_kind), self.name)
        if self.query_kind == "journey_loss":
            evidence.query_sampling(self.name)

    def seconds(self, evidence: Evidence, a_pass: float) -> dict[str, float]:
        """Rows of gradients are shared by the methods that use the same; so are other models."""
        found: dict[str, float] = {}
        if (training := evidence.training) is not None:
            whole = training.steps * training.batch_size * a_pass
            found |= {f"model {number}": whole for number in range(1, self.models)}
        images = {"training": evidence.contributions.images, "generated": evidence.generated}
        for of, kind in (("training", self.training_kind), ("generated", self.query_kind)):
            settings = self._settings(evidence, kind)
            passes = PASSES[kind] * self.time_steps * len(images[of])
            found |= {f"{of}, {settings}, {number}": passes * a_pass for number in range(self.models)}
        return found

    def scores(self, evidence: Evidence) -> FloatArray:
        """Return (m,): the mean of :meth:`scores_of` over the models."""
        if self.models > 1:
            evidence.replicates(self.name)  # before any work
        self.chosen = {}
        return reduce(np.add, (self.scores_of(evidence, replicate) for replicate in range(self.models))) / self.models

    @abstractmethod
    def scores_of(self, evidence: Evidence, replicate: int) -> FloatArray:
        """Return (m,): the scores by one model; 0 is the base model."""

    def rows(self, evidence: Evidence, replicate: int) -> tuple[Rows, Rows]:
        """Return Φ (m, k) of the training images and (q, k) of the generated ones, by one model."""

        def of(images: Literal["training", "generated"], kind: Kind) -> Rows:
            rows = gradient_rows(evidence, self._settings(evidence, kind), images, self.name, replicate)
            if self.dimensions is None and rows.shape[1] < DIMENSIONS:
                self.chosen = {**self.chosen, "dimensions": rows.shape[1]}
            return rows

        queries = of("generated", self.query_kind)  # first: it may have to be refused
        return of("training", self.training_kind), queries

    def _settings(self, evidence: Evidence, kind: Kind) -> GradientSettings:
        layers = None if self.layers is None else tuple(self.layers)
        return GradientSettings(kind, self.time_steps, self.dimensions, layers, evidence.seed, self.precision)


@dataclass
class GradientSimilarity(Gradients):
    """The mean cosine of the loss gradients, φ_jᵀg / (‖φ_j‖ ‖g‖), 0 for one of length 0 (Charpiat et al. 2019)."""

    name = "gradient_similarity"
    title = "Gradient similarity"
    category = "gradient"
    aggregations = ("mean", "max")

    def scores_of(self, evidence: Evidence, replicate: int) -> FloatArray:
        phi, queries = self.rows(evidence, replicate)
        weights = _over(np.ones(len(queries)), row_norms(queries)) / len(queries)
        mean_direction = products(queries.T, weights[:, None])
        return _over(products(phi, mean_direction)[:, 0], row_norms(phi))


@dataclass
class TRAK(Gradients):
    """Φ (ΦᵀΦ + λI)⁻¹ g with gradients of the training loss on both sides (Park et al. 2023; for diffusion models
    Georgiev et al. 2023, Zheng et al. 2024), averaged over the generated images.

    ``lam`` is λ; by default it is chosen by generalised cross-validation over the k projected coordinates, which uses
    no retrained model. ``chosen`` has it: ``lambda`` of the base model, ``lambda[s]`` of model s.
    """

    lam: Annotated[float, Ge(0)] | None = None

    name = "trak"
    title = "TRAK"
    category = "gradient"
    aggregations = ("sum", "mean")

    def scores_of(self, evidence: Evidence, replicate: int) -> FloatArray:
        phi, queries = self.rows(evidence, replicate)
        ridge, lam = self.prepared(evidence, phi, queries, replicate)
        # scores are linear in g, so that their mean is the score of the mean
        return self.scaled(ridge.scores(mean_row(queries), lam)[:, 0], phi, ridge, lam)

    def prepared(self, evidence: Evidence, phi: Rows, queries: Rows, replicate: int) -> tuple[Kernel, float]:
        """Return (ΦᵀΦ + λI)⁻¹ and λ, and enter λ in ``chosen``."""
        ridge = kernel(phi, evidence.folder, evidence.progress)
        lam = chosen_lambda(ridge, queries) if self.lam is None else self.lam
        self.chosen = {**self.chosen, f"lambda[{replicate}]" if replicate else "lambda": lam}
        return ridge, lam

    def scaled(self, scores: FloatArray, phi: Rows, ridge: Kernel, lam: float) -> FloatArray:
        """Return (m,): the scores as this method scales them."""
        return scores


@dataclass
class DTRAK(TRAK):
    """D-TRAK: TRAK with gradients of ‖ε_θ(x_t, t)‖² in place of the loss, on both sides (Zheng et al. 2024)."""

    name = "d_trak"
    title = "D-TRAK"
    training_kind: ClassVar[Kind] = "prediction_norm"
    query_kind: ClassVar[Kind] = "prediction_norm"


@dataclass
class JourneyTRAK(TRAK):
    """Journey-TRAK: TRAK whose query gradients come from the noisy images on the generated image's own sampling path in
    the base model, averaged over its time steps; training gradients are TRAK's (Georgiev et al. 2023)."""

    name = "journey_trak"
    title = "Journey-TRAK"
    query_kind: ClassVar[Kind] = "journey_loss"


@dataclass
class RelativeInfluence(TRAK):
    """TRAK's score of image j divided by ‖(ΦᵀΦ + λI)⁻¹ φ_j‖, how far it moves the parameters: influence if every
    image could move them equally far (θ-RelatIF; Barshan et al. 2020). With more than 8192 images and dimensions, that
    length is an estimate with a standard error of 4 %."""

    name = "relative_influence"
    title = "Relative influence"

    def scaled(self, scores: FloatArray, phi: Rows, ridge: Kernel, lam: float) -> FloatArray:
        return _over(scores, ridge.direction_norms(lam))


@dataclass
class RenormalisedInfluence(TRAK):
    """TRAK's score of image j divided by ‖φ_j‖: large losses do not dominate (Hammoudeh and Lowd 2022)."""

    name = "renormalised_influence"
    title = "Renormalised influence"

    def scaled(self, scores: FloatArray, phi: Rows, ridge: Kernel, lam: float) -> FloatArray:
        return _over(scores, row_norms(phi))


@dataclass
class DAS(TRAK):
    """DAS (Lin et al. 2025): the squared change of the model's output on a generated image when training image j is
    removed, by one Newton step on the squared error,

        (gᵀ (ΦᵀΦ + λI)⁻¹ φ_j · r_j)², averaged over the generated images.

    As in the authors' published code: φ_j and g are gradients of the mean over dimensions of ε_θ(x_t, t), scaled to
    length 1 at each time step and then averaged over the time steps; r_j is the mean over time steps of the root mean
    square error √ℓ_jt of the same predictions, divided by its length over the time steps, (Σ_t ℓ_jt)^½; and the
    leverage of j, by which Newton's step would be divided, is omitted. So r_j measures how evenly the errors are spread
    over time steps, from 1/J to 1/√J, and not how large they are. The square hides whether an image helps or harms.
    """

    name = "das"
    title = "DAS"
    training_kind: ClassVar[Kind] = "prediction_mean"
    query_kind: ClassVar[Kind] = "prediction_mean"

    def scores_of(self, evidence: Evidence, replicate: int) -> FloatArray:
        phi, queries = self.rows(evidence, replicate)
        errors = root_errors(evidence, self.time_steps, self.name, replicate)
        residuals = _over(errors.mean(axis=1), np.linalg.norm(errors, axis=1))
        ridge, lam = self.prepared(evidence, phi, queries, replicate)
        squares = np.zeros(len(phi))
        for start in range(0, len(queries), QUERIES):
            squares += np.square(ridge.scores(queries[start : start + QUERIES], lam)).sum(axis=1)
        return squares / len(queries) * np.square(residuals)


def _over(numerators: FloatArray, lengths: FloatArray) -> FloatArray:
    """Return quotients, 0 where a length is 0: a zero gradient has no direction."""
    return np.divide(numerators, lengths, out=np.zeros_like(numerators), where=lengths > 0)
