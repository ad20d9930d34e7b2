"""The models: train, sample, save, load.

The protocol every family follows is in ``protocol``, the pixel DDPM in ``ddpm``, the training loop in
``training``; ``settings`` alone is free of torch.
"""

from diffcredit.diffusion.settings import Sampling, Training

__all__ = ["Sampling", "Training"]
