"""Per-image gradients of the base model, randomly projected: the rows of Φ, cached on disk."""

from diffcredit.baselines.gradients.settings import GradientSettings

__all__ = ["GradientSettings"]
