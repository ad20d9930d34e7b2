"""The one face that every family of diffusion models shows to the rest of the house."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Images = NDArray[np.uint8]
"""(m, h, w, 3) uint8."""


@dataclass(frozen=True)
class Batch:
    """Encoded training data: ``x`` and its mirror image ``flipped``, both (m, c, h, w), and what conditions
    them, (m, …), if anything does. Latents of a mirrored image are not mirrored latents, hence both. ``rows``
    (m,) are the images' places among all contributions, on the CPU: their identity in every selection."""

    x: Tensor
    flipped: Tensor
    rows: Tensor
    condition: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def select(self, index: Tensor | NDArray[np.int64], flip: Tensor | None = None) -> "Batch":
        """The rows of ``index`` (k,), mirrored where ``flip`` (k,) is true."""
        rows = self.rows[torch.as_tensor(index)]
        index = torch.as_tensor(index, device=self.x.device)
        x, mirrored = self.x[index], self.flipped[index]
        if flip is not None:
            flip = flip.to(x.device)[:, None, None, None]
            x, mirrored = torch.where(flip, mirrored, x), torch.where(flip, x, mirrored)
        return Batch(x, mirrored, rows, None if self.condition is None else self.condition[index])


class DiffusionModel(Protocol):
    """A network that predicts noise, its noise schedule, and the way from pixels to what it sees and back."""

    network: nn.Module
    time_steps: int

    @property
    def device(self) -> torch.device: ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the architecture and every weight."""
        ...

    def example(self) -> dict[str, Tensor]:
        """Smallest inputs of ``network`` by name, on the CPU: what pruning traces its structure with."""
        ...

    def encode(self, images: Images, captions: Sequence[str] | None = None) -> Batch: ...

    def predict(self, x_t: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        """The noise in ``x_t`` (m, c, h, w) at time steps ``t`` (m,)."""
        ...

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        """L_simple of each sample, (m,): ‖noise − predict(x_t, t)‖² / (c·h·w)."""
        ...

    def sample(self, seeds: Sequence[int], steps: int, batch_size: int = 256) -> Images:
        """One image per seed; which one never depends on the other seeds or on ``batch_size``."""
        ...

    def untrained(self, seed: int) -> Self:
        """The same architecture with fresh weights: the model of no contributor."""
        ...

    def clone(self) -> Self: ...

    def to(self, device: torch.device | str) -> Self: ...

    def save(self, directory: Path) -> None: ...

    @classmethod
    def load(cls, directory: Path) -> Self: ...
