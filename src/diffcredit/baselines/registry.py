"""The baselines by name."""

from typing import Any

from diffcredit.baselines.aggregating import How, aggregate
from diffcredit.baselines.floors import image_count, random_ranking
from diffcredit.baselines.pixel_similarity import pixel_similarity
from diffcredit.baselines.protocol import Baseline, Evidence, FloatArray
from diffcredit.baselines.training_property import training_property
from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.features.extractors import Extractors
from diffcredit.properties import Images


def _pixel_similarity(how: How) -> Baseline:
    def credits(evidence: Evidence) -> FloatArray:
        scores = pixel_similarity(evidence.contributions.images, evidence.generated)
        return aggregate(scores, evidence.contributions, how)

    return credits


BASELINES: dict[str, Baseline] = {
    "image_count": image_count,
    "random_ranking": random_ranking,
    "pixel_similarity_mean": _pixel_similarity("mean"),
    "pixel_similarity_max": _pixel_similarity("max"),
    "training_property": training_property,
}


def baseline_credits(
    name: str,
    contributions: Contributions,
    generated: Images,
    *,
    prop: Any = None,
    seed: int = 0,
    extractors: Extractors | None = None,
) -> FloatArray:
    """(n,): the credits that the baseline called ``name`` gives, in the order of the contributors.

    generated: the base model's images, (g, h, w, 3) uint8.
    prop: the fitted property, which ``training_property`` needs.
    seed: of ``random_ranking``.
    extractors: the study's, for a property of features.
    """
    if name not in BASELINES:
        raise UserError(f"baseline {name!r}: unknown; choose one of {', '.join(BASELINES)}")
    return BASELINES[name](Evidence(contributions, generated, prop, seed, extractors or Extractors()))
