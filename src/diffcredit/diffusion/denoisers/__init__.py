"""Denoisers: one small file for each network architecture, which says how it is called.

``PIPELINES`` maps the class of a pipeline, as in its ``model_index.json``, to its denoiser; ``NETWORKS`` the class of a
network without texts. :mod:`~diffcredit.diffusion.denoisers.base` states the interface.
"""

ROOM = "diffcredit.diffusion.denoisers"
PIPELINES = {
    "StableDiffusionPipeline": f"{ROOM}.stable_diffusion:StableDiffusion",
    "StableDiffusionXLPipeline": f"{ROOM}.stable_diffusion_xl:StableDiffusionXL",
    "StableDiffusion3Pipeline": f"{ROOM}.stable_diffusion_3:StableDiffusion3",
    "FluxPipeline": f"{ROOM}.flux:Flux",
    "Flux2KleinPipeline": f"{ROOM}.flux_2:Flux2Klein",
    "QwenImagePipeline": f"{ROOM}.qwen_image:QwenImage",
    "ZImagePipeline": f"{ROOM}.z_image:ZImage",
    "SanaPipeline": f"{ROOM}.sana:Sana",
    "PixArtSigmaPipeline": f"{ROOM}.pixart:PixArtSigma",
    "DiTPipeline": f"{ROOM}.dit:DiT",
}
NETWORKS = {
    "UNet2DModel": f"{ROOM}.unet:UNet",
    "DiTTransformer2DModel": f"{ROOM}.dit:DiT",
    "SD3Transformer2DModel": f"{ROOM}.stable_diffusion_3:StableDiffusion3",
}
