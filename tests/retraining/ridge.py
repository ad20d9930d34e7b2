"""Ridge regression in the place of a diffusion model: its retraining has a closed form.

The loss of a row is ½(xᵀθ − y)² + ½λ‖θ‖², whatever the time step and the noise. A row is an image of 2 × 2 pixels: of
its twelve numbers the first four are x and the fifth is y.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion import Training
from diffcredit.diffusion.model import Batch
from diffcredit.retraining.base import RetrainingContext
from diffcredit.util.artifacts import fingerprint_arrays
from diffcredit.util.progress import silent

FEATURES = 4
SCALE = 32  # an image's number is a pixel's, 128 taken for zero, in units of this
Floats = NDArray[np.float64]


class Ridge:
    """θ (4,), of which those outside ``support`` do not exist: a pruned model."""

    time_steps = 1000
    encoding = ""
    objective: Any = None

    def __init__(self, theta: Floats, penalty: float, support: Sequence[bool] = (True,) * FEATURES) -> None:
        self.network: nn.Module = nn.Linear(FEATURES, 1, bias=False, dtype=torch.float64)
        self.penalty, self.support = penalty, torch.tensor(support)
        with torch.no_grad():
            self.network.weight.copy_(torch.from_numpy(theta)[None])

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def theta(self) -> Floats:
        return (self.network.weight.detach()[0] * self.support).numpy()

    @property
    def fingerprint(self) -> str:
        return fingerprint_arrays({"theta": self.network.weight.detach().numpy(), "support": self.support.numpy()})

    def encode(self, images: NDArray[np.uint8], captions: Any = None, *, mirrored: bool = True) -> Batch:
        x = torch.from_numpy(numbers(images))
        return Batch(x, x, torch.arange(len(x)))

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        rows, theta = batch.x.flatten(1), self.network.weight[0] * self.support
        residual = rows[:, :FEATURES] @ theta - rows[:, FEATURES]
        return residual.square() / 2 + self.penalty / 2 * theta.square().sum()

    def untrained(self, seed: int) -> "Ridge":
        return Ridge(np.random.default_rng(seed).normal(size=FEATURES), self.penalty, self.support.tolist())

    def clone(self) -> "Ridge":
        return copy.deepcopy(self)


def numbers(images: NDArray[np.uint8]) -> Floats:
    return (images.astype(np.float64) - 128) / SCALE


def given(x: Floats, y: Floats, owner: Sequence[int]) -> Contributions:
    """Contributions of the rows ``x`` (m, 4), ``y`` (m,), which must be numbers that a pixel can have."""
    flat = np.full((len(y), 12), 128.0)
    flat[:, :FEATURES], flat[:, FEATURES] = 128 + SCALE * x, 128 + SCALE * y
    assert (flat == flat.astype(np.uint8)).all()
    n = max(owner) + 1
    images = flat.astype(np.uint8).reshape(-1, 2, 2, 3)
    return Contributions(images, np.array(owner), tuple("abcdef"[:n]), tuple(map(str, range(len(y)))), images[:0])


def drawn(counts: Sequence[int], seed: int = 0) -> Contributions:
    """``counts`` (n,) rows by each contributor, each with another θ of their own behind them."""
    generator = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(counts)), counts)
    x = generator.integers(-40, 41, (len(owner), FEATURES)) / SCALE
    own = generator.normal(size=(len(counts), FEATURES))
    y = np.clip(np.round((x * own[owner]).sum(axis=1) * SCALE), -128, 127) / SCALE
    return given(x, y, owner.tolist())


def rows(contributions: Contributions, coalition: Any = None) -> tuple[Floats, Floats]:
    """x (m, 4) and y (m,) of a coalition, or of everybody."""
    flat = numbers(contributions.images).reshape(len(contributions.images), -1)
    chosen = flat if coalition is None else flat[np.asarray(coalition)[contributions.owner]]
    return chosen[:, :FEATURES], chosen[:, FEATURES]


def mean_loss(theta: Floats, x: Floats, y: Floats, penalty: float) -> float:
    return float(((x @ theta - y) ** 2).mean() / 2 + penalty / 2 * (theta**2).sum())


def gradient(theta: Floats, x: Floats, y: Floats, penalty: float) -> Floats:
    """Of the mean loss, (4,)."""
    return x.T @ (x @ theta - y) / len(y) + penalty * theta


def optimum(x: Floats, y: Floats, penalty: float, support: Sequence[bool] = (True,) * FEATURES) -> Floats:
    """The minimiser of the mean loss among the θ on ``support``."""
    theta, on = np.zeros(FEATURES), np.array(support)
    theta[on] = np.linalg.solve(x[:, on].T @ x[:, on] / len(y) + penalty * np.eye(on.sum()), x[:, on].T @ y / len(y))
    return theta


def smoothness(x: Floats, penalty: float) -> float:
    """L, the largest curvature of the mean loss."""
    return float(np.linalg.eigvalsh(x.T @ x / len(x)).max() + penalty)


def context(base: Ridge, contributions: Contributions, folder: Path, *, batch_size: int) -> RetrainingContext:
    """On which fine-tuning is plain gradient descent. Where ``batch_size`` is a multiple of a coalition's rows, every
    batch has each of them equally often: the gradient is that of the mean loss."""
    training = Training(steps=1, batch_size=batch_size, optimizer="sgd", gradient_clip=None, flip=False)
    never = Mock(side_effect=AssertionError("nothing was kept"))
    model: Any = base
    return RetrainingContext(model, contributions, training, seed=5, folder=folder, load=never, progress=silent)
