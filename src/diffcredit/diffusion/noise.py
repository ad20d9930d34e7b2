"""The noise schedule: how images drown in noise, what the network learns to tell, and the samplers that undo it."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_pndm import PNDMScheduler
from torch import Tensor

from diffcredit.errors import UserError

PREDICTIONS = ("epsilon", "v_prediction", "sample")
# What fixes a schedule; the rest of a diffusers config is about particular samplers.
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


class NoiseSchedule:
    """x_t = √ᾱ_t x + √(1 − ᾱ_t) noise for t = 0..T−1.

    ``config`` has the keys of diffusers' DDIMScheduler; those that are not given have its defaults.
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

    def add_noise(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        return self._ddim.add_noise(x, noise, cast(torch.IntTensor, t))

    def target(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        """What the network is to predict from x_t: the noise ε, x itself, or v = √ᾱ_t ε − √(1 − ᾱ_t) x."""
        if self.prediction == "epsilon":
            return noise
        return x if self.prediction == "sample" else self._ddim.get_velocity(x, noise, cast(torch.IntTensor, t))

    def foreseen(self, prediction: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """x̂₀: what ``prediction`` says that x_t at the one time step ``t`` comes from, cut off where samplers do so."""
        alpha = self._ddim.alphas_cumprod[t].to(x_t.device)
        if self.prediction == "epsilon":
            x = (x_t - (1 - alpha).sqrt() * prediction) / alpha.sqrt()
        else:
            x = prediction if self.prediction == "sample" else alpha.sqrt() * x_t - (1 - alpha).sqrt() * prediction
        most = self._ddim.config["clip_sample_range"]
        return x.clamp(-most, most) if self._ddim.config["clip_sample"] else x

    def min_snr_weights(self, t: Tensor, gamma: float) -> Tensor:
        """Each sample's weight (m,) under Min-SNR-γ (Hang et al. 2023), with SNR_t = ᾱ_t / (1 − ᾱ_t):
        min(SNR, γ) for x-prediction, over SNR for ε, over SNR + 1 for v."""
        alphas = self._ddim.alphas_cumprod.to(t.device)[t]
        snr = alphas / (1 - alphas)
        if self.prediction == "epsilon":
            return (gamma / snr).clamp(max=1)  # also where SNR is 0
        clipped = snr.clamp(max=gamma)
        return clipped if self.prediction == "sample" else clipped / (snr + 1)

    def sampler(self, name: str, steps: int) -> "Sampler":
        """A fresh sampler: ``ddim`` with η = 0 (Song et al. 2021) or ``pndm`` (Liu et al. 2022)."""
        if steps > self.time_steps:
            raise UserError(
                f"sampling.steps: {steps}; this model has {self.time_steps} time steps, more is not accepted"
            )
        if name == "ddim":
            scheduler = DDIMScheduler(**self.config)
        elif name == "pndm":
            if self.prediction == "sample" or self.config.get("rescale_betas_zero_snr"):
                raise UserError(
                    "sampling.scheduler: 'pndm' takes no model that predicts the sample or ends in pure noise "
                    "(rescale_betas_zero_snr), as this one does; accepted: ddim"
                )
            options = {key: self.config[key] for key in _PNDM_KEYS if key in self.config}
            # without the Runge-Kutta start, as Stable Diffusion is used
            scheduler = PNDMScheduler(**options, skip_prk_steps=True)
        else:
            raise UserError(f"sampling.scheduler: {name!r}; accepted: ddim, pndm")
        scheduler.set_timesteps(steps)
        return Sampler(scheduler)


class Sampler:
    """One way from noise to images; it may remember its last predictions, so a batch has one of its own."""

    def __init__(self, scheduler: DDIMScheduler | PNDMScheduler) -> None:
        self._scheduler = scheduler

    @property
    def timesteps(self) -> Tensor:
        """(k,) the time steps at which the network is asked, on the CPU."""
        return cast(Tensor, self._scheduler.timesteps)

    def step(self, prediction: Tensor, t: Tensor, x: Tensor) -> Tensor:
        return cast(Any, self._scheduler).step(prediction, t, x, return_dict=False)[0]
