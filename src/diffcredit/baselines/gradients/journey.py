"""The clean images that a model predicts along its own sampling path (Georgiev et al. 2023)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import DiffusionModel
from diffcredit.diffusion.settings import Sampling
from diffcredit.diffusion.unet import UNetModel
from diffcredit.errors import UserError


def predicted_on_path(model: DiffusionModel, seeds: Sequence[int], sampling: Sampling, t: Tensor) -> Tensor:
    """Return x̂₀(x̃_t) (m, J, c, h, w): the clean image that the model predicts from the noisy x̃_t on its sampling path.

    One for each seed, at each of the time steps ``t`` (J,), or the nearest one on the path.
    """
    if not isinstance(model, UNetModel):
        raise UserError(f"journey_loss: {type(model).__name__} has no sampling path to look at; a UNetModel is needed")
    wanted = t.tolist()

    def of(places: range) -> Tensor:
        some = seeds[places.start : places.stop]
        path = model.noise_schedule.sampler(sampling.scheduler, sampling.steps).timesteps.tolist()
        nearest = [min(range(len(path)), key=lambda place, at=at: (abs(path[place] - at), place)) for at in wanted]
        kept: dict[int, Tensor] = {}

        def keep(place: int, predicted: Tensor) -> None:
            if place in nearest:
                kept[place] = predicted

        model.denoise(some, sampling.steps, sampling.scheduler, sampling.guidance, on_step=keep)
        return torch.stack([kept[place] for place in nearest], dim=1)

    with torch.no_grad():
        model.network.eval()
        return torch.cat(in_smaller_batches(of, len(seeds), sampling.batch_size))
