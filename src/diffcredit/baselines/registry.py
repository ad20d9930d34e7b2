"""The baselines by name, and their credits."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from diffcredit.baselines.base import Crediting, Evidence, How
from diffcredit.contributions import Contributions
from diffcredit.errors import UserError
from diffcredit.util.arrays import FloatArray
from diffcredit.util.artifacts import canonical_json
from diffcredit.util.plugins import in_plugin

BASELINES = {
    "image_count": "diffcredit.baselines.controls:ImageCount",
    "random_ranking": "diffcredit.baselines.controls:RandomRanking",
    "training_property": "diffcredit.baselines.controls:TrainingProperty",
    "pixel_similarity": "diffcredit.baselines.similarity:PixelSimilarity",
    "feature_similarity": "diffcredit.baselines.similarity:FeatureSimilarity",
    "cluster_distance": "diffcredit.baselines.similarity:ClusterDistance",
    "application_scores": "diffcredit.baselines.controls:ApplicationScores",
    "patch_similarity": "diffcredit.baselines.patches:PatchSimilarity",
    "gradient_similarity": "diffcredit.baselines.trak:GradientSimilarity",
    "trak": "diffcredit.baselines.trak:TRAK",
    "d_trak": "diffcredit.baselines.trak:DTRAK",
    "journey_trak": "diffcredit.baselines.trak:JourneyTRAK",
    "relative_influence": "diffcredit.baselines.trak:RelativeInfluence",
    "renormalised_influence": "diffcredit.baselines.trak:RenormalisedInfluence",
    "das": "diffcredit.baselines.trak:DAS",
    "influence_diagonal": "diffcredit.baselines.influence_functions:DiagonalInfluence",
    "influence_kronecker": "diffcredit.baselines.influence_functions:KroneckerInfluence",
    "in_run_shapley": "diffcredit.baselines.in_run:InRunShapley",
    "conditional_sampling": "diffcredit.baselines.conditional:ConditionalShapley",
}

_WAYS: dict[str, Callable[[FloatArray], float]] = {"sum": np.sum, "mean": np.mean, "max": np.max}


@dataclass(frozen=True, eq=False)
class BaselineCredits:
    """The credits of one method by one aggregation."""

    method: str
    how: str
    """How scores were aggregated; empty for a method that scores no images."""
    credits: FloatArray
    """(n,)"""
    chosen: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the method chose by itself, such as λ."""
    seconds: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options that differ from their defaults."""

    @property
    def name(self) -> str:
        """A name for each method, aggregation and setting, such as ``trak (sum, dimensions=512)``."""
        words = ", ".join(filter(None, (self.how, self.setting)))
        return f"{self.method} ({words})" if words else self.method

    @property
    def setting(self) -> str:
        """The options in words, such as ``dimensions=512``; empty where all are the defaults."""
        words = {key: each if isinstance(each, str) else canonical_json(each) for key, each in self.options.items()}
        return ", ".join(f"{key}={words[key]}" for key in sorted(words))


def baseline_credits(baseline: Any, evidence: Evidence, how: How | None = None) -> list[BaselineCredits]:
    """Return a baseline's credits: one set for each of its aggregations, or for the one asked for.

    The baseline may be a user's class: its members and its answers are checked.
    """
    check_members(baseline)
    start = time.perf_counter()
    if isinstance(baseline, Crediting):
        if how is not None:
            raise UserError(f"{baseline.name}: scores no images, so that {how!r} of them cannot be taken")
        with in_plugin(f"{baseline.name}: credits(evidence)"):
            answer = baseline.credits(evidence)
        found = {"": one_number_each(answer, evidence.contributions.contributors, f"{baseline.name}: credits")}
    else:
        scores = checked_scores(baseline, evidence)
        ways = (how,) if how else baseline.aggregations
        found = {each: aggregate(scores, evidence.contributions, each) for each in ways}
    chosen, seconds = _chosen_by(baseline), time.perf_counter() - start
    return [BaselineCredits(baseline.name, each, credits, chosen, seconds) for each, credits in found.items()]


def check_members(baseline: Any) -> None:
    """Refuse a class without the members that tables need."""
    needed = ("name", "title", "category", *(() if isinstance(baseline, Crediting) else ("aggregations",)))
    if missing := [member for member in needed if not hasattr(baseline, member)]:
        raise UserError(f"{type(baseline).__name__}: misses {', '.join(missing)}; a baseline has {', '.join(needed)}")


def checked_scores(baseline: Any, evidence: Evidence) -> FloatArray:
    """Return a baseline's (m,) scores of the training images after checking them."""
    with in_plugin(f"{baseline.name}: scores(evidence)"):
        answer = baseline.scores(evidence)
    return one_number_each(answer, evidence.contributions.names, f"{baseline.name}: scores")


def _chosen_by(baseline: Any) -> dict[str, float]:
    chosen = {str(name): number for name, number in getattr(baseline, "chosen", {}).items()}
    numbers = one_number_each(list(chosen.values()), list(chosen), f"{baseline.name}: chosen")
    return dict(zip(chosen, numbers.tolist(), strict=True))


def aggregate(scores: ArrayLike, contributions: Contributions, how: How) -> FloatArray:
    """Return (n,): the sum, mean or max of the ``scores`` (m,) of each contributor's images.

    Influence-like scores add up, so that their sum is usual. Similarities do not; their mean or max is usual.
    """
    if how not in _WAYS:
        raise UserError(f"how: {how!r}; accepted: {', '.join(_WAYS)}")
    s = one_number_each(scores, contributions.names, "scores")
    if (contributions.counts == 0).any():
        nobody = contributions.contributors[int(np.argmin(contributions.counts))]
        raise UserError(f"contributor {nobody!r} gave no training image; credits need at least one of everybody")
    return np.array([_WAYS[how](s[contributions.owner == i]) for i in range(contributions.n)], dtype=np.float64)


def one_number_each(values: ArrayLike, names: Sequence[str], what: str) -> FloatArray:
    """Return ``values`` as float64 after checking that each of the ``names`` has one; ``what`` starts every error."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what}: not numbers ({error}); an array of numbers is accepted") from None
    if numbers.shape != (len(names),):
        raise UserError(f"{what}: shape {numbers.shape}; one number for each of {len(names)} is accepted")
    if not np.isfinite(numbers).all():
        worst = names[int(np.argmin(np.isfinite(numbers)))]
        raise UserError(f"{what}: that of {worst} is not a finite number")
    return numbers
