"""The models: train, sample, save, load.

``FAMILIES`` maps the name in a study file to the class that makes its model; a plug-in ``package.module:Class`` is
as good. The protocol every model follows is in ``protocol``, the training loop in ``training``; ``settings`` alone
is free of torch.
"""

from diffcredit.diffusion.settings import Sampling, Training

FAMILIES = {
    "ddpm": "diffcredit.diffusion.ddpm:PixelFamily",
    "latent": "diffcredit.diffusion.latent:LatentFamily",
    "lora": "diffcredit.diffusion.text_to_image:LoRAFamily",
}

__all__ = ["FAMILIES", "Sampling", "Training"]
