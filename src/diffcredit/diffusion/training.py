"""One training loop for every purpose: the base model, recovery after pruning, a coalition's fine-tuning.

Step k's images, mirrorings, time steps and noises follow from (seed, k) alone, so a run that was cut off
continues exactly where it stood, and no number depends on the machine's other work.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from diffcredit.artifacts import atomic_file, canonical_json
from diffcredit.diffusion.protocol import Batch, DiffusionModel
from diffcredit.diffusion.settings import Training
from diffcredit.errors import DiffcreditError, UserError
from diffcredit.seeds import derive_seed

CHECKPOINT_SECONDS = 15.0
LOSS_CHECK_STEPS = 50  # looking at the loss makes a GPU wait, so not at every step


class TrainingDiverged(DiffcreditError):
    """The loss is no longer a finite number."""


def train(
    model: DiffusionModel,
    data: Batch,
    settings: Training,
    *,
    seed: int,
    checkpoint: Path | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> None:
    """Trains ``model.network`` in place on ``data`` with Adam on L_simple.

    With a ``checkpoint`` file the run saves itself every few seconds and on Ctrl-C, and continues from the
    file bit for bit; the caller removes it when the result is safe. ``on_step(done, total)`` reports progress.
    """
    run = _Run(model, settings, identity=canonical_json([seed, len(data), repr(settings)]))
    if checkpoint is not None and checkpoint.exists():
        try:
            run.restore(checkpoint)
        except (SafetensorError, KeyError, TypeError) as error:
            raise UserError(
                f"{checkpoint}: not a checkpoint of this training ({error}); remove it to train from the start"
            ) from None
    model.network.train()
    last_save = time.monotonic()
    with _interruption(checkpoint is not None) as interrupted:
        while run.step < settings.steps:
            batch, t, noise = draw(data, run.step, settings, seed, model.time_steps)
            run.advance(batch, t, noise)
            if on_step is not None:
                on_step(run.step, settings.steps)
            overdue = time.monotonic() - last_save > CHECKPOINT_SECONDS
            if checkpoint is not None and (overdue or interrupted.is_set()):
                run.save(checkpoint)
                last_save = time.monotonic()
            if interrupted.is_set():
                raise KeyboardInterrupt
    run.finish()
    model.network.eval()


def draw(data: Batch, step: int, settings: Training, seed: int, time_steps: int) -> tuple[Batch, Tensor, Tensor]:
    """Step ``step``'s batch, time steps (b,) and noises (b, c, h, w), from (seed, step) alone.

    Images come in epochs of random order; a batch may reach over into the next (a
    coalition smaller than a batch: into several).
    """
    size, total = settings.batch_size, len(data)
    first, offset = divmod(step * size, total)
    epochs = range(first, ((step + 1) * size - 1) // total + 1)
    index = torch.cat([_order(data.rows, seed, epoch) for epoch in epochs])[offset : offset + size]
    generator = torch.Generator().manual_seed(derive_seed(seed, "step", step))
    t = _time_steps(size, time_steps, generator)
    noise = torch.randn((size, *data.x.shape[1:]), generator=generator)
    flip = torch.rand(size, generator=generator) < 0.5
    batch = data.select(index, flip if settings.flip else None)
    return batch, t.to(data.x.device), noise.to(data.x.device)


def _time_steps(size: int, time_steps: int, generator: torch.Generator) -> Tensor:
    """(size,): each uniform on 0..T−1, one from each of ``size`` equal strata, in random order.

    The loss and its gradient vary more over time steps than over images; covering them evenly in every batch
    makes the gradient less noisy at no cost.
    """
    strata = torch.randperm(size, generator=generator) + torch.rand(size, generator=generator, dtype=torch.float64)
    return (strata * (time_steps / size)).long().clamp_(max=time_steps - 1)


def _order(rows: Tensor, seed: int, epoch: int) -> Tensor:
    """The epoch's order of the images ``rows`` (m,): one random order of all images, restricted to these."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "epoch", epoch))
    keys = torch.rand(int(rows.max()) + 1, generator=generator, dtype=torch.float64)
    return keys[rows].argsort()


def learning_rate(settings: Training, step: int) -> float:
    """The rate at step k of K: constant, or η (1 + cos(π k / K)) / 2."""
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * step / settings.steps))


class _Run:
    """The state of a training run: weights, optimizer moments, averaged weights, step."""

    def __init__(self, model: DiffusionModel, settings: Training, identity: str) -> None:
        self.model, self.settings, self.identity, self.step = model, settings, identity, 0
        self.names, self.parameters = zip(*model.network.named_parameters(), strict=True)
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.learning_rate, fused=True)
        averages = settings.ema is not None or settings.average_tail is not None
        self.average = [parameter.detach().clone() for parameter in self.parameters] if averages else []
        self.loss_sum = torch.zeros((), device=model.device)

    def advance(self, batch: Batch, t: Tensor, noise: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step)
        loss = self.model.loss(batch, t, noise).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.gradient_clip)
        self.optimizer.step()
        self.step += 1
        self.loss_sum += loss.detach()
        if self.step % LOSS_CHECK_STEPS == 0 or self.step == self.settings.steps:
            if not torch.isfinite(self.loss_sum):
                raise TrainingDiverged(
                    f"the training loss became {loss.item()} by step {self.step} of {self.settings.steps}; "
                    f"a learning rate under {self.settings.learning_rate:g} usually helps"
                )
            self.loss_sum.zero_()
        self._update_average()

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
        torch._foreach_lerp_(self.average, [parameter.detach() for parameter in self.parameters], weight)

    def finish(self) -> None:
        with torch.no_grad():
            for parameter, average in zip(self.parameters, self.average, strict=False):
                parameter.copy_(average)

    def save(self, path: Path) -> None:
        tensors = {}
        for index, (name, parameter) in enumerate(zip(self.names, self.parameters, strict=True)):
            state = self.optimizer.state[parameter]
            tensors[f"weights/{name}"] = parameter.detach()
            tensors[f"mean/{name}"] = state["exp_avg"]
            tensors[f"square/{name}"] = state["exp_avg_sq"]
            if self.average:
                tensors[f"average/{name}"] = self.average[index]
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        with atomic_file(path) as temporary:
            save_file(tensors, temporary, {"step": str(self.step), "identity": self.identity})

    def restore(self, path: Path) -> None:
        with safe_open(path, framework="pt", device=str(self.model.device)) as file:
            metadata = file.metadata()
            if metadata["identity"] != self.identity:
                return  # of other settings: start anew
            with torch.no_grad():
                for index, (name, parameter) in enumerate(zip(self.names, self.parameters, strict=True)):
                    parameter.copy_(file.get_tensor(f"weights/{name}"))
                    self.optimizer.state[parameter] = {
                        "step": torch.tensor(
                            float(metadata["step"]), device=parameter.device
                        ),  # where fused Adam has it
                        "exp_avg": file.get_tensor(f"mean/{name}"),
                        "exp_avg_sq": file.get_tensor(f"square/{name}"),
                    }
                    if self.average:
                        self.average[index].copy_(file.get_tensor(f"average/{name}"))
        self.step = int(metadata["step"])


@contextmanager
def _interruption(active: bool) -> Generator[threading.Event]:
    """Turns Ctrl-C into an event that the loop looks at between steps, when the state is whole.

    Only where a checkpoint can be written, and in the main thread (Python lets no other handle signals).
    """
    event = threading.Event()
    if not active or threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = signal.signal(signal.SIGINT, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
