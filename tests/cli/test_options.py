"""The options that commands share: where evaluations run, and ``--no-plugins`` for a stranger's study, which is refused
by its key while nothing that lies beside it is imported."""

import inspect
import os
import sys
from importlib.util import find_spec

import pytest
import torch

from diffcredit.cli import app
from diffcredit.errors import UserError
from diffcredit.execution import Executor, InProcess, LocalWorkers, RayWorkers
from diffcredit.study.prepared import build_family, build_properties
from diffcredit.study.study import Study
from diffcredit.study.workers import Workers, make_executor
from diffcredit.util.consent import NO_PLUGINS
from tiny_study import write_study


@pytest.fixture
def made(tmp_path, monkeypatch):
    """What is made for a study's device on a machine with so many GPUs."""

    def make(device: str, gpus: int, *options, visible: str | None = None, **more) -> Executor:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        study = Study.load(write_study(tmp_path, {"device": device, "threads": 2}))
        return make_executor(study, Workers(*options, **more))

    return make


def test_where_evaluations_run(made, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6), raising=False)
    for device in ("auto", "cuda"):  # one worker for each GPU, or as many as asked for
        assert made(device, 1) == InProcess(2)
        assert made(device, 2, visible="GPU-a,GPU-b") == LocalWorkers(2, 2, devices=("GPU-a", "GPU-b"))
        assert made(device, 2, 5) == LocalWorkers(5, 2, devices=("0", "1"))
    # a device that the study names is that of all workers
    assert made("cuda:1", 2) == InProcess(2)
    assert made("cuda:1", 2, 2) == LocalWorkers(2, 2)
    # on a CPU, as many as its cores allow
    assert made("cpu", 2) == made("auto", 0) == LocalWorkers(3, 2)
    assert made("cpu", 0, 1) == InProcess(2)
    # with a time limit, a single one is a process that can be killed
    assert made("cpu", 0, 1, timeout=0.5) == LocalWorkers(1, 2, timeout=30.0)
    assert made("cuda", 1, timeout=0.5) == LocalWorkers(1, 2, timeout=30.0, devices=("0",))
    # on a cluster
    assert made("cpu", 0, 3, "ray", "10.0.0.1:6379") == RayWorkers(3, "10.0.0.1:6379", threads=2, gpus=0.0)
    assert made("auto", 0, None, "ray") == RayWorkers(threads=2, gpus=None)
    assert made("cuda", 0, None, "ray") == RayWorkers(threads=2, gpus=1.0)
    assert made("auto", 0, None, "ray", None, 0.5) == RayWorkers(threads=2, gpus=0.5)
    assert made("auto", 0, None, "ray", None, None, 1.5) == RayWorkers(threads=2, timeout=90.0)


@pytest.mark.parametrize(
    ("device", "options", "message"),
    [
        ("cpu", (None, "local", None, None, 0.0), r"^timeout: 0\.0; must be more than 0 seconds$"),
        ("cpu", (None, "local", "10.0.0.1:6379"), "^--address 10.0.0.1:6379: only with --on ray$"),
        ("cpu", (None, "local", None, 0.5), "^--gpus-per-worker 0.5: only with --on ray$"),
        ("cpu", (None, "ray", None, 1.0), "^--gpus-per-worker 1: .*device: cpu; leave it out$"),
        ("cuda:1", (None, "ray"), "device: 'cuda:1' is one of this machine; with --on ray: auto, cpu, cuda$"),
    ],
)
def test_where_they_cannot_run(made, device, options, message):
    with pytest.raises(UserError, match=message):
        made(device, 0, *options)


@pytest.mark.parametrize("command", ["run", "pilot", "measure", "validate"])
def test_all_commands_that_evaluate_have_the_options(diffcredit, command):
    told = diffcredit(command, "--help")[1]
    for option in ("--workers", "--on", "--address", "--gpus-per-worker", "--timeout MINUTES", "--no-plugins"):
        assert option in told
    assert diffcredit(command, "study.yaml", "--workers", "0")[0] == 2


KEYS = {
    "contributions.source": {"contributions": {"source": "hostile_plugin:Thing", "path": "."}},
    "model.family": {"model.family": "hostile_plugin:Thing"},
    "retraining.method": {"retraining": {"method": "hostile_plugin:Thing"}},
    "properties.0.name": {"properties": ["hostile_plugin:Thing"]},
    "properties.0.features": {"properties": [{"name": "cluster_entropy", "features": "hostile_plugin:Thing"}]},
    "properties.0.features.name": {
        "properties": [{"name": "cluster_entropy", "features": {"name": "hostile_plugin:Thing"}}]
    },
    "surrogates.0.name": {"surrogates": ["hostile_plugin:Thing"]},
    "validation.retrainings.0.method": {"validation": {"retrainings": [{"method": "hostile_plugin:Thing"}]}},
}
COMMANDS = [
    command.callback.__name__
    for command in app.registered_commands
    if {"study", "a"} & set(inspect.signature(command.callback).parameters)
]


@pytest.fixture
def hostile(tmp_path):
    """A folder with a module that leaves a trace when it is imported."""
    code = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
    (tmp_path / "hostile_plugin.py").write_text(code)
    yield tmp_path
    sys.modules.pop("hostile_plugin", None)


def ran(folder):
    return [file.name for file in folder.rglob("*.ran")]


def test_the_key_is_named(hostile, diffcredit, monkeypatch):
    monkeypatch.setenv(NO_PLUGINS, "1")
    for key, changes in KEYS.items():
        study = write_study(hostile, changes)
        code, _, said = diffcredit("run", study)
        assert (code, ran(hostile)) == (2, [])
        assert said == (
            f"error: {study}: {key}: 'hostile_plugin:Thing' is a plug-in, and they are off "
            "(--no-plugins or DIFFCREDIT_NO_PLUGINS)\n"
        )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_reads_a_study_has_the_option(hostile, name, diffcredit, monkeypatch):
    monkeypatch.setenv(NO_PLUGINS, "0")  # and is put back after what the option does
    study = write_study(hostile, KEYS["properties.0.name"])
    more = {"explain": ["0"], "compare": [study], "export": [hostile / "study.zip"], "roles": ["--writer", "w"]}.get(
        name, []
    )
    said = diffcredit.refused(name, study, *more, "--no-plugins")
    assert "properties.0.name: 'hostile_plugin:Thing' is a plug-in" in said
    option = {"baselines": "--method", "measure": "--property", "explain": "--method"}.get(name)
    if option is not None:  # nor from the command line
        said = diffcredit.refused(name, write_study(hostile), *more, option, "hostile_plugin:Thing", "--no-plugins")
        assert "'hostile_plugin:Thing' is a plug-in" in said
    assert ran(hostile) == []


def test_our_own_components_need_no_plug_ins(hostile, monkeypatch):
    """And no module beside the study can stand in for a package that is not installed."""
    monkeypatch.setenv(NO_PLUGINS, "1")
    study = Study.load(write_study(hostile))
    build_family(study.config, study.file)
    build_properties(study.config, study.file)
    study.recipe.build()
    assert find_spec("hostile_plugin") is None
    assert ran(hostile) == []


def test_without_the_switch_a_plug_in_runs(hostile, diffcredit, monkeypatch):
    """So that the tests above could have failed."""
    monkeypatch.setenv(NO_PLUGINS, "0")
    said = diffcredit.refused("run", write_study(hostile, KEYS["contributions.source"]))
    assert "'hostile_plugin:Thing' cannot be loaded (AttributeError" in said
    assert ran(hostile) == ["hostile_plugin.ran"]
