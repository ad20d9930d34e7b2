"""Generate a model's images.

    images = generate(model, Sampling(images=1024, steps=100))  # uint8 (1024, h, w, 3)

Image i follows from the model and the seed ``sampling.seed + i``. On a GPU the fast path does the work where it pays.
"""

from typing import Any

import torch

from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.fast.compiling import sums_by_rule
from diffcredit.diffusion.fast.eligibility import dtype_of, give_up, samples_fast
from diffcredit.diffusion.fast.sampling import sampler_for
from diffcredit.diffusion.model import DiffusionModel, Images
from diffcredit.diffusion.session import current_session
from diffcredit.diffusion.settings import Sampling

WORTHWHILE = 200_000  # image-steps; a single sampling of fewer ends before it would be compiled


def generate(model: DiffusionModel, sampling: Sampling, *, often: bool = False) -> Images:
    """Return ``sampling.images`` images (m, h, w, 3). ``often``: more such models follow, so that compiling pays."""
    if goes_fast(model, sampling, often=often) and isinstance(model, DiffusersModel):
        session = current_session()
        try:
            sampler = sampler_for(session, model, sampling)
            sampler.record()
        except torch.OutOfMemoryError:
            pass  # a smaller batch may fit
        except Exception as error:  # compilers may fail in any way
            give_up(session, "sampling", error)
        else:
            return sampler.sample(model)
    bf16 = dtype_of(sampling.precision, model.device) == torch.bfloat16
    # a model that follows no prompt need not know of them
    stated = {} if sampling.prompts is None else {"prompts": sampling.prompts}
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        return model.sample(
            sampling.seeds,
            sampling.steps,
            sampling.batch_size,
            scheduler=sampling.scheduler,
            guidance=sampling.guidance,
            **stated,
        )


def sampling_numerics(model: DiffusionModel, sampling: Sampling, *, often: bool = False) -> dict[str, Any]:
    """Return how :func:`generate` computes, as far as its last bits depend on it beside the device and the weights."""
    dtype = str(dtype_of(sampling.precision, model.device)).removeprefix("torch.")
    if not goes_fast(model, sampling, often=often):
        return {"path": "eager", "dtype": dtype}
    return {"path": "graph", "dtype": dtype, "sums_by_rule": sums_by_rule()}


def goes_fast(model: DiffusionModel, sampling: Sampling, *, often: bool = False) -> bool:
    """Return whether :func:`generate` takes the fast path, unless that fails."""
    return (often or sampling.images * sampling.steps >= WORTHWHILE) and samples_fast(model)
