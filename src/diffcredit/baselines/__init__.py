"""Credits without retraining: what a study's credits have to beat.

Most score each training image against the images that the base model generated and aggregate the scores per
contributor. None has an interval, and none sums to F(N) − F(∅): they order contributors.
"""

from diffcredit.baselines.aggregating import aggregate
from diffcredit.baselines.protocol import Baseline, Evidence
from diffcredit.baselines.registry import BASELINES, baseline_credits

__all__ = ["BASELINES", "Baseline", "Evidence", "aggregate", "baseline_credits"]
