"""The baselines by name, and their credits."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diffcredit.baselines.aggregating import aggregate
from diffcredit.baselines.answers import check_words, chosen_by, credits_of, scores_of
from diffcredit.baselines.protocol import Evidence, How
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import canonical_json

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
    (such as λ), the seconds it took, and those of its options that are not the defaults."""

    method: str
    how: str
    credits: FloatArray
    chosen: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Such as ``trak (sum, dimensions=512)``: one for each method, aggregation and setting."""
        words = ", ".join(filter(None, (self.how, self.setting)))
        return f"{self.method} ({words})" if words else self.method

    @property
    def setting(self) -> str:
        """The options in words, such as ``dimensions=512``; empty where all are the defaults."""
        words = {key: each if isinstance(each, str) else canonical_json(each) for key, each in self.options.items()}
        return ", ".join(f"{key}={words[key]}" for key in sorted(words))


def baseline_credits(baseline: Any, evidence: Evidence, how: How | None = None) -> list[BaselineCredits]:
    """The credits that a baseline gives: one set for each of its aggregations, or for the one asked for."""
    check_words(baseline)
    start = time.perf_counter()
    if hasattr(baseline, "credits"):
        if how is not None:
            raise UserError(f"{baseline.name}: scores no images, so that {how!r} of them cannot be taken")
        found = credits_of(baseline, evidence)
        return [BaselineCredits(baseline.name, "", found, chosen_by(baseline), time.perf_counter() - start)]
    scores = scores_of(baseline, evidence)
    seconds = time.perf_counter() - start
    return [
        BaselineCredits(
            baseline.name, each, aggregate(scores, evidence.contributions, each), chosen_by(baseline), seconds
        )
        for each in ((how,) if how else baseline.aggregations)
    ]
