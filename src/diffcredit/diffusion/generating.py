"""A model's images, as a study asks for them."""

from diffcredit.diffusion.protocol import DiffusionModel, Images
from diffcredit.diffusion.settings import Sampling


def generate(model: DiffusionModel, sampling: Sampling) -> Images:
    """``sampling.images`` images (m, h, w, 3), image i from the noise of its own seed."""
    return model.sample(
        sampling.seeds, sampling.steps, sampling.batch_size, scheduler=sampling.scheduler, guidance=sampling.guidance
    )
