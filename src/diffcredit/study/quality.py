"""How much pruning changed the base model.

Credits that are computed through a pruned model θ̃* describe the base model θ* only if pruning hardly changed its
properties F. The change is measured against the distance to the untrained network θ_∅, on images from the same initial
noises: |F(θ̃*) − F(θ*)| / |F(θ*) − F(θ_∅)|. Beside a base model that has hardly learned anything, that distance is no
measure: the complaint is then about the base model's training, not about pruning.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diffcredit.contributions import Contributions
from diffcredit.diffusion.generating import generate
from diffcredit.diffusion.model import Images
from diffcredit.execution.threads import limited_threads
from diffcredit.properties import Context
from diffcredit.properties.heldout_loss import HeldoutLoss
from diffcredit.properties.measuring import Observation, measure_all
from diffcredit.study import identity
from diffcredit.study.manifest import enter_file, is_entered, is_missing, name_of
from diffcredit.util.artifacts import canonical_json, read_json, write_text

if TYPE_CHECKING:
    from diffcredit.study.study import Study

TOLERATED = 0.25  # share of the distance to the untrained network
LEARNED = 0.2  # share of the untrained network's denoising loss by which a trained model's is at least lower
LOSS = "denoising loss"
LOSS_IMAGES = 256  # images for the loss: held-out ones if there are any, otherwise training images


@dataclass(frozen=True)
class Comparison:
    """One value of the base model, of the model that coalitions start from, and of the untrained network.
    ``only_rises``: only an increase counts as a change, as for a loss."""

    name: str
    base: float
    start: float
    untrained: float
    only_rises: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not all(map(math.isfinite, (self.base, self.start, self.untrained))):
            raise ValueError(f"{self.name!r}: a name and three finite numbers are expected")

    @property
    def lost(self) -> float:
        """|F(θ̃*) − F(θ*)| / |F(θ*) − F(θ_∅)|; infinite where the base model is no better than the untrained one."""
        change = max(0.0, self.start - self.base) if self.only_rises else abs(self.start - self.base)
        gap = abs(self.base - self.untrained)
        return change / gap if gap > 0 else 0.0 if change == 0 else float("inf")

    @property
    def broken(self) -> bool:
        return self.lost > TOLERATED

    def complaint(self) -> str:
        """Return what changed, by how much, and what to do about it."""
        verb = "rose" if self.only_rises else "changed"
        by = f"by {100 * self.lost:.0f} % of the distance to the untrained network's {self.untrained:.4g}"
        if self.lost > 1:
            by = f"farther than training had taken it from the untrained network's {self.untrained:.4g}"
        return (
            f"{self.name}: pruning changed the model too much: it {verb} from {self.base:.4g} to {self.start:.4g}, "
            f"{by}; at most {100 * TOLERATED:.0f} % of that distance is tolerated; increase retraining.recover_steps "
            "or retraining.parameters"
        )


def complaints(study: "Study", comparisons: Sequence[Comparison]) -> list[str]:
    """Return what is wrong with the models compared, as sentences: that the base model is hardly trained, or else what
    pruning changed too much."""
    loss = next((each for each in comparisons if each.name == LOSS), None)
    fresh = "pretrained" not in study.config.model.options  # otherwise what is compared with has been trained
    if loss is not None and fresh and _hardly_trained(loss):
        return [
            f"the base model is hardly trained: its denoising loss is {loss.base:.4g}, that of the untrained network "
            f"{loss.untrained:.4g}, and {loss.start:.4g} once pruned and recovered; credits would be those of noise, "
            "and pruning cannot be judged; increase model.train.steps, or lower model.train.ema, whose averaged "
            "weights follow slowly"
        ]
    return [each.complaint() for each in comparisons if each.broken]


def _hardly_trained(loss: Comparison) -> bool:
    """Return whether the base model has learned little, or far less than the short recovery taught its pruned copy."""
    learned, recovered = loss.untrained - loss.base, loss.untrained - loss.start
    return learned < max(LEARNED * loss.untrained, recovered / (1 + TOLERATED))


def compare(study: "Study") -> list[Comparison]:
    """Compare the study's properties and the denoising loss of the three models, once; there is nothing to compare if
    coalitions start from the base model itself, or from no model."""
    file = _file(study)
    if file is not None and not (file.exists() and is_entered(study, file, file.read_bytes())):
        with limited_threads(study.config.threads):
            comparisons = _compare(study)
        text = canonical_json([dataclasses.asdict(comparison) for comparison in comparisons])
        enter_file(study, file, text.encode())
        write_text(file, text)
    return kept(study)


def kept(study: "Study") -> list[Comparison]:
    """Return the comparisons that :func:`compare` made earlier, if any."""
    file = _file(study)
    if file is None or not file.exists() or not is_entered(study, file, file.read_bytes()):
        return []
    return read_json(file, _comparisons)


def unknown(study: "Study") -> str:
    """Return why comparisons that were made are not :func:`kept`; nothing if they are, or were never made."""
    file = _file(study)
    if file is None:
        return ""
    if is_missing(study, file):
        return f"{name_of(file)} is in the ledger, but not here"
    strange = file.exists() and not is_entered(study, file, file.read_bytes())
    return f"{name_of(file)} is not in the ledger" if strange else ""


def _comparisons(rows: Any) -> list[Comparison]:
    if not isinstance(rows, list):
        raise TypeError(f"{type(rows).__name__}; a list is expected")
    return [Comparison(**row) for row in rows]


def _file(study: "Study") -> Path | None:
    """Return where the comparisons are kept; None if there is nothing to compare."""
    prepared = study.prepared
    # only retrainings that start from a trained model have these; a plug-in may have neither
    start, context = (getattr(study.recipe.retraining, name, None) for name in ("start", "context"))
    if start is None or context is None or start.fingerprint == prepared.base.fingerprint:
        return None
    properties = [record.fingerprint for record in prepared.property_records()]
    key = identity.quality_identity(prepared.base_identity, start.fingerprint, study.config.sampling, properties)
    return study.cache.path("quality", key, ".json")


def _compare(study: "Study") -> list[Comparison]:
    retraining: Any = study.recipe.retraining
    prepared, start, sampling = study.prepared, retraining.start, study.config.sampling
    untrained = retraining.context.untrained(start)
    what, values = "comparing the pruned model with the base model", []
    loss = HeldoutLoss()
    loss.restore(loss.fit(Context(prepared.generated_images(), _with_some_heldout(study.contributions))))
    for index, model in enumerate((prepared.base, start, untrained)):
        study.progress(what, index, 3)
        images: Images = prepared.generated_images() if model is prepared.base else generate(model, sampling)
        observation = Observation(prepared.extractors, images, model)
        measured = {each.property: each.value for each in measure_all(prepared.properties, observation)}
        values.append({**measured, LOSS: loss.measure_model(model)})
    study.progress(what, 3, 3)
    return [
        Comparison(name, *(each[name] for each in values), only_rises=name == LOSS)
        for name in values[0]
        if all(each[name] is not None for each in values)
    ]


def _with_some_heldout(contributions: Contributions) -> Contributions:
    """Return the contributions with at most ``LOSS_IMAGES`` held-out images; if they have none, training images."""
    images, captions = contributions.heldout, contributions.heldout_captions
    if not len(images):
        images, captions = contributions.images, contributions.captions
    rows = np.unique(np.linspace(0, len(images) - 1, min(LOSS_IMAGES, len(images))).round().astype(int))
    return dataclasses.replace(
        contributions,
        heldout=images[rows],
        heldout_captions=None if captions is None else tuple(captions[row] for row in rows),
    )
