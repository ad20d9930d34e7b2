"""Influence functions: how much a generated image's loss falls as a training image gets a little more weight."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from diffcredit.baselines.base import Evidence, Scoring
from diffcredit.baselines.derivatives import Curvature, Samples, curvature, derivatives, mean_gradient
from diffcredit.baselines.gradients.per_image import trained_parameters
from diffcredit.diffusion.settings import PositiveInt
from diffcredit.errors import DiffcreditError, located
from diffcredit.util.arrays import FloatArray
from diffcredit.util.cache import artifact_name, cached_arrays


@dataclass
class _Influence(Scoring):
    """score_j = ∇ℓ(x_j) · (F + λI)⁻¹ ḡ, where ḡ is the mean gradient of the generated images' loss and F the
    Gauss–Newton matrix of the training images' loss (Koh and Liang 2017; Mlodozeniec et al. 2025).

    λ is ``damping`` times the mean eigenvalue of F, tr F / P over P parameters (usual layer by layer, Grosse et al.
    2023): nothing is fitted to retrained models. ``chosen`` has λ.
    """

    damping: Annotated[float, Gt(0)] = 0.1
    time_steps: PositiveInt = 10
    """Losses are means over that many evenly spaced time steps, with one noise each."""
    draws: PositiveInt = 1
    """Pseudo-targets for each of these, from which F is estimated."""
    layers: list[str] | None = None
    """Use only parameters whose names contain one of these texts; by default all that are trained."""

    category = "influence"
    aggregations = ("sum",)
    kronecker: ClassVar[bool]

    def check(self, evidence: Evidence) -> None:
        evidence.comparable_queries(self.name)
        model = evidence.model(self.name)
        with located(self.name):
            trained_parameters(model, self.layers)

    def seconds(self, evidence: Evidence, a_pass: float) -> dict[str, float]:
        training = self.time_steps * len(evidence.contributions.images)
        queries = self.time_steps * len(evidence.generated)
        curvature = self.draws * training * (6 if self.kronecker else 3)  # by single gradients, and for their bases
        return {f"{self.name}, {self.layers}, {self.damping}": (curvature + queries + 2 * training) * a_pass}

    def scores(self, evidence: Evidence) -> FloatArray:
        self.check(evidence)
        generated, given = evidence.generated, evidence.contributions
        model, seed = evidence.model(self.name), evidence.seed
        captions = evidence.query_captions(model, self.name)
        weights = {name: each.detach() for name, each in trained_parameters(model, self.layers).items()}
        training = Samples(model, given.images, given.captions, self.time_steps, seed, evidence.progress)
        queries = Samples(model, generated, captions, self.time_steps, seed, evidence.progress)
        settings = [model.fingerprint, self.kronecker, self.time_steps, self.draws, self.layers, seed]

        def make_curvature() -> dict[str, NDArray[Any]]:
            return curvature(training, weights, self.draws, self.kronecker, evidence.progress).arrays()

        def make() -> dict[str, NDArray[Any]]:
            of_training = artifact_name("curvature", [*settings, sorted(training.identity)])  # in whatever order
            fisher = Curvature.read(cached_arrays(evidence.folder, of_training, make_curvature), training.data.x.device)
            damping = self.damping * fisher.mean_eigenvalue
            if damping == 0:
                raise DiffcreditError(f"{self.name}: the loss has no curvature at all; is the model trained?")
            report = partial(evidence.progress, "gradient of the generated images")
            gradient = mean_gradient(model, queries.at, len(queries), list(weights), report)
            report = partial(evidence.progress, "influence of the training images")
            direction = fisher.solve(gradient, damping)
            scores = derivatives(model, training.at, len(training), direction, report)
            return {"scores": scores.reshape(-1, self.time_steps).mean(axis=1), "lambda": np.array(damping)}

        identity = [*settings, self.damping, training.identity, queries.identity]
        found = cached_arrays(evidence.folder, artifact_name("influence", identity), make)
        self.chosen = {"lambda": float(found["lambda"])}
        return found["scores"]


@dataclass
class DiagonalInfluence(_Influence):
    """Influence functions with the diagonal of F."""

    name = "influence_diagonal"
    title = "Influence functions, diagonal curvature"
    kronecker: ClassVar[bool] = False


@dataclass
class KroneckerInfluence(_Influence):
    """Influence functions with F diagonal in the eigenbases of Kronecker factors (EK-FAC; George et al. 2018)."""

    name = "influence_kronecker"
    title = "Influence functions, Kronecker-factored curvature (EK-FAC)"
    kronecker: ClassVar[bool] = True
