"""The one face that every family of diffusion models shows to the rest of the house."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion.noise import NoiseSchedule

Images = NDArray[np.uint8]
"""(m, h, w, 3) uint8."""


@dataclass(frozen=True)
class Batch:
    """Encoded training data: ``x`` and its mirror image ``flipped``, both (m, c, h, w). Latents of a mirrored image
    are not mirrored latents, hence both. ``rows`` (m,) are the images' places among all contributions, on the CPU:
    their identity in every selection. What conditions them, if anything does, is stored once: the distinct
    ``conditions`` (k, …), and of each image which one, ``condition_of`` (m,)."""

    x: Tensor
    flipped: Tensor
    rows: Tensor
    conditions: Tensor | None = None
    condition_of: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def condition(self) -> Tensor | None:
        """(m, …), row for row."""
        return None if self.conditions is None else self.conditions[self.condition_of]

    def conditions_at(self, places: Tensor) -> Tensor | None:
        """Of the images at ``places`` (k,), (k, …)."""
        if self.conditions is None or self.condition_of is None:
            return None
        return self.conditions[self.condition_of.index_select(0, places)]

    def select(self, index: Tensor | NDArray[np.int64], flip: Tensor | None = None) -> "Batch":
        """The rows of ``index`` (k,), mirrored where ``flip`` (k,) is true."""
        index = torch.as_tensor(index)
        rows = self.rows[index]
        index = index.to(self.x.device, non_blocking=True)  # a GPU is not waited for
        x, mirrored = self.x[index], self.flipped[index]
        if flip is not None:
            flip = flip.to(x.device, non_blocking=True)[:, None, None, None]
            x, mirrored = torch.where(flip, mirrored, x), torch.where(flip, x, mirrored)
        condition_of = None if self.condition_of is None else self.condition_of[index]
        return Batch(x, mirrored, rows, self.conditions, condition_of)


class DiffusionModel(Protocol):
    """A network that predicts noise, its noise schedule, and the way from pixels to what it sees and back."""

    network: nn.Module
    noise_schedule: NoiseSchedule

    @property
    def device(self) -> torch.device: ...

    @property
    def time_steps(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the architecture and every weight."""
        ...

    @property
    def encoding(self) -> str:
        """Fingerprint of what :meth:`encode` computes with, such as an autoencoder; empty where it is arithmetic."""
        ...

    def example(self) -> dict[str, Tensor]:
        """Smallest inputs of ``network`` by name, on the CPU: what pruning traces its structure with."""
        ...

    def encode(
        self,
        images: Images,
        captions: Sequence[str] | None = None,
        *,
        mirrored: bool = True,
        on_image: Callable[[int, int], None] | None = None,
    ) -> Batch:
        """Images as the network sees them; without ``mirrored`` their mirror images are the images themselves.
        ``on_image(done, total)`` reports progress."""
        ...

    def predict(self, x_t: Tensor, t: Tensor, condition: Tensor | None = None) -> Tensor:
        """The noise in ``x_t`` (m, c, h, w) at time steps ``t`` (m,)."""
        ...

    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        """L_simple of each sample, (m,): ‖noise − predict(x_t, t)‖² / (c·h·w)."""
        ...

    def sample(
        self,
        seeds: Sequence[int],
        steps: int,
        batch_size: int = 256,
        scheduler: str = "ddim",
        guidance: float | None = None,
    ) -> Images:
        """One image per seed; which one never depends on the other seeds or on ``batch_size``. ``guidance`` is for
        models that follow a text."""
        ...

    def untrained(self, seed: int) -> Self:
        """The same architecture with fresh weights: the model of no contributor."""
        ...

    def clone(self) -> Self:
        """A copy that can be trained apart; what is never trained is shared."""
        ...

    def to(self, device: torch.device | str) -> Self: ...

    def save(self, directory: Path) -> None: ...


class Family(Protocol):
    """What a study file says about its model, and the way to it. A plug-in ``package.module:Class`` is as good as
    ours; its fields are the keys of the study file's ``model`` section."""

    nobody: ClassVar[str]
    """What the model of no contributor is, in words."""

    @property
    def trained(self) -> bool:
        """Whether :meth:`start` is the base model already, so that nothing is left to train."""
        ...

    def identity(self) -> dict[str, Any]:
        """What fixes the start, as JSON: settings, and fingerprints of files in place of their paths."""
        ...

    def start(self, contributions: Contributions, seed: int) -> DiffusionModel:
        """The model before its training on the contributions."""
        ...

    def load(self, directory: Path) -> DiffusionModel:
        """A model that was saved there."""
        ...
