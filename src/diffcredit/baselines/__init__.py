"""Baselines: credits without retraining, which a study's own credits have to beat.

Most baselines score each training image against the images that the base model generated, and aggregate the scores of
each contributor. They order contributors: none has an interval, and none sums to F(N) − F(∅). ``BASELINES`` maps names
to classes; :mod:`~diffcredit.baselines.base` says how to write another. For one without options::

    [credits] = baseline_credits(PixelSimilarity(), Evidence(contributions, generated_images), how="mean")
"""

from diffcredit.baselines.base import Crediting, Evidence, Scoring
from diffcredit.baselines.registry import BASELINES, BaselineCredits, aggregate, baseline_credits

__all__ = ["BASELINES", "BaselineCredits", "Crediting", "Evidence", "Scoring", "aggregate", "baseline_credits"]
