"""The Diffusion Attribution Score: how much a training image changes the predicted noise, not the loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from diffcredit.baselines.base import Evidence
from diffcredit.baselines.gradients.settings import GradientSettings, Kind
from diffcredit.baselines.kernels import QUERIES
from diffcredit.baselines.trak import TRAK
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.cache import cached_arrays

IMAGES_AT_ONCE = {"cpu": 16, "cuda": 256}


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
        queries = self.query_rows(evidence, self.query_kind, replicate)
        phi = self.training_rows(evidence, self.training_kind, replicate)
        residuals = mean_residuals(root_errors(evidence, self.settings("loss", evidence), self.name, replicate))
        ridge, lam = self.prepared(evidence, phi, queries, replicate)
        squares = np.zeros(len(phi))
        for start in range(0, len(queries), QUERIES):
            squares += np.square(ridge.scores(queries[start : start + QUERIES], lam)).sum(axis=1)
        return squares / len(queries) * np.square(residuals)


def mean_residuals(errors: FloatArray) -> FloatArray:
    """Return (m,): the mean over time steps of the root errors (m, J), scaled to length 1 for each image."""
    lengths = np.linalg.norm(errors, axis=1)
    return np.divide(errors.mean(axis=1), lengths, out=np.zeros_like(lengths), where=lengths > 0)


def root_errors(evidence: Evidence, settings: GradientSettings, method: str, replicate: int = 0) -> FloatArray:
    """Return (m, J): √ℓ of each training image at each time step in one model, with the noises of its gradient.

    They are cached in the evidence's folder.
    """
    import torch

    from diffcredit.baselines.gradients.per_image import digests, noises, time_steps
    from diffcredit.diffusion.micro_batches import in_smaller_batches

    model, given = evidence.model(method, replicate), evidence.contributions
    identities = digests(given.images)
    name = fingerprint(
        ["root errors", model.fingerprint, settings.time_steps, settings.seed, identities, given.captions]
    )
    t = time_steps(model, settings.time_steps)
    model.network.eval()

    def of(places: range) -> FloatArray:
        cut = slice(places.start, places.stop)
        captions = None if given.captions is None else given.captions[cut]
        batch = model.encode(given.images[cut], captions, mirrored=False)
        noise = noises(identities[cut], len(t), batch.x.shape[1:], settings.seed).to(batch.x)
        with torch.no_grad():
            losses = [model.loss(batch, t[j].expand(len(batch)), noise[:, j]) for j in range(len(t))]
        evidence.progress(f"{method}: errors of training images", places.stop, len(identities))
        return torch.stack(losses, dim=1).sqrt().double().cpu().numpy()

    at_once = IMAGES_AT_ONCE.get(model.device.type, IMAGES_AT_ONCE["cpu"])

    def compute() -> dict[str, FloatArray]:
        return {"errors": np.concatenate(in_smaller_batches(of, len(identities), at_once))}

    return cached_arrays(evidence.folder, f"errors-{name[:16]}", compute)["errors"]
