"""What each of two processes does in the tests of data-parallel training."""

import os
import signal
from pathlib import Path

import torch
from safetensors.torch import save_file

from diffcredit.diffusion import Training, stepwise
from diffcredit.diffusion.data_parallel import processes
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError

from . import plain

SETTINGS = Training(steps=6, batch_size=5, learning_rate=1e-2, ema=0.5)  # shares of 2 and 3
INTERRUPTED_AT = 4


def work(rank: int, port: int, folder: Path) -> None:
    """Trains in company; leaves the weights and the steps that were reported in ``folder``."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), ACCELERATE_USE_CPU="true")
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2

    def report(name: str, text: object) -> None:
        with (folder / f"{name}-{rank}").open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def keep(name: str, model: plain.Plain) -> None:
        save_file(plain.weights(model), folder / f"{name}-{rank}.safetensors")

    model = plain.Plain()
    sizes = []
    model.network.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    train(model, plain.data(), SETTINGS, seed=1, on_step=lambda done, total: report("steps", done))
    keep("whole", model)
    report("sizes", sizes)

    model = plain.Plain(dropout=0.5)
    train(model, plain.data(), Training(steps=2, batch_size=6, micro_batch=3), seed=1)
    keep("dropout", model)

    # Ctrl-C reaches the second process only; both stop at the same step, and the first has written
    checkpoint, model = folder / "run.safetensors", plain.Plain()
    handled = []

    def press(*_) -> None:
        if rank == 1:
            handled.append(1)
            if len(handled) == INTERRUPTED_AT:
                os.kill(os.getpid(), signal.SIGINT)

    model.network.register_forward_pre_hook(press)
    writes = []
    original = stepwise.write_checkpoint
    stepwise.write_checkpoint = lambda *arguments: (writes.append(1), original(*arguments))
    try:
        train(model, plain.data(), SETTINGS, seed=1, checkpoint=checkpoint)
    except KeyboardInterrupt:
        report("interrupted", len(writes))
    model = plain.Plain()
    train(
        model,
        plain.data(),
        SETTINGS,
        seed=1,
        checkpoint=checkpoint,
        on_step=lambda done, total: report("taken up", done),
    )
    keep("resumed", model)

    # a folder that the processes do not share
    if rank == 1:
        checkpoint = folder / "elsewhere.safetensors"
    try:
        train(plain.Plain(), plain.data(), SETTINGS, seed=1, checkpoint=checkpoint)
    except UserError as error:
        report("refused", error)

    try:
        train(plain.Plain(), plain.data(), Training(steps=1, batch_size=1), seed=1)
    except UserError as error:
        report("too few", error)

    with processes() as together:
        report("seen", (together.rank, together.count, together.gather(10 + rank)))
    accelerator.end_training()
