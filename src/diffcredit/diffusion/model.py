"""The interface of a diffusion model, and of the family that a study file names.

A class of your own inherits from these and implements what is abstract. One that has all the members without inheriting
is as good; a model may leave out ``made``. A study file names a family so:
``model: {family: "my_package.module:MyFamily"}``.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diffcredit.contributions import Contributions
from diffcredit.diffusion.conditions import Conditions, selected
from diffcredit.diffusion.objectives import Objective
from diffcredit.diffusion.sharing import copy_sharing_frozen

Images = NDArray[np.uint8]  # (m, h, w, 3)


@dataclass(frozen=True)
class Batch:
    """Encoded training images.

    ``x`` and its mirror image ``flipped`` are (m, c, h, w); both are stored, since the latents of a mirrored image are
    not mirrored latents. ``rows`` (m,), on the CPU, are the images' indices among all contributions, which identify
    them in every selection. A conditional model has the distinct ``conditions``, tensors (k, …) by name, stored once on
    the device or, if they are large, on the CPU; and each image's index among them, ``condition_of`` (m,). Where
    trainings drop conditions, the last one is that of no text.
    """

    x: Tensor
    flipped: Tensor
    rows: Tensor
    conditions: Conditions | None = None
    condition_of: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def condition(self) -> Conditions | None:
        """The condition of each image, tensors (m, …)."""
        if self.conditions is None or self.condition_of is None:
            return None
        return selected(self.conditions, self.condition_of)

    def conditions_at(self, places: Tensor, dropped: Tensor | None = None) -> Conditions | None:
        """Return the conditions of the images at ``places`` (k,), tensors (k, …); that of no text where ``dropped``
        (k,)."""
        if self.conditions is None or self.condition_of is None:
            return None
        return selected(self.conditions, self._without(self.condition_of.index_select(0, places), dropped))

    def _without(self, condition_of: Tensor, dropped: Tensor | None) -> Tensor:
        if dropped is None or self.conditions is None:
            return condition_of
        last = len(next(iter(self.conditions.values()))) - 1
        return condition_of.masked_fill(dropped, last)

    def part(self, places: range) -> "Batch":
        """Return the images at the contiguous ``places``, without a copy."""
        cut = slice(places.start, places.stop)
        condition_of = None if self.condition_of is None else self.condition_of[cut]
        return Batch(self.x[cut], self.flipped[cut], self.rows[cut], self.conditions, condition_of)

    def select(
        self, index: Tensor | NDArray[np.int64], flip: Tensor | None = None, dropped: Tensor | None = None
    ) -> "Batch":
        """Return the images at ``index`` (k,), mirrored where ``flip`` (k,) is true, without their conditions where
        ``dropped`` (k,) is."""
        index = torch.as_tensor(index)
        rows = self.rows[index]
        index = index.to(self.x.device, non_blocking=True)  # does not wait for a GPU
        x, mirrored = self.x[index], self.flipped[index]
        if flip is not None:
            flip = flip.to(x.device, non_blocking=True)[:, None, None, None]
            x, mirrored = torch.where(flip, mirrored, x), torch.where(flip, x, mirrored)
        condition_of = None
        if self.condition_of is not None:
            dropped = None if dropped is None else dropped.to(x.device, non_blocking=True)
            condition_of = self._without(self.condition_of[index], dropped)
        return Batch(x, mirrored, rows, self.conditions, condition_of)


class DiffusionModel(ABC):
    """A network, its objective, and the way from pixels to the network's inputs and back.

    A model is used by one thread at a time. Methods that compute do so on :attr:`device`.
    """

    network: nn.Module
    objective: Objective

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the architecture and of every weight."""

    @property
    @abstractmethod
    def encoding(self) -> str:
        """Fingerprint of what :meth:`encode` uses, such as an autoencoder; empty where it is arithmetic alone."""

    @abstractmethod
    def example(self) -> dict[str, Tensor]:
        """Return the smallest inputs of ``network`` by name, on the CPU; the pruning of U-Nets traces it with them."""

    @abstractmethod
    def encode(
        self,
        images: Images,
        captions: Sequence[str] | None = None,
        *,
        mirrored: bool = True,
        on_image: Callable[[int, int], None] | None = None,
    ) -> Batch:
        """Return the images as the network's inputs. Without ``mirrored``, ``flipped`` is ``x`` itself.
        ``on_image(done, total)`` reports progress."""

    @abstractmethod
    def predict(self, x_t: Tensor, t: Tensor, condition: Conditions | None = None) -> Tensor:
        """Predict the objective's target, such as the noise, from ``x_t`` (m, c, h, w) at time steps ``t`` (m,)."""

    @abstractmethod
    def loss(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        """Return the loss of each image, (m,): ‖target − predict(x_t, t)‖² / (c·h·w), where the target of a network
        that predicts noise is the noise."""

    @abstractmethod
    def sample(
        self,
        seeds: Sequence[int],
        steps: int,
        batch_size: int = 256,
        scheduler: str = "ddim",
        guidance: float | None = None,
        prompts: Sequence[str] | None = None,
    ) -> Images:
        """Generate one image per seed. It follows from its own seed: neither the other seeds nor ``batch_size`` change
        it but for rounding. ``guidance``, and ``prompts`` in place of the model's own, are for models with prompts."""

    @abstractmethod
    def untrained(self, seed: int) -> Self:
        """Return a model of the same architecture with fresh weights."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the model to ``directory``, from which its family's ``load`` reads it."""

    # What a model may have

    prompts: Sequence[str] = ()
    """The texts that images are generated for: that of seed s follows prompt s mod k. None: it follows no text."""

    prompt: str | None = None
    """The caption of all training images; None: each has its own, if any."""

    def conditions(self, captions: Sequence[str] | None, count: int) -> tuple[Conditions, Tensor] | tuple[()]:
        """Return the distinct conditions of ``count`` images, as :class:`Batch` has them, and each one's place among
        them, if the model has conditions. They are computed anew where encoded images are read from a file."""
        return ()

    condition_dropout: float = 0.0
    """The share of training images whose condition is left out, so that guidance has a prediction without one."""

    made: Mapping[str, Any] = MappingProxyType({})
    """How the weights were computed, as far as their last bits depend on it beside the device. JSON."""

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def time_steps(self) -> int:
        """T, the number of noise levels."""
        return self.objective.time_steps

    def clone(self) -> Self:
        """Return a copy that can be trained by itself; it shares the parameters that are never trained."""
        clone = copy.copy(self)
        clone.network = copy_sharing_frozen(self.network)
        return clone

    def to(self, device: torch.device | str) -> Self:
        """Move the network to ``device``, in place."""
        self.network.to(device)
        return self


class Family(ABC):
    """The ``model`` section of a study file: its fields are the section's keys."""

    nobody: ClassVar[str]
    """The model of no contributor, in words."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return, as JSON, all that fixes the start: settings, and fingerprints of files in place of their paths."""

    @abstractmethod
    def start(self, contributions: Contributions, seed: int) -> DiffusionModel:
        """Return the model before its training on the contributions."""

    @abstractmethod
    def load(self, directory: Path) -> DiffusionModel:
        """Return the model that was saved in ``directory``."""

    # What a family may have

    beside: Path = Path()
    """The folder of the study file, where a plug-in that an option names is looked for. Not a key of the section."""

    @property
    def trained(self) -> bool:
        """Whether :meth:`start` is the base model already, so that nothing is left to train."""
        return False
