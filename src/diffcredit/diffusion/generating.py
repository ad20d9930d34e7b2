"""A model's images, as a study asks for them."""

from typing import Any

import torch

from diffcredit.diffusion.fast.eligibility import dtype_of, give_up, samples_fast
from diffcredit.diffusion.fast.sampling import sampler_for
from diffcredit.diffusion.protocol import DiffusionModel, Images
from diffcredit.diffusion.settings import Sampling


def generate(model: DiffusionModel, sampling: Sampling) -> Images:
    """``sampling.images`` images (m, h, w, 3), image i from the noise of its own seed."""
    if samples_fast(model):
        try:
            sampler = sampler_for(model, sampling)
            sampler.record()
        except torch.OutOfMemoryError:
            pass  # a smaller batch may fit
        except Exception as error:  # of a compiler, which may fail in any way
            give_up("sampling", error)
        else:
            return sampler.sample(model)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=_dtype(model, sampling) == torch.bfloat16):
        return model.sample(
            sampling.seeds,
            sampling.steps,
            sampling.batch_size,
            scheduler=sampling.scheduler,
            guidance=sampling.guidance,
        )


def sampling_numerics(model: DiffusionModel, sampling: Sampling) -> dict[str, Any]:
    """What the images' last bits depend on beside the device and the weights."""
    dtype = str(_dtype(model, sampling)).removeprefix("torch.")
    return {"path": "graph" if samples_fast(model) else "eager", "dtype": dtype}


def _dtype(model: DiffusionModel, sampling: Sampling) -> torch.dtype:
    return dtype_of(sampling.precision, model.device)
