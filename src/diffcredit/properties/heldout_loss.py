"""The denoising loss of a model on images it was not trained on."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from diffcredit.contributions import Contributions
from diffcredit.diffusion.micro_batches import in_smaller_batches
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.errors import UserError
from diffcredit.properties.base import Context, Property, State
from diffcredit.properties.kinds import NO_HELDOUT

MOST_KEPT = 2**30  # bytes of noises kept for the next model
AT_ONCE = 2**20  # pixels that a GPU gets at once, so that it does not wait for the host


@dataclass
class HeldoutLoss(Property):
    """The mean denoising loss (L_simple) on the held-out images at ``time_steps`` evenly spaced time steps.

    The noise of each image at each time step is the same for every model.
    """

    time_steps: Annotated[int, Ge(1), Le(1000)] = 10
    seed: Annotated[int, Ge(0), Lt(2**62)] = 0
    batch_size: Annotated[int, Ge(1)] = 256

    name = "heldout_loss"
    title = "Held-out loss"
    higher_is_better = False
    unit = "mean squared error"
    differences = (
        "the model’s error on pictures that it has not seen would be {} smaller",
        "the model’s error on pictures that it has not seen would be {} larger",
    )
    range = (0.0, inf)
    explanation = "How far the model is off when it denoises images that were kept out of training."
    bias = "None, as it is measured on held-out images, not on generated ones."

    def check(self, contributions: Contributions, images: int) -> None:
        if not len(contributions.heldout):
            raise UserError(f"heldout_loss: {NO_HELDOUT}")

    def fit(self, context: Context) -> State:
        self.check(context.contributions, len(context.generated))
        state = {"images": context.contributions.heldout}
        captions = context.contributions.heldout_captions
        if captions is not None:
            state["captions"] = np.frombuffer(json.dumps(captions).encode(), np.uint8)
        return state

    def restore(self, state: State) -> None:
        self.images = np.asarray(state["images"])
        self.captions = json.loads(state["captions"].tobytes()) if "captions" in state else None
        self._encoded: dict[tuple[str, str], Batch] = {}
        self._kept: dict[tuple[str, torch.Size], list[Tensor]] = {}

    def _data(self, model: DiffusionModel) -> Batch:
        """Encode the held-out images, once for all models that share an autoencoder, which is expensive."""
        key = (model.encoding, str(model.device))
        if key not in self._encoded:
            self._encoded[key] = model.encode(self.images, self.captions, mirrored=False)
        return self._encoded[key]

    @torch.no_grad()
    def measure_model(self, model: DiffusionModel) -> float:
        """Return the mean over images and time steps t_j = ⌊(j + ½) T / J⌋, j = 0..J−1."""
        model.network.eval()
        data = self._data(model)
        size = self.batch_size
        if model.device.type == "cuda":
            size = max(size, AT_ONCE // data.x[0, 0].numel())
        losses: list[Tensor] = []
        for j, noise in enumerate(self._noises(data.x.shape, model.device)):
            t = int((j + 0.5) * model.time_steps / self.time_steps)

            def losses_of(places: range, t: int = t, noise: Tensor = noise) -> Tensor:
                rows = torch.arange(places.start, places.stop)
                steps = torch.full((len(rows),), t, device=model.device)
                return model.loss(data.select(rows), steps, noise[rows.to(model.device)])

            losses += in_smaller_batches(losses_of, len(data), size)
        return float(torch.cat(losses).double().mean())

    def _noises(self, shape: torch.Size, device: torch.device) -> Iterator[Tensor]:
        """Yield all images' noises (m, c, h, w) on ``device``, one time step after another.

        They are drawn on the CPU, so that every device gets the same, and kept for the next model up to a limit.
        """
        key = str(device), shape
        if key in self._kept:
            yield from self._kept[key]
            return
        bytes_kept = sum(noise.nbytes for noises in self._kept.values() for noise in noises)
        keeps = bytes_kept + 4 * shape.numel() * self.time_steps <= MOST_KEPT
        generator, drawn = torch.Generator().manual_seed(self.seed), []
        for _ in range(self.time_steps):
            noise = torch.randn(shape, generator=generator).to(device)
            if keeps:
                drawn.append(noise)
            yield noise
        if keeps:
            self._kept[key] = drawn
