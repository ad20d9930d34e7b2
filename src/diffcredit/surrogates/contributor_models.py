"""The contributors' own models, which pools and soups are made of."""

import dataclasses
from typing import TYPE_CHECKING, Any

from diffcredit.errors import UserError
from diffcredit.surrogates.base import Material
from diffcredit.util.artifacts import fingerprint

if TYPE_CHECKING:
    from diffcredit.retraining.contributor_models import ContributorModels


def contributor_models(material: Material, surrogate: str) -> "ContributorModels":
    """Each contributor's model, fine-tuned from the start and with the settings that every coalition's has."""
    from diffcredit.retraining.contributor_models import ContributorModels

    retraining = fine_tuning(material.retraining, surrogate)
    return ContributorModels.prepare(retraining.ground, retraining.start, retraining.settings)


def identity(material: Material, surrogate: str) -> str:
    """Fingerprint of all that fixes the contributors' models and their images."""
    retraining = fine_tuning(material.retraining, surrogate)
    settings = dataclasses.asdict(retraining.settings), dataclasses.asdict(material.sampling)
    return fingerprint(
        [retraining.start.fingerprint, *settings, material.contributions.fingerprint, retraining.ground.seed]
    )


def fine_tuning(retraining: Any, surrogate: str) -> Any:
    """``retraining``, prepared; refused where its coalitions do not start from one model."""
    if not all(hasattr(retraining, name) for name in ("start", "settings", "ground")):
        raise UserError(needs_start(surrogate))
    return retraining


def needs_start(surrogate: str) -> str:
    return (
        f"surrogate {surrogate!r} fine-tunes the model that all coalitions start from, and this retraining does not; "
        "accepted: a retraining such as fine_tune or sparsified, or the surrogates reweighting and real_data"
    )
