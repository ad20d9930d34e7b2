"""Two processes train as one does: this one and another."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

from diffcredit.diffusion import Training, stepwise
from diffcredit.diffusion.stepwise import Processes, processes
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError

from . import plain

SETTINGS = Training(steps=6, batch_size=5, learning_rate=1e-2, ema=0.5)  # shares of 2 and 3
WITH_DROPOUT = Training(steps=2, batch_size=6, micro_batch=3)
INTERRUPTED_AT = 4


def work(rank: int, folder: Path) -> None:
    """Train in company; leave the weights and what was seen in ``folder``."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    seen: dict[str, Any] = {"steps": [], "sizes": [], "resumed at": []}

    def keep(name: str, model: plain.Plain) -> None:
        save_file(plain.weights(model), folder / f"{name}-{rank}.safetensors")

    model = plain.Plain()
    model.network.register_forward_pre_hook(lambda module, inputs: seen["sizes"].append(len(inputs[0])))
    train(model, plain.data(), SETTINGS, seed=1, on_step=lambda done, total: seen["steps"].append(done))
    keep("whole", model)

    model = plain.Plain(dropout=0.5)
    train(model, plain.data(), WITH_DROPOUT, seed=1)
    keep("dropout", model)

    # Ctrl-C reaches the second process only; both stop at the same step, and the first has written
    checkpoint, model = folder / "run.safetensors", plain.Plain()
    handled = []

    def press(*_: object) -> None:
        handled.append(1)
        if rank == 1 and len(handled) == INTERRUPTED_AT:
            os.kill(os.getpid(), signal.SIGINT)

    model.network.register_forward_pre_hook(press)
    writes, original = [], stepwise.write_checkpoint
    stepwise.write_checkpoint = lambda *arguments: (writes.append(1), original(*arguments))
    try:
        train(model, plain.data(), SETTINGS, seed=1, checkpoint=checkpoint)
    except KeyboardInterrupt:
        seen["written"] = len(writes)
    finally:
        stepwise.write_checkpoint = original
    model = plain.Plain()
    options: dict[str, Any] = {"seed": 1, "on_step": lambda done, total: seen["resumed at"].append(done)}
    train(model, plain.data(), SETTINGS, checkpoint=checkpoint, **options)
    keep("resumed", model)

    own = checkpoint if rank == 0 else folder / "elsewhere.safetensors"  # a folder that the processes do not share
    for name, settings, file in (("refused", SETTINGS, own), ("too few", Training(steps=1, batch_size=1), None)):
        try:
            train(plain.Plain(), plain.data(), settings, seed=1, checkpoint=file)
        except UserError as error:
            seen[name] = str(error)
    with processes() as together:
        seen["together"] = (together.rank, together.count, together.gather(10 + rank))
    torch.save(seen, folder / f"seen-{rank}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    other = torch.multiprocessing.get_context("spawn").Process(target=work, args=(1, folder))
    other.start()
    work(0, folder)
    other.join(60)
    assert other.exitcode == 0
    return folder


@pytest.fixture(scope="module")
def seen(folder) -> list[dict[str, Any]]:
    return [torch.load(folder / f"seen-{rank}", weights_only=True) for rank in range(2)]


def both(folder: Path, name: str) -> list[dict[str, Tensor]]:
    return [load_file(folder / f"{name}-{rank}.safetensors") for rank in range(2)]


@pytest.mark.parametrize(("name", "settings", "dropout"), [("whole", SETTINGS, 0.0), ("dropout", WITH_DROPOUT, 0.5)])
def test_both_have_the_weights_of_a_single_process(name, settings, dropout, folder):
    first, second = both(folder, name)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    model = plain.Plain(dropout=dropout)
    train(model, plain.data(), settings, seed=1)
    torch.testing.assert_close(first, plain.weights(model), rtol=1e-9, atol=1e-12)


def test_each_takes_its_share_and_one_reports(seen):
    assert [each["sizes"] for each in seen] == [[2] * 6, [3] * 6]
    assert [each["steps"] for each in seen] == [[1, 2, 3, 4, 5, 6], []]


def test_ctrl_c_in_one_stops_all_at_the_same_step(folder, seen):
    assert [each["written"] for each in seen] == [1, 0]
    assert seen[0]["resumed at"] == [5, 6]
    for resumed, whole in zip(both(folder, "resumed"), both(folder, "whole"), strict=True):
        torch.testing.assert_close(resumed, whole, rtol=0, atol=0)


def test_what_the_processes_cannot_do_together_is_refused_by_all(seen):
    for rank, each in enumerate(seen):
        assert "not the same file for all processes" in each["refused"]
        assert "batch_size: 1 is less than the 2 processes" in each["too few"]
        assert each["together"] == (rank, 2, [10, 11])


@pytest.mark.parametrize(("size", "count"), [(1, 1), (5, 2), (7, 3), (4, 4)])
def test_shares_cover_the_batch_in_order(size, count):
    shares = [Processes(rank, count).share(size) for rank in range(count)]
    assert [place for share in shares for place in share] == list(range(size))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
