"""The frozen base of an adapter: what a pipeline of diffusers and a model that we trained have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from diffcredit.diffusion.conditions import Conditioner
from diffcredit.diffusion.objectives import Objective
from diffcredit.diffusion.objectives.flow import Density
from diffcredit.diffusion.sharing import copy_sharing_frozen, share_buffers


class FrozenBase(ABC):
    """A network whose weights are frozen and shared, and all that goes with it. It is read once per process."""

    folder: Path
    denoiser: Any
    """A Denoiser; that of a pipeline, a PipelineDenoiser."""
    stage: Any
    """A FirstStage, or Pixels."""
    conditioner: Conditioner
    config: Mapping[str, Any]
    """The network's config."""
    guidance: float | None
    """How strongly images follow their prompts by default."""
    computes: torch.dtype | None = None
    """The type of the network's inputs where it is not float32."""
    fingerprint: str
    """SHA-256 of the files that it was read from, and of the precision of its weights."""

    _network: nn.Module

    @property
    def outline(self) -> nn.Module:
        """The network, for the names and shapes of its layers alone."""
        return self._network

    def network(self) -> nn.Module:
        """Return a new network with the shared, frozen weights."""
        return copy_sharing_frozen(self._network, buffers=True)

    def move(self, network: nn.Module, device: torch.device | str) -> None:
        """Move a ``network`` that was made here to ``device``, and with it the weights that all of them share."""
        self._network.to(device)
        network.to(device)
        share_buffers(network, self._network)

    @abstractmethod
    def objective(self, side: int, density: Density | None = None) -> Objective:
        """Return the objective for inputs (c, side, side); ``density`` is the training density of σ of flow matching,
        by default the usual one of this base."""
