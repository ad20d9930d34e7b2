"""Why a pipeline of diffusers that no denoiser serves cannot be served, where its class's name says so."""

from diffcredit.diffusion.denoisers.checks import WHY_FEW_STEPS

FEW_STEPS = f"it {WHY_FEW_STEPS}"
REASONS = {
    "Controlnet": "it is conditioned on an image beside the text",
    "Control": "it is conditioned on an image beside the text",
    "Inpaint": "it completes a given image",
    "Img2Img": "it changes a given image; its text-to-image pipeline has the same weights",
    "Edit": "it changes a given image",
    "Fill": "it completes a given image",
    "Pix2Pix": "it changes a given image",
    "Omni": "it is conditioned on images beside the text",
    "Kontext": "it changes a given image",
    "Layered": "it makes several images that are stacked",
    "SuperResolution": "it enlarges a given image",
    "Upscale": "it enlarges a given image",
    "Video": "it makes videos",
    "Animate": "it makes videos",
    "T2V": "it makes videos",
    "I2V": "it makes videos",
    "Wan": "it makes videos",
    "LTX": "it makes videos",
    "Mochi": "it makes videos",
    "CogVideo": "it makes videos",
    "Sprint": FEW_STEPS,
    "Turbo": FEW_STEPS,
    "Distilled": FEW_STEPS,
    "LatentConsistency": FEW_STEPS,
}


def reason_against(kind: str) -> str | None:
    """Return why pipelines of class ``kind`` are refused, or None where that is not known from the name."""
    return next((reason for part, reason in REASONS.items() if part in kind), None)
