"""A model of two small convolutions in float64, so that sums taken in another order agree to many digits."""

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.diffusion.model import Batch

SIDE = 4


class Plain:
    """Predicts the noise in x + noise, whatever the time step."""

    time_steps = 1000
    condition_dropout = 0.0

    def __init__(self, seed: int = 0, dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.network: nn.Module = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Dropout(dropout), nn.Conv2d(8, 3, 1)
            ).to(dtype)
        # stands in for a noise schedule, with weights that are anything but one
        self.objective: Any = SimpleNamespace(min_snr_weights=lambda t, gamma: (t + 1) / (1000 * gamma))

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        x = batch.x.to(self.network[0].weight.dtype)
        return (self.network(x + noise) - noise).square().mean(dim=(1, 2, 3))

    def clone(self) -> "Plain":
        return copy.deepcopy(self)


def data(count: int = 10, seed: int = 0) -> Batch:
    x = torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed)).double()
    return Batch(x, x.flip(-1), torch.arange(count))


def weights(model: Plain) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.network.state_dict().items()}
