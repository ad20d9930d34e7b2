"""The baselines by name, and their credits."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diffcredit.baselines.aggregating import aggregate
from diffcredit.baselines.protocol import Evidence, FloatArray, How
from diffcredit.errors import UserError

BASELINES = {
    "image_count": "diffcredit.baselines.floors:ImageCount",
    "random_ranking": "diffcredit.baselines.floors:RandomRanking",
    "training_property": "diffcredit.baselines.training_property:TrainingProperty",
    "pixel_similarity": "diffcredit.baselines.similarity:PixelSimilarity",
    "feature_similarity": "diffcredit.baselines.similarity:FeatureSimilarity",
    "cluster_distance": "diffcredit.baselines.clusters:ClusterDistance",
    "application_scores": "diffcredit.baselines.application:ApplicationScores",
    "patch_similarity": "diffcredit.baselines.patches:PatchSimilarity",
    "gradient_similarity": "diffcredit.baselines.trak:GradientSimilarity",
    "trak": "diffcredit.baselines.trak:TRAK",
    "d_trak": "diffcredit.baselines.trak:DTRAK",
    "journey_trak": "diffcredit.baselines.trak:JourneyTRAK",
    "relative_influence": "diffcredit.baselines.trak:RelativeInfluence",
    "renormalised_influence": "diffcredit.baselines.trak:RenormalisedInfluence",
    "das": "diffcredit.baselines.das:DAS",
    "influence_diagonal": "diffcredit.baselines.influence_functions:DiagonalInfluence",
    "influence_kronecker": "diffcredit.baselines.influence_functions:KroneckerInfluence",
    "in_run_shapley": "diffcredit.baselines.in_run:InRunShapley",
    "conditional_sampling": "diffcredit.baselines.conditional:ConditionalShapley",
}


@dataclass(frozen=True, eq=False)
class BaselineCredits:
    """(n,) credits of one method, how scores were aggregated (empty: there were none), what the method chose by itself
    (such as λ), and the seconds it took."""

    method: str
    how: str
    credits: FloatArray
    chosen: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.method} ({self.how})" if self.how else self.method


def baseline_credits(baseline: Any, evidence: Evidence, how: How | None = None) -> list[BaselineCredits]:
    """The credits that a baseline gives: one set for each of its aggregations, or for the one asked for."""
    start = time.perf_counter()
    if hasattr(baseline, "credits"):
        if how is not None:
            raise UserError(f"{baseline.name}: scores no images, so that {how!r} of them cannot be taken")
        found = baseline.credits(evidence)
        return [BaselineCredits(baseline.name, "", found, _chosen(baseline), time.perf_counter() - start)]
    scores = baseline.scores(evidence)
    seconds = time.perf_counter() - start
    return [
        BaselineCredits(
            baseline.name, each, aggregate(scores, evidence.contributions, each), _chosen(baseline), seconds
        )
        for each in ((how,) if how else baseline.aggregations)
    ]


def _chosen(baseline: Any) -> dict[str, float]:
    return dict(getattr(baseline, "chosen", {}))
