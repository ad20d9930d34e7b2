"""Where evaluations run on this machine, as options, study and hardware say."""

import os

import pytest
import torch
from typer.testing import CliRunner

from diffcredit.cli import app
from diffcredit.errors import UserError
from diffcredit.execution import Executor, InProcess, LocalWorkers
from diffcredit.study.study import Study
from diffcredit.study.workers import Workers, make_executor
from tiny_study import write_study


@pytest.fixture
def made(tmp_path, monkeypatch):
    """What is made for a study's device on a machine with so many GPUs."""

    def make(device: str, gpus: int, visible: str | None = None, **options) -> Executor:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        study = Study.load(write_study(tmp_path, {"device": device, "threads": 1}))
        return make_executor(study, Workers(**options))

    return make


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_one_worker_for_each_gpu_or_as_many_as_asked_for(made, device):
    assert made(device, 1) == InProcess()
    assert made(device, 3) == LocalWorkers(3, devices=("0", "1", "2"))
    assert made(device, 2, visible="GPU-a,GPU-b") == LocalWorkers(2, devices=("GPU-a", "GPU-b"))
    assert made(device, 2, workers=5) == LocalWorkers(5, devices=("0", "1"))
    assert made(device, 2, workers=1) == InProcess()


def test_a_device_that_the_study_names_is_that_of_all_workers(made):
    assert made("cuda:1", 2) == InProcess()
    assert made("cuda:1", 2, workers=2) == LocalWorkers(2)


def test_workers_of_the_cpu_are_as_many_as_its_cores(made, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6), raising=False)
    assert made("cpu", 2) == LocalWorkers(6)
    assert made("auto", 0) == LocalWorkers(6)


def test_a_single_worker_with_a_time_limit_is_a_process_that_can_be_killed(made):
    assert made("cpu", 0, workers=1) == InProcess()
    assert made("cpu", 0, workers=1, timeout=0.5) == LocalWorkers(1, timeout=30.0)
    assert made("cuda", 1, timeout=0.5) == LocalWorkers(1, timeout=30.0, devices=("0",))
    with pytest.raises(UserError, match=r"^timeout: 0\.0; must be more than 0 seconds$"):
        made("cpu", 0, timeout=0.0)


@pytest.mark.parametrize("command", ["run", "pilot", "measure", "validate"])
def test_all_commands_that_evaluate_have_the_options(command):
    told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    for option in ("--workers", "--on", "--address", "--gpus-per-worker", "--timeout MINUTES", "--no-plugins"):
        assert option in told
    refused = CliRunner().invoke(app, [command, "study.yaml", "--workers", "0"])
    assert refused.exit_code == 2
