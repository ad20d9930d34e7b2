"""Training step by step on any device, for all that the fast path does not support.

On several devices, the processes are those of ``torch.distributed``, one each, as ``torchrun`` or ``accelerate launch``
with an ``accelerate.Accelerator()`` sets them up. All draw the same batches, and every process takes its share of each.
Their gradients are summed, so every process has the gradient of the whole batch and the same weights.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from diffcredit.diffusion import checkpoints
from diffcredit.diffusion.checkpoints import interruption, read_checkpoint, write_checkpoint
from diffcredit.diffusion.diffusers_model import DiffusersModel
from diffcredit.diffusion.draws import draw, noise_key
from diffcredit.diffusion.dropout import seeded_dropout
from diffcredit.diffusion.fast.eligibility import dtype_of
from diffcredit.diffusion.micro_batches import with_fitting_micro_batch
from diffcredit.diffusion.model import Batch, DiffusionModel
from diffcredit.diffusion.optimizers import averaged_share, learning_rate, make_optimizer
from diffcredit.diffusion.settings import Training
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.util.artifacts import fingerprint
from diffcredit.util.events import event

LOSS_CHECK_STEPS = 50  # reading the loss makes a GPU wait, so it is not done at every step


class TrainingDiverged(DiffcreditError):
    """The loss or the weights are no longer finite."""


def diverged(what: str, settings: Training) -> TrainingDiverged:
    return TrainingDiverged(
        f"{what} of {settings.steps}; a learning rate under {settings.learning_rate:g} usually helps"
    )


def train_stepwise(
    model: DiffusionModel,
    data: Batch,
    settings: Training,
    *,
    seed: int,
    checkpoint: Path | None,
    on_step: Callable[[int, int], None] | None,
    on_batch: Callable[[int, Batch, Tensor, Tensor], None] | None,
    ascend: bool,
) -> None:
    """Train ``model`` as :func:`~diffcredit.diffusion.training.train` describes."""
    network = model.network
    shapes = {name: list(weight.shape) for name, weight in network.named_parameters()}
    identity = fingerprint([seed, len(data), repr(settings), ascend, shapes])
    with (
        processes() as together,
        seeded_dropout(network, model.device) as reseed,
        gradient_checkpointing(network, settings.gradient_checkpointing),
        interruption(checkpoint is not None) as interrupted,
    ):
        run = _Run(model, settings, together, ascend=ascend, reports=checkpoint is not None and together.rank == 0)
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
            key = noise_key(seed, step)
            batch, t, noise = draw(
                data, step, settings, seed, model.time_steps, dropout=getattr(model, "condition_dropout", 0.0)
            )
            if on_batch is not None:
                on_batch(step, batch, t, noise)
            run.advance(batch, t, noise, lambda place, key=key: reseed(key, place))
            if on_step is not None and together.rank == 0:
                on_step(run.step, settings.steps)
            if checkpoint is None:
                continue
            stop = any(together.gather(interrupted.is_set()))
            overdue = together.gather(time.monotonic() - last_save > checkpoints.CHECKPOINT_SECONDS)[0]
            if overdue or stop:
                run.check_losses()  # only a sound state is worth saving
                if together.rank == 0:
                    write_checkpoint(checkpoint, identity, run.state())
                last_save = time.monotonic()
            if stop:
                raise KeyboardInterrupt
    run.finish()
    network.eval()
    if isinstance(model, DiffusersModel):
        model.made = {"path": "eager", "dtype": str(run.dtype).removeprefix("torch.")}


@dataclass(frozen=True)
class Processes:
    """The ``count`` processes of a training, seen from the one at ``rank``; a single one if ``hosts`` is None."""

    rank: int = 0
    count: int = 1
    hosts: dist.ProcessGroup | None = None

    def share(self, size: int) -> range:
        """Return this process's positions in a batch of ``size`` B, from ⌊rB/W⌋ to ⌊(r+1)B/W⌋ − 1."""
        if size < self.count:
            raise UserError(f"batch_size: {size} is less than the {self.count} processes; accepted: one sample each")
        return range(self.rank * size // self.count, (self.rank + 1) * size // self.count)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, all in one message."""
        if self.hosts is None:
            return
        message = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(message, group=self.hosts if message.device.type == "cpu" else None)
        for tensor, total in zip(tensors, message.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def gather(self, value: int) -> list[int]:
        """Return every process's value, by rank."""
        if self.hosts is None:
            return [value]
        values = [torch.zeros((), dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(values, torch.tensor(value, dtype=torch.int64), group=self.hosts)
        return [int(value) for value in values]


@contextmanager
def processes() -> Generator[Processes]:
    """Yield the processes that train together with this one; only this one without ``torch.distributed``."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        yield Processes()
        return
    # hosts communicate by a group of their own, so that they do not wait for devices
    hosts = dist.new_group(backend="gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), hosts)
    finally:
        dist.destroy_process_group(hosts)


class _Run:
    """The state of a training run: weights, the optimizer's state, averaged weights, step."""

    def __init__(
        self, model: DiffusionModel, settings: Training, together: Processes, *, ascend: bool, reports: bool
    ) -> None:
        self.reports = reports
        self.model, self.settings, self.together, self.step = model, settings, together, 0
        self.sign = -1 if ascend else 1
        self.parameters = {name: value for name, value in model.network.named_parameters() if value.requires_grad}
        if not self.parameters:
            raise DiffcreditError(f"no parameter of the {type(model.network).__name__} requires a gradient")
        self.weights = list(self.parameters.values())
        self.optimizer = make_optimizer(settings, self.weights)
        self.average = [weight.detach().clone() for weight in self.weights] if settings.averages else []
        # on the device, and read now and then: the losses of the steps since the last check
        self.losses = torch.zeros(LOSS_CHECK_STEPS, device=model.device)
        self.dtype = dtype_of(settings.precision, model.device)
        self.checked = 0

    def advance(self, batch: Batch, t: Tensor, noise: Tensor, reseed: Callable[[int], None]) -> None:
        """Take one step. ``reseed(place)`` seeds the network's dropout for the samples from position ``place`` on."""
        own = self.together.share(len(batch))
        loss = with_fitting_micro_batch(
            lambda size: self._gradient(batch, t, noise, reseed, own, size), len(own), self.model, self.settings
        )
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        self.together.add_up([*gradients, loss])
        if self.settings.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.weights, self.settings.gradient_clip)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step)
        self.optimizer.step()
        self.losses[self.step - self.checked] = loss
        self.step += 1
        if self.step - self.checked == len(self.losses) or self.step == self.settings.steps:
            self.check_losses()
        if (share := averaged_share(self.settings, self.step)) > 0:
            torch._foreach_lerp_(self.average, [weight.detach() for weight in self.weights], share)

    def _gradient(
        self, batch: Batch, t: Tensor, noise: Tensor, reseed: Callable[[int], None], share: range, size: int
    ) -> Tensor:
        """Set the weights' ``grad`` to ∇ 1/B Σ_{i ∈ share} w(t_i) ℓ_i, ``size`` samples at a time; return the sum."""
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.losses.device)
        for places in (share[first : first + size] for first in range(0, len(share), size)):
            reseed(places.start)
            cut = slice(places.start, places.stop)
            loss = self._losses(batch.part(places), t[cut], noise[cut]).sum() / len(batch)
            (self.sign * loss).backward()
            total += loss.detach()
        return total

    def _losses(self, batch: Batch, t: Tensor, noise: Tensor) -> Tensor:
        """Return w(t_i) ℓ_i of each sample, (m,)."""
        bf16 = self.dtype == torch.bfloat16
        with torch.autocast(self.losses.device.type, torch.bfloat16, enabled=bf16):
            losses = self.model.loss(batch, t, noise)
        if bf16:
            losses = losses.float()
        if self.settings.min_snr is not None:
            losses = losses * self.model.objective.min_snr_weights(t, self.settings.min_snr)
        return losses

    def check_losses(self) -> None:
        """Raise TrainingDiverged if a loss since the last check is not finite; report their mean otherwise."""
        losses = self.losses[: self.step - self.checked].tolist()
        for step, loss in enumerate(losses, start=self.checked + 1):
            if not abs(loss) < float("inf"):
                raise diverged(f"the training loss became {loss} at step {step}", self.settings)
        if losses and self.reports:
            event("training loss", step=self.step, loss=sum(losses) / len(losses))
        self.checked = self.step

    def finish(self) -> None:
        """Replace the weights by their average, and check them: no loss has been computed from the last weights."""
        with torch.no_grad():
            for weight, average in zip(self.weights, self.average, strict=False):
                weight.copy_(average)
            if not torch.stack([weight.isfinite().all() for weight in self.weights]).all():
                raise diverged(f"the weights became infinite or nan at step {self.step}", self.settings)

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
        self.step = self.checked = state["step"]


@contextmanager
def gradient_checkpointing(network: nn.Module, on: bool) -> Generator[None]:
    """Compute the activations of ``network`` twice within the block, instead of keeping them, if ``on``."""
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
