"""Per-image gradients of the base model, projected at random: the rows of Φ, kept on disk."""

from diffcredit.baselines.gradients.settings import GradientSettings

__all__ = ["GradientSettings"]
