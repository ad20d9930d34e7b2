"""The former place of :mod:`diffcredit.diffusion.model`, from which plug-ins import."""

from diffcredit.diffusion.model import Batch, DiffusionModel, Family, Images

__all__ = ["Batch", "DiffusionModel", "Family", "Images"]
