"""Diffusion models: train, sample, save, load.

``FAMILIES`` maps the name in a study file to the class that makes its model. A plug-in, ``package.module:Class``, is as
good; :mod:`diffcredit.diffusion.model` states what it must have. ``training`` trains models, ``generating`` samples
them. Only ``settings`` does without torch.
"""

from diffcredit.diffusion.settings import Sampling, Training

FAMILIES = {
    "ddpm": "diffcredit.diffusion.ddpm:PixelFamily",
    "latent": "diffcredit.diffusion.ddpm:LatentFamily",
    "lora": "diffcredit.diffusion.text_to_image:LoRAFamily",
}

__all__ = ["FAMILIES", "Sampling", "Training"]
