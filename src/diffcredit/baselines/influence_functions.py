"""Influence functions: how much less a generated image's loss would be, had a training image weighed a little more."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from diffcredit.baselines.protocol import Category, Evidence, How
from diffcredit.baselines.queries import comparable_queries, query_captions
from diffcredit.diffusion.settings import PositiveInt
from diffcredit.errors import DiffcreditError, located
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import fingerprint, read_arrays, write_arrays

if TYPE_CHECKING:
    from diffcredit.baselines.curvature import Curvature
    from diffcredit.baselines.directional import Samples, Weights


@dataclass
class _Influence:
    """score_j = ∇ℓ(x_j) · (F + λI)⁻¹ ḡ, ḡ the mean gradient of the generated images' loss and F the Gauss–Newton matrix
    of the training images' (Koh and Liang 2017; Mlodozeniec et al. 2025).

    Losses are means over ``time_steps`` evenly spaced time steps with one noise each; F comes from ``draws``
    pseudo-targets of each. λ is ``damping`` times the mean eigenvalue of F, tr F / P over P parameters, as is the
    custom (Grosse et al. 2023, layer by layer): nothing is fitted to retrained models. ``layers``: only parameters
    whose names contain one of these texts. ``chosen`` tells λ.
    """

    damping: Annotated[float, Gt(0)] = 0.1
    time_steps: PositiveInt = 10
    draws: PositiveInt = 1
    layers: list[str] | None = None

    name: ClassVar[str]
    category: ClassVar[Category] = "influence"
    aggregations: ClassVar[tuple[How, ...]] = ("sum",)
    kronecker: ClassVar[bool]

    def scores(self, evidence: Evidence) -> FloatArray:
        from diffcredit.baselines.directional import Samples, derivatives, mean_gradient
        from diffcredit.baselines.gradients.per_image import trained_parameters

        generated, given = comparable_queries(evidence, self.name), evidence.contributions
        model, seed = evidence.model(self.name), evidence.seed
        captions = query_captions(evidence, model, self.name)
        with located(self.name):
            weights = {name: each.detach() for name, each in trained_parameters(model, self.layers).items()}
        training = Samples(model, given.images, given.captions, self.time_steps, seed, evidence.progress)
        queries = Samples(model, generated, captions, self.time_steps, seed, evidence.progress)
        settings = [model.fingerprint, self.kronecker, self.time_steps, self.draws, self.layers, seed]

        def telling(what: str) -> Callable[[int, int], None]:
            return partial(evidence.progress, what)

        def make() -> dict[str, NDArray[Any]]:
            curvature = self._curvature(training, weights, settings, evidence)
            damping = self.damping * curvature.mean_eigenvalue
            if damping == 0:
                raise DiffcreditError(f"{self.name}: the loss has no curvature at all; is the model trained?")
            gradient = mean_gradient(queries, list(weights), telling("gradient of the generated images"))
            direction = curvature.solve(gradient, damping)
            scores = derivatives(training, direction, telling("influence of the training images"))
            return {"scores": training.of_images(scores), "lambda": np.array(damping)}

        identity = [*settings, self.damping, training.identity, queries.identity]
        found = kept(evidence.folder, "influence", identity, make)
        self.chosen = {"lambda": float(found["lambda"])}
        return found["scores"]

    def _curvature(
        self, training: "Samples", weights: "Weights", settings: list[Any], evidence: Evidence
    ) -> "Curvature":
        from diffcredit.baselines.curvature import Curvature, curvature

        def make() -> dict[str, NDArray[Any]]:
            found = curvature(training, weights, self.draws, kronecker=self.kronecker, progress=evidence.progress)
            return found.arrays()

        identity = [*settings, sorted(training.identity)]  # F does not know the images' order
        return Curvature.read(kept(evidence.folder, "curvature", identity, make), training.data.x.device)


@dataclass
class DiagonalInfluence(_Influence):
    """Influence functions with the diagonal of F."""

    name: ClassVar[str] = "influence_diagonal"
    title: ClassVar[str] = "Influence functions, diagonal curvature"
    kronecker: ClassVar[bool] = False


@dataclass
class KroneckerInfluence(_Influence):
    """Influence functions with F diagonal in the eigenbases of Kronecker factors (EK-FAC; George et al. 2018)."""

    name: ClassVar[str] = "influence_kronecker"
    title: ClassVar[str] = "Influence functions, Kronecker-factored curvature (EK-FAC)"
    kronecker: ClassVar[bool] = True


def kept(
    folder: Path | None, name: str, identity: Any, make: Callable[[], Mapping[str, NDArray[Any]]]
) -> Mapping[str, NDArray[Any]]:
    """Named arrays of a file whose name carries the fingerprint of all that fixes them, made where it is not there."""
    if folder is None:
        return make()
    file = folder / f"{name}-{fingerprint(identity)[:12]}.safetensors"
    if not file.exists():
        write_arrays(file, make())
    return read_arrays(file)
