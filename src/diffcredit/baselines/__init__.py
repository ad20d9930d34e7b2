"""Credits without retraining: what a study's credits have to beat.

Most score each training image against the images that the base model generated and aggregate the scores per
contributor. None has an interval, and none sums to F(N) − F(∅): they order contributors. ``BASELINES`` maps a name to
the class; a plug-in ``package.module:Class`` is as good.
"""

from diffcredit.baselines.aggregating import aggregate
from diffcredit.baselines.protocol import Crediting, Evidence, Scoring
from diffcredit.baselines.registry import BASELINES, BaselineCredits, baseline_credits

__all__ = ["BASELINES", "BaselineCredits", "Crediting", "Evidence", "Scoring", "aggregate", "baseline_credits"]
