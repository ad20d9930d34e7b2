"""Why a pipeline of diffusers that no denoiser serves cannot be served, where its class's name says so."""

REASONS = {
    "ControlNet": "it is conditioned on an image beside the text",
    "Inpaint": "it completes a given image",
    "Img2Img": "it changes a given image; its text-to-image pipeline has the same weights",
    "Edit": "it changes a given image",
    "Kontext": "it changes a given image",
    "Layered": "it makes several images that are stacked",
    "Upscale": "it enlarges a given image",
    "Video": "it makes videos",
    "Wan": "it makes videos",
    "LTX": "it makes videos",
    "Mochi": "it makes videos",
    "CogVideo": "it makes videos",
    "Sprint": "it is distilled to a few steps, which no training objective continues",
    "LatentConsistency": "it is distilled to a few steps, which no training objective continues",
}


def reason_against(kind: str) -> str | None:
    """Return why pipelines of class ``kind`` are refused, or None where that is not known from the name."""
    return next((reason for part, reason in REASONS.items() if part in kind), None)
