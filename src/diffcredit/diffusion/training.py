"""One training loop for every purpose: the base model, recovery after pruning, a coalition's fine-tuning.

Step k's images, mirrorings, time steps, noises and dropout follow from (seed, k) alone, so a run that was cut
off continues exactly where it stood, and no number depends on the machine's other work.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffcredit.artifacts import fingerprint
from diffcredit.diffusion.checkpoints import read_checkpoint, write_checkpoint
from diffcredit.diffusion.data_parallel import Processes, processes
from diffcredit.diffusion.draws import draw
from diffcredit.diffusion.interruption import interruption
from diffcredit.diffusion.micro_batches import part, with_fitting_micro_batch
from diffcredit.diffusion.optimizers import learning_rate, make_optimizer
from diffcredit.diffusion.protocol import Batch, DiffusionModel
from diffcredit.diffusion.randomness import own_randomness
from diffcredit.diffusion.settings import Training
from diffcredit.errors import DiffcreditError, UserError

CHECKPOINT_SECONDS = 15.0
LOSS_CHECK_STEPS = 50  # looking at the loss makes a GPU wait, so not at every step


class TrainingDiverged(DiffcreditError):
    """The loss or the weights are no longer finite numbers."""


def train(
    model: DiffusionModel,
    data: Batch,
    settings: Training,
    *,
    seed: int,
    checkpoint: Path | None = None,
    on_step: Callable[[int, int], None] | None = None,
    on_batch: Callable[[int, Batch, Tensor, Tensor], None] | None = None,
    ascend: bool = False,
) -> None:
    """Trains the parameters of ``model.network`` that require gradients, in place, on ``data``.

    The denoising loss is minimised, or maximised to ``ascend``; see :class:`Training` for the step. With a
    ``checkpoint`` file the run saves itself every few seconds and on Ctrl-C, and continues from the file bit for
    bit; the caller removes it when the result is safe. ``on_step(done, total)`` reports progress.
    ``on_batch(step, batch, t, noise)`` looks at the model before each step, and leaves it as it was. Where
    ``torch.distributed`` is set up, all its processes call this alike and train together; the first one writes
    the checkpoint and reports.
    """
    network = model.network
    shapes = {name: list(weight.shape) for name, weight in network.named_parameters()}
    identity = fingerprint([seed, len(data), repr(settings), ascend, shapes])
    with (
        processes() as together,
        own_randomness(network, model.device) as reseed,
        _gradient_checkpointing(network, settings.gradient_checkpointing),
        interruption(checkpoint is not None) as interrupted,
    ):
        run = _Run(model, settings, together, ascend=ascend)
        if checkpoint is not None:
            state = read_checkpoint(checkpoint, identity, model.device)
            if state is not None:
                run.restore(state)
            if len(set(together.gather(run.step))) > 1:
                raise UserError(f"{checkpoint}: not the same file for all processes; a folder they share is needed")
        network.train()
        last_save = time.monotonic()
        while run.step < settings.steps:
            step = run.step
            batch, t, noise = draw(data, step, settings, seed, model.time_steps)
            if on_batch is not None:
                on_batch(step, batch, t, noise)
            run.advance(batch, t, noise, lambda place, step=step: reseed(seed, "network", step, place))
            if on_step is not None and together.rank == 0:
                on_step(run.step, settings.steps)
            if checkpoint is None:
                continue
            stop = any(together.gather(interrupted.is_set()))
            overdue = together.gather(time.monotonic() - last_save > CHECKPOINT_SECONDS)[0]
            if overdue or stop:
                run.check_losses()  # only a sound state is worth keeping
                if together.rank == 0:
                    write_checkpoint(checkpoint, identity, run.state())
                last_save = time.monotonic()
            if stop:
                raise KeyboardInterrupt
    run.finish()
    network.eval()


class _Run:
    """The state of a training run: weights, the optimizer's state, averaged weights, step."""

    def __init__(self, model: DiffusionModel, settings: Training, together: Processes, *, ascend: bool) -> None:
        self.model, self.settings, self.together, self.step = model, settings, together, 0
        self.sign = -1 if ascend else 1
        self.parameters = {name: value for name, value in model.network.named_parameters() if value.requires_grad}
        if not self.parameters:
            raise DiffcreditError(f"no parameter of the {type(model.network).__name__} requires a gradient")
        self.weights = list(self.parameters.values())
        self.optimizer = make_optimizer(settings, self.weights)
        averages = settings.ema is not None or settings.average_tail is not None
        self.average = [weight.detach().clone() for weight in self.weights] if averages else []
        # filled on the device and looked at now and then: the losses of the steps since the last look
        self.losses = torch.zeros(LOSS_CHECK_STEPS, device=model.device)
        self.looked = 0

    def advance(self, batch: Batch, t: Tensor, noise: Tensor, reseed: Callable[[int], None]) -> None:
        """One step. ``reseed(place)`` seeds the network's own random numbers for the samples from ``place`` on."""
        share = self.together.share(len(batch))
        loss = with_fitting_micro_batch(
            lambda size: self._gradient(batch, t, noise, reseed, share, size), len(share), self.model, self.settings
        )
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        self.together.add_up([*gradients, loss])
        if self.settings.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.weights, self.settings.gradient_clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step)
        self.optimizer.step()
        self.losses[self.step - self.looked] = loss
        self.step += 1
        if self.step - self.looked == len(self.losses) or self.step == self.settings.steps:
            self.check_losses()
        self._update_average()

    def _gradient(
        self, batch: Batch, t: Tensor, noise: Tensor, reseed: Callable[[int], None], share: range, size: int
    ) -> Tensor:
        """Leaves ∇ 1/B Σ_{i ∈ share} w(t_i) ℓ_i in the weights, ``size`` samples at a time; returns that sum, ()."""
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.losses.device)
        for places in (share[first : first + size] for first in range(0, len(share), size)):
            reseed(places.start)
            cut = slice(places.start, places.stop)
            loss = self._losses(part(batch, places), t[cut], noise[cut]).sum() / len(batch)
            (self.sign * loss).backward()
            total += loss.detach()
        return total

    def _losses(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        """w(t_i) ℓ_i of each sample, (m,)."""
        bf16 = self.settings.precision == "bf16"
        with torch.autocast(self.losses.device.type, torch.bfloat16, enabled=bf16):
            losses = self.model.loss(batch, t, noise)
        if bf16:
            losses = losses.float()
        if self.settings.min_snr is not None:
            losses = losses * self.model.noise_schedule.min_snr_weights(t, self.settings.min_snr)
        return losses

    def check_losses(self) -> None:
        """Stops at the first loss since the last look that is no finite number."""
        losses = self.losses[: self.step - self.looked].tolist()
        for step, loss in enumerate(losses, start=self.looked + 1):
            if not abs(loss) < float("inf"):
                raise self._diverged(f"the training loss became {loss} at step {step}")
        self.looked = self.step

    def _diverged(self, what: str) -> TrainingDiverged:
        return TrainingDiverged(
            f"{what} of {self.settings.steps}; a learning rate under {self.settings.learning_rate:g} usually helps"
        )

    def _update_average(self) -> None:
        if self.settings.ema is not None:
            weight = 1 - min(self.settings.ema, (1 + self.step) / (10 + self.step))
        elif self.settings.average_tail is not None:
            first = self.settings.steps - max(1, round(self.settings.average_tail * self.settings.steps))
            if self.step <= first:
                return
            weight = 1 / (self.step - first)  # the running mean of the tail
        else:
            return
        torch._foreach_lerp_(self.average, [weight.detach() for weight in self.weights], weight)

    def finish(self) -> None:
        """Puts the averaged weights in place. Each loss vouches for the weights before its step, none for the last."""
        with torch.no_grad():
            for weight, average in zip(self.weights, self.average, strict=False):
                weight.copy_(average)
            if not torch.stack([weight.isfinite().all() for weight in self.weights]).all():
                raise self._diverged(f"the weights became infinite or nan at step {self.step}")

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "weights": self.parameters,
            "average": self.average,
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, weight in self.parameters.items():
                weight.copy_(state["weights"][name])
            for average, saved in zip(self.average, state["average"], strict=True):
                average.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = self.looked = state["step"]


@contextmanager
def _gradient_checkpointing(network: nn.Module, on: bool) -> Generator[None]:
    """Switches gradient checkpointing on, as diffusers' networks do it, and off again."""
    if not on:
        yield
        return
    enable, disable = (getattr(network, f"{verb}_gradient_checkpointing", None) for verb in ("enable", "disable"))
    try:
        if enable is None or disable is None:
            raise ValueError("no such method")
        enable()
    except ValueError as error:  # diffusers' own refusal
        raise UserError(
            f"gradient_checkpointing: true, but {type(network).__name__} does not offer it ({error}); accepted: false"
        ) from None
    try:
        yield
    finally:
        disable()
