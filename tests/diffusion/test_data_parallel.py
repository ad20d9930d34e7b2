"""Two processes train as one does."""

import ast
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from diffcredit.diffusion import Training
from diffcredit.diffusion.data_parallel import Processes
from diffcredit.diffusion.training import train
from diffcredit.errors import UserError

from . import plain, tiny, two_processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    pytest.importorskip("accelerate")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("together")
    torch.multiprocessing.spawn(two_processes.work, (port, folder), nprocs=2)
    return folder


def left(folder: Path, name: str, rank: int) -> list[str]:
    file = folder / f"{name}-{rank}"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def both(folder: Path, name: str) -> list[dict[str, Tensor]]:
    return [load_file(folder / f"{name}-{rank}.safetensors") for rank in range(2)]


def alone(settings: Training, dropout: float = 0.0) -> dict[str, Tensor]:
    model = plain.Plain(dropout=dropout)
    train(model, plain.data(), settings, seed=1)
    return plain.weights(model)


def test_both_have_the_weights_of_a_single_process(folder):
    first, second = both(folder, "whole")
    assert tiny.same(first, second)
    torch.testing.assert_close(first, alone(two_processes.SETTINGS), rtol=1e-9, atol=1e-12)
    assert [ast.literal_eval(left(folder, "sizes", rank)[0]) for rank in range(2)] == [[2] * 6, [3] * 6]


def test_dropout_belongs_to_the_samples_and_not_to_the_process(folder):
    first, second = both(folder, "dropout")
    assert tiny.same(first, second)
    expected = alone(Training(steps=2, batch_size=6, micro_batch=3), dropout=0.5)
    torch.testing.assert_close(first, expected, rtol=1e-9, atol=1e-12)


def test_the_first_reports_for_all(folder):
    assert left(folder, "steps", 0) == ["1", "2", "3", "4", "5", "6"]
    assert left(folder, "steps", 1) == []


def test_ctrl_c_in_one_stops_all_at_the_same_step(folder):
    assert left(folder, "interrupted", 0) == ["1"]
    assert left(folder, "interrupted", 1) == ["0"]
    assert left(folder, "taken up", 0) == ["5", "6"]
    for resumed, whole in zip(both(folder, "resumed"), both(folder, "whole"), strict=True):
        assert tiny.same(resumed, whole)


def test_what_the_processes_cannot_do_together_is_refused_by_all(folder):
    for rank in range(2):
        assert "not the same file for all processes" in left(folder, "refused", rank)[0]
        assert "batch_size: 1 is less than the 2 processes" in left(folder, "too few", rank)[0]
        assert left(folder, "seen", rank) == [str((rank, 2, [10, 11]))]


@pytest.mark.parametrize(("size", "count"), [(1, 1), (5, 2), (7, 3), (8, 4), (4, 4)])
def test_shares_cover_the_batch_in_order(size, count):
    shares = [Processes(rank, count).share(size) for rank in range(count)]
    assert [place for share in shares for place in share] == list(range(size))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_alone_nothing_is_added_and_only_oneself_heard():
    tensor = torch.tensor([1.0, 2.0])
    Processes().add_up([tensor])
    assert tensor.tolist() == [1.0, 2.0]
    assert Processes().gather(7) == [7]
    with pytest.raises(UserError, match="batch_size: 2 is less than the 3 processes"):
        Processes(0, 3).share(2)
