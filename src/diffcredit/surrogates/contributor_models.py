"""Models fine-tuned on one contributor's images each, for pools and soups."""

import dataclasses
from typing import TYPE_CHECKING, Any

from diffcredit.errors import UserError
from diffcredit.surrogates.base import Material
from diffcredit.util.artifacts import fingerprint

if TYPE_CHECKING:
    from diffcredit.retraining.contributor_models import ContributorModels


def contributor_models(material: Material, surrogate: str) -> "ContributorModels":
    """Fine-tune each contributor's model, from the same start and with the same settings as every coalition's."""
    from diffcredit.retraining.contributor_models import ContributorModels

    retraining = fine_tuning(material.retraining, surrogate)
    return ContributorModels.prepare(retraining.ground, retraining.start, retraining.settings)


def identity(material: Material, surrogate: str) -> str:
    """Return the fingerprint of all that fixes the contributors' models and their images."""
    retraining = fine_tuning(material.retraining, surrogate)
    settings = dataclasses.asdict(retraining.settings), dataclasses.asdict(material.sampling)
    return fingerprint(
        [retraining.start.fingerprint, *settings, material.contributions.fingerprint, retraining.ground.seed]
    )


def fine_tuning(retraining: Any, surrogate: str) -> Any:
    """Return the prepared ``retraining``; raise a UserError if its coalitions do not start from one model."""
    if not all(hasattr(retraining, name) for name in ("start", "settings", "ground")):
        raise UserError(needs_start(surrogate))
    return retraining


def needs_start(surrogate: str) -> str:
    """Return the message that ``surrogate`` needs a retraining whose coalitions start from one model."""
    return (
        f"surrogate {surrogate!r} fine-tunes the model that all coalitions start from, and this retraining does not; "
        "accepted: a retraining such as fine_tune or sparsified, or the surrogates reweighting and real_data"
    )
