"""Flow matching: straight paths from images to noise, along which the network predicts the velocity.

x_σ = (1 − σ) x + σ noise for σ in [0, 1], and the network predicts noise − x (Liu et al. 2023; Lipman et al. 2023).
Trainings draw σ from a density; which noise levels are seen most is the main choice of such a training (Esser et al.
2024). A time step t = 0, …, T − 1 stands for the (t + ½)/T-quantile of that density. Stratified draws, evenly spaced
time steps and everything else that counts time steps therefore follow the training density.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from diffcredit.diffusion.objectives.base import Objective, Sampler
from diffcredit.errors import UserError

TIME_STEPS = 1000
Sigmas = Callable[[int], Tensor]


@dataclass(frozen=True)
class Density:
    """The training density of σ: that of shifted(u), with u ``uniform`` on (0, 1) or ``logit_normal``, where
    log(u / (1 − u)) is normal with ``mean`` and ``std``. ``shift`` s moves it towards noise, s u / (1 + (s − 1) u), as
    larger images need.

    The trainers of diffusers count σ downwards: their ``logit_mean`` m is −m here.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    name: Literal["uniform", "logit_normal"] = "logit_normal"
    mean: float = 0.0
    std: Annotated[float, Gt(0)] = 1.0
    shift: Annotated[float, Gt(0)] = 1.0

    def quantile(self, u: Tensor) -> Tensor:
        """Return the u-quantiles of σ, for u in (0, 1), float64."""
        u = u.double()
        if self.name == "logit_normal":
            u = torch.sigmoid(self.mean + self.std * torch.special.ndtri(u))
        return shifted(u, self.shift)


def shifted(sigma: Tensor, shift: float) -> Tensor:
    """Return s σ / (1 + (s − 1) σ): the noise levels of images whose signal is s times as redundant."""
    return shift * sigma / (1 + (shift - 1) * sigma)


class FlowMatching(Objective):
    """Flow matching with a training ``density`` of σ. ``sigmas(n)`` gives the n + 1 levels of sampling with n steps,
    from about 1 down to 0; by default evenly spaced levels from 1, with the static ``shift``."""

    prediction = "flow"

    def __init__(self, density: Density | None = None, shift: float = 1.0, sigmas: Sigmas | None = None) -> None:
        self.density, self.shift = density or Density(), shift
        self._sigmas = sigmas or (lambda steps: shifted(torch.linspace(1, 0, steps + 1, dtype=torch.float64), shift))
        self.config: dict[str, Any] = {"density": asdict(self.density), "shift": shift}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "FlowMatching":
        return cls(Density(**config["density"]), config["shift"])

    @property
    def time_steps(self) -> int:
        return TIME_STEPS

    @cached_property
    def _table(self) -> Tensor:
        """(T,) σ at each time step, float32 on the CPU."""
        return self.density.quantile((torch.arange(TIME_STEPS) + 0.5) / TIME_STEPS).float()

    def times(self, t: Tensor) -> Tensor:
        if self._table.device != t.device:
            # at first use, as diffusers' schedules do; it must not be in a trace
            self.__dict__["_table"] = self._table.to(t.device)
        return self._table[t]

    def nearest(self, times: Tensor) -> Tensor:
        return (self._table.cpu()[:, None] - times.cpu()).abs().argmin(dim=0)

    def add_noise(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        sigma = self.times(t)[:, None, None, None].to(x.dtype)
        return (1 - sigma) * x + sigma * noise

    def target(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return noise - x

    def min_snr_weights(self, t: Tensor, gamma: float) -> Tensor:
        raise UserError(
            "min_snr: this model is trained by flow matching, where the density of σ says how much each noise level "
            "counts; leave it out"
        )

    def sampler(self, name: str, steps: int) -> Sampler:
        """Return a fresh sampler. The deterministic step of ``ddim`` is Euler's step here."""
        if name != "ddim":
            raise UserError(
                f"sampling.scheduler: {name!r} is for models with a noise schedule; this one is trained by flow "
                "matching; accepted: ddim, which is Euler's method there"
            )
        return Euler(self._sigmas(steps))


class Euler(Sampler):
    """x ← x + (σ_{k+1} − σ_k) v, for ``sigmas`` (n + 1,) on the CPU."""

    def __init__(self, sigmas: Tensor) -> None:
        sigmas = sigmas.float()
        if not bool(sigmas.isfinite().all()):
            raise UserError(f"sampling.steps: {len(sigmas) - 1}; this pipeline has no noise levels for so few steps")
        self.times, self._all = sigmas[:-1], sigmas.tolist()

    def step(self, k: int, prediction: Tensor, x: Tensor) -> Tensor:
        return x + (self._all[k + 1] - self._all[k]) * prediction.to(x.dtype)

    def clean(self, k: int, prediction: Tensor, x: Tensor) -> Tensor:
        return x - self._all[k] * prediction.to(x.dtype)
