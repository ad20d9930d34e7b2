"""The interface of an objective and of a sampler."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor


class Sampler(ABC):
    """The way from noise to one batch of samples, in len(``times``) steps.

    It may remember its last predictions. Tables and times stay on the CPU and nothing of x is read back, so that all
    steps can be recorded in one CUDA graph.
    """

    times: Tensor
    """(k,) what the network is told at each step, on the CPU: integer time steps, or the σ of flow matching."""

    @abstractmethod
    def step(self, k: int, prediction: Tensor, x: Tensor) -> Tensor:
        """Return x after step k, given x (m, c, h, w) before it and the network's ``prediction`` from it."""

    @abstractmethod
    def clean(self, k: int, prediction: Tensor, x: Tensor) -> Tensor:
        """Return x̂₀, the estimate at step k of the final images."""


class Objective(ABC):
    """How an image x is mixed with noise at T noise levels, and what the network predicts from the mixture.

    A time step is an integer t = 0, …, T − 1, from the least noise to the most. Trainings draw it uniformly, so t/T is
    a quantile of the training density of noise levels.
    """

    config: dict[str, Any]
    """JSON that fixes the objective; :func:`~diffcredit.diffusion.objectives.objective_from` reads it."""

    prediction: str
    """The network's prediction: ``epsilon``, ``v_prediction``, ``sample`` or ``flow``."""

    @property
    @abstractmethod
    def time_steps(self) -> int:
        """T."""

    @abstractmethod
    def times(self, t: Tensor) -> Tensor:
        """Return what the network is told at time steps t (m,)."""

    @abstractmethod
    def nearest(self, times: Tensor) -> Tensor:
        """Return the time steps whose noise levels are nearest to those of ``times``, (k,) int64."""

    @abstractmethod
    def add_noise(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return x_t, given x and ``noise`` (m, c, h, w) and time steps t (m,)."""

    @abstractmethod
    def target(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return what the network is to predict from x_t."""

    @abstractmethod
    def min_snr_weights(self, t: Tensor, gamma: float) -> Tensor:
        """Return each sample's weight (m,) under Min-SNR-γ (Hang et al. 2023), or raise a UserError."""

    @abstractmethod
    def sampler(self, name: str, steps: int) -> Sampler:
        """Return a fresh sampler by its ``name`` in a study file, or raise a UserError."""
