"""How well a model denoises images it was not trained on."""

import json
from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Le, Lt

from diffcredit.contributions import Contributions
from diffcredit.diffusion.protocol import Batch, DiffusionModel
from diffcredit.errors import UserError
from diffcredit.properties.protocol import Context, State


@dataclass
class HeldoutLoss:
    """Mean denoising loss (L_simple) on the held-out images, at ``time_steps`` evenly spaced time steps.

    Each image keeps its noise at each time step, the same for every model, so that only models differ.
    """

    time_steps: Annotated[int, Ge(1), Le(1000)] = 10
    seed: Annotated[int, Ge(0), Lt(2**62)] = 0
    batch_size: Annotated[int, Ge(1)] = 256

    name = "heldout_loss"
    title = "Held-out loss"
    higher_is_better = False
    unit = "mean squared error"
    range = (0.0, inf)
    explanation = "How far the model is off when it denoises images that were kept out of training."
    bias = "None, as it is measured on held-out images, not on generated ones."

    def check(self, contributions: Contributions, images: int) -> None:
        if not len(contributions.heldout):
            raise UserError(
                "heldout_loss: the study keeps no images out of training; give contributions.holdout a share "
                "such as 0.1 or a folder of images"
            )

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

    def _data(self, model: DiffusionModel) -> Batch:
        """The held-out images as ``model`` sees them; an autoencoder is dear, so once for all models that share it."""
        key = (model.encoding, str(model.device))
        if key not in self._encoded:
            self._encoded[key] = model.encode(self.images, self.captions, mirrored=False)
        return self._encoded[key]

    @torch.no_grad()
    def measure_model(self, model: DiffusionModel) -> float:
        """The mean over images and time steps t_j = ⌊(j + ½) T / J⌋, j = 0..J−1."""
        model.network.eval()
        data = self._data(model)
        generator = torch.Generator().manual_seed(self.seed)
        losses = []
        for j in range(self.time_steps):
            t = int((j + 0.5) * model.time_steps / self.time_steps)
            noise = torch.randn(data.x.shape, generator=generator).to(model.device)
            for start in range(0, len(data), self.batch_size):
                rows = torch.arange(start, min(start + self.batch_size, len(data)))
                steps = torch.full((len(rows),), t, device=model.device)
                losses.append(model.loss(data.select(rows), steps, noise[rows.to(model.device)]))
        return float(torch.cat(losses).double().mean())
