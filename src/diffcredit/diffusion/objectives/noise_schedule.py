"""The noise schedule, the network's training target, and the samplers."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.schedulers.scheduling_pndm import PNDMScheduler
from torch import Tensor

from diffcredit.diffusion.objectives.base import Objective, Sampler
from diffcredit.errors import UserError

PREDICTIONS = ("epsilon", "v_prediction", "sample")
# The keys that fix a schedule; the rest of a diffusers config concerns particular samplers.
KEYS = (
    "num_train_timesteps",
    "beta_start",
    "beta_end",
    "beta_schedule",
    "trained_betas",
    "prediction_type",
    "rescale_betas_zero_snr",
    "timestep_spacing",
    "steps_offset",
    "set_alpha_to_one",
    "clip_sample",
    "clip_sample_range",
)
_PNDM_KEYS = (*KEYS[:6], "timestep_spacing", "steps_offset", "set_alpha_to_one")
_DPM_KEYS = (*KEYS[:5], "rescale_betas_zero_snr")
REFUSED = (
    "sampling.scheduler: '{}' takes no model that predicts the {} ends in pure noise (rescale_betas_zero_snr), as this "
    "one does; accepted: ddim"
)


class NoiseSchedule(Objective):
    """x_t = √ᾱ_t x + √(1 − ᾱ_t) noise for t = 0..T−1.

    ``config`` has the keys of diffusers' DDIMScheduler; missing ones have its defaults.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = {key: config[key] for key in KEYS if config.get(key) is not None}
        try:
            self._ddim = DDIMScheduler(**self.config)
        except (NotImplementedError, TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"not a noise schedule that diffusers' DDIMScheduler takes ({error})") from None
        self.prediction: str = self._ddim.config["prediction_type"]
        if self.prediction not in PREDICTIONS:
            raise UserError(f"prediction_type: {self.prediction!r}; accepted: {', '.join(PREDICTIONS)}")

    @property
    def time_steps(self) -> int:
        """T."""
        return len(self._ddim.alphas_cumprod)

    def times(self, t: Tensor) -> Tensor:
        return t

    def nearest(self, times: Tensor) -> Tensor:
        return times.cpu().long()

    def add_noise(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return self._ddim.add_noise(x, noise, cast(torch.IntTensor, t))

    def target(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """Return what the network is to predict from x_t: the noise ε, x itself, or v = √ᾱ_t ε − √(1 − ᾱ_t) x."""
        if self.prediction == "epsilon":
            return noise
        return x if self.prediction == "sample" else self._ddim.get_velocity(x, noise, cast(torch.IntTensor, t))

    def predicted_x0(self, prediction: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return x̂₀, the estimate of x given the ``prediction`` from x_t at one time step, clipped as samplers do."""
        alpha = self._ddim.alphas_cumprod[t]  # a number on the CPU goes with x_t on any device
        if self.prediction == "epsilon":
            x = (x_t - (1 - alpha).sqrt() * prediction) / alpha.sqrt()
        else:
            x = prediction if self.prediction == "sample" else alpha.sqrt() * x_t - (1 - alpha).sqrt() * prediction
        most = self._ddim.config["clip_sample_range"]
        return x.clamp(-most, most) if self._ddim.config["clip_sample"] else x

    def min_snr_weights(self, t: Tensor, gamma: float) -> Tensor:
        """Return each sample's weight (m,) under Min-SNR-γ (Hang et al. 2023), with SNR_t = ᾱ_t / (1 − ᾱ_t):
        min(SNR, γ) for x-prediction, over SNR for ε, over SNR + 1 for v."""
        alphas = self._ddim.alphas_cumprod.to(t.device)[t]
        snr = alphas / (1 - alphas)
        if self.prediction == "epsilon":
            return (gamma / snr).clamp(max=1)  # also where SNR is 0
        clipped = snr.clamp(max=gamma)
        return clipped if self.prediction == "sample" else clipped / (snr + 1)

    def sampler(self, name: str, steps: int) -> Sampler:
        """Return a fresh sampler: ``ddim`` with η = 0 (Song et al. 2021), ``pndm`` (Liu et al. 2022) or ``dpm``, the
        second-order multistep DPM-Solver++ (Lu et al. 2022)."""
        if steps > self.time_steps:
            raise UserError(
                f"sampling.steps: {steps}; this model has {self.time_steps} time steps, more is not accepted"
            )
        pure_noise = self.config.get("rescale_betas_zero_snr")
        if name == "ddim":
            scheduler = DDIMScheduler(**self.config)
            scheduler.set_timesteps(steps)
            # Where x̂₀ is clipped, the noise is computed from the clipped x̂₀, as the method's authors do. diffusers by
            # default keeps the noise from before: then images do not converge as the number of steps grows.
            clips = {"use_clipped_model_output": True} if self._ddim.config["clip_sample"] else {}
            return SchedulerSteps(self, scheduler, options=clips)
        if name == "pndm":
            if self.prediction == "sample" or pure_noise:
                raise UserError(REFUSED.format(name, "sample or"))
            # without the Runge-Kutta start, as Stable Diffusion is used
            scheduler = PNDMScheduler(**self._options(_PNDM_KEYS), skip_prk_steps=True)
            scheduler.set_timesteps(steps)
            return SchedulerSteps(self, scheduler)
        if name == "dpm":
            if self.prediction == "epsilon" and pure_noise:
                raise UserError(REFUSED.format(name, "noise and"))
            # The solver receives x̂₀, clipped where the schedule says so: one differential equation for any number of
            # steps. Order 3 is not more accurate than 2.
            scheduler = DPMSolverMultistepScheduler(
                **self._options(_DPM_KEYS), prediction_type="sample", solver_order=2
            )
            scheduler.set_timesteps(timesteps=dpm_time_steps(self.time_steps, steps))
            return SchedulerSteps(self, scheduler, self.predicted_x0)
        raise UserError(f"sampling.scheduler: {name!r}; accepted: ddim, pndm, dpm")

    def _options(self, keys: Sequence[str]) -> dict[str, Any]:
        return {key: self.config[key] for key in keys if key in self.config}


def dpm_time_steps(time_steps: int, steps: int) -> list[int]:
    """Return t_k = T (k/n)^1.2 − 1 for k = n, …, 1, from T − 1 down, each once.

    The last step, from t_1 to no noise, is of first order and dominates the error of equal steps; the exponent makes it
    shorter. On two pruned U-Nets of 16-pixel OpenMoji, 1.2 came closer to 1,000 DDIM steps than equal steps did; even
    smaller steps at little noise (exponent 1.5, Karras's, Lu's) were worse with 5 steps.
    """
    return [max(k, math.floor(time_steps * (k / steps) ** 1.2 + 0.5)) - 1 for k in range(steps, 0, -1)]


class SchedulerSteps(Sampler):
    """The steps of one of diffusers' schedulers. ``convert(prediction, x, t)`` gives its input; ``options`` are passed
    to every step."""

    def __init__(
        self,
        objective: NoiseSchedule,
        scheduler: DDIMScheduler | PNDMScheduler | DPMSolverMultistepScheduler,
        convert: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._objective, self._scheduler, self._convert, self._options = objective, scheduler, convert, options
        self.times = cast(Tensor, scheduler.timesteps)

    def step(self, k: int, prediction: Tensor, x: Tensor) -> Tensor:
        t = self.times[k]
        if self._convert is not None:
            prediction = self._convert(prediction, x, t).to(x.dtype)  # the solver returns the type it receives
        return cast(Any, self._scheduler).step(prediction, t, x, return_dict=False, **self._options)[0]

    def clean(self, k: int, prediction: Tensor, x: Tensor) -> Tensor:
        return self._objective.predicted_x0(prediction, x, self.times[k])
